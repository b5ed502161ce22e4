"""Two lists of tensors as parameters."""

from typing import List

import torch

import s2s


def refused():
    @s2s.autograd_script
    def inner(xs: List[torch.Tensor], ys: List[torch.Tensor]):  # S2S208 here
        def backward(g):
            return [g * y for y in ys], [g * x for x in xs]

        return sum(x * y for x, y in zip(xs, ys)), backward

    return inner


def corrected():
    @s2s.autograd_script
    def inner(half: int, both: List[torch.Tensor]):
        def backward(g):
            return None, [g * t for t in (*both[half:], *both[:half])]

        return sum(x * y for x, y in zip(both[:half], both[half:])), backward

    return lambda x, y: inner(1, [x, y])


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double), torch.tensor([2.0, 3.0], dtype=torch.double))
