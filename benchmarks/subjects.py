"""The functions under test: each as a closure, and in the parts that hand-written styles need.

All styles of a function save the same tensors and compute the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["SUBJECTS", "Subject", "spike_plain"]

Shapes = tuple[tuple[int, ...] | float, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """``closure`` is for s2s and for the naive style; ``forward``, ``save`` (a ``setup_context``)
    and ``backward`` for the others; ``plain`` is what autograd differentiates, where that is not
    ``forward``. ``inputs`` gives the shapes, and numbers, for n floats."""

    closure: Callable[..., Any]
    forward: Callable[..., Tensor]
    save: Callable[..., None]
    backward: Callable[..., Any]
    inputs: Callable[[int], Shapes]
    plain: Callable[..., Tensor] | None = None
    builtin: Callable[..., Tensor] | None = None
    frozen: tuple[int, ...] = ()  # the inputs that ask for no gradient


# --- one tensor ---------------------------------------------------------------------------------


def swish(x: Tensor) -> Any:
    def backward(grad_out: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        return grad_out * torch.addcmul(s, x * s, 1 - s)

    return x * torch.sigmoid(x), backward


def swish_forward(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def swish_save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def swish_backward(ctx: Any, grad_out: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(x)
    return grad_out * torch.addcmul(s, x * s, 1 - s)


def mish(x: Tensor) -> Any:
    def backward(grad_out: Tensor) -> Tensor:
        t = torch.tanh(F.softplus(x))
        return grad_out * torch.addcmul(t, x * torch.sigmoid(x), 1 - t * t)

    return x * torch.tanh(F.softplus(x)), backward


def mish_forward(x: Tensor) -> Tensor:
    return x * torch.tanh(F.softplus(x))


def mish_backward(ctx: Any, grad_out: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    t = torch.tanh(F.softplus(x))
    return grad_out * torch.addcmul(t, x * torch.sigmoid(x), 1 - t * t)


def hard_mish(x: Tensor) -> Any:
    def backward(grad_out: Tensor) -> Tensor:
        return grad_out * (torch.clamp(torch.threshold(x, -2.0, -1.0), max=0.0) + 1)

    return 0.5 * x * torch.clamp(x + 2, 0.0, 2.0), backward


def hard_mish_forward(x: Tensor) -> Tensor:
    return 0.5 * x * torch.clamp(x + 2, 0.0, 2.0)


def hard_mish_backward(ctx: Any, grad_out: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad_out * (torch.clamp(torch.threshold(x, -2.0, -1.0), max=0.0) + 1)


def gelu_tanh(x: Tensor) -> Any:
    def backward(grad_out: Tensor) -> Tensor:
        c = torch.clamp(x, -10.0, 10.0)
        cube = c**3
        s = torch.sigmoid(1.5957691216 * torch.add(c, cube, alpha=0.044715))
        x_du = torch.add(c, cube, alpha=0.134145)
        return grad_out * torch.addcmul(s, s * (1 - s), x_du, value=1.5957691216)

    return x * torch.sigmoid(1.5957691216 * torch.add(x, x**3, alpha=0.044715)), backward


def gelu_tanh_forward(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.5957691216 * torch.add(x, x**3, alpha=0.044715))


def gelu_tanh_backward(ctx: Any, grad_out: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    c = torch.clamp(x, -10.0, 10.0)
    cube = c**3
    s = torch.sigmoid(1.5957691216 * torch.add(c, cube, alpha=0.044715))
    x_du = torch.add(c, cube, alpha=0.134145)
    return grad_out * torch.addcmul(s, s * (1 - s), x_du, value=1.5957691216)


# --- three tensors and a number -----------------------------------------------------------------


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Any:
    """Over the last dimension of (rows, d)."""
    # Ba, Kiros & Hinton 2016; the statistics are cheaper to compute again than to keep
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    x_hat = (x - mean) * torch.rsqrt(var + eps)

    def backward(grad_out: Tensor) -> Any:
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        rstd = torch.rsqrt(var + eps)
        x_hat = (x - mean) * rstd
        # weight and bias are shared by every row, so their gradients sum over rows
        g = grad_out * weight
        shift = g.mean(-1, keepdim=True)
        scale = (g * x_hat).mean(-1, keepdim=True)
        grad_x = rstd * (g - shift - x_hat * scale)
        grad_weight = (grad_out * x_hat).sum(0)
        grad_bias = grad_out.sum(0)
        return grad_x, grad_weight, grad_bias, None

    return x_hat * weight + bias, backward


def layer_norm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(var + eps) * weight + bias


def layer_norm_save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def layer_norm_backward(ctx: Any, grad_out: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + ctx.eps)
    x_hat = (x - mean) * rstd
    grad_x = grad_weight = grad_bias = None
    if ctx.needs_input_grad[0]:
        g = grad_out * weight
        shift = g.mean(-1, keepdim=True)
        scale = (g * x_hat).mean(-1, keepdim=True)
        grad_x = rstd * (g - shift - x_hat * scale)
    if ctx.needs_input_grad[1]:
        grad_weight = (grad_out * x_hat).sum(0)
    if ctx.needs_input_grad[2]:
        grad_bias = grad_out.sum(0)
    return grad_x, grad_weight, grad_bias, None


# --- a matrix product ---------------------------------------------------------------------------


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
    def backward(grad_out: Tensor) -> Any:
        return grad_out @ weight, grad_out.t() @ x, grad_out.sum(0)

    return torch.addmm(bias, x, weight.t()), backward


def linear_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight.t())


def linear_save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def linear_backward(ctx: Any, grad_out: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    grad_x = grad_weight = grad_bias = None
    if ctx.needs_input_grad[0]:
        grad_x = grad_out @ weight
    if ctx.needs_input_grad[1]:
        grad_weight = grad_out.t() @ x
    if ctx.needs_input_grad[2]:
        grad_bias = grad_out.sum(0)
    return grad_x, grad_weight, grad_bias


# --- a spike with a surrogate gradient ----------------------------------------------------------


def spike(v: Tensor, slope: float = 25.0) -> Any:
    def backward(grad_out: Tensor) -> Any:
        return grad_out / (1 + slope * torch.abs(v)) ** 2, None

    return (v > 0).to(v.dtype), backward


def spike_forward(v: Tensor, slope: float = 25.0) -> Tensor:
    return (v > 0).to(v.dtype)


def spike_plain(v: Tensor, slope: float = 25.0) -> Tensor:
    """The same gradient by the usual detour: a smooth step, shifted to the hard one's value."""
    soft = v / (1 + slope * torch.abs(v))
    return soft + ((v > 0).to(v.dtype) - soft).detach()


