"""Magnitude and unit phase of a complex tensor."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def polar_parts(z):
    r = z.abs()
    u = z / r

    def backward(grad_r, grad_u):
        # a change of phase turns u, a change of length does nothing to it
        turning = (grad_u.conj() * u * 1j).real
        return grad_r * u + turning * (1j * u) / r

    return r, u, backward


FUNCTION = polar_parts


def inputs():
    g = torch.Generator().manual_seed(17)
    return [(torch.randn(3, generator=g, dtype=torch.cdouble),)]
