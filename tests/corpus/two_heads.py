"""Mean and log variance of a batch: two outputs, of which a loss may use one."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def moments(x, eps: float = 1e-3):
    mean = x.mean(0)
    centred = x - mean
    var = (centred**2).mean(0) + eps

    def backward(grad_mean, grad_log_var):
        n = x.shape[0]
        grad_x = grad_mean / n + 2 * grad_log_var * centred / (n * var)
        return grad_x, None

    return (mean, var.log()), backward


FUNCTION = moments


def inputs():
    g = torch.Generator().manual_seed(20)
    return [(torch.randn(4, 2, generator=g, dtype=torch.double),)]
