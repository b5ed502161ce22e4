"""Average pooling with a list of sizes."""

from typing import List

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def average_pool(x: Tensor, size: List[int]):
    rows, columns = size
    n, h, w = x.shape
    blocks = x.reshape(n, h // rows, rows, w // columns, columns)

    def backward(g):
        spread = g[:, :, None, :, None].expand(n, h // rows, rows, w // columns, columns)
        return spread.reshape(n, h, w) / (rows * columns), None

    return blocks.mean((2, 4)), backward


FUNCTION = average_pool


def inputs():
    g = torch.Generator().manual_seed(35)
    return [(torch.randn(1, 4, 4, generator=g, dtype=torch.double), [2, 2])]
