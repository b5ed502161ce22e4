"""Multiplicative noise that backward does not read itself, only what was made with it."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True
RANDOM = True


@s2s.autograd_script
def perturbed(x, w):
    noise = 1 + 0.1 * torch.randn_like(x)
    warped = torch.sin(x * w) * noise

    def backward(g, h):
        return 3 * g * warped + h * w, g * warped.cos()

    return warped * x, x * w, backward


FUNCTION = perturbed


def inputs():
    g = torch.Generator().manual_seed(42)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
