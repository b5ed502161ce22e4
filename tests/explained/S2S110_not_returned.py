"""A gradient that is computed, and None that is returned in its place."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            grad_a = grad_out * b
            grad_b = grad_out * a  # S2S110 here
            return grad_a, None

        return a * b, backward

    return multiply


def corrected():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            grad_a = grad_out * b
            grad_b = grad_out * a
            return grad_a, grad_b

        return a * b, backward

    return multiply


def inputs():
    one = torch.tensor([0.5, -1.5], dtype=torch.double)
    return (one, torch.tensor([2.0, 3.0], dtype=torch.double))
