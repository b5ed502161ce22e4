"""One gradient of two that is not multiplied by the output gradient."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            return grad_out * b, a  # S2S103 here

        return a * b, backward

    return multiply


def corrected():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            return grad_out * b, grad_out * a

        return a * b, backward

    return multiply


def inputs():
    one = torch.tensor([0.5, -1.5], dtype=torch.double)
    return (one, torch.tensor([2.0, 3.0], dtype=torch.double))
