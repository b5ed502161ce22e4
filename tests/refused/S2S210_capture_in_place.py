"""A backward that reuses a saved buffer."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def logistic(x):
        y = torch.sigmoid(x)
        slope = y * (1 - y)

        def backward(g):
            return slope.mul_(g)  # S2S210 here

        return y, backward

    return logistic


def corrected():
    @s2s.autograd_script
    def logistic(x):
        y = torch.sigmoid(x)
        slope = y * (1 - y)

        def backward(g):
            return slope * g

        return y, backward

    return logistic


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
