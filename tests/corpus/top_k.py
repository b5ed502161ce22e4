"""Keep the k largest; values and indices come from one call."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def keep_top(x: Tensor, k: int):
    values, indices = torch.topk(x, k, dim=-1)
    kept = torch.zeros_like(x).scatter(-1, indices, values)

    def backward(grad_kept, grad_values):
        mask = torch.zeros_like(grad_kept).scatter(-1, indices, 1.0)
        spread = torch.zeros_like(grad_kept).scatter(-1, indices, grad_values)
        return grad_kept * mask + spread, None

    return (kept, values), backward


FUNCTION = keep_top


def inputs():
    g = torch.Generator().manual_seed(16)
    return [(torch.randn(2, 5, generator=g, dtype=torch.double), 2)]
