"""A real gain on a complex signal: the gain's gradient is the real part."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def amplify(z, gain):
    def backward(g):
        return g * gain, (g * z.conj()).real

    return z * gain, backward


FUNCTION = amplify


def inputs():
    g = torch.Generator().manual_seed(44)
    z = torch.randn(2, 3, generator=g, dtype=torch.cdouble)
    return [(z, torch.randn(3, generator=g, dtype=torch.double))]
