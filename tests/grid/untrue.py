"""Functions with a gradient that is not the derivative: whoever drops the rule is seen at once."""

import torch
from torch import Tensor

import s2s


@s2s.autograd_script
def seven(x: Tensor):
    """Nothing is saved."""

    def backward(g):
        return 7 * g

    return x * 2, backward


@s2s.autograd_script
def seven_saved(x: Tensor, y: Tensor):
    """An intermediate and both inputs are saved."""
    s = torch.sin(x) * y

    def backward(g):
        return 7 * g * s, 11 * g * x

    return x * y, backward


@s2s.autograd_script
def seven_out(x: Tensor, scale: float = 1.5):
    """The output is saved."""
    y = torch.tanh(x) * scale

    def backward(g):
        return 7 * g * y, None

    return y, backward
