"""How many bytes a tensor of forward takes, as far as the text alone says.

With the shapes of the inputs the answer is exact for what is known here (arithmetic, reductions,
matrix products, casts). Without them it is a rule of thumb, in multiples of an input: arithmetic on
x is as large as x, a comparison takes one byte per element, a reduction next to nothing.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .ir import replace
from .names import same_scope, writes
from .vocabulary import BOOLEAN, DTYPES, EXTREMES, INTEGER, POINTWISE, REDUCING

__all__ = ["Size", "given", "size_of", "sizes"]

FEW = 1 / 64  # what a reduction over one dimension leaves, where no shape is known
_ITEM = 4  # bytes of an element of an input whose dtype is not known


@dataclass(frozen=True, slots=True)
class Size:
    """``share`` times the elements of the input ``of``, each of ``item`` bytes, and the shape where
    it is known. ``unit`` is how many elements ``of`` has, 1 where nobody knows."""

    of: str
    share: float = 1.0
    item: float = _ITEM
    shape: tuple[int, ...] | None = None
    unit: float = 1.0

    @property
    def count(self) -> float:
        """The number of elements, where an input without a shape counts as one."""
        return math.prod(self.shape) if self.shape is not None else self.share * self.unit

    @property
    def bytes(self) -> float:
        return self.count * self.item


Known = Mapping[str, Size]


def given(name: str, shape: Sequence[int] | None = None, item: float = _ITEM) -> Size:
    """The size of an input, with its shape and the bytes of an element where they are known."""
    if shape is None:
        return Size(name, item=item)
    return Size(name, 1.0, item, tuple(shape), math.prod(shape))


def sizes(body: Iterable[ast.stmt], known: Known) -> dict[str, Size]:
    """The size of every name that ``body`` binds to a tensor; the largest, if it does so twice.

    >>> body = ast.parse("m = x > 0; s = x.sum(-1); h = (x * 2).half()").body
    >>> found = sizes(body, {"x": given("x")})
    >>> [(name, found[name].bytes / found["x"].bytes) for name in ("m", "s", "h")]
    [('m', 0.25), ('s', 0.015625), ('h', 0.5)]
    >>> found = sizes(body, {"x": given("x", (8, 10))})
    >>> [(name, found[name].shape, found[name].bytes) for name in ("x", "m", "s", "h")]
    [('x', (8, 10), 320), ('m', (8, 10), 80), ('s', (8,), 32), ('h', (8, 10), 160)]
    """
    found = dict(known)
    for statement in body:
        for node in same_scope(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value:
                size = size_of(node.value, found)
                for name in writes(node):
                    if size is not None and name not in known:
                        before = found.get(name)
                        found[name] = (
                            size if before is None or before.bytes < size.bytes else before
                        )
    return found


def size_of(node: ast.expr, known: Known) -> Size | None:
    """The size of an expression, None where it is no tensor or nothing is known of it."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Compare):
        return _with_item(_broadcast([node.left, *node.comparators], known), 1)
    if isinstance(node, ast.BinOp):
        return _binary(node, known)
    if isinstance(node, ast.UnaryOp):
        return size_of(node.operand, known)
    if isinstance(node, (ast.NamedExpr, ast.Starred)):
        return size_of(node.value, known)
    if isinstance(node, ast.IfExp):
        return _largest([node.body, node.orelse], known)
    if isinstance(node, (ast.Tuple, ast.List)):
        return _largest(node.elts, known)
    if isinstance(node, ast.Attribute):
        return _attribute(node, known)
    if isinstance(node, ast.Subscript):
        owner = size_of(node.value, known)
        return owner and replace(owner, shape=None, share=owner.share)
    if isinstance(node, ast.Call):
        return _call(node, known)
    return None


def _binary(node: ast.BinOp, known: Known) -> Size | None:
    if isinstance(node.op, ast.MatMult):
        return _product([node.left, node.right], known)
    size = _broadcast([node.left, node.right], known)
    if size is not None and size.item == 1 and not isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return replace(size, item=_ITEM)  # bool with a number
    return size


def _attribute(node: ast.Attribute, known: Known) -> Size | None:
    owner = size_of(node.value, known)
    if owner is None:
        return None
    if node.attr in ("T", "mT", "H", "mH"):
        shape = owner.shape and (*owner.shape[:-2], *reversed(owner.shape[-2:]))
        return replace(owner, shape=shape)
    if node.attr == "indices":
        return replace(owner, item=8)
    return owner if node.attr in ("values", "data", "real", "imag", "grad") else None


def _call(node: ast.Call, known: Known) -> Size | None:
    name, operands = _named(node, known)
    size = _broadcast(operands, known)
    if size is None:
        return None
    if name in EXTREMES and len(_found(operands, known)) == 1:
        return _reduced(node, name, operands, size)
    if name in REDUCING:
        return _with_item(_reduced(node, name, operands, size), 8 if name in INTEGER else None)
    if name in BOOLEAN:
        return _with_item(size, 1)
    if name in ("matmul", "mm", "bmm", "linear", "addmm"):
        return _multiplied(name, operands, known)
    cast = _cast(node, name)
    if cast is not None:
        first = size_of(operands[0], known) or size
        return replace(first, item=cast)
    if name in ("t", "transpose", "adjoint", "swapaxes"):
        exact = size.shape is not None and len(size.shape) == 2
        return replace(size, shape=size.shape[::-1] if exact and size.shape else None)
    if name in POINTWISE:
        return size
    if name in INTEGER:
        return replace(size, item=8, shape=None)
    return replace(size, shape=None)  # as large as what it is made from, for all we know


