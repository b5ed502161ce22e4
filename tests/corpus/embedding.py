"""Rows of a table by integer index; the padding row gets no gradient."""

from typing import Optional

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def embedding(index: Tensor, table: Tensor, padding: Optional[int] = None):
    rows, width = table.shape

    def backward(grad_out):
        grad_table = torch.zeros(rows, width, dtype=grad_out.dtype, device=grad_out.device)
        grad_table = grad_table.index_add(0, index.reshape(-1), grad_out.reshape(-1, width))
        if padding is not None:
            keep = torch.arange(rows, device=grad_out.device) != padding
            grad_table = grad_table * keep.unsqueeze(-1)
        return None, grad_table, None

    return table[index], backward


FUNCTION = embedding


def inputs():
    g = torch.Generator().manual_seed(32)
    table = torch.randn(4, 2, generator=g, dtype=torch.double)
    index = torch.tensor([[0, 2], [2, 3]])
    return [(index, table), (index, table, 2)]
