"""A backward that is written, while another function is returned."""

import torch

import s2s


def doubtful():
    @s2s.autograd_script
    def double(x):
        def backward(grad_out):  # S2S108 here
            return grad_out * 2

        return x * 2, lambda grad_out: grad_out

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        def backward(grad_out):
            return grad_out * 2

        return x * 2, backward

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
