"""The identity, whose gradient is clipped: backward is not linear in its gradient."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True
LINEAR = False


@s2s.autograd_script
def clip_gradient(x, limit: float = 0.5, by_norm: bool = False):
    if by_norm:
        def by_length(g):
            return g * torch.clamp(limit / (g.norm() + 1e-12), max=1.0), None, None

        chosen = by_length
    else:
        chosen = lambda g: (g.clamp(-limit, limit), None, None)
    return x.clone(), chosen


FUNCTION = clip_gradient


def inputs():
    g = torch.Generator().manual_seed(37)
    x = torch.randn(4, generator=g, dtype=torch.double)
    return [(x,), (x, 0.1, True)]
