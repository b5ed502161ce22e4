"""``python -m benchmarks.mistakes``: seeded mistakes, and who notices them when.

A script makes one mistake at a time in functions of ``tests/corpus`` and ``s2s.functions``, once in
the closure form and once in a ``torch.autograd.Function`` written out for the same function, and
runs both on the example inputs. A mistake is noticed when the function is decorated (an error or a
warning; for the class: when it is defined), at the call, or in backward. The rest gives another
output or gradient without a word. A mistake that changes no output, no gradient and no argument on
the example inputs is dropped: that is told by the closure itself, kept on ``ctx`` and run by
Python and autograd alone. Where the values are right all the same in one form, such as where
PyTorch ignores a ``None`` too many, it is harmless there.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib.util
import inspect
import json
import keyword
import linecache
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import s2s
from s2s import decorator, pipeline
from s2s.emit.eager import emit_eager
from s2s.errors import GradientWarning
from s2s.ir import Pair
from s2s.source import from_file

__all__ = [
    "KINDS",
    "Mutant",
    "Outcome",
    "Subject",
    "main",
    "mutants",
    "subjects",
    "summary",
    "text_of",
    "tried",
]

ROOT = Path(__file__).parent.parent
S2S_STAGES = ("error", "warning", "call", "backward", "harmless", "never")
CLASS_STAGES = ("definition", "call", "backward", "harmless", "never")


Values = list[Any]

# --- functions to make mistakes in ------------------------------------------------------------


@dataclass(frozen=True)
class Code:
    """A forward and its backward as trees, in the closure form or as a class.

    ``head`` is the statement of backward before which nothing of the user's stands.
    """

    form: str  # "closure" or "class"
    tree: ast.Module
    forward: ast.FunctionDef
    backward: ast.FunctionDef
    params: tuple[str, ...]
    grads: tuple[str, ...]

    def copied(self) -> Code:
        """The same with trees of its own, to be changed."""
        both = copy.deepcopy((self.tree, self.forward, self.backward))
        return dataclasses.replace(self, tree=both[0], forward=both[1], backward=both[2])


@dataclass(frozen=True)
class Subject:
    """One function with its example inputs, in both forms."""

    name: str
    closure: Code
    written_out: Code
    class_name: str
    pair: Pair
    differentiable: frozenset[str]  # parameters that are floating point tensors in the examples
    examples: list[tuple[Any, ...]]
    right: Values  # outputs and gradients on the examples


def subjects(names: Sequence[str] = ()) -> tuple[Subject, ...]:
    """The functions, or those of some names, that have one ``def backward`` and parameters of a
    fixed number."""
    files = sorted((ROOT / "tests" / "corpus").glob("*.py"))
    files += sorted((ROOT / "s2s" / "functions").glob("[a-z]*.py"))
    found = []
    for path in files:
        text = path.read_text().replace("from ..decorator", "from s2s.decorator")
        for source in from_file(path, path.stem, text):
            if source.enclosing or (names and source.name not in names):
                continue
            rule = pipeline.read(source)
            params = [p.name for p in rule.params]
            tree = rule.backwards[0].tree
            simple = len(rule.backwards) == 1 and isinstance(tree, ast.FunctionDef)
            if not simple or any("List[" in p.type and "Tensor" in p.type for p in rule.params):
                continue
            subject = _subject(text, rule.name, pipeline.lift(rule), params)
            if subject is not None:
                found.append(subject)
    return tuple(found)


def _subject(text: str, name: str, pair: Pair, names: list[str]) -> Subject | None:
    tree = ast.parse(text)
    forward = _function(tree, name)
    used = {n.id for n in ast.walk(forward) if isinstance(n, ast.Name)} | {name}
    tree.body = [s for s in tree.body if _is_needed(s, _needed(tree, used))]
    nested = [n for n in forward.body if isinstance(n, ast.FunctionDef) and _is_backward(n)]
    if not nested or any(p.kind == "variadic" for p in pair.params):
        return None
    backward = nested[0]
    grads = tuple(a.arg for a in backward.args.args)
    closure = Code("closure", tree, forward, backward, tuple(names), grads)
    emitted = emit_eager(pair)  # no passes: as it would be written at first
    made = ast.parse(emitted.text)
    (defined,) = [n for n in made.body if isinstance(n, ast.ClassDef)]
    methods = {n.name: n for n in defined.body if isinstance(n, ast.FunctionDef)}
    params = tuple(a.arg for a in methods["forward"].args.args[1:])
    if sorted(params) != sorted(names) or methods["forward"].args.vararg:
        return None
    given = tuple(a.arg for a in methods["backward"].args.args[1:])
    if given != grads:
        return None
    written = Code("class", made, methods["forward"], methods["backward"], params, given)
    scope = _run(text)
    examples = [_complete(scope[name], one) for one in _examples(scope, name)]
    smooth = frozenset(n for n, value in zip(names, examples[0]) if _is_smooth(value))
    try:
        right = _measured(_naive(_run(text_of(closure), name)[name]), examples)
        sound = _same(right, _measured(scope[name], examples))
    except _Noticed:
        return None
    subject = Subject(name, closure, written, defined.name, pair, smooth, examples, right)
    # where the forms disagree before there is any mistake, nothing can be told
    return subject if sound and _stage_of_class(text_of(written), subject) == "harmless" else None


def _is_needed(node: ast.stmt, used: set[str]) -> bool:
    """Other functions of the file, and the list of them, are left out."""
    if isinstance(node, ast.FunctionDef):
        return node.name in used
    return not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FUNCTION")


def _needed(tree: ast.Module, used: set[str]) -> set[str]:
    """The functions of a module that the names in ``used`` stand for, and those they use."""
    found = set(used)
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in found:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {"inputs"}


def _is_backward(node: ast.FunctionDef) -> bool:
    return node.name == "backward"


def _function(tree: ast.AST, name: str) -> ast.FunctionDef:
    return next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)


def _examples(scope: dict[str, Any], name: str) -> list[tuple[Any, ...]]:
    """What a corpus file gives as inputs; for the functions of the package, made up here."""
    if "inputs" in scope:
        return scope["inputs"]()  # type: ignore[no-any-return]
    generator = torch.Generator().manual_seed(7)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    if name == "linear":
        return [(randn(2, 4, 3), randn(2, 3), randn(2)), (randn(4, 3), randn(2, 3))]
    if name == "layer_norm":
        return [(randn(4, 3), randn(3), randn(3))]
    more: dict[str, tuple[Any, ...]] = {"clamp": (-0.5, 0.5), "scale_gradient": (0.5,)}
    return [(randn(3, 4), *more.get(name, ()))]


def _complete(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of an example by position, with the defaults filled in."""
    args = list(given)
    keywords = args.pop() if args and isinstance(args[-1], dict) else {}
    bound = inspect.signature(function).bind(*args, **keywords)
    bound.apply_defaults()
    return tuple(bound.arguments.values())


