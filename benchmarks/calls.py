"""What one call costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .measure import Call, Effort, Row, timed_rows
from .peers import BY_HAND, PLAIN, peers
from .subjects import SUBJECTS

__all__ = ["FORWARD", "FORWARD_GRAD", "arguments", "calls", "sized"]

FORWARD = "forward"
NO_GRAD = "forward, no_grad"
FORWARD_GRAD = "forward, grad"
BOTH = "forward + backward"


def sized(subject: str, size: int) -> str:
    """The name of a subject at a size."""
    return f"{subject}, {size} floats"


def calls(quick: bool, only: str = "") -> Iterator[Row]:
    """Every subject, mode and size; quick: 8 floats, short. ``only`` names one subject."""
    for size in (8,) if quick else (8, 4096, 1 << 20):
        effort = Effort(15) if quick else Effort(60) if size < 1 << 20 else Effort(15, 1e-2)
        for subject in SUBJECTS:
            if only in ("", subject):
                yield from _subject(subject, size, effort)


def _subject(subject: str, size: int, effort: Effort) -> Iterator[Row]:
    without, with_grad = peers(subject, with_grad=False), peers(subject, with_grad=True)
    plain_inputs, inputs = arguments(subject, size, False), arguments(subject, size, True)
    modes: dict[str, dict[str, Call]] = {
        FORWARD: {name: _forward(way, plain_inputs) for name, way in without.items()},
        NO_GRAD: {name: _forward(way, inputs) for name, way in without.items()},
        FORWARD_GRAD: {name: _forward(way, inputs) for name, way in with_grad.items()},
        BOTH: {name: _both(way, inputs) for name, way in with_grad.items()},
    }
    for mode, ways in modes.items():
        baseline = PLAIN if mode in (FORWARD, NO_GRAD) else BY_HAND
        with torch.set_grad_enabled(mode != NO_GRAD):
            place = ("calls", sized(subject, size), mode)
            yield from timed_rows(place, ways, baseline, effort)


def arguments(subject: str, size: int, requires_grad: bool) -> tuple[Any, ...]:
    """The inputs of a subject: every tensor asks for a gradient, or none."""
    generator = torch.Generator().manual_seed(0)
    return tuple(
        one
        if isinstance(one, float)
        else torch.randn(one, generator=generator).requires_grad_(requires_grad)
        for one in SUBJECTS[subject].inputs(size)
    )


def _forward(way: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    return way, args


def _both(way: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    leaves = tuple(a for a in args if isinstance(a, Tensor))
    grad_out = torch.ones_like(way(*args))
    grad = torch.autograd.grad
    return lambda: grad(way(*args), leaves, grad_out), ()
