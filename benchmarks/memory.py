"""What a call keeps for backward."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from .calls import QUICK, arguments, both
from .measure import Row
from .peers import peers
from .subjects import SUBJECTS

__all__ = ["memory", "peak_bytes", "saved_bytes"]

SIZE = 4096


def memory(quick: bool, only: str = "", slow: Collection[str] = ()) -> Iterator[Row]:
    """Saved and peak bytes in multiples of the inputs' bytes. ``quick`` takes a few subjects."""
    for subject in QUICK if quick and not only else SUBJECTS:
        if only not in ("", subject):
            continue
        args = arguments(subject, SIZE, True)
        size = sum(a.untyped_storage().nbytes() for a in args if isinstance(a, Tensor))
        for contender, way in peers(subject, True, slow).items():
            kept, peak = saved_bytes(way, args) / size, peak_bytes(way, args) / size
            yield Row("memory", f"saved, {SIZE} floats", subject, contender, kept, "x inputs")
            yield Row("memory", f"peak, {SIZE} floats", subject, contender, peak, "x inputs")


def peak_bytes(way: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """The most bytes that forward and backward hold at one time beside the inputs."""
    call, _ = both(way, args)
    call()  # compile, and fill caches
    kind = torch.profiler.ProfilerActivity.CPU
    with _quiet(), torch.profiler.profile(activities=[kind], profile_memory=True) as profile:
        call()
    held, most = 0, 0
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the profiler's C++ side writes of its start and end."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def saved_bytes(way: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Bytes of all tensors that a call saves for backward, each storage counted once.

    What hooks cannot see because a closure on ctx holds it is counted too.
    """
    storages: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(count, lambda tensor: tensor):
        output = way(*args)
    for cell in getattr(getattr(output.grad_fn, "closure", None), "__closure__", None) or ():
        if isinstance(cell.cell_contents, torch.Tensor):
            count(cell.cell_contents)
    return sum(storages.values())
