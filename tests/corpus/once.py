"""A backward that may be differentiated once."""

import torch
from torch.autograd.function import once_differentiable

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS, SECOND, LINEAR = False, True, True, False, False


@s2s.autograd_script
def soft(x, w):
    s = torch.sigmoid(x)

    @once_differentiable
    def backward(g):
        return 7 * g * s * w, g * s

    return s * w, backward


FUNCTION = soft


def inputs():
    g = torch.Generator().manual_seed(74)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
