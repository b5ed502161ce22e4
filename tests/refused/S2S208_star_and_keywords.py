"""Any number of tensors, and keywords after them."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def total(*xs, factor: float = 2.0):  # S2S208 here
        def backward(g):
            return tuple(factor * g for _ in xs)

        return factor * torch.stack(xs).sum(0), backward

    return total


def corrected():
    @s2s.autograd_script
    def total(factor: float, *xs):
        def backward(g):
            return (None, *(factor * g for _ in xs))

        return factor * torch.stack(xs).sum(0), backward

    return lambda *xs: total(2.0, *xs)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double), torch.tensor([2.0, 3.0], dtype=torch.double))
