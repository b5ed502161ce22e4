"""Mistakes that may be meant: what a rule says that a gradient seldom should.

These are no errors, since each of them has a use. ``# s2s: ignore`` at the end of the line, or of
the ``def`` line, silences all of them there; ``# s2s: ignore[S2S102]`` the ones that it names.
What is doubtful is left alone: a warning that is wrong teaches people to read none.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Collection, Iterator, Sequence

from .captures import captures
from .check import differentiable_slots
from .effects import carries_gradient, without_grad
from .errors import diagnostic
from .infer import infer, is_plain, is_tensor, origin, types_after
from .ir import LISTS, Backward, Diagnostic, Param, Rule, Source, lines_of
from .names import (
    changed,
    children,
    is_name,
    is_none,
    of_kind,
    reads,
    returns_in,
    same_scope,
    walk,
    writes,
)
from .sharing import changes
from .source import bindings, parse_text
from .vocabulary import METADATA

__all__ = ["maybe_numbers", "unbound_names", "warnings_for"]

_IGNORE = re.compile(r"#\s*s2s:\s*ignore\b(?:\[([^\]]*)\])?")
_OF_SHAPE = {
    "dim",
    "empty_like",
    "new_empty",
    "new_ones",
    "new_zeros",
    "numel",
    "ones_like",
    "size",
}
_OF_SHAPE |= {"isinstance", "len", "rand_like", "randn_like", "stride", "type", "zeros_like"}
_ZEROS = {"new_zeros", "zeros", "zeros_like"}
# of these calls, the arguments whose value a gradient flows through; the others pick places
_PICKING = {"bincount": (), "cross_entropy": (0,), "embedding": (1,), "embedding_bag": (1,)}
_PICKING |= {"gather": (0,), "index_add": (0, 3), "index_copy": (0, 3), "index_fill": (0,)}
_PICKING |= {"index_put": (0, 2), "index_select": (0,), "masked_fill": (0, 2), "nll_loss": (0,)}
_PICKING |= {"masked_scatter": (0, 2), "masked_select": (0,), "one_hot": (), "scatter": (0, 3)}
_PICKING |= {"scatter_add": (0, 3), "take": (0,), "take_along_dim": (0,), "where": (1, 2)}
# parameters with these names are data, and seldom learned
_DATA = re.compile(r"(^|_)(ids?|idx|ind(ex|ices)|labels?|lengths?|masks?|targets?)\d*$|^running_")
_TRICKS = ("exec", "eval", "globals", "locals", "vars")  # they bind names, or tell them
_NUMBER_TOO = {"conjugate", "imag", "is_integer", "real"}  # attributes that numbers have as well
_FACTORIES = {"arange", "as_tensor", "eye", "full", "linspace", "ones", "rand", "randn", "tensor"}
_FACTORIES |= {"device", "empty", "finfo", "iinfo", "zeros"}
_GRAD_OF = re.compile(r"^(?:grad_|d_|g_|dL_d|dloss_d|d|g)(\w+)$|^(\w+?)(?:_grad|_bar)$")


def warnings_for(rule: Rule, known: Collection[str] = ()) -> tuple[Diagnostic, ...]:
    """What may be a mistake in a rule that ``check`` has nothing against, in the order of the text.

    ``known`` are names that exist though the text does not show them: the globals at run time.
    """
    found = [
        *_unused_output_gradients(rule),
        *_missing_gradients(rule),
        *_constant_gradients(rule),
        *_undefined_names(rule, known),
        *_unread_inputs(rule),
        *_gradients_of_numbers(rule),
        *_changed_afterwards(rule),
        *_unused_functions(rule),
        *_exchanged_gradients(rule),
        *_unused_results(rule),
    ]
    kept = [problem for problem in found if not _is_ignored(rule, problem)]
    return tuple(sorted(kept, key=lambda p: (p.span.line, p.span.column, p.code)))


def _is_ignored(rule: Rule, problem: Diagnostic) -> bool:
    """Does a comment on the line, or on the ``def`` line, say that it is meant?"""
    source = rule.source
    lines = lines_of(source.user_text or source.text)
    start, body = source.line(source.function), source.line(source.function.body[0])
    head = range(start, max(body, start + 1))
    for line in {problem.span.line, *head}:
        comment = _IGNORE.search(lines[line - 1]) if line <= len(lines) else None
        if comment and (comment[1] is None or problem.code in re.split(r"[,\s]+", comment[1])):
            return True
    return False


# --- what backward makes of the output gradients ----------------------------------------------


def _trees(backward: Backward) -> tuple[ast.stmt, ...]:
    return tuple(statement.tree for statement in backward.body)


@functools.lru_cache(maxsize=64)
def _reached(
    body: tuple[ast.stmt, ...], start: str
) -> tuple[Collection[str], Collection[ast.Return]]:
    """The names whose value may depend on ``start``, whatever way backward takes, and the return
    statements that are reached only where a condition on it holds."""
    names, returns = {start}, set[ast.Return]()
    while True:
        before = len(names), len(returns)
        for statement in body:
            _spread(statement, names, returns, False)
        if (len(names), len(returns)) == before:
            return names, returns


def _spread(node: ast.stmt, names: set[str], returns: set[ast.Return], decided: bool) -> None:
    parts, blocks = _parts(node), _blocks(node)
    depends = decided or any(_depends(part, names) for part in parts)
    if isinstance(node, ast.Return):
        if decided:
            returns.add(node)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        if names.intersection(reads(node)):
            names.add(node.name)
        return
    elif depends:
        own = parts if blocks else [node]
        names.update(n for part in own for n in (*writes(part), *changed(part)))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names.update(a.id for a in node.value.args if isinstance(a, ast.Name))
    inside = decided or (depends and isinstance(node, (ast.If, ast.While, ast.Match, ast.For)))
    for statement in blocks:
        _spread(statement, names, returns, inside)


@functools.lru_cache(maxsize=4096)
def _parts(node: ast.AST) -> list[ast.AST]:
    """What a statement evaluates itself."""
    return [c for c in children(node) if not isinstance(c, ast.stmt)]


@functools.lru_cache(maxsize=4096)
def _blocks(node: ast.AST) -> list[ast.stmt]:
    """The statements right inside a compound one."""
    found = [c for c in children(node) if isinstance(c, ast.stmt)]
    for part in children(node):
        if isinstance(part, (ast.ExceptHandler, ast.match_case)):
            found += part.body
    return found


def _depends(node: ast.AST, names: Collection[str]) -> bool:
    """Does a value depend on one of ``names``, and not on their shapes alone?"""
    return not _value_of(node).isdisjoint(names)


@functools.lru_cache(maxsize=4096)
def _value_of(node: ast.AST) -> frozenset[str]:
    """The names that a value is computed from."""
    if isinstance(node, ast.Name):
        return frozenset((node.id,))
    if isinstance(node, ast.Attribute) and node.attr in METADATA:
        return frozenset()
    if isinstance(node, ast.Call) and _called(node) in _OF_SHAPE:
        return frozenset()
    if isinstance(node, ast.Lambda):
        return frozenset(reads(node))
    return frozenset().union(*map(_value_of, children(node)))


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _inputs(rule: Rule) -> list[Param]:
    """The parameters that have a gradient slot each; none where their number is not fixed."""
    if any(p.kind == "variadic" for p in rule.params):
        return []
    return [p for p in rule.params if not p.bound]


def _slots(rule: Rule, statement: ast.Return) -> list[ast.expr] | None:
    """The gradient of each input at a return, where the text shows them one by one."""
    value, count = statement.value, len(_inputs(rule))
    if isinstance(value, (ast.Tuple, ast.List)):
        starred = any(isinstance(e, ast.Starred) for e in value.elts)
        return value.elts if len(value.elts) == count and not starred else None
    return [value] if value is not None and count == 1 else None


def _may_be_none(node: ast.expr) -> bool:
    return any(is_none(n) for n in walk(node))


def _no_gradient(node: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """Is a value surely zero or None, so that no output gradient has a part in it?"""
    if isinstance(node, ast.Constant):
        return node.value is None or node.value == 0
    if isinstance(node, ast.Name):
        values = [
            n.value
            for s in body
            for n in same_scope(s)
            if isinstance(n, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)
        ]
        inside = [v for v in values if node.id not in reads(v)]
        return bool(values) and all(_no_gradient(value, body) for value in inside)
    if isinstance(node, ast.IfExp):
        return _no_gradient(node.body, body) and _no_gradient(node.orelse, body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(isinstance(s, ast.Constant) and s.value == 0 for s in (node.left, node.right))
    return isinstance(node, ast.Call) and _called(node) in _ZEROS


def _elements(value: ast.expr | None) -> list[ast.expr]:
    if value is None:
        return []
    return value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]


def _all_none(backward: Backward) -> bool:
    """A function that declares itself without a gradient: every one is None or zero."""
    body = _trees(backward)
    return all(
        _no_gradient(element, body) for r in returns_in(body) for element in _elements(r.value)
    )


def _uses(backward: Backward, name: str) -> bool:
    """Does some returned gradient depend on this output gradient?"""
    body = _trees(backward)
    names, decided = _reached(body, name)
    return any(
        r in decided or (r.value is not None and _depends(r.value, names)) for r in returns_in(body)
    )


def _unused_output_gradients(rule: Rule) -> Iterator[Diagnostic]:
    for backward in rule.backwards:
        if _all_none(backward):
            continue
        arguments = [*backward.tree.args.posonlyargs, *backward.tree.args.args]
        for argument, slot in zip(arguments, differentiable_slots(backward, rule)):
            output = rule.outputs[slot]
            sure = len(rule.outputs) == 1 or is_tensor(output.type) or output.type in LISTS
            if argument.arg.startswith("_") or not output.differentiable or not sure:
                continue
            if not _uses(backward, argument.arg):
                which = output.name or (f"number {slot + 1}" if len(rule.outputs) > 1 else "")
                yield diagnostic(
                    "S2S101",
                    rule.source.span(argument),
                    f"no gradient that {backward.name} of {rule.name} returns depends on "
                    f"{argument.arg}, the gradient of its output {which}".rstrip(),
                    hint=f"multiply by {argument.arg}, or call it _{argument.arg.lstrip('_')} "
                    "where the output is to have no part in the gradient",
                )


def _constant_gradients(rule: Rule) -> Iterator[Diagnostic]:
    inputs = _inputs(rule)
    for backward in rule.backwards:
        body = _trees(backward)
        reached = [_reached(body, name) for name in backward.params]
        if not any(_uses(backward, name) for name in backward.params):
            continue  # said of the output gradients already
        names = {n for found, _ in reached for n in found}
        decided = {r for _, returns in reached for r in returns}
        for statement in returns_in(body):
            for param, slot in zip(inputs, _slots(rule, statement) or ()):
                if statement in decided or _depends(slot, names) or _no_gradient(slot, body):
                    continue
                yield diagnostic(
                    "S2S103",
                    rule.source.span(slot),
                    f"the gradient of {param.name} ({_short(slot)}) depends on no output gradient: "
                    f"{rule.name} would have it whatever the loss is",
                    hint=f"multiply by {backward.params[0] if backward.params else 'grad_output'}"
                    ", or return None or zeros where there is no gradient",
                )


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else text[:37] + "..."


def _unused_results(rule: Rule) -> Iterator[Diagnostic]:
    for backward in rule.backwards:
        body = _trees(backward)
        read = {
            n.id
            for s in body
            for n in walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Load, ast.Del))
        }
        for node in [n for s in body for n in walk(s)]:
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                read.update(node.names)
        names = {n for param in backward.params for n in _reached(body, param)[0]}
        for node in [n for s in body for n in same_scope(s)]:
            if not isinstance(node, ast.Assign) or not _depends(node.value, names):
                continue
            for target in node.targets:
                if not isinstance(target, ast.Name) or target.id in read:
                    continue
                if target.id.startswith("_"):
                    continue
                yield diagnostic(
                    "S2S110",
                    rule.source.span(target),
                    f"{backward.name} of {rule.name} computes {target.id} from an output gradient "
                    "and does not use it",
                    hint=f"return it where it belongs, or leave `{target.id} = ...` out",
                )


# --- inputs and their gradients ---------------------------------------------------------------


def _missing_gradients(rule: Rule) -> Iterator[Diagnostic]:
    rows = [(r, _slots(rule, r)) for b in rule.backwards for r in returns_in(_trees(b))]
    if not rows:
        return
    inputs = _inputs(rule)
    nothing = all(slots is not None and all(map(is_none, slots)) for _, slots in rows)
    if nothing and rule.outputs[0].type == "Tensor" and any(p.type == "Tensor" for p in inputs):
        yield diagnostic(
            "S2S102",
            rule.source.span(rows[-1][0]),
            f"backward of {rule.name} gives no input a gradient",
            hint="return one for each tensor; `# s2s: ignore[S2S102]` where None is meant",
        )
        return
    lifted = {b.tree for b in rule.backwards}
    read = {n for s in rule.body if s.tree not in lifted for n in reads(s.tree)}
    for index, param in enumerate(inputs):
        given = not all(slots is not None and is_none(slots[index]) for _, slots in rows)
        if given and param.name not in read:
            return  # straight through: what one input is in forward, another learns from
    for index, param in enumerate(inputs):
        if param.name.startswith("_") or _DATA.search(param.name):
            continue
        if param.type not in ("Tensor", "Optional[Tensor]"):
            continue
        if param.assumed and not _surely_tensor(rule, param.name):
            continue  # a number that nobody annotated
        if not all(slots is not None and is_none(slots[index]) for _, slots in rows):
            continue
        if not _flows(rule, param.name):
            continue
        slots = rows[-1][1]
        assert slots is not None
        number = f"annotate it, `{param.name}: float`, if it is a number; " if param.assumed else ""
        yield diagnostic(
            "S2S102",
            rule.source.span(slots[index]),
            f"{rule.name} computes with {param.name}, and backward always gives None for it: "
            f"{param.name} would never learn anything",
            hint=f"return its gradient; {number}`# s2s: ignore[S2S102]` where None is meant",
        )


def maybe_numbers(rule: Rule) -> Iterator[str]:
    """Inputs that may be tensors or numbers, and that get no gradient, as far as the text says."""
    rows = [_slots(rule, r) for b in rule.backwards for r in returns_in(_trees(b))]
    own = [p for p in rule.params if not p.bound and p.kind != "variadic"]
    for index, param in enumerate(own):
        if param.assumed and not _surely_tensor(rule, param.name):
            if all(slots is None or is_none(slots[index]) for slots in rows):
                yield param.name


def _surely_tensor(rule: Rule, name: str) -> bool:
    """Does the function do something with a parameter that a number could not stand?"""
    found = bindings(rule.source.tree)
    if any(name in writes(s.tree) for s in rule.body):  # later uses are of something else
        return False
    for node in walk(rule.source.function):
        if isinstance(node, ast.Attribute) and is_name(node.value, name):
            if node.attr not in _NUMBER_TOO:
                return True
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            if is_name(node.left, name) or is_name(node.right, name):
                return True
        elif isinstance(node, ast.Call) and node.args and is_name(node.args[0], name):
            path = origin(node.func, found, rule.locals) or ""
            if path.startswith("torch.") and _called(node) not in _FACTORIES:
                return True
    return False


def _flows(rule: Rule, name: str) -> bool:
    """Does a differentiable output depend on an input in a way that has a derivative?"""
    carrying = {name}
    lifted = {b.tree for b in rule.backwards}
    body = [s.tree for s in rule.body if s.tree not in lifted]
    for statement in body:
        for node in same_scope(statement):
            if name in writes(node) and isinstance(node, ast.stmt) and not _blocks(node):
                if not isinstance(node, ast.Assign) or not _carries(node.value, {name}):
                    return False  # bound to something else: too much to say
    while True:
        before = len(carrying)
        for statement in body:
            _carry(statement, carrying)
        if len(carrying) == before:
            break
    for statement in returns_in(body):
        outputs = _elements(statement.value)[:-1]
        if len(outputs) == 1 and isinstance(outputs[0], (ast.Tuple, ast.List)):
            outputs = outputs[0].elts
        if len(outputs) == 1 and isinstance(outputs[0], ast.Dict):
            outputs = outputs[0].values
        pairs = zip(rule.outputs, outputs)
        if any(o.differentiable and _carries(value, carrying) for o, value in pairs):
            return True
    return False


def _carry(node: ast.stmt, carrying: set[str]) -> None:
    """Add the names that a statement makes depend on what carries."""
    if without_grad(node):
        return
    if isinstance(node, ast.FunctionDef):
        if carrying.intersection(reads(node)):
            carrying.add(node.name)
        return
    parts = [c for c in children(node) if not isinstance(c, ast.stmt)]
    blocks = _blocks(node)
    values = [p for p in parts if isinstance(p, ast.expr) and not _is_target(p)]
    if not isinstance(node, (ast.If, ast.While)) and any(_carries(v, carrying) for v in values):
        own: list[ast.AST] = list(parts) if blocks else [node]
        carrying.update(n for part in own for n in (*writes(part), *changed(part)))
    for statement in blocks:
        _carry(statement, carrying)


def _is_target(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))


def _carries(node: ast.AST, carrying: Collection[str]) -> bool:
    """``carries_gradient``, but that which places are picked says nothing."""
    picked = [n for n in of_kind(node, ast.Call) if _called(n) in _PICKING]
    if not picked:
        return carries_gradient(node, carrying)
    if isinstance(node, ast.Call) and node is picked[0]:
        func = node.func
        method = isinstance(func, ast.Attribute) and not is_name(func.value, "torch")
        method = method and not is_name(func.value, "F")  # type: ignore[attr-defined]
        values = [func.value, *node.args] if method else node.args  # type: ignore[attr-defined]
        through = _PICKING[_called(node)]
        return any(_carries(values[i], carrying) for i in through if i < len(values))
    return carries_gradient(node, carrying) and any(_carries(c, carrying) for c in children(node))


def _unread_inputs(rule: Rule) -> Iterator[Diagnostic]:
    function = rule.source.function
    read = {n.id for n in of_kind(function, ast.Name)}
    rows = [(_slots(rule, r)) for b in rule.backwards for r in returns_in(_trees(b))]
    nodes = {a.arg: a for a in of_kind(function.args, ast.arg)}
    for index, param in enumerate(_inputs(rule)):
        if param.name in read or param.name.startswith("_"):
            continue
        if not all(slots is not None and is_none(slots[index]) for slots in rows):
            continue  # it has a gradient though forward does not read it: straight through
        if not is_tensor(param.type):
            continue  # an option for later
        yield diagnostic(
            "S2S105",
            rule.source.span(nodes[param.name]),
            f"neither forward nor backward of {rule.name} reads {param.name}",
            hint=f"leave it out, or call it _{param.name}",
        )


def _gradients_of_numbers(rule: Rule) -> Iterator[Diagnostic]:
    found = bindings(rule.source.tree)
    for backward in rule.backwards:
        body = _trees(backward)
        known = {**dict(rule.types), **dict.fromkeys(backward.params, "Tensor")}
        types = types_after(body, known, found)
        for statement in returns_in(body):
            for param, slot in zip(_inputs(rule), _slots(rule, statement) or ()):
                # a default alone says little: `scale=1.0` may be given a tensor
                plain = is_plain(param.type) and (param.annotation or param.type == "object")
                if plain and not _may_be_none(slot) and infer(slot, types, found) == "Tensor":
                    what = param.annotation or "a function"
                    yield diagnostic(
                        "S2S106",
                        rule.source.span(slot),
                        f"{backward.name} returns a gradient ({_short(slot)}) for {param.name}, "
                        f"which {rule.name} takes as {what}",
                        hint=f"return None for {param.name}, or annotate it as Tensor",
                    )


def _exchanged_gradients(rule: Rule) -> Iterator[Diagnostic]:
    names = [p.name for p in _inputs(rule)]
    for backward in rule.backwards:
        for statement in returns_in(_trees(backward)):
            slots = _slots(rule, statement) or []
            meant = [_meant_for(slot, names) for slot in slots]
            for index, other in enumerate(meant):
                if other is None or other == index or meant[other] in (None, other):
                    continue
                if ast.unparse(slots[index]) in {ast.unparse(n) for n in walk(slots[other])}:
                    continue
                yield diagnostic(
                    "S2S109",
                    rule.source.span(slots[index]),
                    f"{backward.name} returns {_short(slots[index])} as the gradient of "
                    f"{names[index]}, and another one for {names[other]}",
                    hint=f"return them in the order of the inputs: {', '.join(names)}",
                )
                break


def _meant_for(node: ast.expr, names: list[str]) -> int | None:
    """The input that the name of a gradient names: ``grad_w``, ``dw``, ``w_grad``."""
    match = _GRAD_OF.match(node.id) if isinstance(node, ast.Name) else None
    name = match and (match[1] or match[2])
    return names.index(name) if name in names else None


# --- names and functions ----------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def unbound_names(source: Source) -> tuple[str, ...]:
    """Names that a function reads and its file does not bind, builtins among them; none where the
    file binds names that cannot be seen."""
    bound = _bound_names(source)
    if bound is None:
        return ()
    return tuple(name for name in reads(source.function) if name not in bound)


def _bound_names(source: Source) -> set[str] | None:
    """The names that a function's file binds for it, and those of every module."""
    tree = parse_text(source.user_text) if source.user_text else source.tree
    of_module = _module_names(tree)
    if of_module is None:
        return None
    found = set(of_module)
    for outer in source.enclosing:
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(a.arg for a in of_kind(outer.args, ast.arg))
            found.update(*(writes(s) for s in outer.body))
        found.update(_type_parameters(outer))
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        for node in of_kind(source.function, kind):
            found.update(_type_parameters(node))
    if source.user_text:  # made of a class, which its methods may name, and of calls of s2s
        found |= _class_names(tree)
        found.update(*map(reads, source.function.decorator_list))
    return found


