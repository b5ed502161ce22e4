"""match, positional-only parameters, and a lambda in each case."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def wave(x, /, kind: str = "sin"):
    match kind:
        case "sin":
            y, slope = torch.sin(x), torch.cos(x)
        case "cos":
            y, slope = torch.cos(x), -torch.sin(x)
        case other:
            raise ValueError(f"no wave {other!r}")
    return y, lambda g: (g * slope, None)


FUNCTION = wave


def inputs():
    g = torch.Generator().manual_seed(39)
    x = torch.randn(3, generator=g, dtype=torch.double)
    return [(x,), (x, "cos")]
