"""An attribute of ctx that backward sets anew, so that a second backward would see another."""

import torch

import s2s


def refused():
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.order = 3
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            ctx.order = ctx.order - 1  # S2S223 here
            return 3 * g * x**ctx.order

    return s2s.from_function(Power)


def corrected():
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.order = 3
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x ** (ctx.order - 1)

    return s2s.from_function(Power)


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
