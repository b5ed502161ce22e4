"""Inverse of x + x**3 by bisection: a loop with a break, and state that is no tensor."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, False


@s2s.autograd_script
def inverse_cubic(y, tolerance: float = 1e-14):
    low, high = -y.abs() - 1, y.abs() + 1
    count = 0
    while True:
        middle = (low + high) / 2
        above = middle + middle**3 > y
        low = torch.where(above, low, middle)
        high = torch.where(above, middle, high)
        count += 1
        if bool((high - low).max() < tolerance) or count > 200:
            break
    x = (low + high) / 2

    def backward(grad_x):
        if count == 0:
            return None, None
        return grad_x / (1 + 3 * x * x), None

    return x, backward


FUNCTION = inverse_cubic


def inputs():
    g = torch.Generator().manual_seed(36)
    return [(torch.randn(4, generator=g, dtype=torch.double),)]
