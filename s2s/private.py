"""What s2s calls of PyTorch that is not public and that not every version has under one name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import _symbolic_trace

__all__ = ["any_requires_grad", "is_fx_tracing", "shares_memory"]


def _flag() -> bool:
    return bool(_symbolic_trace._is_fx_tracing_flag)


# Is ``torch.fx.symbolic_trace`` at work? ``torch.fx``'s own answer to that warns. Each thread has
# its own from PyTorch 2.14 on
is_fx_tracing: Callable[[], bool] = getattr(_symbolic_trace, "_get_is_fx_tracing", _flag)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _any_requires_grad(*args: Any) -> bool:
    return any(t.requires_grad for t in _tensors(args))


def _shares_memory(args: tuple[Any, ...], _: dict[str, Any], outputs: tuple[Any, ...]) -> bool:
    seen = {t.untyped_storage()._cdata for t in _tensors(args)}
    for output in _tensors(outputs):
        storage = output.untyped_storage()._cdata
        if storage in seen:
            return True
        seen.add(storage)
    return False


# Does one of these arguments, or of the lists in them, require grad? In C from PyTorch 2.8 on
any_requires_grad: Callable[..., bool] = getattr(torch._C, "_any_requires_grad", _any_requires_grad)

# Is an output an input, a view of one, or another output's memory? In C from PyTorch 2.8 on
shares_memory: Callable[[tuple[Any, ...], dict[str, Any], tuple[Any, ...]], bool] = getattr(
    torch._C, "_any_output_is_alias_to_input_or_output", _shares_memory
)
