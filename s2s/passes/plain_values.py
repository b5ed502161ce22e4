"""``or`` as a choice between values, and comparisons in a chain that ask twice.

    n = steps or 1                   -->   n = steps if steps else 1
    0 < float(torch.rand(())) < p    -->   0 < (middle := float(torch.rand(()))) and middle < p

TorchScript takes both, and means another thing: its ``or`` gives a bool, and it computes what
stands in the middle of a chain once for each side. The walrus goes in `unnest_walrus`, or is
refused there.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..effects import doing
from ..ir import Pair
from ..names import fresh
from ..source import bindings
from ..syntax import code
from .rewriting import rewritten

__all__ = ["plain_values"]


def plain_values(pair: Pair) -> Pair:
    """Write out what ``or``, ``and`` and chained comparisons mean."""
    taken = set(pair.taken)

    def wanted(node: ast.AST) -> bool:
        return isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and len(node.ops) > 1)

    return rewritten(pair, wanted, _Values(pair, taken), taken)


class _Values(cst.CSTTransformer):
    def __init__(self, pair: Pair, taken: set[str]) -> None:
        self.bindings = bindings(pair.source.tree)
        self.local = pair.taken - set(self.bindings)
        self.taken = taken
        self.tests: set[cst.CSTNode] = set()  # where only true or false is asked

    def _ask(self, node: cst.BaseExpression) -> None:
        self.tests.add(node)
        if isinstance(node, cst.BooleanOperation):
            self._ask(node.left)
            self._ask(node.right)

    def visit_If(self, node: cst.If) -> None:
        self._ask(node.test)

    def visit_While(self, node: cst.While) -> None:
        self._ask(node.test)

    def visit_Assert(self, node: cst.Assert) -> None:
        self._ask(node.test)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._ask(node.test)

    def visit_CompIf(self, node: cst.CompIf) -> None:
        self._ask(node.test)

    def visit_UnaryOperation(self, node: cst.UnaryOperation) -> None:
        if isinstance(node.operator, cst.Not):
            self._ask(node.expression)

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        if original_node in self.tests or _is_bool(original_node):
            return updated_node
        left, right = updated_node.left, updated_node.right
        first = second = left
        if not isinstance(left, (cst.Name, cst.Integer, cst.Float, cst.SimpleString)):
            name = cst.Name(fresh("left", self.taken))
            self.taken.add(name.value)
            first, second = _in_parentheses(cst.NamedExpr(name, left)), name
        arms = (second, right) if isinstance(updated_node.operator, cst.Or) else (right, second)
        return _in_parentheses(cst.IfExp(first, arms[0], arms[1]))

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        *middles, last = updated_node.comparisons
        if not any(self._tells_apart(target.comparator) for target in middles):
            return updated_node
        left = updated_node.left
        joined: cst.BaseExpression | None = None
        for target in middles:
            after = target.comparator
            if self._tells_apart(after):
                after = cst.Name(fresh("middle", self.taken))
                self.taken.add(after.value)
                bound = _in_parentheses(cst.NamedExpr(after, target.comparator))
                target = target.with_changes(comparator=bound)
            test = cst.Comparison(left, [target])
            joined = cst.BooleanOperation(joined, cst.And(), test) if joined else test
            left = after
        assert joined is not None
        whole = cst.BooleanOperation(joined, cst.And(), cst.Comparison(left, [last]))
        return whole.with_changes(
            lpar=updated_node.lpar or [cst.LeftParen()],
            rpar=updated_node.rpar or [cst.RightParen()],
        )

    def _tells_apart(self, node: cst.BaseExpression) -> bool:
        """Is it another thing to compute it twice?"""
        tree = ast.parse(f"({code(node)})", mode="eval").body
        return doing(tree, self.bindings, self.local) != "pure"


def _is_bool(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.BooleanOperation):
        return _is_bool(node.left) and _is_bool(node.right)
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    if isinstance(node, cst.Call):
        return code(node.func) in ("isinstance", "bool", "all", "any", "hasattr", "torch.is_tensor")
    name = node.value if isinstance(node, cst.Name) else ""
    return isinstance(node, cst.Comparison) or name in ("True", "False")


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
