"""A path that returns the output alone."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def relu(x):
        if not x.requires_grad:
            return x.clamp(min=0)  # S2S201 here

        def backward(g):
            return g * (x > 0)

        return x.clamp(min=0), backward

    return relu


def corrected():
    @s2s.autograd_script
    def relu(x):
        def backward(g):
            return g * (x > 0)

        return x.clamp(min=0), backward

    return relu


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