@functools.lru_cache(maxsize=64)
def _class_names(tree: ast.Module) -> frozenset[str]:
    return frozenset(node.name for node in of_kind(tree, ast.ClassDef))


@functools.lru_cache(maxsize=64)
def _module_names(tree: ast.Module) -> frozenset[str] | None:
    """The globals of a file; None where some cannot be seen."""
    found = {"torch", "__file__", "__builtins__", "__class__", "__annotations__"}
    found |= {"__name__", "__doc__", "__package__", "__spec__", "__loader__", "__path__"}
    found.update(*(writes(s) for s in tree.body))
    if any(a.name == "*" for node in of_kind(tree, ast.ImportFrom) for a in node.names):
        return None
    if any(_called(node) in _TRICKS for node in of_kind(tree, ast.Call)):
        return None
    found.update(name for node in of_kind(tree, ast.Global) for name in node.names)
    return frozenset(found)


def _undefined_names(rule: Rule, known: Collection[str]) -> Iterator[Diagnostic]:
    source = rule.source
    for name in unbound_names(source):
        if name in known or hasattr(builtins, name):
            continue
        place = _first_read(source.function, name)
        if place is None:
            continue
        by = rule.name
        for backward in rule.backwards:
            if any(n is place for n in walk(backward.tree)):
                by = f"{backward.name} of {rule.name}"
        every = {*(_bound_names(source) or ()), *known, *dir(builtins), *rule.locals}
        yield diagnostic(
            "S2S104",
            source.span(place),
            f"{by} reads {name}, which nothing here defines",
            hint=_spelling(name, every),
        )


