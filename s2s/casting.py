"""Autocast: ``cast_inputs``, a function that computes in one dtype; and whose casts are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .private import CACHED_CASTS_ARE_DETACHED

__all__ = ["DEVICES", "casting", "own_casts", "with_own_casts", "without_autocast"]

DEVICES = ("cpu", "cuda")


def casting(
    call: Callable[..., Any], dtype: torch.dtype, devices: tuple[str, ...] = DEVICES
) -> Callable[..., Any]:
    """``call`` with its floating-point tensors in ``dtype`` and autocast off, where it is on.

    As ``torch.amp.custom_fwd(cast_inputs=dtype)``: float64 stays what it is, and so does a tensor
    on a device whose autocast is off, or that is none of ``devices``.
    """

    def cast(*args: Any, **keywords: Any) -> Any:
        active = [device for device in devices if torch.is_autocast_enabled(device)]
        if not active:
            return call(*args, **keywords)
        given = [_cast(value, dtype, active) for value in args]
        named = {key: _cast(value, dtype, active) for key, value in keywords.items()}
        # written out, twice the same where one is active: torch.compile traces no stack of contexts
        with torch.autocast(active[0], enabled=False), torch.autocast(active[-1], enabled=False):
            return call(*given, **named)

    return cast


def _cast(value: Any, dtype: torch.dtype, devices: list[str]) -> Any:
    if isinstance(value, Tensor):
        wide = not value.is_floating_point() or value.dtype == torch.float64
        return value if wide or value.device.type not in devices else value.to(dtype)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_cast(item, dtype, devices) for item in value)
    return value


def without_autocast(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The class with a backward that runs with autocast off, whatever it is there."""

    def backward(ctx: Any, *grads: Any) -> Any:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return cls.backward(ctx, *grads)

    made: type[torch.autograd.Function] = type(
        cls.__name__, (cls,), {"backward": staticmethod(backward)}
    )
    return made


@contextlib.contextmanager
def own_casts() -> Iterator[None]:
    """No cast of a weight is taken from code elsewhere, nor left to it, where it may be detached.

    In a version that has this mistake, a function would take the gradient of plain code after it
    away, and plain code under ``no_grad`` a part of the function's second derivative.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(before and not CACHED_CASTS_ARE_DETACHED)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def with_own_casts(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The class with methods that run so."""
    if not CACHED_CASTS_ARE_DETACHED:
        return cls
    methods = ("forward", "backward", "jvp")
    body = {name: staticmethod(own_casts()(getattr(cls, name))) for name in methods}
    made: type[torch.autograd.Function] = type(cls.__name__, (cls,), body)
    return made
