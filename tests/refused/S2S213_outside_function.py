"""A backward that is defined somewhere else."""

import torch

import s2s


def refused():
    def pass_through(g):
        return g

    @s2s.autograd_script
    def rounded(x):
        return x + 0, pass_through  # S2S213 here

    return rounded


def corrected():
    def pass_through(g):
        return g

    @s2s.autograd_script
    def rounded(x):
        def backward(g):
            return pass_through(g)

        return x + 0, backward

    return rounded


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
