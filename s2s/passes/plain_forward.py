"""Forward for calls that need no gradient: without what only backward reads.

    def f_forward(x):                      def f_forward(x):
        s = torch.sigmoid(x)                   return x * 2, ()
        return x * 2, (s,)           -->

A statement goes only if running it does nothing else: random draws stay, so that a seed means the
same with and without gradients, and so do errors that are raised, calls that cannot be seen into
and changes of what somebody else has.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from ..effects import aliases, closed_over, doing, nested_functions, touched, without_grad
from ..infer import Bindings
from ..ir import Pair, Stmt, replace
from ..names import changed, reads, same_scope, writes
from ..source import bindings
from ..syntax import block, from_node, handed_over, make

__all__ = ["plain_forward"]


def plain_forward(pair: Pair) -> Pair:
    """The pair with nothing saved, and forward without the statements that this leaves idle.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x, flag: bool):
    ...     if flag:
    ...         y, s = x * 2, x.sigmoid()
    ...     else:
    ...         y, s = x, x.cosh()
    ...     scaled = s.clone()
    ...     scaled.mul_(2)
    ...     def backward(g):
    ...         return g * scaled, None
    ...     return y, backward
    ... ''', plain_forward))
    def f_forward(x, flag):
        if flag:
            y = x * 2
        else:
            y = x
        return y, ()
    """
    body = handed_over(pair.forward, [s.name for s in pair.saved], [])
    while True:  # once more, without what the functions read that went
        left, _ = _block(_facts(pair, body), body, set())
        if len(left) == len(body) or tuple(left) == body:
            break
        body = tuple(left)
    return replace(pair, forward=tuple(left), saved=(), backward=(), grads=())


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is asked about each statement of a forward."""

    found: Bindings
    local: frozenset[str]
    objects: frozenset[str]
    shared: Mapping[str, frozenset[str]]  # names that may share memory
    outside: frozenset[str]  # names whose values are not forward's own
    nested: Mapping[str, ast.FunctionDef | ast.Lambda]
    closed: frozenset[str]  # names that nested functions read, whenever they are called


def _facts(pair: Pair, body: Sequence[Stmt]) -> _Facts:
    trees = [s.tree for s in body]
    local = {n for t in trees for n in writes(t)} | set(pair.arguments)
    every = {n for t in trees for n in reads(t)}
    return _Facts(
        found=bindings(pair.source.tree),
        local=frozenset(local),
        objects=frozenset(p.name for p in pair.params if p.type in ("object", "")),
        shared=aliases(trees),
        outside=frozenset({*pair.arguments, *(every - local)}),
        nested=nested_functions(trees),
        closed=frozenset(closed_over(trees)),
    )


def _block(facts: _Facts, body: Sequence[Stmt], needed: set[str]) -> tuple[list[Stmt], set[str]]:
    """The statements that stay, and the names that they and what follows them need."""
    kept: list[Stmt] = []
    for statement in reversed(body):
        left, needed = _one(facts, statement, needed)
        if left is not None:
            kept.insert(0, left)
    return kept, needed


def _one(facts: _Facts, statement: Stmt, needed: set[str]) -> tuple[Stmt | None, set[str]]:
    tree = statement.tree
    if _is_idle(facts, tree, needed):
        return None, needed
    if isinstance(tree, ast.If):
        return _branch(facts, statement, needed)
    if isinstance(tree, (ast.For, ast.While)) and not tree.orelse:
        return _loop(facts, statement, needed)
    if isinstance(tree, ast.With):
        return _with(facts, statement, needed)
    statement = _fewer_targets(facts, statement, needed)
    tree = statement.tree
    needed = needed | set(reads(tree)) | _inplace(facts, tree)
    if isinstance(tree, ast.Delete):  # there must be something to delete
        needed |= set(writes(tree))
    return statement, needed


def _inplace(facts: _Facts, tree: ast.stmt) -> set[str]:
    """The names whose values a statement may change in place."""
    return {
        a for n in touched(tree, facts.found, nested=facts.nested) for a in facts.shared.get(n, {n})
    }


def _is_idle(facts: _Facts, tree: ast.stmt, needed: set[str]) -> bool:
    """Could the statement go without anyone noticing?"""
    kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.FunctionDef)
    kinds += (ast.If, ast.For, ast.Pass)  # type: ignore[assignment]
    statements = [n for n in same_scope(tree) if isinstance(n, ast.stmt)]
    if not all(isinstance(n, kinds) for n in statements):
        return False
    changes = {a for n in statements for a in _inplace(facts, n)}
    held = {*needed, *facts.closed}
    if set(writes(tree)) & held or changes & held or changes & facts.outside:
        return False
    if any(isinstance(n, ast.Expr) and not changed(n) for n in statements):  # a bare call
        return False
    return doing(tree, facts.found, facts.local, facts.objects) == "pure"


def _fewer_targets(facts: _Facts, statement: Stmt, needed: set[str]) -> Stmt:
    """``a, b = e, f`` as ``a = e``, where nobody needs b and f does nothing else."""
    tree, node = statement.tree, statement.node
    if not isinstance(tree, ast.Assign) or not isinstance(node, cst.SimpleStatementLine):
        return statement
    target, value = tree.targets[0], tree.value
    small = node.body[0]
    if len(tree.targets) > 1 or not isinstance(target, ast.Tuple) or len(node.body) > 1:
        return statement
    if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
        return statement
    held = {*needed, *facts.closed}
    stays = [
        not isinstance(t, ast.Name)
        or t.id in held
        or isinstance(v, ast.Starred)
        or any(n in held for n in writes(v))
        or doing(v, facts.found, facts.local, facts.objects) != "pure"
        for t, v in zip(target.elts, value.elts)
    ]
    if all(stays) or not any(stays):
        return statement
    assert isinstance(small, cst.Assign)
    assert isinstance(small.targets[0].target, cst.Tuple) and isinstance(small.value, cst.Tuple)
    left = _picked(small.targets[0].target, stays)
    made = small.with_changes(
        targets=[cst.AssignTarget(left)],  # type: ignore[arg-type]
        value=_picked(small.value, stays),
    )
    return from_node(node.with_changes(body=[made]), statement.line)


def _picked(node: cst.Tuple, stays: Sequence[bool]) -> cst.BaseExpression:
    elements = [e.value for e, stay in zip(node.elements, stays) if stay]
    if len(elements) == 1:
        return elements[0]
    return node.with_changes(elements=[cst.Element(e) for e in elements])


# --- statements in statements -------------------------------------------------------------------


def _inner(statement: Stmt, suite: cst.BaseSuite) -> list[Stmt]:
    nodes = [
        n if isinstance(n, cst.BaseStatement) else cst.SimpleStatementLine([n]) for n in suite.body
    ]
    return [from_node(n, statement.line) for n in nodes]


def _branch(facts: _Facts, statement: Stmt, needed: set[str]) -> tuple[Stmt | None, set[str]]:
    node = statement.node
    assert isinstance(node, cst.If) and isinstance(statement.tree, ast.If)
    body = _inner(statement, node.body)
    if isinstance(node.orelse, cst.If):
        other = [from_node(node.orelse, statement.line)]
    else:
        other = _inner(statement, node.orelse.body) if node.orelse is not None else []
    kept, one = _block(facts, body, needed)
    left, two = _block(facts, other, needed)
    needed = one | two | set(reads(statement.tree.test))
    if kept == body and left == other:
        return statement, needed
    orelse: cst.If | cst.Else | None = cst.Else(block(left)) if left else None
    if isinstance(node.orelse, cst.If) and left and isinstance(left[0].node, cst.If):
        orelse = left[0].node
    made = node.with_changes(body=block(kept), orelse=orelse)
    return from_node(made, statement.line), needed


def _loop(facts: _Facts, statement: Stmt, needed: set[str]) -> tuple[Stmt | None, set[str]]:
    node, tree = statement.node, statement.tree
    assert isinstance(node, (cst.For, cst.While)) and isinstance(tree, (ast.For, ast.While))
    head = tree.iter if isinstance(tree, ast.For) else tree.test
    needed = needed | set(reads(head))
    body = _inner(statement, node.body)
    while True:  # what a round leaves behind meets the next one
        kept, before = _block(facts, body, needed)
        if before <= needed:
            break
        needed = needed | before
    if kept == body or not kept:
        return statement, needed | set(reads(tree))
    return from_node(node.with_changes(body=block(kept)), statement.line), needed


def _with(facts: _Facts, statement: Stmt, needed: set[str]) -> tuple[Stmt | None, set[str]]:
    node, tree = statement.node, statement.tree
    assert isinstance(node, cst.With) and isinstance(tree, ast.With)
    body = _inner(statement, node.body)
    kept, needed = _block(facts, body, needed)
    if not kept and without_grad(tree):
        return None, needed
    needed = needed.union(*(reads(item.context_expr) for item in tree.items))
    if kept == body:
        return statement, needed
    inner = kept or [make("pass")]
    return from_node(node.with_changes(body=block(inner)), statement.line), needed
