"""``compile=True``: forward and backward of the eager Function, each as torch.compile makes it.

A call stays a call of one Function, with the rule and the saved tensors of the eager form; what
changes is who runs the statements in it. ``ctx`` is taken apart around them: compiled code gives
and takes the values that are kept, so that saved tensors stay saved tensors. Where grad mode is on
in backward, because somebody prepares a second derivative, the eager form runs as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Compiler", "warn_uncompiled"]

_dispatch_modes = torch._C._len_torch_dispatch_stack


class _Kept:
    """Stands for ``ctx`` while forward runs, and remembers what is kept and how."""

    def __init__(self, needed: tuple[bool, ...]) -> None:
        self.needs_input_grad = needed
        self.saved: tuple[Any, ...] = ()
        self.constant: tuple[Any, ...] = ()
        self.materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


_OWN = ("needs_input_grad", "saved", "constant", "materialize")


class _Given:
    """Stands for ``ctx`` while backward runs: what forward kept."""

    def __init__(self, saved: Any, needed: tuple[bool, ...], values: dict[str, Any]) -> None:
        self.saved_tensors = saved
        self.needs_input_grad = needed
        for name, value in values.items():
            setattr(self, name, value)


def _apart(outputs: Any) -> Any:
    """Compiled code returns ``y`` for ``y.detach()`` too; autograd has one place per tensor."""
    if not isinstance(outputs, tuple):
        return outputs
    seen: list[Any] = []
    for output in outputs:
        twice = isinstance(output, torch.Tensor) and any(output is other for other in seen)
        seen.append(output.detach() if twice else output)
    return tuple(seen)


class Compiler:
    """Compiles the parts of one function. Where that fails, for want of a C++ compiler, say, all of
    them run as they are, and one warning says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed = False

    def cls(self, eager: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
        """A subclass that runs compiled code wherever no second derivative is prepared."""
        eager_forward: Any = eager.forward
        eager_backward: Any = eager.backward

        def kept(needed: tuple[bool, ...], *args: Any) -> Any:
            ctx = _Kept(needed)
            outputs = eager_forward(ctx, *args)
            values = {key: value for key, value in ctx.__dict__.items() if key not in _OWN}
            given = outputs if isinstance(outputs, tuple) else (outputs,)
            constant = [i for i, o in enumerate(given) if any(o is c for c in ctx.constant)]
            return outputs, ctx.saved, constant, ctx.materialize, values

        def gradients(saved: Any, needed: tuple[bool, ...], values: Any, *grads: Any) -> Any:
            return eager_backward(_Given(saved, needed, values), *grads)

        run_forward, run_backward = self.function(kept), self.function(gradients)

        def forward(ctx: Any, *args: Any) -> Any:
            outputs, saved, constant, materialize, values = run_forward(ctx.needs_input_grad, *args)
            outputs = _apart(outputs)
            ctx.save_for_backward(*saved)
            if constant:
                given = outputs if isinstance(outputs, tuple) else (outputs,)
                ctx.mark_non_differentiable(*(given[i] for i in constant))
            if not materialize:
                ctx.set_materialize_grads(False)
            ctx.__dict__.update(values, _s2s_values=values)
            return outputs

        def backward(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():
                return eager_backward(ctx, *grads)
            return run_backward(ctx.saved_tensors, ctx.needs_input_grad, ctx._s2s_values, *grads)

        body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made: type[torch.autograd.Function] = type(eager.__name__, (eager,), body)
        return made

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What torch.compile makes of a function, at its first call."""
        made: list[Callable[..., Any]] = []

        def run(*args: Any) -> Any:
            # under a tracer, or with fake tensors, there is nothing to compile for
            if self.failed or _dispatch_modes():
                return function(*args)
            if not made:
                made.append(self._compiled(function))
            from torch._dynamo.exc import TorchDynamoException

            try:
                return made[0](*args)
            except TorchDynamoException as error:
                self._fail(error)
                return function(*args)

        return run

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = torch.compile(function)
        except RuntimeError as error:  # not on this platform, or this version of Python
            self._fail(error)
            return function
        return made

    def _fail(self, error: Exception) -> None:
        self.failed = True
        rows = [row.strip() for row in str(error).splitlines() if row.strip()]
        why = f"torch.compile failed: {type(error).__name__}: {rows[0] if rows else ''}"
        warn_uncompiled(self.name, why, stacklevel=5)


def warn_uncompiled(name: str, why: str, stacklevel: int) -> None:
    """A function that was to be compiled is not."""
    warnings.warn(f"{name} runs as it is: {why}", RuntimeWarning, stacklevel)
