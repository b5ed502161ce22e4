"""The returned backward under another name, bound twice, or chosen in an expression."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def alias(x, twice: bool = False):
    def first(g):
        return 7 * g * x, None

    backward = first
    return x * 2, backward


@s2s.autograd_script
def bound_twice(x, twice: bool = False):
    def backward(g):
        return 7 * g, None

    if twice:

        def backward(g):
            return 11 * g * x, None

    return x * 2, backward


@s2s.autograd_script
def chosen(x, twice: bool = False):
    return x * 2, (lambda g: (11 * g * x, None)) if twice else (lambda g: (7 * g, None))


FUNCTION = [alias, bound_twice, chosen]


def inputs():
    g = torch.Generator().manual_seed(50)
    x = torch.randn(3, generator=g, dtype=torch.double)
    return [(x,), (x, True)]
