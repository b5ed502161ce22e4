"""The identity in forward, another gradient in backward.

Each takes a floating point tensor of any shape and returns a view of it. Nothing is saved.
"""

from torch import Tensor

from ..decorator import autograd_script


@autograd_script
def gradient_reversal(x: Tensor, alpha: float = 1.0):
    """x. Backward: -alpha * grad_out: what comes before learns to make the loss after it worse.

    Ganin & Lempitsky 2015, "Unsupervised Domain Adaptation by Backpropagation".
    """

    def backward(grad_out):
        return -alpha * grad_out, None

    return x.view_as(x), backward


@autograd_script
def scale_gradient(x: Tensor, scale: float):
    """x. Backward: scale * grad_out, for instance to let a shared trunk learn more slowly."""

    def backward(grad_out):
        return scale * grad_out, None

    return x.view_as(x), backward
