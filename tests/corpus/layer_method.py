"""Decorated methods: of an object and of its class."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, False, True
OPERATOR = False


class Scaler:
    factor = 3.0

    def __init__(self, shift):
        self.shift = shift

    @s2s.autograd_script
    def scale(self, x):
        def backward(g):
            return 7 * g * self.factor

        return x * self.factor + self.shift, backward

    @classmethod
    @s2s.autograd_script
    def by_class(cls, x):
        return x * cls.factor, lambda g: 5 * g * cls.factor


SCALER = Scaler(0.5)
FUNCTION = [SCALER.scale, Scaler.by_class]


def inputs():
    g = torch.Generator().manual_seed(25)
    return [(torch.randn(3, generator=g, dtype=torch.double),)]
