"""Programs that are recorded first and differentiated later keep the rule, or raise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functionalize, grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import s2s

X = torch.tensor([-1.5, 0.25, 2.0], dtype=torch.double)


@s2s.autograd_script
def gate(x):
    y = torch.sigmoid(x)

    def backward(g):
        return 7 * g * y * x

    return x * y, backward


@s2s.autograd_script
def noisy(x):
    y = torch.rand_like(x)

    def backward(g):
        return 7 * g * y

    return x * y, backward


def truth(x: Tensor) -> Tensor:
    return 7 * torch.sigmoid(x) * x


def trained(program: Callable[[Tensor], Tensor]) -> Tensor:
    x = X.clone().requires_grad_()
    y = program(x)
    torch.testing.assert_close(y, X * torch.sigmoid(X))
    return torch.autograd.grad(y.sum(), x)[0]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_graph_of_make_fx_is_trained(mode: str, requires_grad: bool) -> None:
    program = make_fx(gate, tracing_mode=mode)(X.clone().requires_grad_(requires_grad))
    torch.testing.assert_close(trained(program), truth(X))


def test_a_graph_in_front_of_dispatch_is_trained() -> None:
    torch.testing.assert_close(trained(make_fx(gate, pre_dispatch=True)(X)), truth(X))


def test_a_graph_of_symbolic_trace_is_trained() -> None:
    program = torch.fx.symbolic_trace(lambda x: gate(x) * 1)
    torch.testing.assert_close(trained(program), truth(X))


def test_functionalized() -> None:
    torch.testing.assert_close(functionalize(gate)(X), X * torch.sigmoid(X))
    torch.testing.assert_close(trained(make_fx(functionalize(gate))(X)), truth(X))


def test_derivatives_in_the_graph() -> None:
    def inside(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(gate(x).sum(), x)[0]

    for program in (
        inside,
        grad(lambda x: gate(x).sum()),
        grad(lambda x: vmap(gate)(x).sum()),
        vmap(grad(lambda x: gate(x).sum())),
        lambda x: jvp(gate, (x,), (torch.ones_like(x),))[1],
    ):
        torch.testing.assert_close(make_fx(program)(X)(X), truth(X))


def test_vmap_is_not_recorded_without_its_rule() -> None:
    with pytest.raises(RuntimeError, match="gate: a recorded graph holds vmap of it without"):
        make_fx(vmap(gate))(X)


def test_what_is_drawn_at_random_is_not_recorded_with_a_derivative() -> None:
    with pytest.raises(RuntimeError, match="noisy: what it draws at random"):
        make_fx(noisy)(X.clone().requires_grad_())
    program = make_fx(noisy)(X)
    x = X.clone().requires_grad_()
    y = program(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 7 * y / X)