# --- mistakes ---------------------------------------------------------------------------------

Edit = Callable[[Code], bool]  # makes the mistake in a copy; False where it does not apply


@dataclass(frozen=True)
class Mutant:
    """One mistake in one function: the same in both forms, or None where a form cannot have it."""

    kind: str
    subject: Subject
    where: str
    closure: str
    written_out: str | None


def _returns(function: ast.FunctionDef) -> list[ast.Return]:
    nested = {
        inner
        for node in ast.walk(function)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not function
        for inner in ast.walk(node)
    }
    found = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n not in nested]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _slots(code: Code, index: int) -> dict[str, ast.expr] | None:
    """The gradients at a return by the input that they are for."""
    value = _returns(code.backward)[index].value
    elements = value.elts if isinstance(value, ast.Tuple) else [value] if value else []
    if len(elements) != len(code.params) or any(isinstance(e, ast.Starred) for e in elements):
        return None
    return dict(zip(code.params, elements))


def _put(code: Code, index: int, slots: Sequence[ast.expr]) -> None:
    statement = _returns(code.backward)[index]
    statement.value = slots[0] if len(slots) == 1 else ast.Tuple(list(slots), ast.Load())


def _none() -> ast.expr:
    return ast.Constant(None)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _every_return(subject: Subject) -> Iterator[tuple[int, dict[str, ast.expr]]]:
    for index in range(len(_returns(subject.closure.backward))):
        slots = _slots(subject.closure, index)
        if slots is not None and _slots(subject.written_out, index) is not None:
            yield index, slots


Site = tuple[str, Edit]


