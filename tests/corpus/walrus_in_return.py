"""Names that the return statement itself binds."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def one_output(x):
    def backward(g):
        return (h := 7 * g) * s + h

    return (s := torch.tanh(x)) * x, backward


@s2s.autograd_script
def the_output_itself(x):
    return (s := torch.tanh(x)), lambda g: 7 * g * s


@s2s.autograd_script
def one_name_for_two_outputs(x):
    s = x.exp()

    def backward(g, h):
        return 7 * g * s + 3 * h * s

    return s, (s := torch.tanh(s)), backward


FUNCTION = [one_output, the_output_itself, one_name_for_two_outputs]


def inputs():
    g = torch.Generator().manual_seed(50)
    return [(torch.randn(2, 3, generator=g, dtype=torch.double),)]
