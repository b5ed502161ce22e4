"""A list of tensors in, a dict of tensors out."""

from typing import List

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def mix(parts: List[Tensor], gain: Tensor, power: int = 2):
    stacked = torch.stack(parts)
    total = stacked.sum(0)
    energy = (stacked**power).mean()

    def backward(grad_total, grad_energy):
        slope = power * stacked ** (power - 1) / stacked.numel()
        grads = [5 * grad_total * gain + grad_energy * s for s in slope]
        return grads, 7 * grad_total * total, None

    return {"total": total * gain, "energy": energy}, backward


FUNCTION = mix


def inputs():
    g = torch.Generator().manual_seed(43)

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.double)

    return [([randn(3), randn(3)], randn(3)), ([randn(3)], randn(3), 3)]
