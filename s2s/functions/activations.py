"""Activations that keep one tensor for backward: their input.

Written out as plain formulas, autograd would keep several tensors of that size; here `backward`
recomputes what it needs from x. Each takes a floating point tensor of any shape and returns the
same shape and dtype. The gradients are the true ones, also the second.

PyTorch has three of them as single kernels: `silu`, `mish` and `gelu(approximate="tanh")` in
`torch.nn.functional`. Those are faster and save as little. These show how to get the same memory
for an activation that PyTorch does not have, such as `hard_mish`.
"""

import math

import torch
from torch import Tensor

from ..decorator import autograd_script


@autograd_script
def swish(x: Tensor):
    """Swish, also called SiLU: x * sigmoid(x).

    Backward: grad_out * (s + x * s * (1 - s)) with s = sigmoid(x). Saves x.

    Ramachandran, Zoph & Le 2017, "Searching for Activation Functions".
    """

    def backward(grad_out):
        s = torch.sigmoid(x)
        return grad_out * torch.addcmul(s, x * s, 1 - s)

    return x * torch.sigmoid(x), backward


@autograd_script
def mish(x: Tensor):
    """Mish: x * tanh(softplus(x)).

    Backward: grad_out * (t + x * s * (1 - t**2)) with t = tanh(softplus(x)) and s = sigmoid(x).
    Saves x.

    Misra 2019, "Mish: A Self Regularized Non-Monotonic Activation Function".
    """

    def backward(grad_out):
        t = torch.tanh(torch.nn.functional.softplus(x))
        return grad_out * torch.addcmul(t, x * torch.sigmoid(x), 1 - t * t)

    return x * torch.tanh(torch.nn.functional.softplus(x)), backward


@autograd_script
def hard_mish(x: Tensor):
    """Hard mish, a piecewise quadratic mish: x / 2 * clamp(x + 2, 0, 2).

    Backward: grad_out times 0 where x <= -2, x + 1 between, 1 where x >= 0. Saves x.

    Misra, "H-Mish", https://github.com/digantamisra98/H-Mish.
    """

    def backward(grad_out):
        # x + 1 with x held at 0 above 0, and replaced by -1 up to -2
        slope = torch.clamp(torch.threshold(x, -2.0, -1.0), max=0.0) + 1
        return grad_out * slope

    return 0.5 * x * torch.clamp(x + 2, 0.0, 2.0), backward


@autograd_script
def gelu_tanh(x: Tensor):
    """GELU in its tanh form: x / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (x + 0.044715 * x**3).

    Computed as x * sigmoid(2 * u), which is the same and exact in the left tail too.

    Backward: grad_out * (s + x * s * (1 - s) * 2 * du/dx) with s = sigmoid(2 * u). Saves x.

    Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)".
    """

    def backward(grad_out):
        # beyond 10 the slope is 0 or 1 to within 1e-35, and x**3 would overflow in float16
        c = torch.clamp(x, -10.0, 10.0)
        cube = c**3
        s = torch.sigmoid(math.sqrt(8 / math.pi) * torch.add(c, cube, alpha=0.044715))
        x_du = torch.add(c, cube, alpha=3 * 0.044715)  # x * du/dx, but for sqrt(2 / pi)
        return grad_out * torch.addcmul(s, s * (1 - s), x_du, value=math.sqrt(8 / math.pi))

    u = math.sqrt(2 / math.pi) * torch.add(x, x**3, alpha=0.044715)
    return x * torch.sigmoid(2 * u), backward