def _named(node: ast.Call, known: Known) -> tuple[str, list[ast.expr]]:
    """The last part of the called name, and the operands: of a method, its owner first."""
    func = node.func
    if isinstance(func, ast.Attribute):
        owner = [func.value] if size_of(func.value, known) is not None else []
        return func.attr, [*owner, *node.args]
    return getattr(func, "id", ""), list(node.args)


def _cast(node: ast.Call, name: str) -> float | None:
    """The bytes of an element after ``.half()``, ``.to(torch.float16)``, ``dtype=torch.bool``."""
    if name in DTYPES and isinstance(node.func, ast.Attribute):
        return DTYPES[name]
    if name in ("to", "type", "as_tensor", "tensor") or any(
        k.arg == "dtype" for k in node.keywords
    ):
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "dtype")]
        for value in given:
            if isinstance(value, ast.Attribute) and value.attr in DTYPES:
                return DTYPES[value.attr]
            if isinstance(value, ast.Attribute) and value.attr == "dtype":
                return _ITEM
    return None


def _with_item(size: Size | None, item: float | None) -> Size | None:
    return size if size is None or item is None else replace(size, item=item)


def _found(nodes: Sequence[ast.expr], known: Known) -> list[Size]:
    return [size for size in (size_of(node, known) for node in nodes) if size is not None]


def _largest(nodes: Sequence[ast.expr], known: Known) -> Size | None:
    return max(_found(nodes, known), key=lambda size: size.bytes, default=None)


def _broadcast(nodes: Sequence[ast.expr], known: Known) -> Size | None:
    """The size of arithmetic between tensors."""
    parts = _found(nodes, known)
    if not parts:
        return None
    largest = max(parts, key=lambda size: (size.count, size.item))
    item = max(size.item for size in parts)
    shapes = [size.shape for size in parts]
    shape = _broadcast_shape([s for s in shapes if s is not None]) if None not in shapes else None
    return replace(largest, item=item, shape=shape)


def _broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    columns = itertools.zip_longest(*(reversed(s) for s in shapes), fillvalue=1)
    made: list[int] = []
    for column in columns:
        wide = {n for n in column if n != 1}
        if len(wide) > 1:
            return None
        made.insert(0, wide.pop() if wide else 1)
    return tuple(made)


def _reduced(node: ast.Call, name: str, operands: Sequence[ast.expr], size: Size) -> Size:
    """What is left after ``sum``, ``mean``, ``amax``... over the dimensions that are named."""
    others = operands[1:] if size.share or size.shape is not None else operands
    dim = next((k.value for k in node.keywords if k.arg in ("dim", "axis")), None)
    if dim is None and others:
        dim = others[0]
    keep = any(k.arg == "keepdim" and _is_true(k.value) for k in node.keywords)
    keep = keep or (len(others) > 1 and _is_true(others[1]))
    if dim is None:
        return replace(size, share=0.0, shape=() if size.shape is not None else None)
    shape = _without_dims(size.shape, dim, keep)
    return replace(size, share=size.share * FEW, shape=shape)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _without_dims(
    shape: tuple[int, ...] | None, dim: ast.expr, keep: bool
) -> tuple[int, ...] | None:
    try:
        value = ast.literal_eval(dim)
    except ValueError:
        return None
    dims = [value] if isinstance(value, int) else value
    if shape is None or not isinstance(dims, (list, tuple)):
        return None
    if not all(isinstance(d, int) and -len(shape) <= d < len(shape) for d in dims):
        return None
    gone = {d % len(shape) for d in dims}
    if keep:
        return tuple(1 if i in gone else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _multiplied(name: str, operands: Sequence[ast.expr], known: Known) -> Size | None:
    if name == "addmm":
        return _product(operands[1:3], known)
    size = _product(operands[:2], known)
    if name == "linear" and size is not None:
        left, right = size_of(operands[0], known), size_of(operands[1], known)
        exact = left and right and left.shape and right.shape
        shape = (*left.shape[:-1], right.shape[0]) if exact else None  # type: ignore[union-attr,index]
        return replace(size, shape=shape)
    return size


def _product(nodes: Sequence[ast.expr], known: Known) -> Size | None:
    """A matrix product: (*, n, k) and (*, k, m) make (*, n, m)."""
    parts = _found(nodes, known)
    if not parts:
        return None
    largest = max(parts, key=lambda size: size.bytes)
    shapes = [size.shape for size in parts]
    if len(parts) == 2 and shapes[0] and shapes[1] and min(map(len, shapes)) >= 2:  # type: ignore[arg-type]
        outer = _broadcast_shape([shapes[0][:-2], shapes[1][:-2]])
        if outer is not None:
            return replace(largest, shape=(*outer, shapes[0][-2], shapes[1][-1]))
    return replace(largest, shape=None)
