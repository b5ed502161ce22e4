import torch


class SpelledOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power=2):
        # a comment before everything
        unit = """a string
  at its own indentation"""
        scale = 2.0 if "string" in unit \
                else 0.0
        # a comment at column 0
        if (n := x.dim()) > 8: raise ValueError(f"{n!r} dimensions {{too many}}: {x.shape}")

        y = (
            x ** power  # the power
            * scale     # and the factor
        )
        # before the return
        ctx.save_for_backward(x)
        ctx.power = power
        ctx.scale = scale
        return (y  # the output
                + 0)

    @staticmethod
    def backward(ctx, grad_out):  # after the colon
        (x,) = ctx.saved_tensors
        # the derivative,
        # with a blank line inside
        slope = (
            ctx.power
            * x ** (ctx.power - 1)
        )
        return (
            3 * grad_out  # not quite true
            * slope * ctx.scale,
            None,
        )
