"""A ctx that is kept by somebody else."""

import torch

import s2s

CALLS = []


def refused():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            CALLS.append(ctx)  # S2S222 here
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.from_function(Double)


def corrected():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            CALLS.append(x.shape)
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    return s2s.from_function(Double)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
