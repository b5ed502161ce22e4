"""Fake quantization to `bits` levels, straight through inside the range."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, False, True  # 2**n is a float in TorchScript


@s2s.autograd_script
def fake_quantize(x, scale, bits: int = 4, symmetric: bool = True):
    low = -(2 ** (bits - 1)) if symmetric else 0
    high = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    q = torch.round(x / scale)
    inside = (q >= low) & (q <= high)
    q = torch.clamp(q, low, high)

    def backward(grad_out):
        # LSQ, Esser et al. 2020: the scale sees the rounding error inside, the level outside
        grad_scale = torch.where(inside, q - x / scale, q)
        return grad_out * inside, (grad_out * grad_scale).sum(), None, None

    return q * scale, backward


FUNCTION = fake_quantize


def inputs():
    g = torch.Generator().manual_seed(4)
    x = 3 * torch.randn(2, 4, generator=g, dtype=torch.double)
    return [(x, torch.tensor(0.35).double()), (x, torch.tensor(0.8).double(), 3, False)]
