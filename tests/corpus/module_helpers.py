"""Helpers of the module, one of them a decorated function that another backward calls."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


def stable_sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) without overflow."""
    z = torch.exp(-x.abs())
    return torch.where(x >= 0, 1 / (1 + z), z / (1 + z))


@s2s.autograd_script
def logistic(x: Tensor):
    y = stable_sigmoid(x)

    def backward(g):
        return g * y * (1 - y)

    return y, backward


@s2s.autograd_script
def softplus(x: Tensor):
    def backward(g):
        return g * logistic(x)

    return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs())), backward


FUNCTION = [logistic, softplus]


def inputs():
    g = torch.Generator().manual_seed(28)
    return [(3 * torch.randn(5, generator=g, dtype=torch.double),)]
