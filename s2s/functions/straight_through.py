"""Straight-through estimators: a step in forward, the identity (or nearly) in backward.

Each takes a floating point tensor of any shape and returns the same shape and dtype.

Bengio, Léonard & Courville 2013, "Estimating or Propagating Gradients Through Stochastic Neurons
for Conditional Computation".
"""

import torch
from torch import Tensor

from ..decorator import autograd_script


# Not named `round`: in scripted code that name always means PyTorch's own, with its zero gradient.
@autograd_script
def round_ste(x: Tensor):
    """Nearest integer, ties to even, as `torch.round`. Backward: grad_out. Saves nothing."""

    def backward(grad_out):
        return grad_out

    return torch.round(x), backward


@autograd_script
def sign(x: Tensor):
    """-1, 0 or 1, as `torch.sign`. Backward: grad_out where |x| <= 1, else 0.

    Saves where |x| <= 1 as bool: a quarter of the memory of a float32 x.

    Courbariaux et al. 2016, "Binarized Neural Networks: Training Neural Networks with Weights and
    Activations Constrained to +1 or -1". The window is that of a hard tanh.
    """
    inside = torch.abs(x) <= 1

    def backward(grad_out):
        return grad_out * inside

    return torch.sign(x), backward


@autograd_script
def clamp(x: Tensor, low: float, high: float):
    """x limited to [low, high]. Backward: grad_out, outside the limits too. Saves nothing.

    So a value that has left the range can come back; `torch.clamp` gives it no gradient.
    """

    def backward(grad_out):
        return grad_out, None, None

    return torch.clamp(x, low, high), backward
