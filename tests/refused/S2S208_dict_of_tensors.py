"""A dict of tensors as a parameter."""

from typing import Dict

import torch

import s2s


def refused():
    @s2s.autograd_script
    def total(parts: Dict[str, torch.Tensor]):  # S2S208 here
        def backward(g):
            return {name: g for name in parts}

        return torch.stack(list(parts.values())).sum(0), backward

    return total


def corrected():
    @s2s.autograd_script
    def total(*parts: torch.Tensor):
        def backward(g):
            return tuple(g for _ in parts)

        return torch.stack(parts).sum(0), backward

    return total


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double), torch.tensor([2.0, 3.0], dtype=torch.double))
