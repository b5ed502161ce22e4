"""A polynomial activation whose coefficients are constants of the module."""

import math

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True

COEFFICIENTS = (0.25, 0.5, -0.125, 0.0625)
GAIN = 1.5


@s2s.autograd_script
def polynomial(x):
    y = torch.zeros_like(x)
    for c in COEFFICIENTS[::-1]:
        y = y * x + c

    def backward(g):
        slope = torch.zeros_like(x)
        for power in range(len(COEFFICIENTS) - 1, 0, -1):
            slope = slope * x + power * COEFFICIENTS[power]
        return g * (GAIN * slope + math.pi)

    return GAIN * y + math.pi * x, backward


FUNCTION = polynomial


def inputs():
    g = torch.Generator().manual_seed(26)
    return [(torch.randn(5, generator=g, dtype=torch.double),)]
