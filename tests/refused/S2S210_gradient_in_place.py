"""A backward that scales the gradient it is given."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def relu(x):
        def backward(g):
            g[x < 0] = 0.0  # S2S210 here
            return g

        return x.clamp(min=0), backward

    return relu


def corrected():
    @s2s.autograd_script
    def relu(x):
        def backward(g):
            grad = g.clone()
            grad[x < 0] = 0.0
            return grad

        return x.clamp(min=0), backward

    return relu


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
