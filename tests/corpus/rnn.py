"""A small recurrent net by hand: backward reads a list of hidden states."""

from typing import List

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def rnn(x: Tensor, w: Tensor, u: Tensor):
    h = torch.zeros(x.shape[1], w.shape[0], dtype=x.dtype, device=x.device)
    hidden: List[Tensor] = [h]
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] @ w.t() + h @ u.t())
        hidden.append(h)

    def backward(grad_out):
        grad_w, grad_u = torch.zeros_like(w), torch.zeros_like(u)
        grad_h = grad_out
        grads_x: List[Tensor] = []
        for t in range(x.shape[0] - 1, -1, -1):
            grad_a = grad_h * (1 - hidden[t + 1] ** 2)
            grad_w = grad_w + grad_a.t() @ x[t]
            grad_u = grad_u + grad_a.t() @ hidden[t]
            grads_x.insert(0, grad_a @ w)
            grad_h = grad_a @ u
        return torch.stack(grads_x), grad_w, grad_u

    return h, backward


FUNCTION = rnn


def inputs():
    g = torch.Generator().manual_seed(34)
    shapes = ((3, 2, 2), (2, 2), (2, 2))
    return [tuple(torch.randn(s, generator=g, dtype=torch.double) for s in shapes)]
