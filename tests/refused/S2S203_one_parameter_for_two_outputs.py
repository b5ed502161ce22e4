"""Two outputs, and a backward that takes one gradient."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def both(x):
        def backward(g):  # S2S203 here
            return g * 2

        return x.sin(), x * 2, backward

    return both


def corrected():
    @s2s.autograd_script
    def both(x):
        def backward(grad_sin, grad_double):
            return grad_sin * x.cos() + grad_double * 2

        return x.sin(), x * 2, backward

    return both


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
