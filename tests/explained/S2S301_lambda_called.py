"""A construct that TorchScript does not know, in a function that scripted code is to call."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def scale(x, factor: float = 2.0):
        twice = (lambda t: t * 2)(x)  # S2S301 here

        def backward(g):
            return 2 * g * factor, None

        return twice * factor, backward

    scale.scripted.forward  # raises; normal calls, torch.compile and torch.func work
    return scale


def corrected():
    @s2s.autograd_script
    def scale(x, factor: float = 2.0):
        twice = x * 2

        def backward(g):
            return 2 * g * factor, None

        return twice * factor, backward

    scale.scripted.forward
    return scale


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
