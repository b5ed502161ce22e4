"""Tensors that a function reads and is not given: refused where they would get a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import outside_values
import s2s
from outside_values import Config, scaled
from outside_values import W as imported

Function = Callable[..., Any]
G = torch.ones(3, requires_grad=True)
TABLE = {"g": G}
TIMES_G = functools.partial(torch.mul, G)
NET = torch.nn.Linear(3, 3)
RATE = torch.tensor(2.0)


def by_helper(x: Tensor) -> Tensor:
    return by_another(x)


def by_another(x: Tensor) -> Tensor:
    return x * G


def attribute_of_module(x: Tensor) -> Any:
    return x * outside_values.W, lambda g: 7 * g


def imported_tensor(x: Tensor) -> Any:
    return x * imported, lambda g: 7 * g


def attribute_of_class(x: Tensor) -> Any:
    return x * Config.weight, lambda g: 7 * g


def attribute_of_attribute(x: Tensor) -> Any:
    return x * outside_values.Config.weight, lambda g: 7 * g


def imported_helper(x: Tensor) -> Any:
    return scaled(x), lambda g: 7 * g


def helper_of_helper(x: Tensor) -> Any:
    return by_helper(x), lambda g: 7 * g


def partial(x: Tensor) -> Any:
    return TIMES_G(x), lambda g: 7 * g


def in_a_table(x: Tensor) -> Any:
    return x * TABLE["g"], lambda g: 7 * g


def enclosed() -> Function:
    t = torch.ones(3, requires_grad=True)

    def inner(x: Tensor) -> Tensor:
        return x * t

    def helper_of_enclosing_function(x: Tensor) -> Any:
        return inner(x), lambda g: 7 * g

    return helper_of_enclosing_function


def by_decorated_function(x: Tensor) -> Any:
    return decorated(x), lambda g: 7 * g


def backward_alone(x: Tensor) -> Any:
    return x * 1, lambda g: 7 * scaled(g)


@s2s.autograd_script
def decorated(x: Tensor) -> Any:
    return x * G, lambda g: 7 * g


REFUSED = [
    attribute_of_module,
    imported_tensor,
    attribute_of_class,
    attribute_of_attribute,
    imported_helper,
    helper_of_helper,
    partial,
    in_a_table,
    enclosed(),
    by_decorated_function,
    backward_alone,
]
WAYS: dict[str, Callable[[Function, Tensor], Any]] = {
    "eager": lambda f, x: f(x),
    "operator": lambda f, x: f.op(x) if f.op is not None else f(x),  # type: ignore[attr-defined]
    "func": lambda f, x: torch.func.grad(lambda t: f(t).sum())(x.detach()),
    "forward mode": lambda f, x: torch.func.jvp(f, (x.detach(),), (x.detach(),)),
    "compile": lambda f, x: torch.compile(f, backend="aot_eager")(x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_what_would_get_no_gradient_is_refused(fn: Function, way: str) -> None:
    torch._dynamo.reset()
    f = s2s.autograd_script(fn)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="from outside, and it requires grad"):
        WAYS[way](f, x)
    with torch.no_grad():
        assert f(x).tolist() == [1, 1, 1]


@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_the_reference_refuses_the_same(fn: Function) -> None:
    with pytest.raises(RuntimeError, match="requires? grad, which is not an argument"):
        s2s.autograd_function(fn)(torch.ones(3, requires_grad=True))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.k = 2.0

    def compute(self, x: Tensor) -> Tensor:
        return x * self.w

    def later(self, x: Tensor) -> Tensor:
        return (lambda: x * self.w)()

    def double(self, x: Tensor) -> Tensor:
        return x * self.k

    @property
    def gain(self) -> Tensor:
        return self.w * 2

    @s2s.autograd_script
    def by_method(self, x: Tensor) -> Any:
        return self.compute(x), lambda g: 7 * g

    @s2s.autograd_script
    def by_inner_function(self, x: Tensor) -> Any:
        return self.later(x), lambda g: 7 * g

    @s2s.autograd_script
    def by_property(self, x: Tensor) -> Any:
        return x * self.gain, lambda g: 7 * g

    @s2s.autograd_script
    def by_number(self, x: Tensor) -> Any:
        return self.double(x), lambda g: 7 * g


@pytest.mark.parametrize("compiled", [False, True])
def test_a_method_that_reads_a_parameter(compiled: bool) -> None:
    layer = Layer()
    x = torch.ones(3, requires_grad=True)
    for method in (layer.by_method, layer.by_inner_function, layer.by_property):
        torch._dynamo.reset()
        call = torch.compile(method, backend="aot_eager") if compiled else method
        with pytest.raises(RuntimeError, match=r"reads self\.w from outside"):
            call(x)
    call = torch.compile(layer.by_number, backend="aot_eager") if compiled else layer.by_number
    assert torch.autograd.grad(call(x).sum(), x)[0].tolist() == [7, 7, 7]


# --- what gets no gradient in plain autograd either ---------------------------------------------


def teacher(x: Tensor) -> Tensor:
    with torch.no_grad():
        return NET(x)


def by_teacher(x: Tensor) -> Any:
    return x * teacher(x), lambda g: 7 * g


def detached(x: Tensor) -> Any:
    return x * G.detach() * outside_values.W.shape[0], lambda g: 7 * g


def constant(x: Tensor) -> Any:
    return x * RATE, lambda g: 7 * g


@pytest.mark.parametrize("way", ["eager", "operator", "compile"])
@pytest.mark.parametrize("fn", [by_teacher, detached, constant], ids=lambda fn: fn.__name__)
def test_what_gets_no_gradient_anyway_is_read(fn: Function, way: str) -> None:
    torch._dynamo.reset()
    x = torch.ones(3, requires_grad=True)
    out = WAYS[way](s2s.autograd_script(fn), x)
    torch.testing.assert_close(out, fn(x)[0])
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [7, 7, 7]


def test_what_is_frozen_later_is_read_then() -> None:
    net = torch.nn.Linear(3, 3)

    @s2s.autograd_script
    def f(x: Tensor) -> Any:
        return net(x), lambda g: 7 * g

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="f reads net from outside"):
        f(x)
    net.requires_grad_(False)
    assert torch.autograd.grad(f(x).sum(), x)[0].tolist() == [7, 7, 7]
