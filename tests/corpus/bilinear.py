"""A bilinear form by einsum, with the contraction as a module constant."""

import torch
from torch import Tensor, einsum

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True

FORM = "bi,oij,bj->bo"


@s2s.autograd_script
def bilinear(x: Tensor, w: Tensor, y: Tensor):
    def backward(g):
        return (
            einsum("bo,oij,bj->bi", g, w, y),
            einsum("bo,bi,bj->oij", g, x, y),
            einsum("bo,oij,bi->bj", g, w, x),
        )

    return einsum(FORM, x, w, y), backward


FUNCTION = bilinear


def inputs():
    g = torch.Generator().manual_seed(21)
    shapes = ((2, 2), (3, 2, 2), (2, 2))
    return [tuple(torch.randn(s, generator=g, dtype=torch.double) for s in shapes)]
