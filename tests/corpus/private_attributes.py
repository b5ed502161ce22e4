"""A method that reads private names of its class and calls other methods."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, False, True
OPERATOR = False


class Gain:
    __bias = 0.5

    def __init__(self, factor):
        self.__factor = factor

    def _scaled(self, t):
        return t * self.__factor

    @s2s.autograd_script
    def amplify(self, x):
        def backward(g):
            return 7 * self._scaled(g) + self.__bias * g * x

        return self._scaled(x) + self.__bias, backward


FUNCTION = Gain(3.0).amplify


def inputs():
    g = torch.Generator().manual_seed(53)
    return [(torch.randn(3, generator=g, dtype=torch.double),)]
