"""The ways to write a custom gradient in PyTorch, made from the parts of one subject."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import s2s

from .subjects import SUBJECTS, Subject

__all__ = [
    "BARE",
    "BUILT_IN",
    "BY_HAND",
    "CHECKPOINT",
    "COMPILED",
    "CPP",
    "CUSTOM_OP",
    "NAIVE",
    "PLAIN",
    "S2S",
    "SETUP",
    "SLOW",
    "Way",
    "by_hand",
    "compiled",
    "peers",
]

Way = Callable[..., Any]

S2S = "s2s"
BY_HAND = "by hand"  # autograd.Function, everything on ctx in forward
BARE = "by hand, node alone"  # without the work for torch.func: no Function can do with less
SETUP = "setup_context"  # the same with forward and setup_context apart
NAIVE = "closure on ctx"  # keeps the nested backward itself
CUSTOM_OP = "custom_op"  # torch.library.custom_op with register_autograd
PLAIN = "plain"  # autograd's own derivative
BUILT_IN = "built-in"
CHECKPOINT = "checkpoint"  # plain, computed again in backward: torch.utils.checkpoint
COMPILED = "compiled plain"  # torch.compile of plain: it writes kernels of its own
CPP = "C++"  # a C++ Function behind an operator; of swish, and a minute to build
SLOW = (COMPILED, CPP)


def peers(name: str, with_grad: bool, slow: Collection[str] = ()) -> Mapping[str, Way]:
    """Every way to call a subject; ``plain`` is the bare forward where no gradient is asked for.

    ``slow`` names those of SLOW that are wanted: they take long to make.
    """
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
    if with_grad:
        base: Any = super(torch.autograd.Function, by_hand(subject))
        ways[BARE] = base.apply
        ways[CHECKPOINT] = functools.partial(checkpoint, plain, use_reentrant=False)
    if subject.builtin:
        ways[BUILT_IN] = subject.builtin
    if COMPILED in slow:
        ways[COMPILED] = compiled_plain(plain)
    if CPP in slow and name == "swish":
        ways[CPP] = cpp_swish()
    return ways


def compiled_plain(plain: Way) -> Way:
    """torch.compile of the plain function, anew for each size: after eight sizes and modes of one
    function it would run as it is."""
    torch._dynamo.reset()
    made: Way = torch.compile(plain, dynamic=False)
    return made


@functools.cache
def cpp_swish() -> Way:
    """Swish as a C++ Function. Needs a C++ compiler and ninja."""
    from torch.utils.cpp_extension import load_inline

    flags = ["-O3"]
    load_inline("s2s_benchmarks_cpp", CPP_SWISH, extra_cflags=flags, is_python_module=False)
    made: Way = torch.ops.s2s_benchmarks_cpp.swish.default
    return made


CPP_SWISH = """
#include <torch/extension.h>

struct Swish : torch::autograd::Function<Swish> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * at::sigmoid(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list grads) {
    auto x = ctx->get_saved_variables()[0];
    auto s = at::sigmoid(x);
    return {grads[0] * at::addcmul(s, x * s, 1 - s)};
  }
};

at::Tensor swish(const at::Tensor& x) { return Swish::apply(x); }
at::Tensor swish_alone(const at::Tensor& x) { return x * at::sigmoid(x); }

TORCH_LIBRARY(s2s_benchmarks_cpp, m) { m.def("swish(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(s2s_benchmarks_cpp, Autograd, m) { m.impl("swish", swish); }
TORCH_LIBRARY_IMPL(s2s_benchmarks_cpp, CompositeExplicitAutograd, m) {
  m.impl("swish", swish_alone);
}
"""


def compiled(name: str) -> Way:
    """A subject as s2s compiles it."""
    return _compiled(SUBJECTS[name].closure)


@functools.cache
def _compiled(closure: Way) -> Way:
    return s2s.autograd_script(closure)


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
    full = f"s2s_benchmarks::{re.sub(r'[^a-z_]+', '_', name)}"
    made = torch.library.custom_op(full, mutates_args=())(subject.forward)
    made.register_autograd(subject.backward, setup_context=subject.save)
    return made
