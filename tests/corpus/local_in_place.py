"""In-place work on tensors of the function's own."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True
VMAP = False  # masks are of no fixed size


@s2s.autograd_script
def soft_shrink(x, lam: float = 0.5):
    y = x.clone()
    big = x.abs() > lam
    y[~big] = 0.0
    y.sub_(lam * x.sign() * big)
    scale = torch.ones_like(x)
    scale.mul_(2)
    y *= scale

    def backward(g):
        grad = (g * scale).clone()
        grad[~big] = 0.0
        return grad, None

    return y, backward


FUNCTION = soft_shrink


def inputs():
    g = torch.Generator().manual_seed(22)
    return [(torch.randn(2, 4, generator=g, dtype=torch.double),)]
