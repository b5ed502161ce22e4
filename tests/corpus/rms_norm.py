"""RMS norm (Zhang & Sennrich 2019) with a residual and a keyword-only epsilon."""

from __future__ import annotations

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def rms_norm(x: Tensor, gain: Tensor, residual: Tensor | None = None, *, eps: float = 1e-6):
    """x and residual: (*, d), gain: (d,). Returns (*, d)."""
    h = x if residual is None else x + residual
    inverse = torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    normed = h * inverse

    def backward(grad_out):
        weighted = grad_out * gain
        inner = (weighted * normed).mean(-1, keepdim=True)
        grad_h = inverse * (weighted - normed * inner)
        grad_gain = (grad_out * normed).flatten(0, -2).sum(0)
        return grad_h, grad_gain, None if residual is None else grad_h, None

    return normed * gain, backward


FUNCTION = rms_norm


def inputs():
    g = torch.Generator().manual_seed(9)

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.double)

    return [
        (randn(2, 2, 3), randn(3)),
        (randn(2, 3), randn(3), randn(2, 3), {"eps": 1e-2}),
    ]