def drop_gradient(subject: Subject) -> Iterator[Site]:
    """`return gx, gw` becomes `return gx`."""
    for index, slots in _every_return(subject):
        for name in slots if len(slots) > 1 else ():

            def edit(code: Code, index: int = index, name: str = name) -> bool:
                here = _slots(code, index)
                assert here is not None
                _put(code, index, [e for n, e in here.items() if n != name])
                return True

            yield f"return {index}, {name}", edit


def add_gradient(subject: Subject) -> Iterator[Site]:
    """`return gx` becomes `return gx, None`, or the last gradient twice."""
    for index, _ in _every_return(subject):
        for what in ("None", "twice"):

            def edit(code: Code, index: int = index, what: str = what) -> bool:
                here = [*(_slots(code, index) or {}).values()]
                _put(code, index, [*here, _none() if what == "None" else copy.deepcopy(here[0])])
                return True

            yield f"return {index}, {what}", edit


def swap_gradients(subject: Subject) -> Iterator[Site]:
    """`return gx, gw` becomes `return gw, gx`."""
    for index, slots in _every_return(subject):
        names = [n for n, e in slots.items() if not _is_none(e)]
        for one, other in zip(names, names[1:]):

            def edit(code: Code, index: int = index, one: str = one, other: str = other) -> bool:
                here = _slots(code, index)
                assert here is not None
                here[one], here[other] = here[other], here[one]
                _put(code, index, [*here.values()])
                return True

            yield f"return {index}, {one} and {other}", edit


def none_for_a_gradient(subject: Subject) -> Iterator[Site]:
    """`return gx, gw` becomes `return gx, None`, at every return."""
    returns = [*_every_return(subject)]
    for name in subject.closure.params:
        if all(_is_none(slots[name]) for _, slots in returns) or len(subject.closure.params) < 2:
            continue

        def edit(code: Code, name: str = name) -> bool:
            for index in range(len(_returns(code.backward))):
                here = _slots(code, index)
                if here is None:
                    return False
                here[name] = _none()
                _put(code, index, [*here.values()])
            return True

        yield name, edit


def gradient_for_a_number(subject: Subject) -> Iterator[Site]:
    """`return gx, None` becomes `return gx, grad_out`, for an input that is no tensor."""
    for index, slots in _every_return(subject):
        for name, element in slots.items():
            if _is_none(element) and name not in subject.differentiable:

                def edit(code: Code, index: int = index, name: str = name) -> bool:
                    here = _slots(code, index)
                    assert here is not None
                    here[name] = ast.parse(f"{code.grads[0]} * 2.0", mode="eval").body
                    _put(code, index, [*here.values()])
                    return True

                yield f"return {index}, {name}", edit


def _replace(code: Code, old: ast.AST, new: ast.AST) -> None:
    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return new if node is old else self.generic_visit(node)

    Replace().visit(code.backward)


def _is_grad(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _products(code: Code) -> list[ast.BinOp]:
    return [
        n
        for n in ast.walk(code.backward)
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)
    ]


def _reads(node: ast.AST, name: str) -> bool:
    return any(_is_grad(n, name) for n in ast.walk(node))


def forget_output_gradient(subject: Subject) -> Iterator[Site]:
    """`grad_out * s` becomes `s`."""
    for grad in subject.closure.grads:
        count = sum(
            _is_grad(p.left, grad) or _is_grad(p.right, grad) for p in _products(subject.closure)
        )
        for number in range(count):

            def edit(code: Code, grad: str = grad, number: int = number) -> bool:
                here = [
                    p for p in _products(code) if _is_grad(p.left, grad) or _is_grad(p.right, grad)
                ]
                if len(here) <= number:
                    return False
                product = here[number]
                _replace(
                    code, product, product.right if _is_grad(product.left, grad) else product.left
                )
                return True

            yield f"{grad}, {number}", edit


def ignore_an_output(subject: Subject) -> Iterator[Site]:
    """`ga * x + gb * y` becomes `ga * x`: the gradient of one of two outputs has no part in it."""
    if len(subject.closure.grads) < 2:
        return

    def sums(code: Code, grad: str) -> list[tuple[ast.BinOp, ast.expr]]:
        found = []
        for node in ast.walk(code.backward):
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
                if _reads(node.right, grad) and not _reads(node.left, grad):
                    found.append((node, node.left))
                elif _reads(node.left, grad) and not _reads(node.right, grad):
                    found.append((node, node.right))
        return found

    for grad in subject.closure.grads:
        if sums(subject.closure, grad):

            def edit(code: Code, grad: str = grad) -> bool:
                here = sums(code, grad)
                if not here:
                    return False
                _replace(code, *here[0])
                return True

            yield grad, edit


