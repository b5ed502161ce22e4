"""The largest entry and where it is: a second output of integers."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def largest(x):
    index = x.argmax(-1)
    value = x.gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def backward(grad_value, _):
        zeros = torch.zeros_like(x)
        return zeros.scatter(-1, index.unsqueeze(-1), grad_value.unsqueeze(-1))

    return value, index, backward


FUNCTION = largest


def inputs():
    g = torch.Generator().manual_seed(15)
    return [(torch.randn(3, 4, generator=g, dtype=torch.double),)]
