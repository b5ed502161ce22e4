"""A random draw that is to be made again."""

import torch

import s2s


def refused():
    @s2s.autograd_script(recompute=("noise",))  # S2S220 here
    def noisy(x):
        noise = 1 + torch.rand_like(x)

        def backward(g):
            return g * noise

        return x * noise, backward

    return noisy


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
