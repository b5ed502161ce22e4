"""What must hold of every ``Pair``. Runs after every pass that made another one of it."""

from __future__ import annotations

import ast

from .ir import Pair
from .names import of_kind, reads, walk, writes
from .parse import falls_through

__all__ = ["InternalError", "verify"]


class InternalError(AssertionError):
    """A pass broke the pair: a bug of s2s, never of the user's function."""


def verify(pair: Pair, after: str) -> Pair:
    """The pair itself, or InternalError that names the pass and what it broke."""
    problems = [*_names(pair), *_returns(pair), *_gradients(pair), *_ends(pair)]
    if problems:
        raise InternalError(f"{pair.name} after {after}: " + "; ".join(problems))
    return pair


def _names(pair: Pair) -> list[str]:
    """Every name that is read is handed over, bound, or found outside."""
    problems = []
    saved = [s.name for s in pair.saved]
    if len(set(saved)) != len(saved):
        problems.append(f"saved twice: {saved}")
    if len(set(pair.grads)) != len(pair.grads):
        problems.append(f"two output gradients share a name: {pair.grads}")
    if set(pair.grads) & set(saved):
        problems.append(f"an output gradient is named like a saved value: {pair.grads}")
    own = {n for s in pair.forward for n in writes(s.tree)} | set(pair.arguments)
    local = {n for s in pair.backward for n in writes(s.tree)}
    arguments = {a.arg for a in of_kind(pair.source.function, ast.arg)}
    known = {*saved, *pair.grads, *local, "needs_input_grad"}
    for statement in pair.backward:
        for name in reads(statement.tree):
            if name not in known and name in own:
                problems.append(f"backward reads {name} of forward, which is not saved")
            elif name not in known and name in arguments:
                problems.append(f"backward reads {name}, which is none of its parameters")
    outside = {c.name for c in pair.constants}
    for name in saved:
        computed = any(s.name == name and s.value for s in pair.saved)
        if name not in own | outside and not computed and not _is_branch(pair, name):
            problems.append(f"saved {name} is bound nowhere")
    lifted = {c.name for c in pair.constants if c.lifted}
    for statement in pair.backward:
        for name in reads(statement.tree):
            if name in lifted and name not in known:
                problems.append(f"backward reads {name} of an enclosing function, not saved")
    return problems


def _is_branch(pair: Pair, name: str) -> bool:
    return pair.saved[0].name == name and pair.saved[0].type == "int"


def _returns(pair: Pair) -> list[str]:
    """Every return of forward is ``outputs, (saved...)``, in the order of ``saved``."""
    problems = []
    for statement in pair.forward:
        for node in of_kind(statement.tree, ast.Return):
            if _in_function(statement.tree, node):
                continue
            value = node.value
            if not (isinstance(value, ast.Tuple) and len(value.elts) == 2):
                problems.append(f"forward returns {ast.unparse(node)}, not outputs and saved")
                continue
            handed = value.elts[1]
            if not isinstance(handed, ast.Tuple) or len(handed.elts) != len(pair.saved):
                problems.append(f"forward hands over {ast.unparse(handed)} for {pair.saved}")
                continue
            for saved, element in zip(pair.saved, handed.elts):
                named = isinstance(element, ast.Name) and element.id == saved.name
                if not named and not saved.value and not _is_branch(pair, saved.name):
                    problems.append(f"forward hands over {ast.unparse(element)} as {saved.name}")
    return problems


def _ends(pair: Pair) -> list[str]:
    """Forward and backward end in a return (or a raise) on every way through."""
    problems = []
    for which, body in (("forward", pair.forward), ("backward", pair.backward)):
        wanted = bool(body) or bool(pair.grads)  # the operator's text has no backward
        if wanted and falls_through([s.tree for s in body]):
            problems.append(f"{which} can end without a return")
    return problems


def _in_function(outer: ast.AST, node: ast.AST) -> bool:
    functions = (*of_kind(outer, ast.FunctionDef), *of_kind(outer, ast.Lambda))
    return any(node in walk(inner) for inner in functions)


def _gradients(pair: Pair) -> list[str]:
    """Literal returns of backward give one gradient per slot."""
    if any(p.kind == "variadic" for p in pair.params):
        return []
    problems = []
    for statement in pair.backward:
        for node in of_kind(statement.tree, ast.Return):
            if _in_function(statement.tree, node):
                continue
            if isinstance(node.value, ast.Tuple):
                starred = any(isinstance(e, ast.Starred) for e in node.value.elts)
                if not starred and len(node.value.elts) != sum(pair.slots):
                    problems.append(
                        f"backward returns {len(node.value.elts)} gradients for {sum(pair.slots)}"
                    )
    return problems
