"""An assignment inside an expression becomes a statement in front of it.

    if (n := x.dim()) > 2:           -->   n = x.dim()
        y = x.sum(n - 1)                   if n > 2:
                                               y = x.sum(n - 1)

Only where it is sure to be the first thing that happens: not behind a call, in the right side of
``and`` or ``or``, in the arms of a conditional expression, in a loop's test or a comprehension.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from ..ir import Pair
from ..names import changed
from ..syntax import code, standalone
from .rewriting import line, lines_in_place_of, rewritten

__all__ = ["unnest_walrus", "unnested"]


def unnest_walrus(pair: Pair) -> Pair:
    """Bind in front what a statement binds first of all."""
    return rewritten(pair, lambda node: isinstance(node, ast.NamedExpr), _Walrus())


class _Walrus(cst.CSTTransformer):
    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        (small,) = updated_node.body
        key = "test" if isinstance(small, cst.Assert) else "value"
        value = getattr(small, key, None)
        known = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Return, cst.Expr, cst.Assert)
        if not isinstance(small, known) or value is None:
            return updated_node
        before = small.target if isinstance(small, cst.AugAssign) else None
        bound, value = unnested(value, before)
        if not bound:
            return updated_node
        return lines_in_place_of(updated_node, [*bound, small.with_changes(**{key: value})])

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.FlattenSentinel[cst.BaseStatement]:
        other = updated_node.orelse
        if isinstance(other, cst.If):  # `elif`: the assignment goes where the test is reached
            bound, test = unnested(other.test)
            if bound:
                inner = other.with_changes(test=test, leading_lines=())
                block = cst.IndentedBlock([*map(line, bound), inner])
                arm = cst.Else(block, leading_lines=other.leading_lines)
                updated_node = updated_node.with_changes(orelse=arm)
        if getattr(original_node, "test", None) in self.elifs:
            return updated_node
        bound, test = unnested(updated_node.test)
        if not bound:
            return updated_node
        lines = [line(small) for small in bound]
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([*lines, updated_node.with_changes(test=test, leading_lines=())])

    def __init__(self) -> None:
        self.elifs: set[cst.BaseExpression] = set()

    def visit_If(self, node: cst.If) -> None:
        if isinstance(node.orelse, cst.If):
            self.elifs.add(node.orelse.test)


def unnested(
    value: cst.BaseExpression, before: cst.BaseExpression | None = None
) -> tuple[list[cst.Assign], cst.BaseExpression]:
    """The assignments to put in front of an expression, and the expression without them.

    ``before`` is evaluated ahead of it.
    """
    bound: list[cst.Assign] = []
    while True:
        seen: list[str] = [] if before is None else _names(before)
        found = next(_first(value, seen), None)
        if not isinstance(found, cst.NamedExpr):
            return bound, value
        name = cst.ensure_type(found.target, cst.Name)
        if name.value in seen or (seen and changed(ast.parse(code(found.value).strip()))):
            return bound, value
        bound.append(cst.Assign([cst.AssignTarget(name)], standalone(found.value)))
        if found is value:
            return bound, name
        new = value.deep_replace(found, name)
        assert isinstance(new, cst.BaseExpression)
        value = new


_IN_ORDER = (
    *(cst.BinaryOperation, cst.UnaryOperation, cst.Attribute, cst.Subscript, cst.SubscriptElement),
    *(cst.Index, cst.Slice, cst.Tuple, cst.List, cst.Element, cst.Arg),
)
_VALUES = (cst.Name, cst.SimpleString, cst.Integer, cst.Float, cst.Imaginary, cst.Ellipsis)


def _first(node: cst.CSTNode, seen: list[str]) -> Iterator[cst.CSTNode]:
    """The walrus that is evaluated first, or what stands in its way; ``seen`` gets the names that
    are read before it."""
    if isinstance(node, cst.NamedExpr):
        inner = next(_first(node.value, list(seen)), None)
        yield inner if isinstance(inner, cst.NamedExpr) else node
    elif isinstance(node, cst.Name):
        seen.append(node.value)
    elif isinstance(node, cst.Attribute):
        yield from _first(node.value, seen)
    elif isinstance(node, cst.BooleanOperation):
        yield from _first(node.left, seen)
        yield node
    elif isinstance(node, cst.IfExp):
        yield from _first(node.test, seen)
        yield node
    elif isinstance(node, cst.Comparison):
        yield from _first(node.left, seen)
        yield from _first(node.comparisons[0].comparator, seen)
        if len(node.comparisons) > 1:
            yield node
    elif isinstance(node, cst.Call):
        yield from _first(node.func, seen)
        for arg in node.args:
            yield from _first(arg.value, seen)
        yield node
    elif isinstance(node, _IN_ORDER):
        for child in node.children:
            if not isinstance(child, (cst.BaseBinaryOp, cst.BaseUnaryOp)):
                yield from _first(child, seen)
    elif isinstance(node, cst.BaseExpression) and not isinstance(node, _VALUES):
        yield node


def _names(node: cst.BaseExpression) -> list[str]:
    return [n.id for n in ast.walk(ast.parse(code(node))) if isinstance(n, ast.Name)]
