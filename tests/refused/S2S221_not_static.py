"""Methods that are not static, as PyTorch took them long ago."""

import torch

import s2s


def refused():
    class Double(torch.autograd.Function):
        def forward(ctx, x):  # S2S221 here
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.from_function(Double)


def corrected():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.from_function(Double)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
