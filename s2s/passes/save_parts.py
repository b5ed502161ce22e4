"""Of a tuple or named tuple, only the tensors that backward reads are kept, each by itself.

    r = torch.max(x, 1)                    r = torch.max(x, 1)
    return r.values, (r,)            -->   r_indices = r.indices
                                           return r.values, (r_indices,)

So they are saved tensors, and an output that lies in the tuple does not keep itself alive.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst

from ..infer import infer, is_tensor_tuple
from ..ir import Pair, Saved, replace
from ..names import fresh, is_name, walk
from ..source import bindings
from ..syntax import code, handed_over, make, replace_returns
from .lift_backward import keep_for
from .save_sizes import replaced

__all__ = ["save_parts"]


def save_parts(pair: Pair) -> Pair:
    """Bind ``r_indices = r.indices`` and save that, where backward reads nothing else of ``r``.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     r = torch.max(x, 1)
    ...     def backward(g):
    ...         return torch.zeros(3, 4).scatter(1, r.indices, g)
    ...     return r.values, backward
    ... ''', save_parts))
    def f_forward(x):
        r = torch.max(x, 1)
        r_indices = r.indices
        return r.values, (r_indices,)
    <BLANKLINE>
    def f_backward(g, r_indices):
        return torch.zeros(3, 4).scatter(1, r_indices, g)
    """
    for saved in pair.saved:
        if is_tensor_tuple(saved.type) or saved.keep == "either":
            found = _parts_read(pair, saved)
            if found and not _starts_as_none(pair, saved.name):
                pair = _apart(pair, saved, found)
    return pair


def _starts_as_none(pair: Pair, name: str) -> bool:
    """Does some way through forward leave it unbound?"""
    return any(not s.line and code(s.node).strip() == f"{name} = None" for s in pair.forward)


def _apart(pair: Pair, saved: Saved, found: Mapping[str, tuple[str, str]]) -> Pair:
    names = {name: fresh(name, pair.taken) for name, _ in found.values()}
    parts = [Saved(names[n], keep_for(type_), type_) for n, type_ in found.values()]
    kept: list[Saved] = []
    for one in pair.saved:
        kept.extend(parts if one.name == saved.name else [one])
    forward = handed_over(pair.forward, [s.name for s in pair.saved], [s.name for s in kept])
    bind = [make(f"{names[n]} = {text}").node for text, (n, _) in found.items()]
    small = [node.body[0] for node in bind if isinstance(node, cst.SimpleStatementLine)]
    forward = replace_returns(forward, lambda node, _: [*small, node])
    texts = {text: names[n] for text, (n, _) in found.items()}
    backward = tuple(replaced(s, texts) for s in pair.backward)
    return replace(
        pair,
        saved=tuple(kept),
        forward=forward,
        backward=backward,
        taken=pair.taken | set(names.values()),
    )


def _parts_read(pair: Pair, saved: Saved) -> dict[str, tuple[str, str]]:
    """``{"r.indices": ("r_indices", "Tensor")}``, empty if ``r`` is read in another way."""
    found: dict[str, tuple[str, str]] = {}
    uses = 0
    types = {saved.name: saved.type}
    for statement in pair.backward:
        for node in walk(statement.tree):
            if isinstance(node, ast.Name) and node.id == saved.name:
                uses += 1
            part = _part(node, saved.name)
            if part and isinstance(node, ast.expr):
                uses -= 1
                type_ = infer(node, types, bindings(pair.source.tree))
                found[ast.unparse(node)] = (f"{saved.name}_{part}", type_)
    return found if not uses else {}


def _part(node: ast.AST, name: str) -> str | None:
    """``indices`` of ``r.indices``, ``0`` of ``r[0]``."""
    if isinstance(node, ast.Attribute) and is_name(node.value, name):
        return node.attr if node.attr in ("values", "indices") else None
    if isinstance(node, ast.Subscript) and is_name(node.value, name):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return str(node.slice.value)
    return None
