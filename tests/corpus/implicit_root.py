"""An implicit layer: y = f(y, a), differentiated at the fixed point with autograd inside."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, False, False
OPERATOR = SECOND = False


def step(y, a):
    return torch.cos(y) * a


@s2s.autograd_script
def fixed_point(f, a):
    y = torch.zeros_like(a)
    for _ in range(200):
        y = f(y, a)

    def backward(g):
        with torch.enable_grad():
            leaf_y = y.detach().requires_grad_()
            leaf_a = a.detach().requires_grad_()
            out = f(leaf_y, leaf_a)
            by_y, by_a = torch.autograd.grad(out.sum(), (leaf_y, leaf_a))
        return None, g * by_a / (1 - by_y)

    return y, backward


FUNCTION = fixed_point


def inputs():
    return [(step, torch.tensor([0.8, 0.3], dtype=torch.double))]
