"""A backward that returns the slope, and not the slope times the output gradient."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def square(x):
        def backward(grad_out):  # S2S101 here
            return 2 * x

        return x * x, backward

    return square


def corrected():
    @s2s.autograd_script
    def square(x):
        def backward(grad_out):
            return grad_out * 2 * x

        return x * x, backward

    return square


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
