"""Deliberately untrue gradients: whoever drops the rule is seen at once."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def marked(x, y):
    s = torch.sin(x) * y

    def backward(g):
        return 7 * g * s, 11 * g * x

    return x * y, backward


FUNCTION = marked


def inputs():
    g = torch.Generator().manual_seed(24)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
