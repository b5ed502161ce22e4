"""What a call keeps for backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from .calls import arguments
from .measure import Row
from .peers import peers
from .subjects import SUBJECTS

__all__ = ["memory", "saved_bytes"]

SIZE = 4096


def memory(quick: bool, only: str = "") -> Iterator[Row]:
    """Saved bytes in multiples of the inputs' bytes. ``quick`` changes nothing: this is exact."""
    for subject in SUBJECTS:
        if only not in ("", subject):
            continue
        args = arguments(subject, SIZE, True)
        size = sum(a.untyped_storage().nbytes() for a in args if isinstance(a, Tensor))
        for contender, way in peers(subject, with_grad=True).items():
            kept = saved_bytes(way, args) / size
            yield Row("memory", f"{SIZE} floats", subject, contender, kept, "x inputs")


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
