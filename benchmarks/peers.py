"""The ways to write a custom gradient in PyTorch, made from the parts of one subject."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import s2s

from .subjects import SUBJECTS, Subject

__all__ = [
    "BY_HAND",
    "CUSTOM_OP",
    "NAIVE",
    "PLAIN",
    "S2S",
    "SETUP",
    "Way",
    "by_hand",
    "compiled",
    "peers",
]

Way = Callable[..., Any]

S2S = "s2s"
BY_HAND = "by hand"  # autograd.Function, everything on ctx in forward
SETUP = "setup_context"  # the same with forward and setup_context apart
NAIVE = "closure on ctx"  # keeps the nested backward itself
CUSTOM_OP = "custom_op"  # torch.library.custom_op with register_autograd
PLAIN = "plain"  # autograd's own derivative
BUILT_IN = "built-in"


def peers(name: str, with_grad: bool) -> Mapping[str, Way]:
    """Every way to call a subject; ``plain`` is the bare forward where no gradient is asked for."""
    subject = SUBJECTS[name]
    plain = subject.plain if with_grad and subject.plain else subject.forward
    ways = {
        PLAIN: plain,
        S2S: compiled(name),
        BY_HAND: by_hand(subject).apply,
        SETUP: setup_context(subject).apply,
        NAIVE: closure_on_ctx(subject).apply,
        CUSTOM_OP: custom_op(name),
    }
    return ways | ({BUILT_IN: subject.builtin} if subject.builtin else {})


@functools.cache
def compiled(name: str) -> Way:
    """A subject as s2s compiles it."""
    return s2s.autograd_script(SUBJECTS[name].closure)


def by_hand(subject: Subject) -> type[torch.autograd.Function]:
    """What an expert writes."""
    forward_alone, save = subject.forward, subject.save

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            save(ctx, args, None)
            return forward_alone(*args)

        backward = staticmethod(subject.backward)

    return ByHand


def setup_context(subject: Subject) -> type[torch.autograd.Function]:
    """What ``torch.func`` asks for."""

    class SetupContext(torch.autograd.Function):
        forward = staticmethod(subject.forward)
        setup_context = staticmethod(subject.save)
        backward = staticmethod(subject.backward)

    return SetupContext


def closure_on_ctx(subject: Subject) -> type[torch.autograd.Function]:
    """The closure form without a compiler: its backward, and all that it captured, on ctx."""
    closure = subject.closure

    class ClosureOnCtx(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            output, ctx.closure = closure(*args)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return ctx.closure(*grads)

    return ClosureOnCtx


@functools.cache
def custom_op(name: str) -> Way:
    """PyTorch's own way to make an operator."""
    subject = SUBJECTS[name]
    made = torch.library.custom_op(f"s2s_benchmarks::{name}", mutates_args=())(subject.forward)
    made.register_autograd(subject.backward, setup_context=subject.save)
    return made
