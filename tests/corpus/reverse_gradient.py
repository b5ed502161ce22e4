"""Gradient reversal (Ganin & Lempitsky 2015), written with a lambda."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def reverse_gradient(x, strength: float = 1.0):
    return x.view_as(x), lambda grad: (-strength * grad, None)


FUNCTION = reverse_gradient


def inputs():
    g = torch.Generator().manual_seed(5)
    x = torch.randn(3, 2, generator=g, dtype=torch.double)
    return [(x,), (x, 0.25)]
