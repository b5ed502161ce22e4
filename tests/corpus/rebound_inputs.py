"""Inputs that forward binds again, by calls that nobody may repeat and by others."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True
SECOND = False  # what `unseen` does cannot be computed again

unseen = torch.nn.Tanh()


@s2s.autograd_script
def kept_then_redone(x, y):
    y = unseen(x)
    b = y.flip(0)

    def backward(g):
        return 7 * g * b, g

    return b * 1, backward


@s2s.autograd_script
def redone_then_kept(x, y):
    b = torch.sigmoid(x)
    x = unseen(y)

    def backward(g):
        return 7 * g * b + g * x, g * y

    return x * b, backward


@s2s.autograd_script
def kept_twice(x, y):
    for _ in range(2):
        x = unseen(x) + y
    y = torch.sin(y)

    def backward(g):
        return 7 * g * x, g * y

    return x * 1, backward


@s2s.autograd_script
def constant_instead(x, y):
    first = torch.sigmoid(x)
    with torch.no_grad():
        x = torch.sin(x)

    def backward(g):
        return 7 * g * first + g * x, g * y

    return first * 1, backward


FUNCTION = [kept_then_redone, redone_then_kept, kept_twice, constant_instead]


def inputs():
    g = torch.Generator().manual_seed(46)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
