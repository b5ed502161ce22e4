"""ReLU in place on its input, which it returns."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, False
OPERATOR = False
DIRTY = True


@s2s.autograd_script
def relu_(x):
    x.clamp_(min=0)

    def backward(g):
        return g * (x > 0)

    return x, backward


FUNCTION = relu_


def inputs():
    g = torch.Generator().manual_seed(23)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
