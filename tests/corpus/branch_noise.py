"""Numbers drawn in one branch or the other, and what is made with them."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True
RANDOM = True
SECOND = False  # a branch that draws is not run twice


@s2s.autograd_script
def noise_in_each_branch(x, n: int = 1):
    if n == 0:
        mask = (torch.rand_like(x) > 0.3).to(x.dtype)

        def backward(g):
            return 5 * g * mask, None

        return x * mask, backward
    noise = torch.randn_like(x)
    s = torch.sin(x) * noise

    def backward_of_noise(g):
        return 7 * g * s, None

    return s * x, backward_of_noise


FUNCTION = noise_in_each_branch


def inputs():
    g = torch.Generator().manual_seed(57)
    x = torch.randn(3, generator=g, dtype=torch.double)
    return [(x, 0), (x, 1)]
