"""Arithmetic on what nothing else holds is done in place.

    return x * torch.sigmoid(x)      -->   return torch.sigmoid(x).mul_(x)

A tensor less is made and written. Only where text alone shows that shape and dtype stay what they
are, and in forward alone: autograd may need these values where backward is differentiated.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

import libcst as cst

from ..infer import Bindings, infer, origin
from ..ir import Pair, Stmt, replace
from ..names import of_kind, writes
from ..source import bindings
from ..syntax import code, from_node
from ..vocabulary import IN_PLACE
from .redoing import forward_types

__all__ = ["in_place"]

# element by element, of the dtype of their argument, or of the default dtype for integers
_FLOATING = frozenset(
    """
    acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 gelu log log10 log1p
    log2 logsigmoid mish rsqrt sigmoid silu sin sinh softplus softsign sqrt tan tanh
    """.split()
)
_SWAPS = (ast.Add, ast.Mult)
_NUMBERS = ("int", "float")


def in_place(pair: Pair) -> Pair:
    """The pair whose forward makes no tensor that it overwrites at once.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x, y):
    ...     s = 2 * torch.sigmoid(x) - 1
    ...     return s * y, lambda g: (g * y, g)
    ... ''', in_place))
    def f_forward(x, y):
        s = torch.sigmoid(x).mul_(2).sub_(1)
        return s * y, (y,)
    <BLANKLINE>
    def f_backward(g, y):
        return (g * y, g)
    """
    if any(_asks_for_grad(node) for s in pair.forward for node in of_kind(s.tree, ast.Attribute)):
        return pair
    facts = _Facts(pair)
    return replace(pair, forward=tuple(_statement(facts, s) for s in pair.forward))


def _asks_for_grad(node: ast.Attribute) -> bool:
    return node.attr in ("enable_grad", "set_grad_enabled", "grad", "requires_grad_")


class _Facts:
    """What is asked about each expression."""

    def __init__(self, pair: Pair) -> None:
        self.types = forward_types(pair)
        self.found: Bindings = bindings(pair.source.tree)
        self.tensors = {n for n, type_ in self.types.items() if type_ in ("Tensor", "IntTensor")}
        bound = [n for s in pair.forward for n in writes(s.tree)]
        count = Counter([*bound, *pair.arguments])
        self.values: dict[str, ast.expr] = {}  # of names that have one meaning
        for tree in (s.tree for s in pair.forward):
            if isinstance(tree, ast.Assign) and isinstance(tree.targets[0], ast.Name):
                if len(tree.targets) == count[tree.targets[0].id] == 1:
                    self.values[tree.targets[0].id] = tree.value
        self.tensors -= {n for n in bound if n not in self.values}


def _statement(facts: _Facts, statement: Stmt) -> Stmt:
    if not any(_is_candidate(facts, node) for node in of_kind(statement.tree, ast.BinOp)):
        return statement
    node = statement.node.visit(_InPlace(facts))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)


def _is_candidate(facts: _Facts, node: ast.BinOp) -> bool:
    return any(_new(facts, side) is not None for side in (node.left, node.right))


class _InPlace(cst.CSTTransformer):
    def __init__(self, facts: _Facts) -> None:
        self.facts = facts

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_CompFor(self, node: cst.CompFor) -> bool:
        return False

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        tree = ast.parse(f"({code(updated_node)})", mode="eval").body
        assert isinstance(tree, ast.BinOp)
        sides = [(updated_node.left, tree.left, updated_node.right, tree.right)]
        if isinstance(tree.op, _SWAPS):  # the last one made first
            sides.insert(0, (updated_node.right, tree.right, updated_node.left, tree.left))
        for made, made_tree, other, other_tree in sides:
            if _fits(self.facts, made_tree, tree.op, other_tree):
                if "\n" not in code(made):
                    made = made.with_changes(lpar=(), rpar=())
                method = cst.Attribute(made, cst.Name(IN_PLACE[type(tree.op)]))
                given = cst.Arg(other.with_changes(lpar=(), rpar=()))
                return cst.Call(method, [given], lpar=updated_node.lpar, rpar=updated_node.rpar)
        return updated_node


def _fits(facts: _Facts, made: ast.expr, op: ast.operator, other: ast.expr) -> bool:
    """Does a new tensor keep its shape and dtype, if ``other`` is worked into it?"""
    carried = _new(facts, made)
    needed = _plainly(facts, other)
    return type(op) in IN_PLACE and carried is not None and needed is not None and needed <= carried


def _new(facts: _Facts, node: ast.expr) -> frozenset[str] | None:
    """The tensors that the shape and the dtype of a new floating tensor hold; None where it is not
    sure to be one that nothing else holds."""
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in IN_PLACE.values() and len(node.args) == 1:
        return _new(facts, func.value)
    path = origin(func, facts.found, facts.types) or ""
    if path.startswith("torch.") and path.split(".")[-1] in _FLOATING and len(node.args) == 1:
        return _carried(facts, node.args[0]) or None if not node.keywords else None
    if path == "torch.clamp" and _are_numbers(node.args[1:]) and not node.keywords:
        return _carried(facts, node.args[0]) or None
    return None


def _are_numbers(nodes: Sequence[ast.expr]) -> bool:
    """Literal numbers, one of them with a point, so that what they bound has one too?"""
    values = [ast.unparse(node) for node in nodes]
    shown = [isinstance(n, (ast.Constant, ast.UnaryOp)) for n in nodes]
    return all(shown) and any("." in value for value in values)


def _carried(facts: _Facts, node: ast.expr) -> frozenset[str]:
    """The tensors whose shapes are broadcast and whose dtypes are promoted in an expression."""
    if isinstance(node, ast.Name):
        value = facts.values.get(node.id)
        names = frozenset({node.id} & facts.tensors)
        return names if value is None else names | _carried(facts, value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _carried(facts, node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in IN_PLACE:
        return _carried(facts, node.left) | _carried(facts, node.right)
    if isinstance(node, ast.Call):
        path = origin(node.func, facts.found, facts.types) or ""
        if path in ("torch.add", "torch.sub", "torch.mul"):
            return frozenset().union(*(_carried(facts, a) for a in node.args[:2]))
        return _new(facts, node) or frozenset()
    return frozenset()


def _plainly(facts: _Facts, node: ast.expr) -> frozenset[str] | None:
    """The tensors of arithmetic that autocast leaves alone; None for another expression."""
    if infer(node, facts.types, facts.found) in _NUMBERS:
        return frozenset()
    if isinstance(node, ast.Name):
        return frozenset({node.id}) if node.id in facts.tensors else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _plainly(facts, node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in IN_PLACE:
        left, right = _plainly(facts, node.left), _plainly(facts, node.right)
        return left | right if left is not None and right is not None else None
    return None
