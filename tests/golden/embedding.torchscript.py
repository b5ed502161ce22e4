from typing import Optional, Tuple

import torch
from torch import Tensor


def embedding_forward(
    index: Tensor, table: Tensor, padding: Optional[int] = None
) -> Tuple[Tensor, Tuple[Tensor, Optional[int], int, int]]:
    rows, width = table.shape
    return table[index], (index, padding, rows, width)


def embedding_backward(
    grad_out: Tensor, index: Tensor, padding: Optional[int], rows: int, width: int
) -> Tuple[None, Tensor, None]:
    grad_table = torch.zeros(rows, width, dtype=grad_out.dtype, device=grad_out.device)
    grad_table = grad_table.index_add(0, index.reshape(-1), grad_out.reshape(-1, width))
    if padding is not None:
        keep = torch.arange(rows, device=grad_out.device) != padding
        grad_table = grad_table * keep.unsqueeze(-1)
    return None, grad_table, None
