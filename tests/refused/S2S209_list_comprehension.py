"""A list of outputs, as many as it happens to be."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def powers(x):
        def backward(g, h):
            return g + 2 * h * x

        return [x**n for n in (1, 2)], backward  # S2S209 here

    return powers


def corrected():
    @s2s.autograd_script
    def powers(x):
        def backward(g, h):
            return g + 2 * h * x

        return [x * 1, x**2], backward

    return powers


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
