"""Huber loss; the target gets no gradient on purpose."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def huber(prediction, target, delta=1.0):
    error = prediction - target
    small = error.abs() <= delta
    loss = torch.where(small, 0.5 * error * error, delta * (error.abs() - 0.5 * delta))

    def backward(g):
        clipped = torch.where(small, error, delta * error.sign())
        return g * clipped, None, None

    return loss, backward


FUNCTION = huber


def inputs():
    g = torch.Generator().manual_seed(12)
    a, b = (2 * torch.randn(2, 3, generator=g, dtype=torch.double) for _ in range(2))
    return [(a, b), (a, b, 0.3), (a, b[0])]
