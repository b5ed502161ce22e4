"""A linear layer whose bias may be missing."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None):
    def backward(grad_out: Tensor):
        grad_x = grad_out @ weight
        grad_weight = grad_out.t() @ x
        grad_bias = grad_out.sum(0) if bias is not None else None
        return grad_x, grad_weight, grad_bias

    return F.linear(x, weight, bias), backward


FUNCTION = linear


def inputs():
    g = torch.Generator().manual_seed(8)

    def randn(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.double)

    return [(randn(4, 3), randn(2, 3), randn(2)), (randn(4, 3), randn(2, 3)), (randn(4, 3), randn(2, 3), None)]
