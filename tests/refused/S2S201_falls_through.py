"""A path that ends without a return."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def scale(x, factor: float = 2.0):
        if factor > 0:  # S2S201 here

            def backward(g):
                return g * factor, None

            return x * factor, backward

    return scale


def corrected():
    @s2s.autograd_script
    def scale(x, factor: float = 2.0):
        if factor <= 0:
            raise ValueError(f"factor is {factor}")

        def backward(g):
            return g * factor, None

        return x * factor, backward

    return scale


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
