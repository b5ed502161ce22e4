"""A backward that ends without gradients on one path."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def identity(x, active: bool = True):
        def backward(g):  # S2S202 here
            if active:
                return g, None

        return x.clone(), backward

    return identity


def corrected():
    @s2s.autograd_script
    def identity(x, active: bool = True):
        def backward(g):
            if active:
                return g, None
            return None, None

        return x.clone(), backward

    return identity


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
