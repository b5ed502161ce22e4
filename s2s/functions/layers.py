"""Layers whose gradients sum over the leading dimensions."""

from typing import Optional

import torch
from torch import Tensor

from ..decorator import autograd_script


@autograd_script
def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None):
    """x @ weight.T + bias, as `torch.nn.functional.linear`.

    x: (*, in_features), weight: (out_features, in_features), bias: (out_features,) or None; all of
    one dtype. Returns (*, out_features).

    Backward: grad_out @ weight for x; grad_out.T @ x for weight and grad_out for bias, both summed
    over the leading dimensions. Saves x and weight.
    """

    def backward(grad_out):
        rows = grad_out.reshape(-1, grad_out.shape[-1])
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        grad_bias = None if bias is None else rows.sum(0)
        return grad_out @ weight, grad_weight, grad_bias

    return torch.nn.functional.linear(x, weight, bias), backward


@autograd_script
def layer_norm(x, weight, bias, eps: float = 1e-5):
    """Layer normalization over the last dimension: x_hat * weight + bias with
    x_hat = (x - mean) * rstd, rstd = 1 / sqrt(var + eps), var the biased variance.

    x: (*, d) with at least two dimensions, weight and bias: (d,); one dtype. Returns x's shape.

    Backward: rstd * (g - mean(g) - x_hat * mean(g * x_hat)) with g = grad_out * weight for x;
    grad_out * x_hat for weight and grad_out for bias, both summed over the leading dimensions.
    Saves weight, x_hat and rstd, and x for a second derivative.

    Ba, Kiros & Hinton 2016, "Layer Normalization".
    """
    # Ba et al. 2016, over the last dimension.
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    x_hat = centred * rstd

    def backward(grad_out):
        # weight and bias are shared by every row, so their gradients sum over rows
        rows = list(range(x.dim() - 1))
        g = grad_out * weight
        grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
        return grad_x, (grad_out * x_hat).sum(rows), grad_out.sum(rows), None

    return x_hat * weight + bias, backward
