"""Forward for calls that need no gradient: without what only backward reads.

    def f_forward(x):                      def f_forward(x):
        s = torch.sigmoid(x)                   return x * 2, ()
        return x * 2, (s,)           -->

A statement goes only if running it does nothing else: random draws stay, so that a seed means the
same with and without gradients.
"""

from __future__ import annotations

import ast

from ..effects import aliases, doing, touched
from ..ir import Pair, Stmt, replace
from ..names import changed, reads, same_scope, writes
from ..source import bindings
from ..syntax import handed_over

__all__ = ["plain_forward"]


def plain_forward(pair: Pair) -> Pair:
    """The pair with nothing saved, and forward without the statements that this leaves idle.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x)
    ...     def backward(g):
    ...         return g * s
    ...     return x * 2, backward
    ... ''', plain_forward))
    def f_forward(x):
        return x * 2, ()
    """
    before = [s.name for s in pair.saved]
    body = handed_over(pair.forward, before, [])
    return replace(pair, forward=_without_idle(pair, body), saved=(), backward=(), grads=())


def _without_idle(pair: Pair, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    found = bindings(pair.source.tree)
    local = {n for s in body for n in writes(s.tree)} | set(pair.arguments)
    objects = {p.name for p in pair.params if p.type in ("object", "")}
    shared = aliases([s.tree for s in body])
    needed: set[str] = set()
    kept: list[Stmt] = []
    for statement in reversed(body):
        tree = statement.tree
        inplace = {a for n in touched(tree, found) for a in shared.get(n, {n})}
        idle = not (set(writes(tree)) | inplace) & needed
        if idle and _only_assigns(tree) and doing(tree, found, local, objects) == "pure":
            continue
        kept.insert(0, statement)
        needed |= set(reads(tree)) | inplace
        if isinstance(tree, ast.Delete):  # there must be something to delete
            needed |= set(writes(tree))
    return tuple(kept)


def _only_assigns(tree: ast.stmt) -> bool:
    """Could the statement go without anyone noticing, if nobody reads what it binds?"""
    kinds = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.If, ast.For, ast.Pass)
    if not isinstance(tree, kinds) or changed(tree):
        return False
    inner = [n for n in same_scope(tree) if isinstance(n, ast.stmt)]
    return all(isinstance(n, kinds) for n in inner)
