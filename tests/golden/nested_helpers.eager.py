import torch
from torch import Tensor


class SoftClip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        width = high - low

        def squash(t: Tensor) -> Tensor:
            return torch.sigmoid((t - low) / width)

        def derivative(t: Tensor) -> Tensor:
            s = squash(t)
            return s * (1 - s)
        ctx.save_for_backward(x)
        ctx.low = low
        ctx.width = width
        return low + width * squash(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        low = ctx.low
        width = ctx.width
        def squash(t: Tensor) -> Tensor:
            return torch.sigmoid((t - low) / width)

        def derivative(t: Tensor) -> Tensor:
            s = squash(t)
            return s * (1 - s)
        return grad_out * derivative(x), None, None
