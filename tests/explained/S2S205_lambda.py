"""A lambda, whose text does not stand alone."""

import torch

import s2s


def refused():
    double = s2s.autograd_script(lambda x: (x * 2, lambda g: g * 2))  # S2S205 here

    return double


def corrected():
    @s2s.autograd_script
    def double(x):
        return x * 2, lambda g: g * 2

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
