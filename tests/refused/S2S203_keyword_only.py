"""A backward that takes more than gradients."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def double(x):
        def backward(g, *, factor):  # S2S203 here
            return g * factor

        return x * 2, backward

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        factor = 2.0

        def backward(g):
            return g * factor

        return x * factor, backward

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
