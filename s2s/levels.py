"""Forward mode of the operator at one of functorch's levels.

functorch calls the operator's kernel in the middle of its work on a level, and no function
transform, such as the one that ``jvp`` of the func form takes its transpose with, may start there.
So tangents are computed one level further down, on what is inside the level's wrappers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from .operator import as_called

__all__ = ["jvp_below"]

_functorch = torch._C._functorch


def jvp_below(cls: Any, ctx: Any, tangents: tuple[Any, ...]) -> Any:
    """``cls.jvp(ctx, *tangents)``, where ``ctx`` and the tangents are of the present level."""
    interpreter: Any = retrieve_current_functorch_interpreter()
    level = interpreter.level()
    with interpreter.lower(), as_called():
        found = cls.jvp(_Below(ctx, level), *(_unwrapped(t, level) for t in tangents))
    if isinstance(found, tuple):
        return tuple(_wrapped(t, level) for t in found)
    return _wrapped(found, level)


class _Below:
    """``ctx``, with its saved tensors as the level below has them."""

    def __init__(self, ctx: Any, level: int) -> None:
        self._ctx = ctx
        self._level = level

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return tuple(_unwrapped(t, self._level) for t in self._ctx.saved_tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def _unwrapped(value: Any, level: int) -> Any:
    return _functorch._unwrap_for_grad(value, level) if isinstance(value, Tensor) else value


def _wrapped(value: Any, level: int) -> Any:
    return _functorch._wrap_for_grad(value, level) if isinstance(value, Tensor) else value
