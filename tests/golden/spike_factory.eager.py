import torch


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, threshold, alpha, half_pi):
        ctx.save_for_backward(v)
        ctx.alpha = alpha
        ctx.half_pi = half_pi
        ctx.threshold = threshold
        return (v > threshold).to(v.dtype)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * (ctx.alpha / 2) / (1 + (ctx.half_pi * ctx.alpha * (v - ctx.threshold)) ** 2), None, None, None
