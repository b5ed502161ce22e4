"""One output on one path, two on the other."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def split(x, both: bool = True):
        if both:
            return x.sin(), x * 2, lambda g, h: (g * x.cos() + 2 * h, None)
        return x.sin(), lambda g: (g * x.cos(), None)  # S2S214 here

    return split


def corrected():
    @s2s.autograd_script
    def split(x, both: bool = True):
        double = x * 2 if both else torch.zeros_like(x)

        def backward(g, h):
            return g * x.cos() + (2 * h if both else 0), None

        return x.sin(), double, backward

    return split


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
