"""Square root by Newton's method: a loop in forward, the closed form in backward."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def newton_sqrt(a, steps: int = 40):
    y = torch.clamp(a, min=1.0)
    for _ in range(steps):
        y = 0.5 * (y + a / y)

    def backward(grad_y):
        # y*y = a, so 2*y*dy = da
        return grad_y / (2 * y), None

    return y, backward


FUNCTION = newton_sqrt


def inputs():
    g = torch.Generator().manual_seed(2)
    return [(torch.rand(4, generator=g, dtype=torch.double) + 0.2,)]
