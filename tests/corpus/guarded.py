"""Assertions, no_grad, and a choice of output scale inside one expression."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def whiten(x: Tensor, scale: float = 1.0, centre: bool = True):
    assert x.dim() == 2, "expected (n, d)"
    with torch.no_grad():
        mean = x.mean(0, keepdim=True) if centre else torch.zeros_like(x[:1])
        std = x.std(0, keepdim=True)

    def backward(g):
        # batch statistics count as constants
        return scale * g / std, None, None

    return scale * (x - mean) / std, backward


FUNCTION = whiten


def inputs():
    g = torch.Generator().manual_seed(38)
    x = torch.randn(4, 2, generator=g, dtype=torch.double)
    return [(x,), (x, 2.5, False)]
