"""What helper functions read from outside: a tensor there would get no gradient.

A function differentiates what it is given. The names in its own text are seen when it is compiled;
what its helpers read, in other functions and other files, is found in the code that they run.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .vocabulary import LIBRARIES

__all__ = ["has_tangent", "is_harmless", "read_from", "read_from_owner", "tensors_in", "trains"]

_harmless: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()
Chain = tuple[str, tuple[str, ...]]  # a name, and the attributes that are read from it

# whoever writes one of these in a helper says what gets no gradient
_SAYS_SO = {"no_grad", "inference_mode", "set_grad_enabled", "detach", "detach_"}
# what plain autograd sends no gradient through either
_NO_GRADIENT = {
    *("shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "names", "is_cuda"),
    *("requires_grad", "requires_grad_", "is_leaf", "grad", "grad_fn", "data", "detach", "item"),
    *("size", "dim", "numel", "stride", "is_contiguous", "element_size", "tolist", "new_zeros"),
    *("new_ones", "new_empty", "new_full", "new_tensor", "is_floating_point", "is_complex"),
}


def trains(value: object) -> bool:
    """Is it a tensor that requires grad, or a module with one?"""
    if isinstance(value, torch.nn.Module):
        return any(p.requires_grad for p in value.parameters())
    return isinstance(value, Tensor) and value.requires_grad


def has_tangent(tensor: Tensor) -> bool:
    """Is it a dual tensor of forward mode?"""
    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def is_harmless(value: object) -> bool:
    """Is it at a glance a constant, or a helper that is known to read nothing but libraries?"""
    if type(value) is Tensor:
        return not value.requires_grad and forward_ad._current_level < 0
    return type(value) is types.FunctionType and value in _harmless


def read_from(
    name: str, value: object, path: tuple[str, ...] = (), seen: set[int] | None = None
) -> Iterator[tuple[str, object]]:
    """The tensors and modules that ``name.path`` is, holds or, called, reads from outside.

    Each comes with what it is there: ``w``, ``self.w``. ``seen`` are helpers that are known.
    """
    seen = set() if seen is None else seen
    for shown, found in _steps(name, value, path):
        yield from _behind(shown, found, seen)


def read_from_owner(function: object) -> tuple[tuple[str, ...], ...]:
    """The attributes that a method reads from what it belongs to: ``("w",)`` for ``self.w``."""
    if not isinstance(function, types.FunctionType) or not _is_users(function):
        return ()
    return tuple(path for name, path in _chains(function.__code__) if name == "" and path)


def _behind(name: str, value: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(value, (Tensor, torch.nn.Module)):
        yield name, value
    elif isinstance(value, types.MethodType):
        if isinstance(value.__self__, torch.nn.Module) and not _is_users(value.__func__):
            yield name, value.__self__
        elif isinstance(value.__func__, types.FunctionType):
            yield from _read_by(value.__func__, seen, value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from _read_by(value, seen)
    elif isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            yield from _behind(name, part, seen)
    elif isinstance(value, Collection):
        yield from ((name, tensor) for tensor in tensors_in(value))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a value: itself, or inside lists, tuples, sets, dicts and their views."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, Collection) and not isinstance(value, (str, bytes)):
        if not hasattr(value, "dtype"):  # an array holds numbers only
            for inner in value:
                yield from tensors_in(inner)


def _read_by(
    function: types.FunctionType, seen: set[int], owner: object = None
) -> Iterator[tuple[str, object]]:
    """What a helper reads from outside, and its own helpers."""
    if id(function) in seen or not _is_users(function):
        return
    seen.add(id(function))
    if owner is None and function in _harmless:
        return
    if (ours := vars(function).get("__s2s_outside__")) is not None:  # a decorated function
        yield from ours(seen)
        return
    scope: dict[str, object] = dict(zip(function.__code__.co_freevars, _contents(function)))
    chains = _chains(function.__code__)
    names = {name for name, _ in chains if name}
    if owner is None and all(_is_library(function.__globals__.get(n), n) for n in names):
        _harmless.add(function)
        return
    for name, path in chains:
        if name == "":
            if owner is None or not path:
                continue
            values = _steps(function.__code__.co_varnames[0], owner, path)
        elif name in scope:
            values = _steps(name, scope[name], path)
        elif name in function.__globals__:
            values = _steps(name, function.__globals__[name], path)
        else:
            continue
        for shown, value in values:
            yield from _behind(shown, value, seen)


def _is_users(function: object) -> bool:
    module = str(getattr(function, "__module__", None) or "")
    return module.split(".")[0] not in LIBRARIES


def _contents(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            yield None


def _steps(name: str, value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """What reading attributes one after the other comes to. A property is code like a helper."""
    for step in path:
        if isinstance(value, Tensor):
            if step in _NO_GRADIENT:
                return
            break
        if _is_library(value):
            return
        kind = inspect.getattr_static(type(value), step, None)
        if isinstance(kind, property):
            if kind.fget is not None:
                yield f"{name}.{step}", types.MethodType(kind.fget, value)
            return
        try:
            value = getattr(value, step)
        except Exception:  # of whatever kind: the call itself will say
            return
        name = f"{name}.{step}"
    yield name, value


def _is_library(value: object, name: str = "") -> bool:
    """Is it a module of the libraries, or a builtin of that name?"""
    if value is None:
        return hasattr(builtins, name)
    return isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in LIBRARIES


@functools.lru_cache(maxsize=1024)
def _chains(code: types.CodeType) -> tuple[Chain, ...]:
    """The names from outside that code reads, with attributes, also in functions inside it.

    "" stands for its first argument, the owner of a method. Nothing where the code says itself
    what gets no gradient.
    """
    if _SAYS_SO & set(_attribute_names(code)):
        return ()
    first = code.co_varnames[0] if code.co_argcount else None
    return tuple(dict.fromkeys(_found(code, first)))


def _attribute_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _attribute_names(constant)


def _found(code: types.CodeType, first: str | None) -> Iterator[Chain]:
    base: str | None = None
    path: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if base is not None and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path += (instruction.argval,)
            continue
        if base is not None:
            yield base, path
        base, path = _base(instruction, first), ()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _found(constant, first if first in constant.co_freevars else None)


def _base(instruction: dis.Instruction, first: str | None) -> str | None:
    if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
        closed_over = first == instruction.argval and instruction.opname != "LOAD_GLOBAL"
        return "" if closed_over else str(instruction.argval)
    if instruction.opname.startswith("LOAD_FAST") and first is not None:
        loaded = instruction.argval  # two names in one instruction, from 3.13 on
        last = loaded[-1] if isinstance(loaded, tuple) else loaded
        return "" if last == first else None
    return None
