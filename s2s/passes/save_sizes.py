"""Of a tensor whose values backward never reads, only its shape, dtype or presence is kept.

def f_forward(x, b):                   def f_forward(x, b):
    return x.sum(), (x,)                   return x.sum(), (x.shape,)
                                 -->
def f_backward(g, x):                  def f_backward(g, x_shape):
    return g.expand(x.shape)               return g.expand(x_shape)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst

from ..ir import Pair, Saved, Stmt, replace
from ..names import fresh, is_name, walk
from ..syntax import code, from_node, handed_over
from .lift_backward import keep_for

__all__ = ["may_be_none", "replaced", "save_sizes"]

_ATTRIBUTES = {"shape": "List[int]", "dtype": "dtype", "device": "device", "ndim": "int"}
_METHODS = {"dim": "int", "numel": "int", "size": "List[int]", "is_floating_point": "bool"}


def save_sizes(pair: Pair) -> Pair:
    """Save what is read of a tensor in place of the tensor, where that is never its values.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     def backward(g):
    ...         return g.expand(x.shape)
    ...     return x.sum(), backward
    ... ''', save_sizes))
    def f_forward(x):
        return x.sum(), (x.shape,)
    <BLANKLINE>
    def f_backward(g, x_shape):
        return g.expand(x_shape)
    """
    for saved in pair.saved:
        found = _facts_read(pair, saved)
        if found:
            pair = _instead(pair, saved, found)
    return pair


def _facts_read(pair: Pair, saved: Saved) -> dict[str, tuple[str, str]]:
    """``{"x.shape": ("x_shape", "List[int]")}``, empty if anything else of it is read."""
    if saved.keep not in ("tensor", "either") or saved.again != "as is":
        return {}
    uses = 0
    found: dict[str, tuple[str, str]] = {}
    for statement in pair.backward:
        for node in walk(statement.tree):
            if isinstance(node, ast.Name) and node.id == saved.name:
                uses += 1
            fact = _fact(node, saved.name)
            if fact is not None:
                uses -= 1
                text, name, type_ = fact
                found[text] = (name, type_)
    if uses or len({name for name, _ in found.values()}) > 2:
        return {}
    return found


def _fact(node: ast.AST, name: str) -> tuple[str, str, str] | None:
    """The text, name and type of an expression that reads no values of the tensor."""
    if isinstance(node, ast.Attribute) and is_name(node.value, name) and node.attr in _ATTRIBUTES:
        return ast.unparse(node), f"{name}_{node.attr}", _ATTRIBUTES[node.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if is_name(node.func.value, name) and method in _METHODS and not node.args + node.keywords:
            noun = {"size": "shape", "dim": "ndim"}.get(method, method)
            return ast.unparse(node), f"{name}_{noun}", _METHODS[method]
    if isinstance(node, ast.Compare) and is_name(node.left, name) and len(node.ops) == 1:
        right = node.comparators[0]
        none = isinstance(right, ast.Constant) and right.value is None
        if none and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return ast.unparse(node), f"{name}_is_none", "bool"
    return None


def _instead(pair: Pair, saved: Saved, found: Mapping[str, tuple[str, str]]) -> Pair:
    """Save expressions in place of a name: ``found`` maps each to its new name and type."""
    taken = set(pair.taken)
    names = {name: fresh(name, taken) for name, _ in found.values()}
    extra: dict[str, Saved] = {}
    texts: dict[str, str] = {}
    for text, (name, type_) in found.items():
        new = names[name]
        value = text.replace(" is not None", " is None")
        if may_be_none(pair, saved) and not value.endswith(" is None"):
            value = f"None if {saved.name} is None else {value}"
        extra[new] = Saved(new, keep_for(type_), type_, value=value)
        texts[text] = f"not {new}" if text.endswith(" is not None") else new
    kept: list[Saved] = []
    for one in pair.saved:
        kept.extend(extra.values() if one.name == saved.name else [one])
    backward = tuple(replaced(s, texts) for s in pair.backward)
    forward = handed_over(
        pair.forward,
        [s.name for s in pair.saved],
        [s.name for s in kept],
        {s.name: s.value for s in extra.values() if s.value},
    )
    return replace(
        pair,
        saved=tuple(kept),
        forward=forward,
        backward=backward,
        taken=pair.taken | set(extra),
    )


def may_be_none(pair: Pair, saved: Saved) -> bool:
    """Is it an optional input, or bound on some ways through forward only?"""
    first = any(code(s.node).strip() == f"{saved.name} = None" for s in pair.forward)
    return first or saved.type != "Tensor"


class _Replace(cst.CSTTransformer):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> object:  # type: ignore[override]
        if isinstance(original_node, (cst.Attribute, cst.Call, cst.Comparison, cst.Subscript)):
            bare = original_node.with_changes(lpar=[], rpar=[])
            new = self.texts.get(" ".join(code(bare).split()))
            if new is not None:
                made = cst.parse_expression(new)
                return made.with_changes(lpar=original_node.lpar, rpar=original_node.rpar)
        return super().on_leave(original_node, updated_node)


def replaced(statement: Stmt, texts: Mapping[str, str]) -> Stmt:
    """The statement with whole expressions replaced: ``{"x.shape": "x_shape"}``."""
    if not any(text in ast.unparse(statement.tree) for text in texts):
        return statement
    node = statement.node.visit(_Replace(texts))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)
