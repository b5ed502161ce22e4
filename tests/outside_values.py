"""What another file defines, for tests/test_outside.py."""

import torch
from torch import Tensor

W = torch.ones(3, requires_grad=True)


class Config:
    weight = W


def scaled(x: Tensor) -> Tensor:
    return x * W
