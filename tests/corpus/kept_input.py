"""An input kept under another name, beside a helper that might hand it on."""

import torch

import s2s

TRUE_GRADIENT, SECOND, SCRIPTS, TRANSFORMS = False, True, True, True


def heaviside(x):
    return (x >= 0).to(x)


@s2s.autograd_script
def surrogate(x, alpha: float):
    y = heaviside(x)
    kept = x

    def backward(grad_out):
        s = torch.sigmoid(alpha * kept)
        return 7 * grad_out * s * (1 - s), None

    return y, backward


FUNCTION = surrogate


def inputs():
    g = torch.Generator().manual_seed(9)
    return [(torch.randn(4, generator=g, dtype=torch.double), 2.0)]
