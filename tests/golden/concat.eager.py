import torch


class WeightedConcat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *parts):
        widths = [part.shape[-1] for part in parts]
        ctx.widths = widths
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad_out):
        grads = torch.split(grad_out, ctx.widths, dim=-1)
        return tuple((i + 1) * g for i, g in enumerate(grads))
