"""A function with the name of a builtin of Python."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def round(x):  # S2S217 here
        def backward(g):
            return g

        return x + 0, backward

    return round


def corrected():
    @s2s.autograd_script
    def round_ste(x):
        def backward(g):
            return g

        return x + 0, backward

    return round_ste


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
