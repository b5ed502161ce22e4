"""x * w + b with broadcasting: the gradients come back unreduced."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def affine(x, w, b):
    def backward(g):
        return g * w, g * x, g

    return x * w + b, backward


FUNCTION = affine


def inputs():
    g = torch.Generator().manual_seed(18)

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.double)

    return [(randn(3, 2), randn(2), randn(3, 1)), (randn(2), randn(3, 2), randn(()))]
