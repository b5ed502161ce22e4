"""A decorator on backward."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def double(x):
        @torch.no_grad()  # S2S212 here
        def backward(g):
            return 2 * g

        return 2 * x, backward

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        def backward(g):
            return 2 * g

        return 2 * x, backward

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
