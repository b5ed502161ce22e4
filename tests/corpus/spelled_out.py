"""Every way to lay out Python: comments, line breaks, semicolons, walrus, long strings."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = False, True, True


@s2s.autograd_script
def spelled_out(
    x,  # the input
    *,
    power: int = 2,  # a comment after a parameter
):
    '''A docstring with "quotes" and a \\ backslash.

        Indented further.
    '''
    # a comment before everything

    unit = """a string
  at its own indentation"""; scale = 2.0 if "string" in unit \
        else 0.0
# a comment at column 0
    if (n := x.dim()) > 8: raise ValueError(f"{n!r} dimensions {{too many}}: {x.shape}")

    y = (
        x ** power  # the power
        * scale     # and the factor
    )

    def backward(grad_out):  # after the colon
        """Its own docstring."""
        # the derivative,

        # with a blank line inside
        slope = (
            power
            * x ** (power - 1)
        )
        return (
            3 * grad_out  # not quite true
            * slope * scale,
            None,
        )

    # before the return
    return (y  # the output
            + 0), backward


FUNCTION = spelled_out


def inputs():
    g = torch.Generator().manual_seed(31)
    x = torch.randn(3, generator=g, dtype=torch.double)
    return [(x,), (x, {"power": 3})]
