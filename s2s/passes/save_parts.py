"""Of a tuple or named tuple, only the tensors that backward reads are kept, each by itself.

    r = torch.max(x, 1)                    r = torch.max(x, 1)
    return r.values, (r,)            -->   return r.values, (r.indices,)

So they are saved tensors, and an output that lies in the tuple does not keep itself alive.
"""

from __future__ import annotations

import ast

from ..infer import infer, is_tensor_tuple
from ..ir import Pair, Saved
from ..names import walk
from ..source import bindings
from .save_sizes import instead

__all__ = ["save_parts"]


def save_parts(pair: Pair) -> Pair:
    """Save ``r.indices`` in place of ``r`` where backward reads nothing else of ``r``."""
    for saved in pair.saved:
        if saved.again == "as is" and (is_tensor_tuple(saved.type) or saved.keep == "either"):
            found = _parts_read(pair, saved)
            if found:
                pair = instead(pair, saved, found)
    return pair


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
    if isinstance(node, ast.Attribute) and _is(node.value, name):
        return node.attr if node.attr in ("values", "indices") else None
    if isinstance(node, ast.Subscript) and _is(node.value, name):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return str(node.slice.value)
    return None


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
