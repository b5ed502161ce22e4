from typing import Tuple

import torch
from torch import Tensor


def layer_norm_forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tuple[Tensor, Tuple[Tensor, Tensor, Tensor, Tensor]]:
    # Ba et al. 2016, over the last dimension.
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    x_hat = centred * rstd
    return x_hat * weight + bias, (x, weight, rstd, x_hat)


def layer_norm_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, rstd: Tensor, x_hat: Tensor
) -> Tuple[Tensor, Tensor, Tensor, None]:
    # weight and bias are shared by every row, so their gradients sum over rows
    rows = list(range(x.dim() - 1))
    g = grad_out * weight
    grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return grad_x, (grad_out * x_hat).sum(rows), grad_out.sum(rows), None
