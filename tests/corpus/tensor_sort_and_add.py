"""Methods of tensors by the names of those that change lists and sets."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def smallest_first(x):
    values, order = x.sort(-1)
    y = x.add(values)

    def backward(g):
        return 7 * torch.zeros_like(x).scatter(-1, order, g)

    return y.add(1), backward


FUNCTION = smallest_first


def inputs():
    g = torch.Generator().manual_seed(52)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
