"""A call that looks at the scope it stands in."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def scale(x):
        factor = 3.0

        def backward(g):
            return g * factor

        return x * locals()["factor"], backward  # S2S216 here

    return scale


def corrected():
    @s2s.autograd_script
    def scale(x):
        factor = 3.0

        def backward(g):
            return g * factor

        return x * factor, backward

    return scale


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
