"""One name for several things: in forward, in backward, and in the generated text."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def parameter(x, y):
    s = torch.sin(x)

    def backward(x):  # the output gradient
        return 7 * x * s * y, x * s

    return s * y, backward


@s2s.autograd_script
def local(x, y):
    s = torch.sin(x)
    t = torch.cos(x)

    def backward(g):
        s = t * 2
        c = s * g
        return c, g * y

    return s * y, backward


@s2s.autograd_script
def redone(x, y):
    a = x * y
    s = torch.sin(a)

    def backward(g):
        a = g * 3  # forward's a is what s is made of
        return a * s, g

    return s * 1, backward


@s2s.autograd_script
def input_like_a_gradient(x, grad_x):
    ctx = x * grad_x

    def backward(g):
        needs_input_grad = g * ctx
        return needs_input_grad * grad_x, needs_input_grad * x

    return ctx * 2, backward


FUNCTION = [parameter, local, redone, input_like_a_gradient]


def inputs():
    g = torch.Generator().manual_seed(48)
    return [tuple(torch.randn(3, generator=g, dtype=torch.double) for _ in range(2))]
