"""Output gradients that are None where nobody uses the output."""

from typing import Optional

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def two_ways(x):
    def backward(g_double: Optional[Tensor], g_square: Optional[Tensor]):
        grad_x = torch.zeros_like(x)
        if g_double is not None:
            grad_x = grad_x + 7 * g_double
        if g_square is not None:
            grad_x = grad_x + 2 * g_square * x
        return grad_x

    return 2 * x, x * x, backward


FUNCTION = two_ways


def inputs():
    g = torch.Generator().manual_seed(73)
    return [(torch.randn(3, generator=g, dtype=torch.double),)]