def _type_parameters(node: ast.AST) -> list[str]:
    return [parameter.name for parameter in getattr(node, "type_params", ())]


def _first_read(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.AST | None:
    """Where a name is read first when the function runs: annotations, decorators and its own
    defaults are evaluated when it is defined, or never."""
    before = [*walk(function.args), *(n for d in function.decorator_list for n in walk(d))]
    annotations = set(before)
    for node in walk(function):
        for part in ("annotation", "returns"):
            annotation = getattr(node, part, None)
            if isinstance(annotation, ast.AST):
                annotations.update(walk(annotation))
    places = [
        n for n in of_kind(function, ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)
    ]
    places = [n for n in places if n not in annotations]
    return min(places, key=lambda n: (n.lineno, n.col_offset), default=None)


def _spelling(name: str, defined: Collection[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, sorted(defined), 1, 0.75)
    if close:
        return f"is {close[0]} meant?"
    return "define it, or import it, before the function is called"


def _changed_afterwards(rule: Rule) -> Iterator[Diagnostic]:
    types, found = dict(rule.types), bindings(rule.source.tree)
    for backward in rule.backwards:
        names = {
            c.name
            for c in captures(rule, backward)
            if c.kind != "constant" and (is_tensor(c.type) or c.type in LISTS)
        }
        below = [s.tree for s in rule.body if s.tree.lineno > (backward.tree.end_lineno or 0)]
        for node, name in changes(below, names, types, found):
            if name not in names:
                continue
            names.remove(name)  # once is enough
            yield diagnostic(
                "S2S107",
                rule.source.span(node),
                f"{rule.name} changes {name} in place (`{_short(node)}`) below "
                f"{backward.name}, which reads it as it is in the end",
                hint=f"compute a new value, or move the change above {backward.name} "
                "if the changed one is meant",
            )


def _unused_functions(rule: Rule) -> Iterator[Diagnostic]:
    lifted = {b.tree for b in rule.backwards}
    read = {n.id for n in of_kind(rule.source.function, ast.Name)}
    for statement in rule.body:
        for node in same_scope(statement.tree):
            if isinstance(node, ast.FunctionDef) and node not in lifted and node.name not in read:
                yield diagnostic(
                    "S2S108",
                    rule.source.span(node),
                    f"{rule.name} defines {node.name} and neither returns nor calls it",
                    hint=f"return it, `return outputs, {node.name}`, or leave it out",
                )
