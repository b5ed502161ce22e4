"""Surrogate spikes made by a factory: the slope is a number of the enclosing function."""

import math

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


def make_spike(alpha: float = 2.0, threshold: float = 1.0):
    half_pi = math.pi / 2

    @s2s.autograd_script
    def spike(v):
        def backward(g):
            return g * (alpha / 2) / (1 + (half_pi * alpha * (v - threshold)) ** 2)

        return (v > threshold).to(v.dtype), backward

    return spike


FUNCTION = [make_spike(), make_spike(5.0, threshold=0.5)]


def inputs():
    g = torch.Generator().manual_seed(3)
    return [(torch.randn(5, generator=g, dtype=torch.double) + 1,)]
