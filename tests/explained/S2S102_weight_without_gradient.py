"""A weight that forward multiplies by, and that never gets a gradient."""

import torch
from torch import Tensor

import s2s


def doubtful():
    @s2s.autograd_script
    def scale(x: Tensor, weight: Tensor):
        def backward(grad_out):
            return grad_out * weight, None  # S2S102 here

        return x * weight, backward

    return scale


def corrected():
    @s2s.autograd_script
    def scale(x: Tensor, weight: Tensor):
        def backward(grad_out):
            return grad_out * weight, grad_out * x

        return x * weight, backward

    return scale


def inputs():
    one = torch.tensor([0.5, -1.5], dtype=torch.double)
    return (one, torch.tensor([2.0, 3.0], dtype=torch.double))
