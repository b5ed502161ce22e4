"""A backward that counts its own calls."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def square(x):
        calls = 0

        def backward(g):
            nonlocal calls  # S2S204 here
            calls += 1
            return 2 * g * x

        return x * x, backward

    return square


def corrected():
    calls = []

    @s2s.autograd_script
    def square(x):
        def backward(g):
            calls.append(1)
            return 2 * g * x

        return x * x, backward

    return square


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
