"""Two inputs, one gradient."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(g):
            return g * b  # S2S202 here

        return a * b, backward

    return multiply


def corrected():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(g):
            return g * b, g * a

        return a * b, backward

    return multiply


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double), torch.tensor([2.0, 3.0], dtype=torch.double))
