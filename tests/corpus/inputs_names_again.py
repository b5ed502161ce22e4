"""Variables of backward that are called like inputs of the function."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def product(x, w):
    s = torch.sin(x) * w

    def backward(x):
        w = 7 * x * s
        return w, 11 * w

    return 2 * s, backward


FUNCTION = product


def inputs():
    g = torch.Generator().manual_seed(53)
    return [tuple(torch.randn(2, 3, generator=g, dtype=torch.double) for _ in range(2))]
