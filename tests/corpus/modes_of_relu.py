"""A string picks the activation; every branch returns its own backward."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def activate(x: Tensor, mode: str = "relu", slope: float = 0.1):
    if mode == "relu":
        mask = x > 0

        def backward(g):
            return g * mask, None, None

        return x * mask, backward
    elif mode == "leaky":
        scale = torch.where(x > 0, 1.0, slope).to(x.dtype)

        def backward(g):
            return g * scale, None, None

        return x * scale, backward
    elif mode == "softplus":
        y = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)

        def backward(g):
            return g * (1 - torch.exp(-y)), None, None

        return y, backward
    raise ValueError(f"no such mode: {mode}")


FUNCTION = activate


def inputs():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, generator=g, dtype=torch.double)
    return [(x,), (x, "leaky", 0.2), (x, "softplus")]
