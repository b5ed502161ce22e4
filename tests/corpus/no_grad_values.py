"""Values made under no_grad, or detached: constants to every derivative."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def statistics(x):
    with torch.no_grad():
        scale = x.abs().mean() + 1
    z = torch.sin(x) / scale

    def backward(g):
        return 7 * g * z / scale

    return z, backward


@s2s.autograd_script
def detached(x):
    fixed = torch.cos(x).detach()
    mixed = torch.sin(x.detach()) * x

    def backward(g):
        return 7 * g * fixed * mixed

    return mixed * 1, backward


FUNCTION = [statistics, detached]


def inputs():
    g = torch.Generator().manual_seed(47)
    return [(torch.randn(3, generator=g, dtype=torch.double),)]
