"""What a function may ask of autograd: the names that stand for ``ctx`` in the closure form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["NeedsInputGrad", "needed", "needs_input_grad", "non_differentiable", "taken_apart"]

_NEEDED: ContextVar[tuple[bool, ...]] = ContextVar("needs_input_grad")


class NeedsInputGrad:
    """``needs_input_grad[i]``: does the i-th input of the running function require grad?

    PyTorch's ``ctx.needs_input_grad``, for the closure form: a tuple of bools, one per input.
    """

    def _value(self) -> tuple[bool, ...]:
        found = _NEEDED.get(None)
        if found is None:
            raise RuntimeError(
                "needs_input_grad is read outside a function decorated with autograd_script or "
                "autograd_function"
            )
        return found

    def __getitem__(self, index: Any) -> Any:
        return self._value()[index]

    def __len__(self) -> int:
        return len(self._value())

    def __iter__(self) -> Iterator[bool]:
        return iter(self._value())

    def __repr__(self) -> str:
        found = _NEEDED.get(None)
        return "needs_input_grad" if found is None else f"needs_input_grad{found}"


needs_input_grad = NeedsInputGrad()


@contextmanager
def needed(values: tuple[bool, ...]) -> Iterator[None]:
    """While the reference runs a function or its backward."""
    token = _NEEDED.set(values)
    try:
        yield
    finally:
        _NEEDED.reset(token)


class _NonDifferentiable:
    """A returned value that is marked."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def non_differentiable(output: Any) -> Any:
    """``return y, non_differentiable(mask), backward``: an output that never requires grad.

    Outputs of integer or bool dtype are like that by themselves. Backward takes a gradient for it
    all the same, or leaves it out, as for those.
    """
    return _NonDifferentiable(output)


def taken_apart(outputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The outputs without their marks, and the positions that were marked."""
    marked = tuple(i for i, o in enumerate(outputs) if isinstance(o, _NonDifferentiable))
    bare = tuple(o.value if isinstance(o, _NonDifferentiable) else o for o in outputs)
    return bare, marked
