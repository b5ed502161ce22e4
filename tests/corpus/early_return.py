"""An early return for the easy case; the captures of the two backwards differ."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def power(x: Tensor, exponent: float):
    if exponent == 1.0:
        return x * 1, lambda g: (g, None)
    y = x.abs() ** exponent * x.sign()

    def backward(g):
        return g * exponent * x.abs() ** (exponent - 1), None

    return y, backward


FUNCTION = power


def inputs():
    g = torch.Generator().manual_seed(40)
    x = torch.randn(4, generator=g, dtype=torch.double)
    return [(x, 1.0), (x, 2.5)]
