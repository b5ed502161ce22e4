"""A method of ctx that goes by another name."""

import torch

import s2s


def refused():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            keep = ctx.save_for_backward  # S2S223 here
            keep(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.exp()

    return s2s.from_function(Exp)


def corrected():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.exp()

    return s2s.from_function(Exp)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
