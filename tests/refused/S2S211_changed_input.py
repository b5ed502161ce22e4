"""A forward that overwrites its input and returns something else."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def centred(x):
        x -= x.mean()  # S2S211 here

        def backward(g):
            return 2 * (g - g.mean())

        return 2 * x, backward

    return centred


def corrected():
    @s2s.autograd_script
    def centred(x):
        x = x - x.mean()

        def backward(g):
            return 2 * (g - g.mean())

        return 2 * x, backward

    return centred


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
