"""A name to compute again that backward does not read."""

import torch

import s2s


def refused():
    @s2s.autograd_script(recompute=("slop",))  # S2S220 here
    def damped(x):
        slope = torch.exp(-x)

        def backward(g):
            return g * (slope - x * slope)

        return x * slope, backward

    return damped


def corrected():
    @s2s.autograd_script(recompute=("slope",))
    def damped(x):
        slope = torch.exp(-x)

        def backward(g):
            return g * (slope - x * slope)

        return x * slope, backward

    return damped


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
