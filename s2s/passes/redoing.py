"""What the passes share that compute values of forward again in backward."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

import libcst as cst

from ..effects import carries_gradient, without_grad
from ..identity import linked, same_tensor
from ..infer import infer, is_plain, is_tensor, types_after
from ..ir import Constant, Pair, Saved, Stmt, replace
from ..names import changed, children, fresh, reads, root, same_scope, writes
from ..source import bindings
from ..syntax import handed_over, rename
from .lift_backward import keep_for

__all__ = [
    "OUTPUT",
    "bare",
    "differentiable",
    "forward_types",
    "perhaps_outputs",
    "rebound",
    "redone_already",
    "rename_locals",
    "stops",
    "with_saved",
    "with_starts",
]

OUTPUT = "# returned too: its derivative is this very rule"


def stops(pair: Pair, trees: tuple[ast.stmt, ...]) -> set[str]:
    """Outputs that are saved: autograd reconnects these by itself, through the user's rule."""
    saved = {s.name for s in pair.saved}
    names = {o.name for o in pair.outputs if o.name in saved and o.name is not None}
    return {n for n in names if sum(n in writes(t) for t in trees) == 1 and n not in pair.arguments}


def perhaps_outputs(pair: Pair) -> set[str]:
    """Captured intermediates of which forward returns the very tensor, on one path or another."""
    trees = tuple(s.tree for s in pair.forward)
    nodes = [n for t in trees for n in same_scope(t)]
    found = {n for node in nodes if isinstance(node, ast.Return) for n in _returned(node)}
    groups = linked(trees)
    found |= {other for name in found for other in groups.get(name, ())}
    sure = stops(pair, trees) | {o.name for o in pair.outputs if o.name} | set(pair.arguments)
    carrying = differentiable(pair, pair.forward)
    return {
        s.name
        for s in pair.saved
        if s.name in (found & carrying) - sure and s.keep in ("tensor", "either")
    }


def _returned(node: ast.Return) -> Iterator[str]:
    """The names that a lifted forward's ``return outputs, (saved...)`` may return as outputs."""
    if isinstance(node.value, ast.Tuple):
        for output in node.value.elts[:-1]:
            yield from same_tensor(output)


def differentiable(pair: Pair, body: Sequence[Stmt]) -> set[str]:
    """Names whose value has a derivative with respect to an input."""
    carrying = {p.name for p in pair.params if not is_plain(p.type) and not p.bound}
    tensors = {name for name, type_ in forward_types(pair).items() if is_tensor(type_)}
    for _ in range(2):  # once more for what a loop carries round
        for statement in body:
            for node in _with_grad(statement.tree):
                _carry(node, carrying)
            for node in same_scope(statement.tree):
                if without_grad(node):
                    carrying.update(_renamed_in(node, carrying, tensors))
    return carrying


def _renamed_in(
    block: ast.AST, carrying: Collection[str], tensors: Collection[str]
) -> Iterator[str]:
    """Names that a ``with torch.no_grad():`` gives to values that were there: they keep theirs."""
    for node in same_scope(block):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            if any(name in carrying for name in _itself(node.value, tensors)):
                yield from writes(node)


def _itself(value: ast.expr, tensors: Collection[str]) -> Iterator[str]:
    """The names whose very object, or a part of whose tuple, an expression may be."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    elif isinstance(value, (ast.Tuple, ast.List)):
        parts = value.elts
    elif isinstance(value, (ast.Subscript, ast.Attribute)) and root(value) not in tensors:
        parts = [value.value]
    for part in parts:
        yield from _itself(part, tensors)


def _with_grad(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement outside ``with torch.no_grad():``."""
    if without_grad(node):
        return
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
        for child in children(node):
            yield from _with_grad(child)


