"""A spiking neuron over 300 steps: in Python, in TorchScript, and with a compiled step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from .measure import Call, Effort, Row, timed_rows
from .peers import BY_HAND, COMPILED, PLAIN, S2S, Way, by_hand, compiled
from .subjects import SUBJECTS, spike_plain

__all__ = ["BOTH", "SCRIPTED_S2S", "scripted"]

STEPS, BATCH, NEURONS = 300, 32, 100
SCRIPTED_S2S = "s2s, scripted"
SCRIPTED_PLAIN = "plain, scripted"
COMPILED_S2S = "s2s, compiled step"
COMPILED_PLAIN = "plain, compiled step"
BOTH = "forward + backward"

spike = compiled("spike")
by_hand_apply: Way = by_hand(SUBJECTS["spike"]).apply


def loop_s2s(current: Tensor) -> Tensor:
    """Leaky integrate and fire, reset by subtraction: currents (steps, *) to the sum of spikes."""
    v = torch.zeros_like(current[0])
    total = torch.zeros_like(v)
    for now in current.unbind():
        v = 0.9 * v + now
        z = spike(v - 1.0, 25.0)
        v = v - z
        total = total + z
    return total


def loop_plain(current: Tensor) -> Tensor:
    """The same with autograd's own operations."""
    v = torch.zeros_like(current[0])
    total = torch.zeros_like(v)
    for now in current.unbind():
        v = 0.9 * v + now
        z = spike_plain(v - 1.0, 25.0)
        v = v - z
        total = total + z
    return total


def loop_by_hand(current: Tensor) -> Tensor:
    """The same with a hand-written Function."""
    v = torch.zeros_like(current[0])
    total = torch.zeros_like(v)
    for now in current.unbind():
        v = 0.9 * v + now
        z = by_hand_apply(v - 1.0, 25.0)
        v = v - z
        total = total + z
    return total


def with_step(spike: Way) -> Callable[[Tensor], Tensor]:
    """The loop with its step compiled; the whole loop would be unrolled, for minutes."""

    @torch.compile(dynamic=False)
    def step(v: Tensor, now: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.9 * v + now
        z = spike(v - 1.0, 25.0)
        return v - z, total + z

    def loop(current: Tensor) -> Tensor:
        v = torch.zeros_like(current[0])
        total = torch.zeros_like(v)
        for now in current.unbind():
            v, total = step(v, now, total)
        return total

    return loop


def scripted(quick: bool, only: str = "", slow: Collection[str] = ()) -> Iterator[Row]:
    """The whole loop, forward alone and with backward. ``only`` has nothing to choose."""
    steps = STEPS // 10 if quick else STEPS
    effort = Effort(8 if quick else 30, 1e-2)
    loops: dict[str, Callable[[Tensor], Tensor]] = {
        BY_HAND: loop_by_hand,
        S2S: loop_s2s,
        PLAIN: loop_plain,
        SCRIPTED_S2S: torch.jit.script(loop_s2s),
        SCRIPTED_PLAIN: torch.jit.script(loop_plain),
    }
    if COMPILED in slow:
        loops |= {COMPILED_S2S: with_step(spike), COMPILED_PLAIN: with_step(spike_plain)}
    generator = torch.Generator().manual_seed(0)
    current = torch.rand(steps, BATCH, NEURONS, generator=generator)
    about = f"LIF, {steps} steps of {BATCH} x {NEURONS}"
    forward: dict[str, Call] = {name: (loop, (current,)) for name, loop in loops.items()}
    yield from timed_rows(("scripted", about, "forward"), forward, BY_HAND, effort)
    current = current.clone().requires_grad_()
    both: dict[str, Call] = {name: (_both, (loop, current)) for name, loop in loops.items()}
    yield from timed_rows(("scripted", about, BOTH), both, BY_HAND, effort)


def _both(loop: Callable[[Tensor], Tensor], current: Tensor) -> Any:
    return torch.autograd.grad(loop(current).sum(), current)
