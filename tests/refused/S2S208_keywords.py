"""Keyword arguments without names."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def scale(x, **options):  # S2S208 here
        factor = options.get("factor", 3.0)

        def backward(g):
            return g * factor

        return x * factor, backward

    return scale


def corrected():
    @s2s.autograd_script
    def scale(x, *, factor: float = 3.0):
        def backward(g):
            return g * factor, None

        return x * factor, backward

    return scale


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
