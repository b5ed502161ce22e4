"""A helper that backward calls, defined in a branch."""

import torch

import s2s


def refused():
    @s2s.autograd_script
    def power(x, cubed: bool = True):
        if cubed:

            def slope(t):  # S2S216 here
                return 3 * t * t

        else:

            def slope(t):
                return 2 * t

        def backward(g):
            return g * slope(x), None

        return (x**3 if cubed else x**2), backward

    return power


def corrected():
    @s2s.autograd_script
    def power(x, cubed: bool = True):
        def slope(t):
            return 3 * t * t if cubed else 2 * t

        def backward(g):
            return g * slope(x), None

        return (x**3 if cubed else x**2), backward

    return power


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
