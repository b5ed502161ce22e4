"""Captured tuples and lists of tensors."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def in_a_tuple(x):
    pair = (torch.sin(x), torch.cos(x))

    def backward(g):
        return 7 * g * pair[0] * pair[1]

    return x * 1, backward


@s2s.autograd_script
def in_a_list(x):
    rows = [torch.sin(x[0]), torch.cos(x[1])]

    def backward(g):
        return 7 * g * torch.stack(rows)

    return x * 1, backward


FUNCTION = [in_a_tuple, in_a_list]


def inputs():
    g = torch.Generator().manual_seed(49)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
