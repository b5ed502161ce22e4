"""Exponential moving average along time: a loop that fills a list, and its mirror image."""

from typing import List

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def moving_average(x: Tensor, decay: float):
    state = torch.zeros_like(x[0])
    states: List[Tensor] = []
    for t in range(x.shape[0]):
        state = decay * state + (1 - decay) * x[t]
        states.append(state)

    def backward(grad_out):
        carried = torch.zeros_like(grad_out[0])
        grads: List[Tensor] = []
        for t in range(grad_out.shape[0] - 1, -1, -1):
            carried = grad_out[t] + decay * carried
            grads.append((1 - decay) * carried)
        grads.reverse()
        return torch.stack(grads), None

    return torch.stack(states), backward


FUNCTION = moving_average


def inputs():
    g = torch.Generator().manual_seed(13)
    return [(torch.randn(4, 2, generator=g, dtype=torch.double), 0.7)]
