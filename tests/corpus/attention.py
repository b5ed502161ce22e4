"""Scaled dot-product attention that keeps the probabilities."""

import math

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False):
    # q: (heads, n, d), k and v: (heads, m, d)
    scale = 1 / math.sqrt(q.shape[-1])
    scores = torch.einsum("hnd,hmd->hnm", q, k) * scale
    if causal:
        n, m = scores.shape[-2], scores.shape[-1]
        future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    probs = torch.softmax(scores, -1)

    def backward(grad_out):
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

    return probs @ v, backward


FUNCTION = attention


def inputs():
    g = torch.Generator().manual_seed(10)
    q, k, v = (torch.randn(1, 3, 2, generator=g, dtype=torch.double) for _ in range(3))
    return [(q, k, v), (q, k, v, True)]
