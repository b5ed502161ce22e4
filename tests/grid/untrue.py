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


@s2s.autograd_script
def five(x: Tensor):
    """For the backward of `seven_nested`."""

    def backward(g):
        return 5 * g * x

    return torch.cos(x), backward


@s2s.autograd_script
def seven_nested(x: Tensor):
    """Backward calls a decorated function: a second derivative has to use the rule of that one."""

    def backward(g):
        return 7 * g * five(x)

    return x * 2, backward


TABLE = [torch.sin]


@s2s.autograd_script
def seven_once(x: Tensor):
    """What is saved cannot be computed twice, as far as one can see: no second derivative."""
    s: Tensor = TABLE[0](x)

    def backward(g):
        return 7 * g * s

    return x * 2, backward


def make_seven(factor: float):
    """A factory: its product is found under no name of the module."""

    @s2s.autograd_script
    def seven_made(x: Tensor):
        def backward(g):
            return 7 * factor * g * x

        return x * factor, backward

    return seven_made


seven_made = make_seven(1.5)
