"""Work that the function itself leaves out for inputs that need no gradient."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def gated(x, w):
    s = torch.sigmoid(x)

    def backward(g):
        grad_x = 7 * g * w * s if s2s.needs_input_grad[0] else None
        grad_w = g * s if s2s.needs_input_grad[1] else None
        return grad_x, grad_w

    return s * w, backward


FUNCTION = gated


def inputs():
    g = torch.Generator().manual_seed(71)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
