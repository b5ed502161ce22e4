"""An input that is returned by the very call that changes it."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, False
OPERATOR = False
DIRTY = True


@s2s.autograd_script
def thrice_(x):
    def backward(g):
        return 7 * g

    return x.mul_(3), backward


FUNCTION = thrice_


def inputs():
    g = torch.Generator().manual_seed(54)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
