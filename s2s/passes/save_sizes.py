"""Of a tensor whose values backward never reads, only its shape, dtype or presence is kept.

def f_forward(x, b):                   def f_forward(x, b):
    return x.sum(), (x,)                   return x.sum(), (x.shape,)
                                 -->
def f_backward(g, x):                  def f_backward(g, x_shape):
    return g.expand(x.shape)               return g.expand(x_shape)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

import libcst as cst

from ..ir import Pair, Saved, Stmt, replace
from ..names import fresh, is_name, reads, walk, writes
from ..syntax import code, from_node, handed_over
from .lift_backward import keep_for

__all__ = ["facts_read", "is_fact", "may_be_none", "replaced", "save_own_sizes", "save_sizes"]

_ATTRIBUTES = {"shape": "List[int]", "dtype": "dtype", "device": "device", "ndim": "int"}
_METHODS = {"dim": "int", "numel": "int", "size": "List[int]", "is_floating_point": "bool"}
_METHODS |= {"nelement": "int", "ndimension": "int", "is_complex": "bool", "element_size": "int"}
_NOUNS = {"size": "shape", "dim": "ndim", "ndimension": "ndim", "nelement": "numel"}
# what takes another tensor's shape, and what does the same with the shape itself
_SHAPED = {"expand_as": "expand", "view_as": "view", "reshape_as": "reshape"}
_FILLED = {"zeros_like": "zeros", "ones_like": "ones"}


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
    return _with_sizes(pair, pair.saved)


def save_own_sizes(pair: Pair) -> Pair:
    """The same for values that forward computes, before anything else makes them again.

    An input may still be needed for a second derivative; these are not.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     y = x * x
    ...     def backward(g):
    ...         return g.expand_as(y)
    ...     return y.sum(), backward
    ... ''', save_own_sizes))
    def f_forward(x):
        y = x * x
        return y.sum(), (y.shape,)
    <BLANKLINE>
    def f_backward(g, y_shape):
        return g.expand(y_shape)
    """
    bound = {n for s in pair.forward for n in writes(s.tree)} - set(pair.arguments)
    return _with_sizes(pair, [s for s in pair.saved if s.name in bound])


def _with_sizes(pair: Pair, among: Iterable[Saved]) -> Pair:
    for saved in among:
        found = facts_read(pair, saved)
        if found:
            pair = _instead(pair, saved, found)
    return pair


def is_fact(node: ast.AST, name: str) -> bool:
    """Does an expression read the shape, dtype or presence of a tensor, and none of its values?"""
    return bool(_facts(node, name))


def facts_read(pair: Pair, saved: Saved) -> dict[str, tuple[str, str]]:
    """``{"x.shape": ("x_shape", "List[int]")}``, empty if anything else of it is read."""
    if saved.keep not in ("tensor", "either") or saved.again != "as is":
        return {}
    uses = 0
    found: dict[str, tuple[str, str]] = {}
    for statement in pair.backward:
        for node in walk(statement.tree):
            if isinstance(node, ast.Name):
                uses += node.id == saved.name
            if not isinstance(node, (ast.Attribute, ast.Call, ast.Compare)):
                continue
            facts = _facts(node, saved.name)
            uses -= bool(facts)
            found.update({text: (new, type_) for text, new, type_ in facts})
    if uses or len({name for name, _ in found.values()}) > 3:
        return {}
    return found


def _facts(node: ast.AST, name: str) -> list[tuple[str, str, str]]:
    """The text, name and type of what an expression reads of a tensor beside its values."""
    one = _fact(node, name)
    if one is not None:
        return [one]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return []
    alone = len(node.args) == 1 and not node.keywords and is_name(node.args[0], name)
    if alone and node.func.attr in _SHAPED and not _reads(node.func.value, name):
        kinds = ["shape"]
    elif alone and node.func.attr in _FILLED and is_name(node.func.value, "torch"):
        kinds = ["shape", "dtype", "device"]
    else:
        return []
    return [(f"{name}.{kind}", f"{name}_{kind}", _ATTRIBUTES[kind]) for kind in kinds]


def _reads(node: ast.AST, name: str) -> bool:
    return any(is_name(n, name) for n in walk(node))


def _fact(node: ast.AST, name: str) -> tuple[str, str, str] | None:
    """The same where that is all that the expression does."""
    if isinstance(node, ast.Attribute) and is_name(node.value, name) and node.attr in _ATTRIBUTES:
        return ast.unparse(node), f"{name}_{node.attr}", _ATTRIBUTES[node.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        if is_name(node.func.value, name) and method in _METHODS and not node.args + node.keywords:
            noun = _NOUNS.get(method, method)
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
            new = self.texts.get(_canonical(original_node)) or self._like(original_node)
            if new is not None:
                made = cst.parse_expression(new)
                return made.with_changes(lpar=original_node.lpar, rpar=original_node.rpar)
        return super().on_leave(original_node, updated_node)

    def _like(self, node: cst.CSTNode) -> str | None:
        """``g.expand(x_shape)`` for ``g.expand_as(x)``, where ``x.shape`` is to be ``x_shape``."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return None
        verb = node.func.attr.value
        if len(node.args) != 1 or not isinstance(node.args[0].value, cst.Name):
            return None
        name = node.args[0].value.value
        shape, dtype, device = (self.texts.get(f"{name}.{k}") for k in ("shape", "dtype", "device"))
        owner = code(node.func.value)
        if verb in _SHAPED and shape:
            return f"{owner}.{_SHAPED[verb]}({shape})"
        if verb in _FILLED and shape and dtype and device:
            return f"{owner}.{_FILLED[verb]}({shape}, dtype={dtype}, device={device})"
        return None


def _canonical(node: cst.BaseExpression) -> str:
    """The text of an expression, however it is spaced."""
    return ast.unparse(ast.parse(f"({code(node)})", mode="eval"))


def replaced(statement: Stmt, texts: Mapping[str, str]) -> Stmt:
    """The statement with whole expressions replaced: ``{"x.shape": "x_shape"}``."""
    names = {name for text in texts for name in reads(ast.parse(text))}
    if not names & set(reads(statement.tree)):
        return statement
    node = statement.node.visit(_Replace(texts))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)
