"""Lists where TorchScript would have to know a length.

    x.reshape(*x.shape[:-1], 2, -1)  -->   x.reshape(list(x.shape[:-1]) + [2, -1])
    x.sum(tuple(range(1, x.dim())))  -->   x.sum(list(range(1, x.dim())))
    torch.cat([*parts, x])           -->   torch.cat(list(parts) + [x])
    rows, *rest = x.shape            -->   rows, rest = x.shape[0], list(x.shape[1:])

Only where PyTorch takes a list and a tuple for the same thing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from ..infer import infer, origin, types_after
from ..ir import Pair
from ..source import bindings
from ..syntax import code
from .rewriting import rewritten

__all__ = ["plain_sequences"]

# take their sizes or dimensions as several arguments, or as one list of them
_SPREAD = {"expand", "flip", "new_empty", "new_ones", "new_zeros", "permute", "repeat", "reshape"}
_SPREAD |= {"tile", "view"}
_SPREAD_FUNCTIONS = {"empty", "ones", "rand", "randn", "zeros"}


def plain_sequences(pair: Pair) -> Pair:
    """Stars and ``tuple(...)`` of unknown length as lists."""

    def wanted(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("tuple", "range")
        return isinstance(node, ast.Starred)

    return rewritten(pair, wanted, _Sequences(pair))


class _Sequences(cst.CSTTransformer):
    def __init__(self, pair: Pair) -> None:
        self.bindings = bindings(pair.source.tree)
        self.listed = pair.listed is not None and len(pair.params) == 1
        start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
        start = types_after([s.tree for s in pair.forward], start, self.bindings)
        start |= dict.fromkeys(pair.grads, "Tensor")
        self.types = types_after([s.tree for s in pair.backward], start, self.bindings)

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.BaseExpression:
        return _joined(updated_node.elements) or updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        tree = ast.parse(f"({code(original_node)})", mode="eval").body
        assert isinstance(tree, ast.Call)
        path = origin(tree.func, self.bindings, self.types) or ""
        owner = tree.func.value if isinstance(tree.func, ast.Attribute) and not path else None
        method = owner and infer(owner, self.types, self.bindings) in _TENSORS
        name = path.split(".")[-1] if path.startswith("torch.") else ""
        if not method and not name:
            return updated_node
        args = list(updated_node.args)
        places = [arg for arg in args if arg.keyword is None]
        name = name or code(cst.ensure_type(updated_node.func, cst.Attribute).attr)
        spread = _SPREAD if method else _SPREAD_FUNCTIONS
        if any(arg.star == "*" for arg in args) and name in spread:
            sizes = [
                cst.StarredElement(a.value) if a.star else cst.Element(a.value) for a in places
            ]
            only = places[0].value if len(places) == 1 else _joined(sizes)
            if only is None or any(arg.star == "**" for arg in args):
                return updated_node
            rest = [arg for arg in args if arg.keyword is not None]
            return updated_node.with_changes(args=[cst.Arg(_listed(only)), *rest])
        args = [arg.with_changes(value=_listed(arg.value)) for arg in args]
        return updated_node.with_changes(args=args)

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        value = updated_node.value
        if not self.listed or not isinstance(value, cst.Call) or code(value.func) != "tuple":
            return updated_node  # forward's never is: it returns outputs and what is saved
        return updated_node.with_changes(value=_listed(value))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        target, value = updated_node.targets[0].target, updated_node.value
        if len(updated_node.targets) > 1 or not isinstance(target, (cst.Tuple, cst.List)):
            return updated_node
        stars = [i for i, e in enumerate(target.elements) if isinstance(e, cst.StarredElement)]
        tree = ast.parse(f"({code(value)})", mode="eval").body
        kind = infer(tree, self.types, self.bindings)
        if len(stars) != 1 or not _is_path(tree):  # it is written several times
            return updated_node
        if kind in _TENSORS:
            value = cst.parse_expression(f"{code(value)}.unbind(0)")
        elif not kind.startswith("List["):
            return updated_node
        text, (star,), count = code(value), stars, len(target.elements)
        after = count - star - 1
        parts = [f"{text}[{i}]" for i in range(star)]
        parts.append(f"list({text}[{star or ''}:{-after or ''}])")
        parts += [f"{text}[{-i}]" for i in range(after, 0, -1)]
        names: list[cst.BaseElement] = list(target.elements)
        names[star] = cst.Element(names[star].value, comma=names[star].comma)
        if count == 1:
            return updated_node.with_changes(
                targets=[cst.AssignTarget(cst.ensure_type(names[0].value, cst.Name))],
                value=cst.parse_expression(parts[0]),
            )
        return updated_node.with_changes(
            targets=[cst.AssignTarget(target.with_changes(elements=names))],
            value=cst.parse_expression(", ".join(parts)),
        )


_TENSORS = ("Tensor", "IntTensor")


def _joined(elements: Sequence[cst.BaseElement]) -> cst.BaseExpression | None:
    """``list(a) + [b, c]`` for ``a, b, c`` of which some have stars; None where none has."""
    if not any(isinstance(e, cst.StarredElement) for e in elements):
        return None
    parts: list[str] = []
    alone: list[str] = []
    for element in elements:
        text = code(element.value)
        if isinstance(element, cst.StarredElement):
            if alone:
                parts.append(f"[{', '.join(alone)}]")
            alone = []
            parts.append(text if text.startswith("list(") else f"list({text})")
        else:
            alone.append(text)
    if alone:
        parts.append(f"[{', '.join(alone)}]")
    return cst.parse_expression(" + ".join(parts))


def _listed(node: cst.BaseExpression) -> cst.BaseExpression:
    """The argument as a list where it is a tuple whose length nothing tells."""
    if isinstance(node, cst.Tuple):
        return _joined(node.elements) or node
    if isinstance(node, cst.Call) and len(node.args) == 1:
        name = code(node.func)
        if name == "tuple":
            return node.with_changes(func=cst.Name("list"))
        if name == "range":
            return cst.Call(cst.Name("list"), [cst.Arg(node)])
    return node


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