def swap_output_gradients(subject: Subject) -> Iterator[Site]:
    """`def backward(ga, gb)` becomes `def backward(gb, ga)`."""
    for one in range(len(subject.closure.grads) - 1):

        def edit(code: Code, one: int = one) -> bool:
            args, shift = code.backward.args.args, int(code.form == "class")
            i = one + shift
            args[i], args[i + 1] = args[i + 1], args[i]
            return True

        yield str(one), edit


def parameters_of_backward(subject: Subject) -> Iterator[Site]:
    """`def backward(g)` becomes `def backward(g, h)` or `def backward()`."""

    def more(code: Code) -> bool:
        code.backward.args.args.append(ast.arg("another"))
        return True

    def fewer(code: Code) -> bool:
        code.backward.args.args.pop()
        return True

    yield "one more", more
    if len(subject.closure.grads) > 1:
        yield "one fewer", fewer


def _misspelt(name: str) -> str:
    if len(name) > 3 and name[-1] != name[-2]:
        return name[:-2] + name[-1] + name[-2]
    return name + ("z" if keyword.iskeyword(name + "s") else "s")


def _loads(function: ast.AST, skip: ast.AST | None = None) -> list[str]:
    left_out = set(ast.walk(skip)) if skip is not None else set()
    names = dict.fromkeys(
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n not in left_out
    )
    return [n for n in names if n not in ("Tensor", "List", "Optional", "s2s", "autograd_script")]


def _misspell(function: ast.AST, name: str, skip: ast.AST | None = None) -> bool:
    """The last place where a name is read gets another spelling."""
    left_out = set(ast.walk(skip)) if skip is not None else set()
    places: list[tuple[int, int, ast.Name | ast.Attribute]] = []
    for n in ast.walk(function):
        if n in left_out:
            continue
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load):
            places.append((n.lineno, n.col_offset, n))
        elif isinstance(n, ast.Attribute) and n.attr == name and _is_grad(n.value, "ctx"):
            if isinstance(n.ctx, ast.Load):
                places.append((n.lineno, n.col_offset, n))
    if not places:
        return False
    place = max(places, key=lambda p: p[:2])[2]
    if isinstance(place, ast.Name):
        place.id = _misspelt(name)
    else:
        place.attr = _misspelt(name)
    return True


def misspell_in_backward(subject: Subject) -> Iterator[Site]:
    """`grad_out * slope` becomes `grad_out * sloep`."""
    for name in _loads(subject.closure.backward):
        yield name, lambda code, name=name: _misspell(code.backward, name)  # type: ignore[misc]


def misspell_in_forward(subject: Subject) -> Iterator[Site]:
    """The same in forward."""
    code = subject.closure
    inside = [s for s in code.forward.body if s is not code.backward]
    for name in _loads(ast.Module(list(inside), []), code.backward):
        if name == "backward":
            continue

        def edit(code: Code, name: str = name) -> bool:
            body = [s for s in code.forward.body if s is not code.backward]
            kept = [s for s in body if not (code.form == "class" and "ctx." in ast.unparse(s))]
            return _misspell(ast.Module(kept, []), name)

        yield name, edit


def _as_statement(function: ast.FunctionDef, index: int) -> None:
    statement = _returns(function)[index]

    class Replace(ast.NodeTransformer):
        def visit_Return(self, node: ast.Return) -> ast.AST:
            return ast.Expr(node.value) if node is statement and node.value else node

    Replace().visit(function)


def no_return_in_backward(subject: Subject) -> Iterator[Site]:
    """`return grad_out * s` becomes `grad_out * s`."""
    for index in range(len(_returns(subject.closure.backward))):

        def edit(code: Code, index: int = index) -> bool:
            _as_statement(code.backward, index)
            return True

        yield f"return {index}", edit


def no_return_in_forward(subject: Subject) -> Iterator[Site]:
    """`return y, backward` becomes `y, backward`."""

    def edit(code: Code) -> bool:
        _as_statement(code.forward, len(_returns(code.forward)) - 1)
        return True

    yield "the last", edit


