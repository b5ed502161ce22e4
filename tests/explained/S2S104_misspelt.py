"""A name spelled in two ways: Python would say so in the first backward."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def swish(x):
        sigma = torch.sigmoid(x)

        def backward(grad_out):
            return grad_out * (sigma + x * sigma * (1 - sgima))  # S2S104 here

        return x * sigma, backward

    return swish


def corrected():
    @s2s.autograd_script
    def swish(x):
        sigma = torch.sigmoid(x)

        def backward(grad_out):
            return grad_out * (sigma + x * sigma * (1 - sigma))

        return x * sigma, backward

    return swish


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
