import math

import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal=False):
        # q: (heads, n, d), k and v: (heads, m, d)
        scale = 1 / math.sqrt(q.shape[-1])
        scores = torch.einsum("hnd,hmd->hnm", q, k) * scale
        if causal:
            n, m = scores.shape[-2], scores.shape[-1]
            future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        probs = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, probs)
        ctx.causal = causal
        ctx.scale = scale
        return probs @ v

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v, probs = ctx.saved_tensors
        scale = ctx.scale
        if torch.is_grad_enabled():  # a second derivative: make these functions of the inputs again
            scale = 1 / math.sqrt(q.shape[-1])
            scores = torch.einsum("hnd,hmd->hnm", q, k) * scale
            if ctx.causal:
                n, m = scores.shape[-2], scores.shape[-1]
                future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(1)
                scores = scores.masked_fill(future, float("-inf"))
            probs = torch.softmax(scores, -1)
        grad_v = torch.einsum("hnm,hnd->hmd", probs, grad_out)
        grad_probs = torch.einsum("hnd,hmd->hnm", grad_out, v)
        # softmax: p * (g - <g, p>)
        grad_scores = probs * (grad_probs - (grad_probs * probs).sum(-1, keepdim=True))
        grad_scores = grad_scores * scale
        return (
            torch.einsum("hnm,hmd->hnd", grad_scores, k),  # queries
            torch.einsum("hnm,hnd->hmd", grad_scores, q),  # keys
            grad_v,
            None,
        )
