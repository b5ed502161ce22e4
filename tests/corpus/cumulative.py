"""Log of a cumulative sum of exponentials: cumulative operations and flips."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def log_cumsum_exp(x, dim: int = -1):
    top = x.amax(dim, keepdim=True)
    total = torch.cumsum(torch.exp(x - top), dim)
    y = total.log() + top

    def backward(grad):
        ratio = grad * torch.exp(-y)
        summed = ratio.flip(dim).cumsum(dim).flip(dim)
        return x.exp() * summed, None

    return y, backward


FUNCTION = log_cumsum_exp


def inputs():
    g = torch.Generator().manual_seed(14)
    x = torch.randn(2, 3, generator=g, dtype=torch.double)
    return [(x,), (x, 0)]
