"""Outputs that are views of the input, some of them captured."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def transposed(x):
    y = x.t()

    def backward(g):
        return 7 * g.t() * y.t()

    return y, backward


@s2s.autograd_script
def expanded(x):
    def backward(g):
        return 7 * g.sum(0) * x

    return x.expand(2, *x.shape), backward


@s2s.autograd_script
def first_row(x):
    row = x[0]

    def backward(g):
        return torch.stack([7 * g * row, g])

    return row, backward


FUNCTION = [transposed, expanded, first_row]


def inputs():
    g = torch.Generator().manual_seed(51)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
