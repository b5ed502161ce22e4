"""A backward that forward calls too."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def double(x):
        def backward(g):
            return 2 * g

        y = backward(x)  # S2S213 here
        return y, backward

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        def doubled(t):
            return 2 * t

        def backward(g):
            return doubled(g)

        return doubled(x), backward

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