def no_backward(subject: Subject) -> Iterator[Site]:
    """`return y, backward` becomes `return y`; of the class, backward is missing."""

    def edit(code: Code) -> bool:
        if code.form == "class":
            for node in code.tree.body:
                if isinstance(node, ast.ClassDef):
                    node.body.remove(code.backward)
            return True
        statement = _returns(code.forward)[-1]
        assert isinstance(statement.value, ast.Tuple)
        outputs = statement.value.elts[:-1]
        statement.value = outputs[0] if len(outputs) == 1 else ast.Tuple(outputs, ast.Load())
        return True

    yield "the last", edit


def _outputs(code: Code) -> tuple[list[ast.expr], Callable[[ast.expr], None]] | None:
    """The outputs of the last return, and how to put another value in their place."""
    statement = _returns(code.forward)[-1]
    value = statement.value
    if code.form == "class":

        def put(new: ast.expr) -> None:
            statement.value = new

        if isinstance(value, ast.Tuple):
            return value.elts, put
        return ([value], put) if value is not None else None
    assert isinstance(value, ast.Tuple)
    outputs, last = value.elts[:-1], value.elts[-1]
    if len(outputs) == 1 and isinstance(outputs[0], ast.Tuple):
        outputs = outputs[0].elts
    if len(outputs) == 1 and isinstance(outputs[0], (ast.Dict, ast.List)):
        return None

    def put_closure(new: ast.expr) -> None:
        statement.value = ast.Tuple([new, last], ast.Load())

    return outputs, put_closure


_CONTAINERS = {
    "list in a list": "[[{}]]",
    "list by a comprehension": "[t for t in ({},)]",
    "dict of lists": '{{"out": [{}]}}',
    "dict() of outputs": "dict(out={})",
    "set": "{{{}}}",
}


def wrong_container(subject: Subject) -> Iterator[Site]:
    """`return y, backward` becomes `return [[y]], backward`: a nested list, a dict of lists."""
    if _outputs(subject.closure) is None:
        return
    for what, template in _CONTAINERS.items():

        def edit(code: Code, template: str = template) -> bool:
            found = _outputs(code)
            if found is None or (len(found[0]) > 1 and "dict(" in template):
                return False
            inside = ", ".join(ast.unparse(o) for o in found[0])
            found[1](ast.parse(template.format(inside), mode="eval").body)
            return True

        yield what, edit


def gradient_in_place(subject: Subject) -> Iterator[Site]:
    """`g * s` becomes `g.mul_(s)`."""
    for grad in subject.closure.grads:
        count = sum(_is_grad(p.left, grad) for p in _products(subject.closure))
        for number in range(count):

            def edit(code: Code, grad: str = grad, number: int = number) -> bool:
                here = [p for p in _products(code) if _is_grad(p.left, grad)]
                if len(here) <= number:
                    return False
                product = here[number]
                func = ast.Attribute(product.left, "mul_", ast.Load())
                _replace(code, product, ast.Call(func, [product.right], []))
                return True

            yield f"{grad}, {number}", edit


def _tensors_saved(subject: Subject) -> list[str]:
    found = [s.name for s in subject.pair.saved if s.keep == "tensor" and s.type == "Tensor"]
    return [n for n in found if n.isidentifier()]


def _insert(function: ast.FunctionDef, before: ast.stmt, text: str) -> None:
    for node in ast.walk(function):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and before in block:
                block[block.index(before) : block.index(before)] = ast.parse(text).body
                return


def capture_in_place_in_backward(subject: Subject) -> Iterator[Site]:
    """`s.mul_(2)` in backward, above its last return."""
    for name in _tensors_saved(subject):

        def edit(code: Code, name: str = name) -> bool:
            _insert(code.backward, _returns(code.backward)[-1], f"{name}.mul_(2.0)")
            return True

        yield name, edit


def capture_in_place_afterwards(subject: Subject) -> Iterator[Site]:
    """`s.mul_(2)` in forward, below backward; in the class, below save_for_backward."""
    for name in _tensors_saved(subject):

        def edit(code: Code, name: str = name) -> bool:
            _insert(code.forward, _returns(code.forward)[-1], f"{name}.mul_(2.0)")
            return True

        yield name, edit


def input_in_place(subject: Subject) -> Iterator[Site]:
    """`x.clamp_(-1, 1)` on an input, at the start of forward."""
    for name in sorted(subject.differentiable):

        def edit(code: Code, name: str = name) -> bool:
            body = code.forward.body
            has_docstring = ast.get_docstring(code.forward) is not None
            body[int(has_docstring) : int(has_docstring)] = ast.parse(f"{name}.mul_(0.5)").body
            return True

        yield name, edit


