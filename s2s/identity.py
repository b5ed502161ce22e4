"""Which names may stand for one and the same tensor: not a copy, nor a view, but the object."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from .infer import Bindings
from .names import returns_in, same_scope, writes

__all__ = ["linked", "same_tensor"]

# calls that give back the tensor itself, if there is nothing to do
_ITSELF = frozenset(
    """
    alpha_dropout as_tensor asarray atleast_1d atleast_2d atleast_3d bfloat16 broadcast_tensors
    coalesce conj conj_physical contiguous cpu cuda double dropout dropout1d dropout2d dropout3d
    feature_alpha_dropout flatten float half positive ravel real requires_grad_ resolve_conj
    resolve_neg sum_to_size to to_dense type type_as
    """.split()
)


def same_tensor(value: ast.expr, unseen: Bindings | None = None) -> Iterator[str]:
    """The names whose very tensor an expression may be, also through calls that may do nothing.

    With ``unseen``, the bindings of the file, functions that are none of PyTorch's may give back
    what they are given, too.

    >>> list(same_tensor(ast.parse("y.contiguous() if y.dim() else +z * 2", mode="eval").body))
    ['y']
    """
    parts: list[ast.expr] = []
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.NamedExpr):
        parts = [value.target, value.value]
    elif isinstance(value, ast.IfExp):
        parts = [value.body, value.orelse]
    elif isinstance(value, (ast.BoolOp, ast.Dict)):
        parts = value.values
    elif isinstance(value, (ast.Tuple, ast.List)):
        parts = value.elts
    elif isinstance(value, ast.Starred):
        parts = [value.value]
    elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.UAdd):
        parts = [value.operand]
    elif isinstance(value, ast.Attribute) and value.attr == "real":
        parts = [value.value]
    elif isinstance(value, ast.Call):
        parts = list(_given_back(value))
        if unseen is not None and _is_unseen(value.func, unseen):
            parts = [*value.args, *(k.value for k in value.keywords)]
    for part in parts:
        yield from same_tensor(part, unseen)


def linked(body: Sequence[ast.stmt], unseen: Bindings | None = None) -> dict[str, set[str]]:
    """For each name, those that are perhaps one tensor with it where ``body`` returns.

    >>> sorted(linked(ast.parse("z = y if c else w; v = z + 1").body)["w"])
    ['w', 'y', 'z']
    >>> sorted(linked(ast.parse("z = y; y = 2 * y; return y, z").body)["z"])
    ['z']
    """
    groups: dict[str, set[str]] = {}
    last = len(returns_in(body)) < 2  # else a name may be returned before it is bound again
    for statement in body:
        for node in same_scope(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                if node.value is not None:
                    again = writes(node) if last and node is statement else ()
                    _link(groups, node, set(same_tensor(node.value, unseen)), again)
    return groups


def _link(
    groups: dict[str, set[str]], node: ast.AST, values: set[str], again: Sequence[str]
) -> None:
    """Enter an assignment; the names that are bound ``again`` stand for nothing else any more."""
    merged = {other for name in values for other in groups.get(name, {name})}
    for name in again:
        for other in groups.pop(name, {name}) - {name}:
            groups[other] = groups[other] - {name}
        merged.discard(name)
    if not values and len(getattr(node, "targets", ())) < 2:  # not `loss = total = x.sum()`
        return
    merged |= {other for name in writes(node) for other in groups.get(name, {name})}
    groups.update(dict.fromkeys(merged, merged))


def _given_back(call: ast.Call) -> Iterator[ast.expr]:
    """``s.contiguous()``, ``F.dropout(s, p, training)``, ``s.mul_(2)``."""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    inplace = name.endswith("_") and not name.endswith("__")
    if name in _ITSELF or inplace:
        if isinstance(func, ast.Attribute):
            yield func.value
        yield from call.args[:1]


def _is_unseen(func: ast.expr, found: Bindings) -> bool:
    """A function of the user's, or what ``self`` holds: it may do anything with its arguments."""
    if isinstance(func, ast.Attribute):
        return isinstance(func.value, ast.Name) and func.value.id in ("self", "cls")
    if not isinstance(func, ast.Name) or hasattr(builtins, func.id):
        return False
    return func.id not in found or not found[func.id].origin.startswith("torch.")
