"""Every problem of a rule that can be seen without running it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

from .captures import captures, helpers_of
from .errors import diagnostic
from .infer import is_plain, is_tensor
from .ir import LISTS, Backward, Capture, Diagnostic, Rule
from .names import changed, of_kind, returns_in, root, same_scope, walk, writes
from .options import decorator_span
from .parse import falls_through
from .sharing import changes
from .source import bindings
from .vocabulary import SCOPE_TRICKS, SCRIPT_BUILTINS, VIEWS

__all__ = ["changed_captures", "check", "differentiable_slots", "mutated_inputs", "surely_fresh"]


def check(rule: Rule) -> tuple[Diagnostic, ...]:
    """All problems of a rule, in the order of the text."""
    found = captures(rule)
    problems = [
        *_taken_name(rule),
        *_returned_counts(rule),
        *_parameter_counts(rule),
        *_rebinding(rule),
        *_changed_captures(rule, found),
        *_changed_inputs(rule),
        *_constructs(rule),
        *_unliftable_helpers(rule, found),
        *_recomputed_names(rule, found),
    ]
    return tuple(sorted(problems, key=lambda p: (p.span.line, p.span.column)))


def _taken_name(rule: Rule) -> Iterator[Diagnostic]:
    """Scripted code that calls ``round(x)`` means TorchScript's own, whatever the name holds."""
    if rule.name in SCRIPT_BUILTINS and not rule.source.in_class:
        yield diagnostic(
            "S2S217",
            rule.source.span(rule.source.function),
            f"a function named {rule.name} cannot be called from scripted code: TorchScript "
            f"compiles its builtin {rule.name} instead, without a word and without this gradient",
            hint=f"give it another name, `{rule.name}_ste` for example",
        )


# --- counts ---------------------------------------------------------------------------------


def _returned_counts(rule: Rule) -> Iterator[Diagnostic]:
    if any(p.kind == "variadic" for p in rule.params):
        return
    inputs = [p.name for p in rule.params if not p.bound]
    hint = (
        f"return one gradient per input, in order, and None where there is none: "
        f"`return {', '.join('grad_' + n for n in inputs)}`"
    )
    for backward in rule.backwards:
        trees = [s.tree for s in backward.body]
        returns = returns_in(trees)
        if falls_through(trees):
            yield diagnostic(
                "S2S202",
                rule.source.span(backward.tree),
                f"{backward.name} of {rule.name} can end without returning gradients; "
                f"{rule.name} has {_counted(inputs)}",
                hint=hint,
            )
        for statement in returns:
            for value in _alternatives(statement.value):
                count = _gradient_count(value, trees)
                if isinstance(value, ast.Name) and value.id in _single_tensors(rule, backward):
                    count = 1
                if count is None or count == len(inputs):
                    continue
                shown = ast.unparse(value) if value is not None else ""
                yield diagnostic(
                    "S2S202",
                    rule.source.span(statement),
                    f"{backward.name} returns {_gradients(count, shown)} here; "
                    f"{rule.name} has {_counted(inputs)}",
                    f"inputs: {rule.source.file}:{rule.source.line(rule.source.function)}: "
                    f"{_line_of(rule, rule.source.function)}",
                    hint=hint,
                )


def _line_of(rule: Rule, node: ast.AST) -> str:
    return rule.source.span(node).text.strip()


def _single_tensors(rule: Rule, backward: Backward) -> set[str]:
    """Names in a backward that hold one tensor each: its parameters, and captured tensors."""
    local = {n for s in backward.body for n in writes(s.tree)}
    known = {name for name, type_ in rule.types if is_tensor(type_)}
    if rule.outputs[0].type not in LISTS:
        known |= set(backward.params)
    return known - local


def _alternatives(value: ast.expr | None) -> Iterator[ast.expr | None]:
    """A conditional expression returns one of its branches."""
    if isinstance(value, ast.IfExp) and (
        isinstance(value.body, ast.Tuple) or isinstance(value.orelse, ast.Tuple)
    ):
        yield from _alternatives(value.body)
        yield from _alternatives(value.orelse)
    else:
        yield value


def _gradient_count(value: ast.expr | None, body: list[ast.stmt]) -> int | None:
    """How many gradients an expression is, None where that is not known."""
    if value is None:
        return 0
    if isinstance(value, (ast.Tuple, ast.List)):
        return None if any(isinstance(e, ast.Starred) for e in value.elts) else len(value.elts)
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant)):
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult)):
            sides = (value.left, value.right)  # (a,) + (None,) * 3 makes a tuple
            if any(isinstance(n, (ast.Tuple, ast.List)) for s in sides for n in walk(s)):
                return None
            if all(isinstance(s, (ast.Name, ast.Call)) for s in sides):
                return 1 if isinstance(value.op, ast.Mult) else None
        return 1
    if isinstance(value, ast.Name):
        values = [
            node.value
            for statement in body
            for node in same_scope(statement)
            if isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
        ]
        bound = sum(value.id in writes(s) for s in body)
        bound += sum(value.id in changed(s) for s in body)  # a list that is filled
        if bound == 1 and len(values) == 1 and isinstance(values[0], (ast.Tuple, ast.List)):
            return _gradient_count(values[0], body)
    return None


