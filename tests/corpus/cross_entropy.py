"""Softmax cross entropy with integer labels, smoothing and a reduction by name."""

import torch
from torch import Tensor

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def cross_entropy(logits: Tensor, target: Tensor, smoothing: float = 0.0, reduction: str = "mean"):
    log_p = torch.log_softmax(logits, dim=-1)
    classes = logits.shape[-1]
    hot = torch.zeros_like(log_p).scatter(-1, target.unsqueeze(-1), 1.0)
    hot = hot * (1 - smoothing) + smoothing / classes
    losses = -(hot * log_p).sum(-1)
    if reduction == "mean":
        loss = losses.mean()
        factor = 1.0 / losses.numel()
    elif reduction == "sum":
        loss = losses.sum()
        factor = 1.0
    else:
        loss = losses
        factor = 1.0

    def backward(grad_loss):
        if reduction == "none":
            grad_loss = grad_loss.unsqueeze(-1)
        return factor * grad_loss * (log_p.exp() - hot), None, None, None

    return loss, backward


FUNCTION = cross_entropy


def inputs():
    g = torch.Generator().manual_seed(11)
    logits = torch.randn(3, 4, generator=g, dtype=torch.double)
    target = torch.tensor([0, 3, 1])
    return [(logits, target), (logits, target, 0.1, "sum"), (logits, target, 0.2, "none")]
