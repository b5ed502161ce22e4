"""What a reviewer asks of one function: what is kept, what each gradient needs, what holds.

All of it is read off the ``Rule`` and the ``Pair``, as frozen data: nothing is run. Lines are the
user's.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from .. import pipeline
from ..captures import captures, helpers_of
from ..check import differentiable_slots
from ..effects import slice_for
from ..infer import written_type
from ..ir import LISTS, Backward, Capture, Diagnostic, Pair, Param, Rule, Save, Saved, Span, replace
from ..names import children, is_none, reads, returns_in, same_scope, walk, writes
from ..options import SAVES
from ..plan import Kept as Planned
from ..plan import plan
from ..source import bindings
from ..warn import warnings_for
from .claims import Claim, Form, derivatives, forms, value_read

__all__ = ["Choice", "Facts", "Gradient", "Kept", "facts"]

How = Literal[
    "saved tensor", "saved tensors", "plain value", "either", "shape only", "computed again", "code"
]


@dataclass(frozen=True, slots=True)
class Kept:
    """One value that backward has from forward, or makes again.

    ``kind`` is that of a capture, or "branch" for the number of the backward that a call returned.
    ``parts`` are the names under which parts of it are kept in its place, ``("x_shape",)``, or the
    output that is the same tensor.
    ``again`` is what a second derivative does with it, ``sources`` what it is then computed from,
    and ``start_of`` what is computed from it; ``redo`` is what every backward computes from it.
    ``times`` are its bytes in multiples of the input
    ``of``, by rules of thumb, None where nothing is known. ``when`` are the inputs of which one has
    to ask for a gradient for it to be kept; () means always. ``value`` is the text by which every
    backward computes it again, where ``how`` says so.
    """

    name: str
    kind: Literal["input", "output", "intermediate", "constant", "helper", "branch"]
    type: str
    line: int  # where it is bound, 0 outside of the file's functions
    read: tuple[int, ...]
    how: How
    needed_for: tuple[str, ...] = ()  # inputs whose gradients read its value
    shape_for: tuple[str, ...] = ()  # and those that read its shape, dtype or presence alone
    origin: str = ""  # of a constant: "the module", or the function around
    parts: tuple[str, ...] = ()
    again: Literal["as is", "recomputed", "constant", "refused", "output"] = "as is"
    sources: tuple[str, ...] = ()
    start_of: tuple[str, ...] = ()
    redo: tuple[str, ...] = ()
    why: str = ""
    times: float | None = None
    of: str = ""
    when: tuple[str, ...] = ()
    value: str = ""

    @property
    def is_tensor(self) -> bool:
        """Does memory of a tensor stay alive for it?"""
        return self.how in ("saved tensor", "saved tensors", "either")


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one input: ``text`` is what is returned for it, ``lines`` where.

    ``given`` says whether there is one, ``needs`` the captures whose values it reads, ``shapes``
    those of which it reads the shape, dtype or presence alone, and ``guarded``, that it is computed
    only where it is asked for.
    """

    input: str
    type: str
    given: Literal["always", "sometimes", "never"]
    output_grads: tuple[str, ...]
    needs: tuple[str, ...]
    shapes: tuple[str, ...]
    text: str
    lines: tuple[int, ...]
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What one choice of ``save`` keeps.

    ``sizes`` are bytes in multiples of inputs, ``(("x", 2.0),)``, by rules of thumb; ``unknown``
    names the tensors of which nothing is known; ``again`` is what every backward computes again.
    """

    save: Save
    tensors: tuple[str, ...]
    sizes: tuple[tuple[str, float], ...]
    unknown: tuple[str, ...]
    again: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything about one function that compiles.

    ``choices`` says what is kept by each ``save``, the function's own first.
    """

    name: str
    qualname: str
    module: str
    span: Span
    signature: str
    outputs: tuple[str, ...]
    kept: tuple[Kept, ...]
    gradients: tuple[Gradient, ...]
    forms: tuple[Form, ...]
    derivatives: tuple[Claim, ...]
    warnings: tuple[Diagnostic, ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def tensors(self) -> tuple[Kept, ...]:
        """What is kept as tensors between forward and backward."""
        return tuple(k for k in self.kept if k.is_tensor)


def facts(rule: Rule, pair: Pair) -> Facts:
    """All facts about a function, from its rule and its lifted pair."""
    final = pipeline.stages(pair, "eager")[-1].pair
    gradients = tuple(_gradients(rule, final))
    source = rule.source
    return Facts(
        rule.name,
        source.qualname,
        source.module,
        source.span(source.function),
        _signature(rule),
        tuple(_output(o.name, o.type) for o in rule.outputs),
        tuple(_kept(rule, pair, final, gradients)),
        gradients,
        forms(rule, pair),
        derivatives(rule, pair),
        warnings_for(rule),
        tuple(_choices(pair)),
    )


def _signature(rule: Rule) -> str:
    """The name, with the classes and functions around it, and the parameters as written."""
    shown: list[str] = []
    for param, after in zip(rule.params, [*rule.params[1:], None]):
        if param.kind == "keyword-only" and not any(s.startswith("*") for s in shown):
            shown.append("*")
        text = f"{'*' if param.kind == 'variadic' else ''}{param.name}"
        text += f": {param.annotation}" if param.annotation else ""
        if param.default is not None:
            text += f" = {param.default}" if param.annotation else f"={param.default}"
        shown.append(text)
        if param.kind == "positional-only" and (not after or after.kind != "positional-only"):
            shown.append("/")
    name = rule.source.qualname.replace("<locals>.", "")
    return f"{name}({', '.join(shown)})"


def _output(name: str | None, type_: str) -> str:
    shown = _type(type_) or "Tensor"
    return f"{name}: {shown}" if name else shown


def _type(type_: str) -> str:
    """A type as a reader writes it."""
    return {"IntTensor": "Tensor (integer or bool)"}.get(type_) or written_type(type_) or type_


# --- what is kept ---------------------------------------------------------------------------------


def _kept(rule: Rule, pair: Pair, final: Pair, gradients: Sequence[Gradient]) -> Iterator[Kept]:
    saved = {s.name: s for s in final.saved}
    if pair.branch is not None:
        yield Kept(pair.branch, "branch", "int", 0, (), "plain value")
    seen = {pair.branch}
    planned = {k.name: k for k in plan(pair).kept}
    again = _computed_again(pair, final)
    for capture in captures(rule):
        name = capture.name
        parts = () if name in saved else tuple(_parts(final, saved, capture))
        parts += tuple(
            k.name for k in planned.values() if k.how == "as output" and name in k.sources
        )
        seen |= {name, *parts}
        kept = Kept(
            name,
            capture.kind,
            _type(capture.type),
            _bound(rule, name) or capture.line,
            tuple(_lines_read(rule, name)),
            "computed again" if name in again.always else _how_of([*_those(saved, name, *parts)]),
            tuple(g.input for g in gradients if name in g.needs),
            tuple(g.input for g in gradients if name in g.shapes),
            next((c.origin for c in pair.constants if c.name == name), ""),
            parts,
        )
        yield replace(_planned(kept, again, saved, planned), when=_when(final, saved, kept))
    for one in final.saved:
        if one.name not in seen:
            kind, line = _kind(rule, pair, one.name), _bound(rule, one.name)
            kept = Kept(one.name, kind, _type(one.type), line, (), _how(one))
            kept = _planned(kept, again, saved, planned)
            yield replace(kept, when=_when(final, saved, kept))


def _choices(pair: Pair) -> Iterator[Choice]:
    for save in dict.fromkeys((pair.save, *reversed(SAVES))):
        kept = plan(pair if save == pair.save else replace(pair, save=cast(Save, save))).kept
        tensors = [k for k in kept if k.is_tensor]
        total: dict[str, float] = {}
        for one in tensors:
            if one.times is not None:
                total[one.of] = total.get(one.of, 0.0) + one.times
        yield Choice(
            cast(Save, save),
            tuple(k.name for k in tensors),
            tuple(total.items()),
            tuple(k.name for k in tensors if k.times is None),
            tuple(k.name for k in kept if k.how == "again"),
        )


def _those(saved: Mapping[str, Saved], *names: str) -> Iterator[Saved]:
    return (saved[name] for name in names if name in saved)


def _planned(
    kept: Kept, again: _Again, saved: Mapping[str, Saved], planned: Mapping[str, Planned]
) -> Kept:
    """The value with what is computed again of it and from it, and with its size."""
    name = kept.name
    one = next(_those(saved, name, *kept.parts), None)
    shown = [planned[n] for n in kept.parts or (name,) if n in planned]
    known = [p.times for p in shown if p.times is not None]
    return replace(
        kept,
        again=one.again if one else "as is",
        why=one.why if one else "",
        sources=again.always.get(name) or again.second.get(name) or (),
        start_of=tuple(n for n, sources in again.second.items() if name in sources),
        redo=tuple(n for n, sources in again.always.items() if name in sources),
        times=sum(known) if len(known) == len(shown) and kept.is_tensor else None,
        of=shown[0].of if shown else "",
        value=shown[0].value if shown and kept.how == "computed again" else "",
    )


def _when(final: Pair, saved: Mapping[str, Saved], kept: Kept) -> tuple[str, ...]:
    """The inputs of which one has to ask for a gradient for a value to be kept."""
    one = next(_those(saved, kept.name, *kept.parts), None)
    if one is None or one.value is None:
        return ()
    indices = [
        node.slice
        for node in walk(ast.parse(one.value))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
        if node.value.id == "needs_input_grad"
    ]
    found = [i.value for i in indices if isinstance(i, ast.Constant) and isinstance(i.value, int)]
    return tuple(final.arguments[i] for i in found)


def _kind(
    rule: Rule, pair: Pair, name: str
) -> Literal["input", "output", "intermediate", "constant"]:
    """What a value is that backward does not read itself: a second derivative starts from it."""
    if any(p.name == name for p in rule.params):
        return "input"
    if name not in rule.locals and any(c.name == name for c in pair.constants):
        return "constant"
    return "output" if any(o.name == name for o in rule.outputs) else "intermediate"


def _how_of(shown: Sequence[Saved]) -> How:
    """How a capture is kept: itself, as one of its parts, as its shape, or as code."""
    if not shown:
        return "code"
    if shown[0].value is not None and shown[0].keep == "plain":
        return "shape only"
    return _how(shown[0])


def _how(saved: Saved) -> How:
    if saved.keep == "tensor":
        return "saved tensor"
    if saved.keep == "tensors":
        return "saved tensors"
    return "plain value" if saved.keep == "plain" else "either"


def _parts(final: Pair, saved: Mapping[str, Saved], capture: Capture) -> Iterator[str]:
    """The names under which parts of a capture are kept: ``x_shape`` of ``x``."""
    for name, one in saved.items():
        if not name.startswith(f"{capture.name}_"):
            continue
        if one.value is not None:
            if capture.name in reads(ast.parse(one.value)):
                yield name
        elif any(name in writes(s.tree) and capture.name in reads(s.tree) for s in final.forward):
            yield name


def _bound(rule: Rule, name: str) -> int:
    """The line that binds a name: in the function, a function around it, or the file."""
    function = rule.source.function
    if any(p.name == name for p in rule.params):
        return rule.source.line(function)
    for scope in (function, *reversed(rule.source.enclosing)):
        assert isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        lines = sorted(_binding_lines(scope, name))
        if lines:
            return rule.source.user_line(lines[0])
    value = bindings(rule.source.tree)[name].value if name in bindings(rule.source.tree) else None
    return rule.source.line(value) if value is not None else 0


def _binding_lines(
    scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, name: str
) -> Iterator[int]:
    """The lines of a scope that bind a name, its parameters first."""
    if not isinstance(scope, ast.ClassDef):
        yield from (n.lineno for n in walk(scope.args) if isinstance(n, ast.arg) and n.arg == name)
    for statement in scope.body:
        for node in same_scope(statement):
            if (
                isinstance(node, ast.Name)
                and node.id == name
                and not isinstance(node.ctx, ast.Load)
            ):
                yield node.lineno
            elif getattr(node, "name", "") == name:  # def, except ... as, case ... as
                yield getattr(node, "lineno", 0)


def _lines_read(rule: Rule, name: str) -> list[int]:
    """The lines of backward, and of the helpers it calls, that read a name."""
    helpers = helpers_of(rule)
    trees: list[ast.AST] = [b.tree for b in rule.backwards]
    for tree in trees:
        trees += [h for n, h in helpers.items() if n in _loads(tree) and h not in trees]
    lines = {
        rule.source.line(node)
        for tree in trees
        for node in walk(tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    }
    return sorted(lines)


def _loads(tree: ast.AST) -> set[str]:
    return {n.id for n in walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


@dataclass(frozen=True, slots=True)
class _Again:
    """What is computed again, with the kept values that it starts from: in every backward, and for
    a second derivative alone."""

    always: Mapping[str, tuple[str, ...]]
    second: Mapping[str, tuple[str, ...]]


def _computed_again(pair: Pair, final: Pair) -> _Again:
    forward = {n for s in pair.forward for n in writes(s.tree)}
    always: list[ast.stmt] = []
    every: list[ast.stmt] = []
    for tree in (s.tree for s in final.backward):
        if isinstance(tree, ast.If) and _asks_grad_mode(tree.test):
            every += tree.body
        elif isinstance(tree, (ast.Assign, ast.AnnAssign)) and forward & set(writes(tree)):
            always.append(tree)
            every.append(tree)
    saved = [s.name for s in final.saved]
    gone = [s.name for s in pair.saved if s.name not in saved]
    redone = [s.name for s in final.saved if s.again == "recomputed" and s.name != pair.branch]
    return _Again(_sources(gone, always, saved), _sources(redone, every, saved))


def _asks_grad_mode(test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and ast.unparse(test.func).endswith("is_grad_enabled")


def _sources(
    names: Sequence[str], body: Sequence[ast.stmt], saved: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """For each name that the statements bind, the saved values that it starts from."""
    bound = {n for s in body for n in writes(s)}
    found = {n: slice_for({n}, tuple(body))[1] for n in names if n in bound}
    return {n: tuple(s for s in saved if s in found[n] and s not in bound) for n in found}


# --- gradients ------------------------------------------------------------------------------------


def _gradients(rule: Rule, final: Pair) -> Iterator[Gradient]:
    inputs = [p for p in rule.params if not p.bound]
    asked = _guarded(final)
    captured = [c.name for c in captures(rule) if c.kind != "helper"]
    for index, param in enumerate(inputs):
        grads: dict[str, None] = {}
        needs: set[str] = set()
        values: set[str] = set()
        lines: set[int] = set()
        texts: dict[str, None] = {}
        missing = False
        for backward in rule.backwards:
            body = tuple(s.tree for s in backward.body)
            for statement in returns_in(body):
                for value in _elements(statement.value, index, len(inputs), param, body):
                    if is_none(value):
                        missing = True
                        continue
                    missing |= _may_be_none(value, body)
                    names = {*reads(value), *_deciding(body, statement)}
                    trees, found = _reached(rule, names, body)
                    values |= {n for n in found if any(value_read(t, {n}) for t in (*trees, value))}
                    grads.update(dict.fromkeys(_grads_of(rule, backward, found)))
                    needs |= found
                    lines.add(rule.source.line(value))
                    texts[_formula(value, body)] = None
        given: Literal["always", "sometimes", "never"] = "sometimes" if missing else "always"
        yield Gradient(
            param.name,
            _type(param.type),
            given if texts else "never",
            tuple(g for g in grads),
            tuple(n for n in captured if n in values),
            tuple(n for n in captured if n in needs - values),
            " or ".join(texts),
            tuple(sorted(lines)),
            param.name in asked,
        )


def _grads_of(rule: Rule, backward: Backward, found: Collection[str]) -> Iterator[str]:
    for name, _ in zip(backward.params, differentiable_slots(backward, rule)):
        if name in found:
            yield name


def _elements(
    value: ast.expr | None, index: int, count: int, param: Param, body: Sequence[ast.stmt]
) -> Iterator[ast.expr]:
    """What a return statement gives for one input; the whole value where it cannot be told."""
    if value is None:
        return
    if isinstance(value, ast.IfExp):
        for arm in (value.body, value.orelse):
            yield from _elements(arm, index, count, param, body)
    elif isinstance(value, (ast.Tuple, ast.List)) and _is_one_each(value, count, param):
        yield value.elts[index]
    elif isinstance(value, ast.Name) and count > 1:
        bound = [s for s in body if value.id in writes(s)]
        one = bound[0] if len(bound) == 1 else None
        if isinstance(one, ast.Assign) and isinstance(one.value, (ast.Tuple, ast.List)):
            yield from _elements(one.value, index, count, param, body)
        else:
            yield value
    else:
        yield value


def _is_one_each(value: ast.Tuple | ast.List, count: int, param: Param) -> bool:
    starred = any(isinstance(e, ast.Starred) for e in value.elts)
    alone = count == 1 and (param.type in LISTS or param.kind == "variadic")
    return not starred and not alone and len(value.elts) == count


def _may_be_none(value: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """``None if bias is None else ...``, itself or under the name that is returned."""
    if isinstance(value, ast.IfExp):
        return is_none(value.body) or is_none(value.orelse)
    if not isinstance(value, ast.Name):
        return False
    values = [
        node.value
        for statement in body
        for node in same_scope(statement)
        if isinstance(node, ast.Assign) and value.id in writes(node)
    ]
    return any(is_none(v) or (isinstance(v, ast.IfExp) and _may_be_none(v, ())) for v in values)


def _deciding(body: Sequence[ast.stmt], statement: ast.Return) -> set[str]:
    """Names that decide whether a return statement is reached."""
    found: set[str] = set()
    for outer in body:
        if any(node is statement for node in walk(outer)) and outer is not statement:
            for node in walk(outer):
                if any(inner is statement for inner in walk(node)):
                    for part in children(node):
                        if isinstance(part, ast.expr):
                            found.update(reads(part))
    return found


def _reached(
    rule: Rule, names: Collection[str], body: tuple[ast.stmt, ...]
) -> tuple[list[ast.AST], set[str]]:
    """The statements and helpers that ``names`` depend on, and the names that these read."""
    helpers = helpers_of(rule)
    indices, needed = slice_for(names, body, (), bindings(rule.source.tree))
    needed |= set(names)
    trees: list[ast.AST] = [body[i] for i in indices]
    todo = [n for n in sorted(needed) if n in helpers]
    for name in todo:
        trees.append(helpers[name])
        inner = set(reads(helpers[name]))
        todo += [n for n in sorted(inner - needed) if n in helpers]
        needed |= inner
    return trees, needed


def _formula(value: ast.expr, body: Sequence[ast.stmt]) -> str:
    """The text of a gradient, or of what its name is bound to where that is a single expression."""
    if isinstance(value, ast.Name):
        bound = [s for s in body if value.id in writes(s)]
        if len(bound) == 1 and isinstance(bound[0], ast.Assign):
            if isinstance(bound[0].targets[0], ast.Name):
                return ast.unparse(bound[0].value)
    return ast.unparse(value)


def _guarded(final: Pair) -> set[str]:
    """Inputs whose gradients are computed only where they are asked for."""
    found: set[str] = set()
    for statement in final.backward:
        tree = statement.tree
        if isinstance(tree, ast.If) and isinstance(tree.test, ast.Subscript):
            test = tree.test
            if isinstance(test.value, ast.Name) and test.value.id == "needs_input_grad":
                if isinstance(test.slice, ast.Constant) and isinstance(test.slice.value, int):
                    found.add(final.arguments[test.slice.value])
    return found
