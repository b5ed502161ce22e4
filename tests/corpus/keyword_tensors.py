"""Keyword-only tensors, one of them optional."""

from typing import Optional

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def masked_scale(x, *, weight: Tensor, mask: Optional[Tensor] = None, power: int = 2):
    kept = x if mask is None else x * mask
    y = kept * weight**power

    def backward(g):
        grad_mask = None if mask is None else 5 * g * x
        return 7 * g * weight, 11 * g * kept, grad_mask, None

    return y, backward


FUNCTION = masked_scale


def inputs():
    g = torch.Generator().manual_seed(52)
    x, w, m = (torch.randn(3, generator=g, dtype=torch.double) for _ in range(3))
    return [(x, {"weight": w}), (x, {"weight": w, "mask": m, "power": 3})]
