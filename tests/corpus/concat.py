"""Any number of tensors, concatenated with a weight per part."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def weighted_concat(*parts):
    widths = [part.shape[-1] for part in parts]

    def backward(grad_out):
        grads = torch.split(grad_out, widths, dim=-1)
        return tuple((i + 1) * g for i, g in enumerate(grads))

    return torch.cat(parts, -1), backward


FUNCTION = weighted_concat


def inputs():
    g = torch.Generator().manual_seed(19)
    a, b, c = (torch.randn(2, n, generator=g, dtype=torch.double) for n in (1, 2, 3))
    return [(a, b, c), (b, a), (c,)]
