"""A backward that takes its gradients by a star."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def double(x):
        def backward(*grads):  # S2S203 here
            return grads[0] * 2

        return x * 2, backward

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        def backward(g):
            return g * 2

        return x * 2, backward

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
