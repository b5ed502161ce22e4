"""Inverted dropout: the mask is drawn once, in forward."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True
RANDOM = True


@s2s.autograd_script
def dropout(x: Tensor, p: float, training: bool = True):
    if training:
        mask = (torch.rand_like(x) >= p).to(x.dtype) / (1 - p)
    else:
        mask = torch.ones_like(x)

    def backward(grad_out):
        return grad_out * mask, None, None

    return x * mask, backward


FUNCTION = dropout


def inputs():
    g = torch.Generator().manual_seed(6)
    x = torch.randn(3, 4, generator=g, dtype=torch.double)
    return [(x, 0.4), (x, 0.4, False)]
