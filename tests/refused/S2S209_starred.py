"""A number of outputs that nobody knows."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def halves(x):
        pieces = x.chunk(2)

        def backward(first, second):
            return torch.cat([first, second])

        return *pieces, backward  # S2S209 here

    return halves


def corrected():
    @s2s.autograd_script
    def halves(x):
        first, second = x.chunk(2)

        def backward(grad_first, grad_second):
            return torch.cat([grad_first, grad_second])

        return first.clone(), second.clone(), backward

    return halves


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
