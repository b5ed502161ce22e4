"""A captured tensor that is changed after backward was written for its first value."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def exp_twice(x):
        y = torch.exp(x)

        def backward(grad_out):
            return grad_out * 2 * y

        y.mul_(2)  # S2S107 here
        return y, backward

    return exp_twice


def corrected():
    @s2s.autograd_script
    def exp_twice(x):
        y = torch.exp(x)

        def backward(grad_out):
            return grad_out * 2 * y

        return y * 2, backward

    return exp_twice


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
