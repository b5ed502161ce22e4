"""Outputs that may be one and the same tensor, and outputs that share memory."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def already_contiguous(x):
    y = x.sin()

    def backward(a, b):
        return 7 * a + 11 * b

    return y, y.contiguous(), backward


@s2s.autograd_script
def by_another_name(x):
    loss = total = x.sin()
    return loss, total, lambda a, b: 7 * a + 11 * b


@s2s.autograd_script
def in_one_branch(x):
    y = x.sin()
    z = y if x.dim() == 2 else 2 * y

    def backward(a, b):
        return 7 * a + 11 * b

    return y, z, backward


@s2s.autograd_script
def through_a_helper(x):
    y = x.sin()

    def backward(a, b):
        return 7 * a + 11 * b

    return scaled(y, 1.0), y, backward


def scaled(x, factor: float):
    return x if factor == 1.0 else factor * x


@s2s.autograd_script
def a_view_of_another(x):
    y = x.sin()

    def backward(a, b, c):
        return 7 * a + 11 * b.view(a.shape) + 13 * c.t()

    return y, y.view(-1), y.t(), backward


FUNCTION = [
    already_contiguous,
    by_another_name,
    in_one_branch,
    through_a_helper,
    a_view_of_another,
]


def inputs():
    g = torch.Generator().manual_seed(51)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
