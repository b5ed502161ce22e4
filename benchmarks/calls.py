"""What one call costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from .measure import Call, Effort, Row, timed_rows
from .peers import BY_HAND, PLAIN, peers
from .subjects import SUBJECTS

__all__ = ["BOTH", "FORWARD", "FORWARD_GRAD", "NO_GRAD", "arguments", "both", "calls", "sized"]

FORWARD = "forward"
NO_GRAD = "forward, no_grad"
FORWARD_GRAD = "forward, grad"
BOTH = "forward + backward"


def sized(subject: str, size: int) -> str:
    """The name of a subject at a size."""
    return f"{subject}, {size} floats"


QUICK = ("swish", "layer_norm", "linear, frozen weight", "spike", "twelve")


def calls(quick: bool, only: str = "", slow: Collection[str] = ()) -> Iterator[Row]:
    """Every subject, mode and size; quick: 8 floats, short, some of them. ``only`` names one."""
    for size in (8,) if quick else (8, 4096, 1 << 20):
        effort = Effort(15) if quick else Effort(30) if size < 1 << 20 else Effort(9, 1e-2)
        for subject in QUICK if quick and not only else SUBJECTS:
            if only in ("", subject):
                yield from _subject(subject, size, effort, slow)


def _subject(subject: str, size: int, effort: Effort, slow: Collection[str]) -> Iterator[Row]:
    without, with_grad = peers(subject, False, slow), peers(subject, True, slow)
    plain_inputs, inputs = arguments(subject, size, False), arguments(subject, size, True)
    modes: dict[str, dict[str, Call]] = {
        FORWARD: {name: _forward(way, plain_inputs) for name, way in without.items()},
        NO_GRAD: {name: _forward(way, inputs) for name, way in without.items()},
        FORWARD_GRAD: {name: _forward(way, inputs) for name, way in with_grad.items()},
        BOTH: {name: both(way, inputs) for name, way in with_grad.items()},
    }
    for mode, ways in modes.items():
        baseline = PLAIN if mode in (FORWARD, NO_GRAD) else BY_HAND
        with torch.set_grad_enabled(mode != NO_GRAD):
            place = ("calls", sized(subject, size), mode)
            yield from timed_rows(place, ways, baseline, effort)


def arguments(subject: str, size: int, requires_grad: bool) -> tuple[Any, ...]:
    """The inputs of a subject: every tensor that is not frozen asks for a gradient, or none."""
    generator = torch.Generator().manual_seed(0)
    frozen = SUBJECTS[subject].frozen
    return tuple(
        one
        if isinstance(one, float)
        else torch.randn(one, generator=generator).requires_grad_(requires_grad and i not in frozen)
        for i, one in enumerate(SUBJECTS[subject].inputs(size))
    )


def _forward(way: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    return way, args


def both(way: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    """Forward and backward, for all inputs that ask for a gradient."""
    leaves = tuple(a for a in args if isinstance(a, Tensor) and a.requires_grad)
    grad_out = torch.ones_like(way(*args))
    grad = torch.autograd.grad
    return lambda: grad(way(*args), leaves, grad_out), ()
