"""What the text of a function asks of autograd, in the words of ``s2s.context``."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from .infer import from_annotation, origin
from .ir import Stmt
from .names import of_kind, walk
from .source import Binding
from .syntax import code, from_node

__all__ = [
    "NEEDS",
    "bare_needs",
    "is_marked",
    "is_once",
    "may_be_undefined",
    "reads_needs",
    "unmark",
]

NEEDS = "needs_input_grad"
_MARK = "non_differentiable"
Bindings = dict[str, Binding]


def _is(node: ast.AST, name: str, found: Bindings) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    tail = node.id if isinstance(node, ast.Name) else node.attr
    if isinstance(node, ast.Attribute) and tail != name:
        return False
    path = origin(node, found) or ""
    if isinstance(node, ast.Attribute) and not path and ast.unparse(node.value) == "s2s":
        return True  # the text of a function alone
    return path in (f"s2s.{name}", f"s2s.context.{name}")


# --- needs_input_grad -----------------------------------------------------------------------


def reads_needs(trees: Sequence[ast.AST], found: Bindings) -> bool:
    """Does the text read ``s2s.needs_input_grad``?"""
    names = {name.id: name for tree in trees for name in of_kind(tree, ast.Name)}
    attributes = [a for tree in trees for a in of_kind(tree, ast.Attribute) if a.attr == NEEDS]
    return any(_is(node, NEEDS, found) for node in (*names.values(), *attributes))


class _Bare(cst.CSTTransformer):
    def __init__(self, spelled: frozenset[str]) -> None:
        self.spelled = spelled

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return cst.Name(NEEDS) if code(original_node) in self.spelled else updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return cst.Name(NEEDS) if original_node.value in self.spelled else updated_node


def bare_needs(statement: Stmt, found: Bindings) -> Stmt:
    """The statement with ``needs_input_grad`` for every spelling of it."""
    spelled = {ast.unparse(n) for n in walk(statement.tree) if _is(n, NEEDS, found)}
    if not spelled:
        return statement
    node = statement.node.visit(_Bare(frozenset(spelled)))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)


# --- non_differentiable ---------------------------------------------------------------------


def is_marked(node: ast.expr, found: Bindings) -> bool:
    """Is it ``s2s.non_differentiable(output)``?"""
    return isinstance(node, ast.Call) and len(node.args) == 1 and _is(node.func, _MARK, found)


def unmark(node: cst.BaseExpression, found: Bindings) -> cst.BaseExpression:
    """The output without its mark."""
    if not isinstance(node, cst.Call) or len(node.args) != 1:
        return node
    tree = ast.parse(code(node).strip(), mode="eval").body
    return node.args[0].value if is_marked(tree, found) else node


# --- backward -------------------------------------------------------------------------------


def is_once(decorator: ast.expr, found: Bindings) -> bool:
    """Is it PyTorch's ``once_differentiable``?"""
    path = origin(decorator, found) or ast.unparse(decorator)
    return path.startswith("torch.") and path.endswith(".once_differentiable")


def may_be_undefined(tree: ast.FunctionDef | ast.Lambda, found: Bindings) -> bool:
    """Do the annotations say that an output gradient can be None?"""
    every = [*tree.args.posonlyargs, *tree.args.args]
    return any(from_annotation(a.annotation, found) == "Optional[Tensor]" for a in every)
