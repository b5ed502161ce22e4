"""A bias that was forgotten in forward, and so in backward."""

import torch
from torch import Tensor

import s2s


def doubtful():
    @s2s.autograd_script
    def affine(x: Tensor, weight: Tensor, bias: Tensor):  # S2S105 here
        def backward(grad_out):
            return grad_out * weight, grad_out * x, None

        return x * weight, backward

    return affine


def corrected():
    @s2s.autograd_script
    def affine(x: Tensor, weight: Tensor, bias: Tensor):
        def backward(grad_out):
            return grad_out * weight, grad_out * x, grad_out

        return x * weight + bias, backward

    return affine


def inputs():
    return tuple(torch.tensor([0.5, -1.5], dtype=torch.double) * (i + 1) for i in range(3))
