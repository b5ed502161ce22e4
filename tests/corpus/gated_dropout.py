"""Noise that multiplies an intermediate: what is kept carries a gradient."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True
RANDOM = True


@s2s.autograd_script
def noisy_gate(x, w):
    gate = torch.sigmoid(x * w)
    noise = torch.randn_like(x)
    noisy = gate * noise

    def backward(g):
        d_gate = g * x * noise * gate * (1 - gate)
        return g * noisy + d_gate * w, d_gate * x

    return x * noisy, backward


FUNCTION = noisy_gate


def inputs():
    g = torch.Generator().manual_seed(7)
    return [tuple(torch.randn(2, 3, generator=g, dtype=torch.double) for _ in range(2))]
