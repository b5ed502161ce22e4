"""A captured named tuple, one part of which is the output."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, False, True  # in TorchScript a named tuple has no names


@s2s.autograd_script
def row_maximum(x):
    found = torch.max(x, 1)

    def backward(g):
        zeros = torch.zeros_like(x)
        return zeros.scatter(1, found.indices.unsqueeze(1), g.unsqueeze(1))

    return found.values, backward


FUNCTION = row_maximum


def inputs():
    g = torch.Generator().manual_seed(54)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
