"""A function as an argument: operators take none, and exported programs call the operator."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def apply(f, x):  # S2S302 here
        def backward(g):
            return None, g * 2

        return f(x), backward

    class Model(torch.nn.Module):
        def forward(self, x):
            return apply(torch.neg, x)

    torch.export.export(Model(), inputs())  # raises
    return apply


def corrected():
    @s2s.autograd_script
    def double(x, name: str = "times"):
        def backward(g):
            return g * 2, None

        return x * 2 if name == "times" else x + x, backward

    class Model(torch.nn.Module):
        def forward(self, x):
            return double(x, "times")

    torch.export.export(Model(), inputs())
    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