def rebind_in_backward(subject: Subject) -> Iterator[Site]:
    """`nonlocal n; n = n * 2` in backward; in the class, `ctx.n = ctx.n * 2`."""
    outside = {c.name for c in subject.pair.constants}
    for saved in subject.pair.saved:
        name = saved.name
        if saved.keep != "plain" or saved.type not in ("int", "float", "number"):
            continue
        if not name.isidentifier() or name in outside:
            continue

        def edit(code: Code, name: str = name) -> bool:
            if code.form == "class":
                if f"ctx.{name}" not in ast.unparse(code.backward):
                    return False
                code.backward.body[1:1] = ast.parse(f"ctx.{name} = ctx.{name} * 2").body
            else:
                code.backward.body[0:0] = ast.parse(f"nonlocal {name}; {name} = {name} * 2").body
            return True

        yield name, edit


def another_formula(subject: Subject) -> Iterator[Site]:
    """`grad_out * s * (1 - s)` becomes `grad_out * s`: wrong, and a formula like any other."""

    def factors(code: Code) -> list[ast.BinOp]:
        return [
            p
            for p in _products(code)
            if not any(_reads(p.right, grad) for grad in code.grads)
            and not isinstance(p.right, ast.Constant)
        ]

    for number in range(min(3, len(factors(subject.closure)))):

        def edit(code: Code, number: int = number) -> bool:
            here = factors(code)
            if len(here) <= number:
                return False
            _replace(code, here[number], here[number].left)
            return True

        yield str(number), edit


CONTAINER = "outputs in another container"
KINDS: dict[str, Callable[[Subject], Iterator[Site]]] = {
    "a gradient too few": drop_gradient,
    "a gradient too many": add_gradient,
    "backward without a return": no_return_in_backward,
    "forward without a return": no_return_in_forward,
    "no backward returned": no_backward,
    "wrong number of parameters of backward": parameters_of_backward,
    "a gradient for a number": gradient_for_a_number,
    "None for a differentiated input": none_for_a_gradient,
    "an output gradient forgotten": forget_output_gradient,
    "an output ignored": ignore_an_output,
    "a name misspelt in backward": misspell_in_backward,
    "a name misspelt in forward": misspell_in_forward,
    CONTAINER: wrong_container,
    "output gradient changed in place": gradient_in_place,
    "capture changed in place in backward": capture_in_place_in_backward,
    "capture changed in place afterwards": capture_in_place_afterwards,
    "input changed in place": input_in_place,
    "a captured number rebound in backward": rebind_in_backward,
    "two gradients swapped": swap_gradients,
    "two output gradients swapped": swap_output_gradients,
    "a factor left out of a formula": another_formula,
}


def mutants(found: Sequence[Subject], seed: int, count: int) -> tuple[Mutant, ...]:
    """About ``count`` mistakes, as evenly over the kinds as there are places for them."""
    draw = random.Random(seed)
    every: dict[str, list[Mutant]] = {}
    for kind, sites in KINDS.items():
        made = [
            m for subject in found for site in sites(subject) if (m := _mutant(kind, subject, site))
        ]
        draw.shuffle(made)
        every[kind] = made
    chosen: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    while sum(map(len, chosen.values())) < count and any(every.values()):
        for kind, rest in every.items():
            if rest and sum(map(len, chosen.values())) < count:
                chosen[kind].append(rest.pop())
    return tuple(m for kind in KINDS for m in chosen[kind])


def _mutant(kind: str, subject: Subject, site: Site) -> Mutant | None:
    where, edit = site
    closure, written = subject.closure.copied(), subject.written_out.copied()
    if not edit(closure):
        return None
    other = text_of(written) if edit(written) else None
    return Mutant(kind, subject, f"{subject.name}: {where}", text_of(closure), other)


def text_of(code: Code) -> str:
    """A form as the text of a module."""
    return ast.unparse(ast.fix_missing_locations(code.tree)) + "\n"


