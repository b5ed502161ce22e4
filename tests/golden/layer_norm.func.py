import torch


class LayerNormFunc(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, eps=1e-5):
        # Ba et al. 2016, over the last dimension.
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        x_hat = centred * rstd
        return x_hat * weight + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        ctx.save_for_forward(x, weight)
        ctx.shapes = [t.shape for t in (output,)]
        ctx.options = [{"dtype": t.dtype, "device": t.device} for t in (output,)]

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + ctx.eps)
        x_hat = centred * rstd
        # weight and bias are shared by every row, so their gradients sum over rows
        rows = list(range(x.dim() - 1))
        g = grad_out * weight
        grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
        return grad_x, (grad_out * x_hat).sum(rows), grad_out.sum(rows), None

    @staticmethod
    def jvp(ctx, *tangents):
        # backward is linear in the output gradients: forward mode is its transpose
        x, weight = ctx.saved_tensors

        def pullback(grad_out):
            centred = x - x.mean(-1, keepdim=True)
            rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + ctx.eps)
            x_hat = centred * rstd
            # weight and bias are shared by every row, so their gradients sum over rows
            rows = list(range(x.dim() - 1))
            g = grad_out * weight
            grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
            return grad_x, (grad_out * x_hat).sum(rows), grad_out.sum(rows), None

        def linear(grad_out):
            pairs = zip(pullback(grad_out), tangents, strict=True)
            return tuple(torch.zeros_like(t) if g is None else g for g, t in pairs if t is not None)

        grads, transpose = torch.func.vjp(linear, torch.zeros(ctx.shapes[0], **ctx.options[0]))
        given = [t for t in tangents if t is not None]
        given = [t.expand(g.shape).to(g.dtype) for g, t in zip(grads, given)]
        return transpose(tuple(given))[0]
