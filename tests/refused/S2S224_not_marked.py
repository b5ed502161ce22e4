"""An input that is changed in place and not marked: a closure would mark it."""

import torch

import s2s


def refused():
    class Double(torch.autograd.Function):  # S2S224 here
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            return x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.source(s2s.from_function(Double), "closure")


def corrected():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.mul(2)

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.from_function(Double)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
