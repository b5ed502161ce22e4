"""Spikes with a surrogate gradient, for training spiking networks.

Forward is the Heaviside step: 1 where v > 0, else 0. Its true derivative is zero almost everywhere,
so backward uses that of a smooth step in its place; `slope` sets how narrow it is. v, the membrane
potential minus the threshold, is a floating point tensor of any shape; the spikes have its shape
and dtype. Each saves v, and has no gradient for `slope`.

A review: Neftci, Mostafa & Zenke 2019, "Surrogate Gradient Learning in Spiking Neural Networks".
"""

import math

import torch
from torch import Tensor

from ..decorator import autograd_script


@autograd_script
def atan(v: Tensor, slope: float = 2.0):
    """Spike whose gradient is that of an arctangent.

    Backward: grad_out * slope / 2 / (1 + (pi / 2 * slope * v)**2). Height slope / 2, area 1.

    Fang et al. 2021, "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking
    Neural Networks".
    """

    def backward(grad_out):
        return slope / 2 * grad_out / (1 + (math.pi / 2 * slope * v) ** 2), None

    return (v > 0).to(v.dtype), backward


@autograd_script
def fast_sigmoid(v: Tensor, slope: float = 25.0):
    """Spike whose gradient is that of the fast sigmoid v / (1 + slope * |v|).

    Backward: grad_out / (1 + slope * |v|)**2. Height 1, area 2 / slope.

    Zenke & Ganguli 2018, "SuperSpike: Supervised Learning in Multilayer Spiking Neural Networks".
    The default slope is snnTorch's.
    """

    def backward(grad_out):
        return grad_out / (1 + slope * torch.abs(v)) ** 2, None

    return (v > 0).to(v.dtype), backward


@autograd_script
def triangle(v: Tensor, slope: float = 1.0):
    """Spike whose gradient is a triangle around the threshold.

    Backward: grad_out * max(0, 1 - slope * |v|). Height 1, area 1 / slope, zero beyond 1 / slope.

    Esser et al. 2016, "Convolutional Networks for Fast, Energy-Efficient Neuromorphic Computing";
    Bellec et al. 2018, "Long Short-Term Memory and Learning-to-Learn in Networks of Spiking
    Neurons", where it is also damped by 0.3.
    """

    def backward(grad_out):
        return grad_out * torch.relu(1 - slope * torch.abs(v)), None

    return (v > 0).to(v.dtype), backward


@autograd_script
def sigmoid(v: Tensor, slope: float = 4.0):
    """Spike whose gradient is that of a logistic sigmoid.

    Backward: grad_out * slope * s * (1 - s) with s = sigmoid(slope * v). Height slope / 4, area 1.

    Zenke & Vogels 2021, "The Remarkable Robustness of Surrogate Gradient Learning for Instilling
    Complex Function in Spiking Neural Networks". The default gives height 1.
    """

    def backward(grad_out):
        s = torch.sigmoid(slope * v)
        return grad_out * (slope * s * (1 - s)), None

    return (v > 0).to(v.dtype), backward
