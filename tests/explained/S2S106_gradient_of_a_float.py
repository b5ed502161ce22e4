"""A gradient for a parameter that is annotated as a number."""

import torch
from torch import Tensor

import s2s


def doubtful():
    @s2s.autograd_script
    def scale(x: Tensor, factor: float = 2.0):
        def backward(grad_out):
            return grad_out * factor, grad_out * x  # S2S106 here

        return x * factor, backward

    return scale


def corrected():
    @s2s.autograd_script
    def scale(x: Tensor, factor: float = 2.0):
        def backward(grad_out):
            return grad_out * factor, None

        return x * factor, backward

    return scale


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