# --- running them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Where a mistake is noticed in both forms. ``closure`` is one of ``S2S_STAGES``,
    ``written_out`` one of ``CLASS_STAGES``, or None where the class cannot have this mistake."""

    kind: str
    where: str
    closure: str
    written_out: str | None
    message: str
    equivalent: bool = False


class _Noticed(Exception):
    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = error


def tried(mutant: Mutant) -> Outcome:
    """Run one mistake in both forms."""
    subject = mutant.subject
    try:
        function = _naive(_run(mutant.closure, subject.name)[subject.name])
        equivalent = _same(subject.right, _measured(function, subject.examples))
        equivalent = equivalent and mutant.kind != CONTAINER  # is one of another form
    except (_Noticed, SyntaxError):
        equivalent = False
    if equivalent:
        return Outcome(mutant.kind, mutant.where, "never", None, "", True)
    stage, message = _stage_of_closure(mutant)
    written = None
    if mutant.written_out is not None:
        written = _stage_of_class(mutant.written_out, subject)
    return Outcome(mutant.kind, mutant.where, stage, written, message)


def _stage_of_closure(mutant: Mutant) -> tuple[str, str]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", GradientWarning)
        try:
            function = _run(mutant.closure)[mutant.subject.name]
        except s2s.TransformError as error:
            return "error", f"[{error.code}]"
    about = [str(w.message) for w in given if issubclass(w.category, GradientWarning)]
    if about:
        return "warning", about[0].split()[0]
    try:
        values = _measured(function, mutant.subject.examples)
    except _Noticed as noticed:
        return noticed.stage, f"{type(noticed.error).__name__}: {str(noticed.error)[:80]}"
    return ("harmless" if _same(values, mutant.subject.right) else "never"), ""


def _stage_of_class(text: str, subject: Subject) -> str:
    scope = _run(text_of(subject.closure))
    try:
        exec(compile(text, f"<{subject.name} by hand>", "exec"), scope)
        made: Any = scope[subject.class_name]
    except Exception:
        return "definition"
    names, params = subject.closure.params, subject.written_out.params
    order = [names.index(name) for name in params]
    try:
        values = _measured(lambda *args: made.apply(*(args[i] for i in order)), subject.examples)
    except _Noticed as noticed:
        return noticed.stage
    return "harmless" if _same(values, subject.right) else "never"


def _run(text: str, plain: str = "") -> dict[str, Any]:
    """What a module defines; the function named ``plain`` is left as it is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mistaken.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("mistaken", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["mistaken"] = module
        real = s2s.autograd_script

        def decorate(fn: Any) -> Any:
            return fn if fn.__name__ == plain else real(fn)

        s2s.autograd_script = decorator.autograd_script = decorate  # type: ignore[assignment]
        try:
            spec.loader.exec_module(module)
        finally:
            s2s.autograd_script = decorator.autograd_script = real
            del sys.modules["mistaken"]
            linecache.cache.pop(str(path), None)
    return vars(module)


def _naive(function: Callable[..., Any]) -> Callable[..., Any]:
    """The closure kept on ctx: what the text means to Python, without any check."""

    def call(*args: Any) -> Any:
        form: list[Any] = []

        class Kept(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                *outputs, ctx.closure = _called(function, given)
                form[:] = [outputs[0] if len(outputs) == 1 else tuple(outputs)]
                ctx.mark_non_differentiable(*(t for t in _flat(form[0]) if not _is_smooth(t)))
                ctx.count = len(given)
                return tuple(_flat(form[0]))

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                made = ctx.closure(*grads)
                made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
                if len(made) != ctx.count:
                    raise RuntimeError("another number of gradients")
                return made

        return Kept.apply(*args)  # type: ignore[no-untyped-call]

    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


def _called(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """A call by position, with what is keyword-only by its name."""
    params = list(inspect.signature(function).parameters.values())
    named = {p.name: a for p, a in zip(params, args) if p.kind == p.KEYWORD_ONLY}
    return function(*args[: len(args) - len(named)], **named)


def _measured(function: Callable[..., Any], examples: list[tuple[Any, ...]]) -> Values:
    """Outputs, gradients, and what became of the arguments, over all examples.

    Raises _Noticed with the stage where something went wrong.
    """
    found: Values = []
    for example in examples:
        args = [_leaf(a) for a in example]
        torch.manual_seed(0)
        try:
            given = [a * 1 if _is_smooth(a) else a for a in args]  # no leaf may be changed
            result = _applied(function, given)
            outputs = _flat(result)
            if not outputs or not all(isinstance(t, Tensor) for t in outputs):
                raise TypeError("the output is no tensor")
        except Exception as error:
            raise _Noticed("call", error) from None
        generator = torch.Generator().manual_seed(1)
        smooth = [t for t in outputs if _is_smooth(t)]
        weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in smooth]
        before = [w.clone() for w in weights]
        leaves = [a for a in args if _is_smooth(a)]
        try:
            # as losses are: a sum over all outputs, those too that were detached on the way
            wanted = [t for t in smooth if t.requires_grad]
            if not wanted:
                raise RuntimeError("no output requires grad")
            chosen = [w for t, w in zip(smooth, weights) if t.requires_grad]
            grads = torch.autograd.grad(wanted, leaves, chosen, allow_unused=True)
        except Exception as error:
            raise _Noticed("backward", error) from None
        found += [t.detach() for t in outputs]
        found += [torch.zeros_like(a) if g is None else g for a, g in zip(leaves, grads)]
        found += [a.detach() for a in given if isinstance(a, Tensor)]
        found += [w - b for w, b in zip(weights, before)]
    return found


def _applied(function: Callable[..., Any], args: list[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(function, "__s2s__"):
            return _called(function, args)
        return function(*args)


def _leaf(value: Any) -> Any:
    return value.detach().clone().requires_grad_() if _is_smooth(value) else value


def _is_smooth(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _flat(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        outputs = [*outputs.values()]
    if isinstance(outputs, (list, tuple, set)):
        return [t for o in outputs for t in _flat(o)]
    return [outputs]


def _same(one: Values, other: Values) -> bool:
    if len(one) != len(other):
        return False
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True)
        for a, b in zip(one, other)
    )


# --- the report -------------------------------------------------------------------------------


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One row per kind of mistake, and one for all: how many were noticed at each stage."""
    rows = []
    for kind in [*dict.fromkeys(o.kind for o in outcomes), "all"]:
        here = [o for o in outcomes if kind in (o.kind, "all")]
        counted = [o for o in here if not o.equivalent]
        compared = [o for o in counted if o.written_out is not None]
        rows.append(
            {
                "kind": kind,
                "mistakes": len(counted),
                "equivalent": len(here) - len(counted),
                "s2s": {s: sum(o.closure == s for o in counted) for s in S2S_STAGES},
                "class": {s: sum(o.written_out == s for o in compared) for s in CLASS_STAGES},
                "compared": len(compared),
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The shares as percentages, s2s beside the class."""
    made = Table(title="mistakes noticed, in percent", title_justify="left")
    made.add_column("kind of mistake", no_wrap=True)
    made.add_column("number", justify="right")
    for stage in S2S_STAGES:
        made.add_column(f"s2s:\n{stage}", justify="right")
    for stage in CLASS_STAGES[1:]:
        made.add_column(f"class:\n{stage}", justify="right")
    for row in rows:
        mine = [_share(row["s2s"][s], row["mistakes"]) for s in S2S_STAGES]
        other = [_share(row["class"][s], row["compared"]) for s in CLASS_STAGES[1:]]
        if row["kind"] == "all":
            made.add_section()
        made.add_row(row["kind"], str(row["mistakes"]), *mine, *other)
    return made


def _share(part: int, whole: int) -> str:
    return "-" if not whole else "" if not part else f"{100 * part / whole:.0f}"


@click.command()
@click.option("--seed", default=0, show_default=True, help="Which mistakes are drawn.")
@click.option("--count", default=400, show_default=True, help="How many are made.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write every outcome here.")
@click.option("--silent", is_flag=True, help="List the mistakes that s2s does not notice.")
def main(seed: int, count: int, file: Path | None, silent: bool) -> None:
    """Make mistakes in custom gradients and count who notices them, and when."""
    torch.set_num_threads(1)
    outcomes = [tried(mutant) for mutant in mutants(subjects(), seed, count)]
    rows = summary(outcomes)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table(rows))
    everything = rows[-1]
    dropped = everything["equivalent"]
    console.print(f"{dropped} more changed nothing on the example inputs and are not counted")
    if silent:
        for outcome in outcomes:
            if outcome.closure == "never" and not outcome.equivalent:
                console.print(f"{outcome.kind}: {outcome.where}", highlight=False, soft_wrap=True)
    if file is not None:
        about = {"s2s": s2s.__version__, "torch": torch.__version__, "seed": seed}
        found = [dataclasses.asdict(o) for o in outcomes]
        file.write_text(json.dumps({**about, "table": rows, "mistakes": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
