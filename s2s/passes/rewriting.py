"""What the passes for TorchScript share: a visitor over both bodies, one statement a line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import libcst as cst

from ..ir import Pair, Stmt, replace
from ..names import walk
from ..syntax import code, from_node

__all__ = ["line", "lines_in_place_of", "rewritten"]


def rewritten(
    pair: Pair,
    wanted: Callable[[ast.AST], bool],
    visitor: cst.CSTTransformer,
    taken: set[str] | None = None,
) -> Pair:
    """The pair after ``visitor`` has been through the statements that hold a ``wanted`` node.

    ``taken`` is the set from which the visitor takes fresh names. The same pair where nothing
    changes.
    """
    forward = _visited(pair.forward, wanted, visitor)
    backward = _visited(pair.backward, wanted, visitor)
    if forward is pair.forward and backward is pair.backward:
        return pair
    names = pair.taken if taken is None else pair.taken | taken
    return replace(pair, forward=forward, backward=backward, taken=names)


def _visited(
    body: tuple[Stmt, ...], wanted: Callable[[ast.AST], bool], visitor: cst.CSTTransformer
) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    changed = False
    for statement in body:
        if not any(map(wanted, walk(statement.tree))):
            done.append(statement)
            continue
        spread = statement.node.visit(_Spread())
        assert isinstance(spread, cst.BaseStatement)
        result = spread.visit(visitor)
        nodes = list(result) if isinstance(result, cst.FlattenSentinel) else [result]
        made = [n for n in nodes if isinstance(n, cst.BaseStatement)]
        if "".join(map(code, made)) == code(spread):
            done.append(statement)
            continue
        changed = True
        done += [from_node(node, statement.line) for node in made]
    return tuple(done) if changed else body


class _Spread(cst.CSTTransformer):
    """``if c: a; b`` takes three lines, so that a statement can be put in front of each."""

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        lines = [line(small) for small in updated_node.body]
        tail = updated_node.trailing_whitespace
        lines[-1] = lines[-1].with_changes(trailing_whitespace=tail)
        return cst.IndentedBlock(lines)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        if len(updated_node.body) == 1:
            return updated_node
        return lines_in_place_of(updated_node, updated_node.body)


def line(small: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
    """A line of its own for a small statement."""
    return cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])


def lines_in_place_of(
    old: cst.SimpleStatementLine, smalls: Sequence[cst.BaseSmallStatement]
) -> cst.FlattenSentinel[cst.SimpleStatementLine]:
    """A line for each small statement, with the comments of the line that they stand for."""
    lines = [line(small) for small in smalls]
    lines[0] = lines[0].with_changes(leading_lines=old.leading_lines)
    lines[-1] = lines[-1].with_changes(trailing_whitespace=old.trailing_whitespace)
    return cst.FlattenSentinel(lines)
