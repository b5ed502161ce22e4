"""One tensor returned twice, and one input returned as it is."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def fork(x):
    y = 2 * x

    def backward(a, b, c):
        return 7 * a + 11 * b * y + 13 * c

    return y, y, x, backward


FUNCTION = fork


def inputs():
    g = torch.Generator().manual_seed(45)
    return [(torch.randn(3, generator=g, dtype=torch.double),)]
