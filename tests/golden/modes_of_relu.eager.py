import torch


class Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode="relu", slope=0.1):
        mask = None
        scale = None
        y = None
        if mode == "relu":
            mask = x > 0
            branch = 0
            ctx.save_for_backward(x, mask, scale, y)
            ctx.branch = branch
            ctx.mode = mode
            ctx.slope = slope
            return x * mask
        elif mode == "leaky":
            scale = torch.where(x > 0, 1.0, slope).to(x.dtype)
            branch = 1
            ctx.save_for_backward(x, mask, scale, y)
            ctx.branch = branch
            ctx.mode = mode
            ctx.slope = slope
            return x * scale
        elif mode == "softplus":
            y = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
            branch = 2
            ctx.save_for_backward(x, mask, scale, y)
            ctx.branch = branch
            ctx.mode = mode
            ctx.slope = slope
            return y
        raise ValueError(f"no such mode: {mode}")

    @staticmethod
    def backward(ctx, g):
        x, mask, scale, y = ctx.saved_tensors
        branch = ctx.branch
        mode = ctx.mode
        if torch.is_grad_enabled():  # a second derivative: make these functions of the inputs again
            y_out = y
            y = None
            if mode == "relu":
                mask = x > 0
                branch = 0
            else:
                if mode == "leaky":
                    scale = torch.where(x > 0, 1.0, ctx.slope).to(x.dtype)
                    branch = 1
                else:
                    if mode == "softplus":
                        y = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
                        branch = 2
                    else:
                        raise ValueError(f"no such mode: {mode}")
            if y_out is not None and y_out.requires_grad:  # returned too: its derivative is this very rule
                y = y_out
        if branch == 0:
            return g * mask, None, None
        elif branch == 1:
            return g * scale, None, None
        else:
            return g * (1 - torch.exp(-y)), None, None
