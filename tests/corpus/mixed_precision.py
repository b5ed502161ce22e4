"""Sums in a wider dtype, which the caller may choose."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def wide_normalize(x: Tensor, dtype: torch.dtype = torch.float64):
    wide = x.to(dtype)
    norm = wide.square().sum(-1, keepdim=True).sqrt()
    unit = wide / norm
    narrow = x.dtype

    def backward(grad_out):
        g = grad_out.to(dtype)
        inner = (g * unit).sum(-1, keepdim=True)
        return ((g - unit * inner) / norm).to(narrow), None

    return unit.to(narrow), backward


FUNCTION = wide_normalize


def inputs():
    g = torch.Generator().manual_seed(30)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
