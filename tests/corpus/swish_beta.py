"""Swish with a learnable slope: one saved intermediate, two gradients."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def swish_beta(x, beta):
    s = torch.sigmoid(beta * x)

    def backward(grad_out):
        slope = s * (1 - s)
        return grad_out * (s + beta * x * slope), (grad_out * x * x * slope).sum()

    return x * s, backward


FUNCTION = swish_beta


def inputs():
    g = torch.Generator().manual_seed(0)
    return [
        (torch.randn(2, 3, generator=g, dtype=torch.double), torch.tensor(1.3).double()),
    ]
