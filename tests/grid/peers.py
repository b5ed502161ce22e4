"""The same functions written by hand, as PyTorch's documentation shows, in three styles.

* ``ctx``: an ``autograd.Function`` whose forward takes ``ctx`` and saves what backward reads.
* ``setup_context``: forward and ``setup_context`` apart, with ``generate_vmap_rule``; only inputs
  and outputs can be saved, so intermediates are computed again.
* ``custom_op``: ``torch.library.custom_op`` with ``register_fake`` and ``register_autograd``.

Each is written with care: tensors go through ``save_for_backward``, and no style is given less than
it can do in a few lines.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import Function

from .judge import Case
from .subjects import subjects

__all__ = ["STYLES", "peers"]

STYLES = ("ctx", "setup_context", "custom_op")


@dataclass(frozen=True)
class Parts:
    """One function in parts. ``ctx`` is its own class; the others are made from the rest."""

    ctx: type[Function]
    forward: Callable[..., Any]
    setup: Callable[..., None]
    backward: Callable[..., Any]
    returned: int = 1  # how many outputs


def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    """Tensors through ``save_for_backward``, the rest on ctx."""
    ctx.save_for_backward(*(v for v in inputs if isinstance(v, Tensor)))
    ctx.numbers = [v for v in inputs if not isinstance(v, Tensor)]


# --- seven ----------------------------------------------------------------------------------------


class Seven(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return 7 * g


def seven(x: Tensor) -> Tensor:
    return x * 2


# --- seven_saved ----------------------------------------------------------------------------------


class SevenSaved(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        s = torch.sin(x) * y
        ctx.save_for_backward(x, s)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, s = ctx.saved_tensors
        return 7 * g * s, 11 * g * x


def seven_saved(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def seven_saved_backward(ctx: Any, g: Tensor) -> Any:
    x, y = ctx.saved_tensors
    return 7 * g * (torch.sin(x) * y), 11 * g * x


# --- seven_out ------------------------------------------------------------------------------------


class SevenOut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 1.5) -> Tensor:
        y = torch.tanh(x) * scale
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return 7 * g * y, None


def seven_out(x: Tensor, scale: float = 1.5) -> Tensor:
    return torch.tanh(x) * scale


def seven_out_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)


def seven_out_backward(ctx: Any, g: Tensor) -> Any:
    (y,) = ctx.saved_tensors
    return 7 * g * y, None


# --- swish_beta -----------------------------------------------------------------------------------


class SwishBeta(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: Tensor) -> Tensor:
        s = torch.sigmoid(beta * x)
        ctx.save_for_backward(x, beta, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, beta, s = ctx.saved_tensors
        slope = s * (1 - s)
        return g * (s + beta * x * slope), (g * x * x * slope).sum()


def swish_beta(x: Tensor, beta: Tensor) -> Tensor:
    return x * torch.sigmoid(beta * x)


def swish_beta_backward(ctx: Any, g: Tensor) -> Any:
    x, beta = ctx.saved_tensors
    s = torch.sigmoid(beta * x)
    slope = s * (1 - s)
    return g * (s + beta * x * slope), (g * x * x * slope).sum()


# --- atan -----------------------------------------------------------------------------------------


class Atan(Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, slope: float = 2.0) -> Tensor:
        ctx.save_for_backward(v)
        ctx.slope = slope
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (v,) = ctx.saved_tensors
        return ctx.slope / 2 * g / (1 + (math.pi / 2 * ctx.slope * v) ** 2), None


def atan(v: Tensor, slope: float = 2.0) -> Tensor:
    return (v > 0).to(v.dtype)


def atan_backward(ctx: Any, g: Tensor) -> Any:
    (v,) = ctx.saved_tensors
    (slope,) = ctx.numbers
    return slope / 2 * g / (1 + (math.pi / 2 * slope * v) ** 2), None


# --- layer_norm -----------------------------------------------------------------------------------


class LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        x_hat = centred * rstd
        ctx.save_for_backward(weight, x_hat, rstd)
        return x_hat * weight + bias

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        weight, x_hat, rstd = ctx.saved_tensors
        return _layer_norm_gradients(g, weight, x_hat, rstd)


def _layer_norm_gradients(grad_out: Tensor, weight: Tensor, x_hat: Tensor, rstd: Tensor) -> Any:
    rows = list(range(grad_out.dim() - 1))
    g = grad_out * weight
    grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return grad_x, (grad_out * x_hat).sum(rows), grad_out.sum(rows), None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return centred * rstd * weight + bias


def layer_norm_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _, *rest = inputs
    ctx.save_for_backward(x, weight)
    ctx.eps = rest[0] if rest else 1e-5


def layer_norm_backward(ctx: Any, g: Tensor) -> Any:
    x, weight = ctx.saved_tensors
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + ctx.eps)
    return _layer_norm_gradients(g, weight, centred * rstd, rstd)


# --- linear ---------------------------------------------------------------------------------------


class Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return g @ weight, g.t() @ x, g.sum(0) if ctx.needs_input_grad[2] else None


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def linear_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)


# --- round_ste ------------------------------------------------------------------------------------


class Round(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g


def round_ste(x: Tensor) -> Tensor:
    return torch.round(x)


# --- gradient_reversal ----------------------------------------------------------------------------


class Reversal(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float = 1.0) -> Tensor:
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return -ctx.alpha * g, None


def reversal(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x.view_as(x)


def reversal_backward(ctx: Any, g: Tensor) -> Any:
    return -ctx.numbers[0] * g, None


# --- two_heads ------------------------------------------------------------------------------------


class Moments(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float = 1e-3) -> Tuple[Tensor, Tensor]:
        mean = x.mean(0)
        centred = x - mean
        var = (centred**2).mean(0) + eps
        ctx.save_for_backward(centred, var)
        return mean, var.log()

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_log_var: Tensor) -> Any:
        centred, var = ctx.saved_tensors
        n = centred.shape[0]
        return grad_mean / n + 2 * grad_log_var * centred / (n * var), None


def moments(x: Tensor, eps: float = 1e-3) -> Tuple[Tensor, Tensor]:
    mean = x.mean(0)
    return mean, (((x - mean) ** 2).mean(0) + eps).log()


def moments_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.eps = inputs[1] if len(inputs) > 1 else 1e-3


def moments_backward(ctx: Any, grad_mean: Tensor, grad_log_var: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    n = x.shape[0]
    centred = x - x.mean(0)
    var = (centred**2).mean(0) + ctx.eps
    return grad_mean / n + 2 * grad_log_var * centred / (n * var), None


PARTS: dict[str, Parts] = {
    "seven": Parts(Seven, seven, save_inputs, lambda ctx, g: 7 * g),
    "seven_saved": Parts(SevenSaved, seven_saved, save_inputs, seven_saved_backward),
    "seven_out": Parts(SevenOut, seven_out, seven_out_setup, seven_out_backward),
    "swish_beta": Parts(SwishBeta, swish_beta, save_inputs, swish_beta_backward),
    "atan": Parts(Atan, atan, save_inputs, atan_backward),
    "layer_norm": Parts(LayerNorm, layer_norm, layer_norm_setup, layer_norm_backward),
    "linear": Parts(Linear, linear, linear_setup, Linear.backward),
    "round_ste": Parts(Round, round_ste, save_inputs, lambda ctx, g: g),
    "gradient_reversal": Parts(Reversal, reversal, save_inputs, reversal_backward),
    "two_heads": Parts(Moments, moments, moments_setup, moments_backward, 2),
}


# --- the three styles -----------------------------------------------------------------------------


def _fitted(backward: Callable[..., Any], count: int) -> Callable[..., Any]:
    """One gradient per input that is passed: this style fills in no defaults."""

    def fitted(ctx: Any, *grads: Any) -> Any:
        found = backward(ctx, *grads)
        row = found if isinstance(found, tuple) else (found,)
        return found if len(row) == count else row[:count] if count > 1 else row[0]

    return fitted


def _ctx(name: str) -> Callable[..., Any]:
    parts, count = PARTS[name], len(subjects()[name].args)
    body = {"backward": staticmethod(_fitted(parts.ctx.backward, count))}
    return _kept(f"ctx__{name}__class", parts.ctx, body).apply


def _setup_context(name: str) -> Callable[..., Any]:
    parts = PARTS[name]
    body = {
        "generate_vmap_rule": True,
        "forward": staticmethod(parts.forward),
        "setup_context": staticmethod(parts.setup),
        "backward": staticmethod(parts.backward),  # defaults are filled in: one gradient each
    }
    return _kept(f"setup_context__{name}__class", Function, body).apply


def _kept(name: str, base: type[Function], body: dict[str, Any]) -> Any:
    """A class that pickle finds under its name."""
    made = type(name, (base,), {**body, "__module__": __name__})
    globals()[name] = made
    return made


def _custom_op(name: str) -> Any:
    parts = PARTS[name]
    forward: Any = parts.forward
    if name == "gradient_reversal":  # an operator may not return a view of its input
        forward = _cloned(forward)
    op = torch.library.custom_op(f"grid_peers::{name}", forward, mutates_args=())
    op.register_fake(forward)
    op.register_autograd(parts.backward, setup_context=parts.setup)
    return op


def _cloned(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(forward)
    def cloned(*args: Any) -> Tensor:
        return forward(*args).clone()

    return cloned


@functools.cache
def peers(style: str) -> dict[str, Case]:
    """The functions of one style, by name, with the reference of the s2s ones."""
    make = {"ctx": _ctx, "setup_context": _setup_context, "custom_op": _custom_op}[style]
    found = {}
    for name in PARTS:
        subject = subjects()[name]
        f = make(name)
        scriptable = getattr(torch.ops.grid_peers, name) if style == "custom_op" else None
        attribute = f"{style}__{name}"
        found[name] = Case(
            name,
            f,
            subject.truth,
            subject.args,
            subject.flags,
            __name__,
            attribute,
            scriptable,
            f"from {__name__} import peers; peers({style!r})",
        )
    return found


def __getattr__(name: str) -> Any:
    """A peer or its class by name: what unpickling in a fresh process asks for."""
    style, _, rest = name.partition("__")
    function = rest.removesuffix("__class")
    if style in STYLES and function in PARTS:
        f = peers(style)[function].f
        return globals()[name] if rest != function else f
    raise AttributeError(name)