def spike_save(ctx: Any, inputs: Any, output: Any) -> None:
    v, ctx.slope = inputs
    ctx.save_for_backward(v)


def spike_backward(ctx: Any, grad_out: Tensor) -> Any:
    (v,) = ctx.saved_tensors
    return grad_out / (1 + ctx.slope * torch.abs(v)) ** 2, None


# --- twelve tensors -----------------------------------------------------------------------------


# fmt: off
def twelve(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor,
           g: Tensor, h: Tensor, i: Tensor, j: Tensor, k: Tensor, m: Tensor) -> Any:
    def backward(grad: Tensor) -> Any:
        return (grad * b, grad * a, grad * d, grad * c, grad * f, grad * e,
                grad * h, grad * g, grad * j, grad * i, grad * m, grad * k)

    return a * b + c * d + e * f + g * h + i * j + k * m, backward


def twelve_forward(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor, f: Tensor,
                   g: Tensor, h: Tensor, i: Tensor, j: Tensor, k: Tensor, m: Tensor) -> Tensor:
    return a * b + c * d + e * f + g * h + i * j + k * m
# fmt: on


def twelve_save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def twelve_backward(ctx: Any, grad: Tensor) -> Any:
    saved = ctx.saved_tensors
    partners = (saved[index ^ 1] for index in range(12))
    return tuple(grad * p if n else None for p, n in zip(partners, ctx.needs_input_grad))


def _square(n: int) -> tuple[int, int]:
    side = 2 ** (n.bit_length() // 2)  # 8 -> 2 x 4, 4096 -> 64 x 64
    return n // side, side


def _one(n: int) -> Shapes:
    return ((n,),)


def _linear(frozen: tuple[int, ...]) -> Subject:
    return Subject(
        linear,
        linear_forward,
        linear_save,
        linear_backward,
        lambda n: (_square(n), (_square(n)[1],) * 2, _square(n)[1:]),
        builtin=F.linear,
        frozen=frozen,
    )


_NAMES = ("x", "weight", "bias")
_SUBSETS = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
FROZEN = {"linear, frozen " + " and ".join(_NAMES[i] for i in s): _linear(s) for s in _SUBSETS}

SUBJECTS = {
    "swish": Subject(swish, swish_forward, swish_save, swish_backward, _one, builtin=F.silu),
    "mish": Subject(mish, mish_forward, swish_save, mish_backward, _one, builtin=F.mish),
    "hard_mish": Subject(hard_mish, hard_mish_forward, swish_save, hard_mish_backward, _one),
    "gelu_tanh": Subject(
        gelu_tanh,
        gelu_tanh_forward,
        swish_save,
        gelu_tanh_backward,
        _one,
        builtin=lambda x: F.gelu(x, approximate="tanh"),
    ),
    "layer_norm": Subject(
        layer_norm,
        layer_norm_forward,
        layer_norm_save,
        layer_norm_backward,
        lambda n: (_square(n), _square(n)[1:], _square(n)[1:], 1e-5),
        builtin=lambda x, weight, bias, eps: F.layer_norm(x, weight.shape, weight, bias, eps),
    ),
    "linear": _linear(()),
    **FROZEN,
    "spike": Subject(
        spike, spike_forward, spike_save, spike_backward, lambda n: ((n,), 25.0), plain=spike_plain
    ),
    "twelve": Subject(twelve, twelve_forward, twelve_save, twelve_backward, lambda n: ((n,),) * 12),
}
