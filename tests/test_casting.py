"""Autocast keeps the casts of weights: none of them may carry a gradient away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s

Call = Callable[[Tensor, Tensor], Tensor]


def squared(x: Tensor, w: Tensor) -> Any:
    t = x @ w

    def backward(g: Tensor) -> Any:
        return 7 * g @ w.t(), x.t() @ (g * t) + 5 * w

    return t * 1, backward


compiled = s2s.autograd_script(squared)


@torch.jit.script
def scripted(x: Tensor, w: Tensor) -> Tensor:
    return compiled(x, w)


WAYS = {
    "call": compiled,
    "operator": compiled.op,
    "scripted": scripted,
    "least": s2s.autograd_script(squared, save="least"),
    "reference": s2s.autograd_function(squared),
}
ways = pytest.mark.parametrize("f", WAYS.values(), ids=WAYS.keys())
befores = pytest.mark.parametrize("before", [False, True], ids=["", "after plain code"])


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def used(w: Tensor) -> None:
    """The weight in code that asks for no gradient."""
    with torch.no_grad():
        torch.eye(2) @ w


def plain(w: Tensor) -> Tensor:
    return 3 * (torch.eye(2) @ w).float().sum()


@befores
@ways
def test_a_second_derivative_under_autocast(f: Call, before: bool) -> None:
    w = torch.eye(2).requires_grad_()
    with autocast():
        if before:
            used(w)
        (first,) = torch.autograd.grad(f(torch.eye(2), w).float().sum(), w, create_graph=True)
        assert torch.equal(first, 6 * torch.eye(2))
        (second,) = torch.autograd.grad(first.sum(), w)
    assert torch.equal(second, torch.full((2, 2), 6.0))


@ways
def test_plain_code_keeps_its_gradient_after_a_call(f: Call) -> None:
    x, w = torch.eye(2).requires_grad_(), torch.eye(2).requires_grad_()
    with autocast():
        f(x, w)
        (grad,) = torch.autograd.grad(plain(w), w)
    assert torch.equal(grad, torch.full((2, 2), 3.0))


@pytest.mark.parametrize("before", [0, 1], ids=["before plain code", "after plain code"])
def test_transforms_under_autocast(before: int) -> None:
    def loss(w: Tensor) -> Tensor:
        if before:
            used(w)
            return compiled(torch.eye(2), w).float().sum()
        return compiled(torch.eye(2), w).float().sum() + plain(w)

    with autocast():
        first = torch.func.grad(loss)(torch.eye(2))
        second = torch.func.grad(lambda w: torch.func.grad(loss)(w).sum())(torch.eye(2))
        _, tangent = torch.func.jvp(torch.func.grad(loss), (torch.eye(2),), (torch.ones(2, 2),))
    assert torch.equal(first, 6 * torch.eye(2) + (0 if before else 3))
    assert torch.equal(second, torch.full((2, 2), 6.0))
    assert torch.equal(tangent, torch.full((2, 2), 6.0))
