"""Two gradients returned in another order than the inputs."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            grad_a, grad_b = grad_out * b, grad_out * a
            return grad_b, grad_a  # S2S109 here

        return a * b, backward

    return multiply


def corrected():
    @s2s.autograd_script
    def multiply(a, b):
        def backward(grad_out):
            grad_a, grad_b = grad_out * b, grad_out * a
            return grad_a, grad_b

        return a * b, backward

    return multiply


def inputs():
    one = torch.tensor([0.5, -1.5], dtype=torch.double)
    return (one, torch.tensor([2.0, 3.0], dtype=torch.double))
