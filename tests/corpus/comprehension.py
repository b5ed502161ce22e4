"""A variable of a comprehension with the name of a captured tensor."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, False, True  # TorchScript has one scope


@s2s.autograd_script
def weighted(x, y):
    s = torch.sin(x)

    def backward(g):
        total = sum([s * g for s in (1.0, 2.0)])
        return total * s, g

    return x * s, backward


FUNCTION = weighted


def inputs():
    g = torch.Generator().manual_seed(55)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
