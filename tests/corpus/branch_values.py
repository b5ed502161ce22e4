"""Values that one branch alone makes, and that its own backward reads."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def list_in_one_branch(x, n: int = 1):
    if n == 0:
        parts = []
        for i in range(2):
            parts.append(torch.sin(x) * (i + 1))

        def backward(g):
            return g * parts[1], None

        return x * 1.0, backward
    t = torch.exp(x)

    def backward_of_exp(g):
        return 7 * g * t, None

    return t * 2.0, backward_of_exp


FUNCTION = list_in_one_branch


def inputs():
    g = torch.Generator().manual_seed(56)
    x = torch.randn(3, generator=g, dtype=torch.double)
    return [(x, 0), (x, 1)]
