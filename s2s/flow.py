"""Which names are surely bound where a function returns."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from .names import walk, writes

__all__ = ["bound_at_returns"]

_Have = frozenset[str] | None  # None: control does not get here


def bound_at_returns(
    body: Iterable[ast.stmt], before: Collection[str], marks: Collection[ast.AST] = ()
) -> list[frozenset[str]]:
    """For each return statement, in the order of the text, the names bound on every way to it.

    ``marks`` are nested functions without which a return would fail: what was bound where one
    of them stands is bound at the returns too.

    >>> tree = ast.parse("if c:\\n    a = 1\\nelse:\\n    a = b = 2\\nreturn a", mode="exec")
    >>> [sorted(names) for names in bound_at_returns(tree.body, ["c"])]
    [['a', 'c']]
    """
    flow = _Flow(set(marks))
    flow.block(list(body), frozenset(before))
    marked = frozenset.intersection(*flow.marked) if flow.marked else frozenset()
    found = sorted(flow.returns, key=lambda item: item[0])
    return [names | marked for _, names in found]


class _Flow:
    def __init__(self, marks: set[ast.AST]) -> None:
        self.marks = marks
        self.marked: list[frozenset[str]] = []
        self.returns: list[tuple[tuple[int, int], frozenset[str]]] = []

    def block(self, body: list[ast.stmt], have: _Have) -> _Have:
        for statement in body:
            if have is None:
                self._unreached(statement)
                continue
            have = self.statement(statement, have)
        return have

    def _unreached(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            self.returns.append(((statement.lineno, statement.col_offset), frozenset()))

    def statement(self, node: ast.stmt, have: frozenset[str]) -> _Have:
        if any(n in self.marks for n in walk(node)) and node in self.marks:
            self.marked.append(have)
        if isinstance(node, ast.Return):
            names = have | set(writes(node))
            self.returns.append(((node.lineno, node.col_offset), names))
            return None
        if isinstance(node, (ast.Raise, ast.Break, ast.Continue)):
            return None
        if isinstance(node, ast.If):
            have = have | set(writes(node.test))
            return _meet(self.block(node.body, have), self.block(node.orelse, have))
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self.block(node.body, have | set(writes(node.target)))
            return self.block(node.orelse, have)
        if isinstance(node, ast.While):
            have = have | set(writes(node.test))
            inside = self.block(node.body, have)
            forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
            if forever and inside is not None and not node.orelse:
                return have
            return self.block(node.orelse, have)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            inner = have.union(*(writes(item) for item in node.items))
            return self.block(node.body, inner)
        if isinstance(node, ast.Try):
            done = self.block(node.body, have)
            done = self.block(node.orelse, done) if done is not None else None
            for handler in node.handlers:
                done = _meet(done, self.block(handler.body, have))
            if node.finalbody:
                last = self.block(node.finalbody, done if done is not None else have)
                return None if done is None else last
            return done
        if isinstance(node, ast.Match):
            ends: list[_Have] = []
            for case in node.cases:
                ends.append(self.block(case.body, have | set(writes(case.pattern))))
            wild = node.cases[-1].pattern
            if not (isinstance(wild, ast.MatchAs) and wild.pattern is None):
                ends.append(have)
            result: _Have = None
            for end in ends:
                result = _meet(result, end)
            return result
        return have | set(writes(node))


def _meet(one: _Have, other: _Have) -> _Have:
    if one is None or other is None:
        return other if one is None else one
    return one & other