def _counted(inputs: list[str]) -> str:
    plural = "input" if len(inputs) == 1 else "inputs"
    return f"{len(inputs)} {plural} ({', '.join(inputs)})"


def _gradients(count: int, shown: str) -> str:
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    plural = "gradient" if count == 1 else "gradients"
    return f"{count} {plural} ({shown})" if shown else "no gradients"


def _parameter_counts(rule: Rule) -> Iterator[Diagnostic]:
    outputs = len(rule.outputs)
    smooth = sum(output.differentiable for output in rule.outputs)
    for backward in rule.backwards:
        arguments = backward.tree.args
        unread = bool(arguments.defaults) and not backward.early
        star = bool(arguments.vararg) and len(backward.params) not in (outputs, smooth)
        odd = unread or star or arguments.kwarg or arguments.kwonlyargs
        span = rule.source.span(backward.tree)
        plural = "output" if outputs == 1 else "outputs"
        hint = "take one gradient per output, in order, and read everything else directly"
        if odd:
            yield diagnostic(
                "S2S203",
                span,
                f"{backward.name} of {rule.name} takes star arguments, keywords or defaults; "
                f"it is called with the {outputs} gradients of the outputs alone",
                hint=hint,
            )
        elif len(backward.params) not in (outputs, smooth):
            count = len(backward.params)
            grads = "gradient" if count == 1 else "gradients"
            yield diagnostic(
                "S2S203",
                span,
                f"{backward.name} takes {count} output {grads} "
                f"({', '.join(backward.params)}); {rule.name} returns {outputs} {plural}",
                hint=hint,
            )


# --- what backward may not do ----------------------------------------------------------------


def _rebinding(rule: Rule) -> Iterator[Diagnostic]:
    for backward in rule.backwards:
        for node in walk(backward.tree):
            if isinstance(node, ast.Nonlocal):
                names = ", ".join(node.names)
                yield diagnostic(
                    "S2S204",
                    rule.source.span(node),
                    f"{backward.name} of {rule.name} rebinds {names} of the function around it; "
                    "once lifted out it cannot",
                    hint="compute the value in forward, or keep such state in an object that "
                    "backward reads",
                )
            elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                yield diagnostic(
                    "S2S207",
                    rule.source.span(node),
                    f"{backward.name} of {rule.name} is a generator or async function",
                    hint="return the gradients from a plain def",
                )


def _changed_captures(rule: Rule, found: tuple[Capture, ...]) -> Iterator[Diagnostic]:
    if rule.dirty is not None:  # a class may; then it has the eager form alone
        return
    # a global list or dict is the user's own state, and stays the same object once lifted
    names = {c.name for c in found if c.kind != "constant" or c.type == "Tensor"}
    for backward in rule.backwards:
        rebound = {n for s in of_kind(backward.tree, ast.Nonlocal) for n in s.names}
        roots = (names - rebound) | set(backward.params)
        types = {n: t for n, t in rule.types if n not in backward.params}
        body = [s.tree for s in backward.body]
        for node, name in changes(body, roots, types, bindings(rule.source.tree)):
            what = "the output gradient" if name in backward.params else "the captured"
            yield diagnostic(
                "S2S210",
                rule.source.span(node),
                f"{backward.name} of {rule.name} changes {what} {name} in place: `{_short(node)}`",
                hint="autograd may use that tensor elsewhere, or run backward again; "
                f"compute a new value, for example from {name}.clone()",
            )


def changed_captures(rule: Rule) -> tuple[str, ...]:
    """What backward of a Function class changes in place: what forward kept, and gradients."""
    if rule.dirty is None:  # refused in the closure form
        return ()
    found = bindings(rule.source.tree)
    names = {c.name for c in captures(rule) if c.kind != "constant"}
    names |= {name for b in rule.backwards for name in b.params}
    types = {n: t for n, t in rule.types if all(n not in b.params for b in rule.backwards)}
    trees = [s.tree for b in rule.backwards for s in b.body]
    return tuple(dict.fromkeys(name for _, name in changes(trees, names, types, found)))


def surely_fresh(rule: Rule) -> bool:
    """Is every output the result of arithmetic, so that it shares no memory with anything?"""
    made = [s.tree for s in rule.body if isinstance(s.tree, ast.Assign)]
    bound = [name for s in rule.body for name in writes(s.tree)]
    values = {t.id: s.value for s in made for t in s.targets if isinstance(t, ast.Name)}
    params = {p.name for p in rule.params}

    def fresh_value(value: ast.expr) -> bool:
        if isinstance(value, ast.IfExp):
            return fresh_value(value.body) and fresh_value(value.orelse)
        if isinstance(value, ast.Name):
            once = bound.count(value.id) == 1 and value.id in values and value.id not in params
            return once and fresh_value(values[value.id])
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            return value.func.attr in VIEWS and fresh_value(value.func.value)
        return isinstance(value, (ast.BinOp, ast.Compare))

    for statement in returns_in([s.tree for s in rule.body]):
        assert isinstance(statement.value, ast.Tuple)
        outputs = statement.value.elts[:-1]
        if len(outputs) == 1 and isinstance(outputs[0], ast.Tuple):
            outputs = outputs[0].elts
        names = [o.id for o in outputs if isinstance(o, ast.Name)]
        if len(set(names)) < len(names) or not all(fresh_value(o) for o in outputs):
            return False
    return True


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 50 else text[:47] + "..."


