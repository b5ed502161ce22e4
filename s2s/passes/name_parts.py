"""A mean, a matrix product in an assignment gets a name, where keeping it saves keeping more.

    c = x - x.mean(-1, keepdim=True)       x_mean = x.mean(-1, keepdim=True)
    s = torch.sigmoid(c)             -->   c = x - x_mean
                                           s = torch.sigmoid(c)

So ``save_less`` can compute the rest of the assignment again without it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ..ir import Pair, Stmt, replace
from ..names import fresh
from ..syntax import from_node, make
from .redoable import Value, values
from .save_less import bytes_kept
from .save_sizes import replaced

__all__ = ["name_parts"]

_WORTH = 0.75  # of the bytes that are kept without it


def name_parts(pair: Pair) -> Pair:
    """Bind parts of assignments where ``save_less`` keeps fewer bytes for it.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x - x.mean(-1, keepdim=True))
    ...     def backward(g):
    ...         return g * s * x
    ...     return torch.log(s), backward
    ... ''', name_parts, save="auto"))
    def f_forward(x):
        x_mean = x.mean(-1, keepdim=True)
        s = torch.sigmoid(x - x_mean)
        return torch.log(s), (x, s)
    <BLANKLINE>
    def f_backward(g, x, s):
        return g * s * x
    """
    if pair.save == "all" and not pair.recompute:
        return pair
    found = [v for v in values(pair).values() if v.parts]
    without = bytes_kept(pair) if found else 0.0
    if not without:
        return pair
    named, least = found, bytes_kept(_named(pair, found))
    if least > without * _WORTH:
        return pair
    for value in found:  # what gains nothing stays as it was written
        fewer = [v for v in named if v is not value]
        if bytes_kept(_named(pair, fewer)) < least * 1.01:
            named = fewer
    return _named(pair, named)


def _named(pair: Pair, found: Sequence[Value]) -> Pair:
    """The pair with a name for each part of some assignments."""
    forward: list[Stmt] = []
    taken = set(pair.taken)
    chosen = {v.statement.tree: v for v in found if v.statement is not None}
    for statement in pair.forward:
        value = chosen.get(statement.tree)
        forward += [statement] if value is None else _apart(statement, value, taken)
    return replace(pair, forward=tuple(forward), taken=frozenset(taken))


def _apart(statement: Stmt, value: Value, taken: set[str]) -> list[Stmt]:
    """The assignments of the parts of a statement, and the statement; comments come first."""
    texts: dict[str, str] = {}
    for part in value.parts:
        text = ast.unparse(part)
        if text not in texts:
            texts[text] = fresh(_called(part, value.operands), taken)
            taken.add(texts[text])
    first, *others = [make(f"{name} = {text}", statement.line) for text, name in texts.items()]
    lines = getattr(statement.node, "leading_lines", ())
    first = from_node(first.node.with_changes(leading_lines=lines), statement.line)
    rest = replaced(statement, texts)
    return [first, *others, from_node(rest.node.with_changes(leading_lines=()), statement.line)]


def _called(part: ast.expr, operands: Collection[str]) -> str:
    """``x_mean`` for ``x.mean(-1)`` or ``torch.mean(x, -1)``, ``mean`` for ``(x * x).mean(-1)``."""
    if isinstance(part, (ast.Attribute, ast.Subscript)):
        return _called(part.value, operands)
    if not isinstance(part, ast.Call):
        return "product" if isinstance(part, ast.BinOp) else "part"
    func = part.func
    if not isinstance(func, ast.Attribute):
        return getattr(func, "id", "part")
    for operand in (func.value, *part.args[:1]):
        if isinstance(operand, ast.Name) and operand.id in operands:
            return f"{operand.id}_{func.attr}"
    return func.attr