def _carry(node: ast.AST, carrying: set[str]) -> None:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
        if node.value is not None and carries_gradient(node.value, carrying):
            carrying.update(writes(node))
            carrying.update(changed(node))
    elif isinstance(node, ast.For) and carries_gradient(node.iter, carrying):
        carrying.update(writes(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        carrying.update(writes(node.optional_vars))
    elif isinstance(node, ast.Call):
        parts = [*node.args, *(k.value for k in node.keywords)]
        if any(carries_gradient(p, carrying) for p in parts):
            carrying.update(changed(node))
    elif isinstance(node, ast.FunctionDef):
        if any(name in carrying for name in reads(node)):
            carrying.add(node.name)
    elif isinstance(node, ast.Match) and carries_gradient(node.subject, carrying):
        carrying.update(n for case in node.cases for n in writes(case.pattern))


def rebound(pair: Pair) -> set[str]:
    """Inputs that forward binds to something else."""
    bound = {n for s in pair.forward for n in writes(s.tree)}
    return {p.name for p in pair.params if p.name in bound}


def forward_types(pair: Pair) -> dict[str, str]:
    start = {p.name: p.type for p in pair.params}
    start |= {c.name: c.type for c in pair.constants}
    return types_after([s.tree for s in pair.forward], start, bindings(pair.source.tree))


def with_starts(pair: Pair, starts: list[str]) -> Pair:
    """Save what the redone statements start from, if it is not saved already."""
    present = {s.name for s in pair.saved}
    found = bindings(pair.source.tree)
    types = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
    extra: list[Saved] = []
    constants = list(pair.constants)
    for name in starts:
        if name in present or name in rebound(pair):
            continue
        if name not in types:  # a global
            types[name] = infer(ast.Name(name, ast.Load()), {}, found)
            constants.append(Constant(name, types[name], "the module", False))
        extra.append(Saved(name, keep_for(types[name]), types[name]))
    if not extra:
        return pair
    pair = rename_locals(pair, {s.name for s in extra})
    order = {name: index for index, name in enumerate(pair.arguments)}
    inputs = sorted(
        (s for s in (*pair.saved, *extra) if s.name in order), key=lambda s: order[s.name]
    )
    others = [s for s in (*pair.saved, *extra) if s.name not in order]
    first = [s for s in others if s.name == "branch" and s.type == "int"]
    others = [s for s in others if s not in first]
    saved = (*first, *inputs, *others)
    return with_saved(replace(pair, constants=tuple(constants)), saved)


def with_saved(pair: Pair, saved: tuple[Saved, ...]) -> Pair:
    """The pair with another list of saved values, in forward's returns too."""
    before = [s.name for s in pair.saved]
    forward = handed_over(pair.forward, before, [s.name for s in saved])
    return replace(pair, saved=saved, forward=forward)


def redone_already(pair: Pair) -> tuple[Stmt, ...]:
    """The statements of forward that stand in front of backward's own already."""
    trees = {s.tree for s in pair.forward}
    return tuple(
        s for s in pair.backward if s.tree in trees and not isinstance(s.tree, ast.FunctionDef)
    )


def rename_locals(pair: Pair, names: Collection[str]) -> Pair:
    """Backward's own names that the redone statements would overwrite get others."""
    redone = redone_already(pair)
    own = {n for s in pair.backward if s not in redone for n in writes(s.tree)} | set(pair.grads)
    saved = {s.name for s in pair.saved}
    clash = sorted(n for n in own if n in names and n not in saved) + sorted(
        n for n in pair.grads if n in saved
    )
    if not clash:
        return pair
    taken = set(pair.taken)
    new: dict[str, str] = {}
    for name in clash:
        new[name] = fresh(name, taken)
        taken.add(new[name])
    return replace(
        pair,
        grads=tuple(new.get(g, g) for g in pair.grads),
        backward=tuple(rename(s, new) for s in pair.backward),
        taken=frozenset(taken),
    )


def bare(statement: Stmt) -> cst.BaseStatement:
    """Without the comments and blank lines around it: they are in forward already."""
    node = statement.node
    if isinstance(node, cst.SimpleStatementLine):
        return node.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())
    return node.with_changes(leading_lines=[])