# --- inputs changed in place ------------------------------------------------------------------


@functools.lru_cache(maxsize=16)  # of one rule, whoever asks
def mutated_inputs(rule: Rule) -> Mapping[str, ast.AST]:
    """Tensor inputs that forward changes in place, with the place."""
    tensors = [p.name for p in rule.params if not is_plain(p.type) and not p.bound]
    lifted = {b.tree for b in rule.backwards}
    body = [s.tree for s in rule.body if s.tree not in lifted]
    found: dict[str, ast.AST] = {}
    for node, name in changes(body, tensors, dict(rule.types), bindings(rule.source.tree)):
        found.setdefault(name, node)
    return found


def _returned_by_call(rule: Rule) -> set[str]:
    """The names in ``return x.mul_(2), backward``, whose output is ``x`` itself."""
    rows = [r.value for r in returns_in([s.tree for s in rule.body])]
    values = [value.elts[:-1] for value in rows if isinstance(value, ast.Tuple)]
    flat = [v.elts if isinstance(v, ast.Tuple) else [v] for row in values for v in row]
    found: set[str] = set()
    for value in (v for row in flat for v in row):
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if not value.func.attr.endswith("_"):
                break
            value = value.func.value
        else:
            found |= {value.id} if isinstance(value, ast.Name) else set()
    return found


def _changed_inputs(rule: Rule) -> Iterator[Diagnostic]:
    if rule.dirty is not None:  # a class says itself what it marks
        return
    returned = {output.name for output in rule.outputs} | _returned_by_call(rule)
    for name, node in mutated_inputs(rule).items():
        if name not in returned:
            yield diagnostic(
                "S2S211",
                rule.source.span(node),
                f"{rule.name} changes its input {name} in place (`{_short(node)}`) "
                "and does not return it",
                hint=f"work on {name}.clone(), or return {name} as an output",
            )


# --- constructs -------------------------------------------------------------------------------


def _constructs(rule: Rule) -> Iterator[Diagnostic]:
    for node in walk(rule.source.function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            bare = name != "super" or not node.args
            if name in SCOPE_TRICKS and bare and name not in rule.locals:
                yield diagnostic(
                    "S2S216",
                    rule.source.span(node),
                    f"{rule.name} calls {name}(), which sees the scope it is written in; "
                    "the lifted functions have other scopes",
                    hint="name what is needed, for example `Base.method(self)` for "
                    "`super().method()`",
                )


def _unliftable_helpers(rule: Rule, found: tuple[Capture, ...]) -> Iterator[Diagnostic]:
    helpers = helpers_of(rule)
    top = {s.tree for s in rule.body}
    values = {s.tree.value for s in rule.body if isinstance(s.tree, ast.Assign)}
    names = {c.name for c in found}
    lifted = {b.tree for b in rule.backwards}
    for statement in rule.body:
        for node in same_scope(statement.tree):
            name = node.name if isinstance(node, ast.FunctionDef) else ""
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                name = root(node.targets[0]) or ""
                if node.value in lifted:
                    continue
            if not name or name not in names or node in lifted:
                continue
            inner = node if isinstance(node, ast.FunctionDef) else node.value  # type: ignore[attr-defined]
            if name not in helpers or (node not in top and inner not in values):
                yield diagnostic(
                    "S2S216",
                    rule.source.span(node),
                    f"the nested function {name} that backward of {rule.name} calls is defined "
                    "in a branch or more than once",
                    hint=f"define {name} once, at the top of {rule.name} or outside it",
                )


def _recomputed_names(rule: Rule, found: tuple[Capture, ...]) -> Iterator[Diagnostic]:
    """Each name of ``recompute`` is one that forward computes for backward."""
    kinds = {c.name: c.kind for c in found}
    computed = [c.name for c in found if c.kind == "intermediate"]
    for name in rule.recompute:
        kind = kinds.get(name)
        if kind == "intermediate":
            continue
        is_kept = kind is not None and kind != "helper"
        what = f"it is an {kind}, and kept" if is_kept else "backward reads no such value"
        hint = "backward computes nothing of forward again" if not computed else ""
        yield diagnostic(
            "S2S220",
            decorator_span(rule.source),
            f"recompute names {name!r}, but {what}",
            hint=hint or f"name what forward computes and backward reads: {', '.join(computed)}",
        )


def differentiable_slots(backward: Backward, rule: Rule) -> tuple[int, ...]:
    """For each parameter of a backward, the output it is the gradient of."""
    if len(backward.params) == len(rule.outputs):
        return tuple(range(len(rule.outputs)))
    return tuple(i for i, output in enumerate(rule.outputs) if output.differentiable)
