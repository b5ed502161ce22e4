"""Small statements in the words that TorchScript has.

if kind in {"a", "b"}: ...       -->   if kind in ("a", "b"): pass
y: Tensor                        -->   pass
n //= 2                          -->   n = n // 2
for t in reversed(range(n)):     -->   for t in range(n - 1, -1, -1):
for h in reversed(states):       -->   for h in states[::-1]:
"""

from __future__ import annotations

import ast

import libcst as cst

from ..infer import infer, types_after
from ..ir import Pair
from ..source import bindings
from ..syntax import code
from .rewriting import rewritten

__all__ = ["plain_statements"]

_NODES = (ast.Set, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Call)


def plain_statements(pair: Pair) -> Pair:
    """Sets to look into, bare annotations, ``...``, ``//=``, ``@=`` and ``reversed``."""
    return rewritten(pair, lambda node: isinstance(node, _NODES), _Statements(pair))


class _Statements(cst.CSTTransformer):
    def __init__(self, pair: Pair) -> None:
        self.bindings = bindings(pair.source.tree)
        start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
        start = types_after([s.tree for s in pair.forward], start, self.bindings)
        start |= dict.fromkeys(pair.grads, "Tensor")
        self.types = types_after([s.tree for s in pair.backward], start, self.bindings)
        self.own_reversed = "reversed" in pair.taken & {*self.bindings, *self.types}

    def _type(self, node: cst.BaseExpression) -> str:
        tree = ast.parse(f"({code(node)})", mode="eval").body
        return infer(tree, self.types, self.bindings)

    def leave_ComparisonTarget(
        self, original_node: cst.ComparisonTarget, updated_node: cst.ComparisonTarget
    ) -> cst.ComparisonTarget:
        found = updated_node.comparator
        if not isinstance(updated_node.operator, (cst.In, cst.NotIn)):
            return updated_node
        if not isinstance(found, cst.Set) or not all(map(_is_constant, found.elements)):
            return updated_node
        elements = list(found.elements)
        if len(elements) == 1:
            elements = [cst.Element(elements[0].value, comma=cst.Comma())]
        return updated_node.with_changes(comparator=cst.Tuple(elements))

    def leave_AnnAssign(
        self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign
    ) -> cst.AnnAssign | cst.Pass:
        return updated_node if updated_node.value is not None else cst.Pass()

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.Pass:
        return cst.Pass() if isinstance(updated_node.value, cst.Ellipsis) else updated_node

    def leave_AugAssign(
        self, original_node: cst.AugAssign, updated_node: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        target, value = updated_node.target, updated_node.value
        if not isinstance(target, cst.Name):
            return updated_node
        if isinstance(updated_node.operator, cst.MatrixMultiplyAssign):  # no tensor's is in place
            product = cst.BinaryOperation(target, cst.MatrixMultiply(), _atom(value))
            return cst.Assign([cst.AssignTarget(target)], product)
        if not isinstance(updated_node.operator, cst.FloorDivideAssign):
            return updated_node
        kind = self._type(target)
        if kind in ("int", "float", "number"):
            quotient = cst.BinaryOperation(target, cst.FloorDivide(), _atom(value))
            return cst.Assign([cst.AssignTarget(target)], quotient)
        if kind in ("Tensor", "IntTensor"):
            method = cst.Attribute(target, cst.Name("floor_divide_"))
            return cst.Expr(cst.Call(method, [cst.Arg(value)]))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if code(updated_node.func) != "reversed" or self.own_reversed:
            return updated_node
        if len(updated_node.args) != 1:
            return updated_node
        value = updated_node.args[0].value
        if isinstance(value, cst.Call) and code(value.func) == "range":
            limits = [arg.value for arg in value.args]
            if any(arg.star for arg in value.args) or not 1 <= len(limits) <= 2:
                return updated_node
            from_zero = len(limits) == 1 or _is_zero(limits[0])
            stop = "-1" if from_zero else f"{code(_atom(limits[0]))} - 1"
            return cst.parse_expression(f"range({code(_atom(limits[-1]))} - 1, {stop}, -1)")
        if self._type(value).startswith("List["):
            return cst.parse_expression(f"{code(_atom(value))}[::-1]")
        return updated_node


def _is_constant(element: cst.BaseElement) -> bool:
    value = element.value
    if isinstance(value, cst.UnaryOperation):
        value = value.expression
    return isinstance(value, (cst.SimpleString, cst.Integer, cst.Float))


def _is_zero(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Integer) and node.value == "0"


def _atom(node: cst.BaseExpression) -> cst.BaseExpression:
    tight = (cst.Name, cst.Integer, cst.Float, cst.Call, cst.Attribute, cst.Subscript)
    if node.lpar or isinstance(node, tight):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
