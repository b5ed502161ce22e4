"""A captured value that is an output on one path, or under another name, keeps the user's rule.

What the reference does there is autograd's own: it knows the very tensor that was returned. The
gradients are untrue, so that a derivative through the function's operations is another number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, vmap

import s2s

Function = Callable[..., Any]


def either(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)

    def backward(g):
        return 7 * g * s, None

    return s if flag else x * 2, backward


def early(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)

    def backward(g):
        return 7 * g * s, None

    if flag:
        return s, backward
    return x * 2, backward


def derived(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)
    t = s * s

    def backward(g):
        return 7 * g * s * t, None

    if flag:
        return s, backward
    return x * 2, backward


def chosen(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)
    y = s if flag else x * 2

    def backward(g):
        return 7 * g * s, None

    return y, backward


def one_each(x: Tensor, flag: bool) -> Any:
    if flag:
        s = torch.sin(x)

        def backward(g):
            return 7 * g * s, None

        return s, backward
    s = torch.exp(x)

    def backward(g):
        return 7 * g * s, None

    return x * 2, backward


def renamed(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)
    y = s

    def backward(g):
        return 7 * g * s, None

    return y, backward


def contiguous(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)
    y = s.contiguous()

    def backward(g):
        return 7 * g * s, None

    return y, backward


def cast(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)

    def backward(g):
        return 7 * g * s, None

    return s.to(torch.float64 if flag else torch.complex128).real, backward


def swapped(x: Tensor, flag: bool) -> Any:
    s = torch.sin(x)
    t = torch.cos(x)

    def backward(g, h):
        return 7 * g * s + 5 * h * t, None

    if flag:
        return s, t, backward
    return t, s, backward


ONE = [either, early, derived, chosen, one_each, renamed, contiguous, cast]
FLAGS = pytest.mark.parametrize("flag", [True, False])


def total(f: Function, flag: bool) -> Function:
    def run(x: Tensor) -> Tensor:
        out = f(x, flag)
        return sum(t.sum() for t in out) if isinstance(out, tuple) else out.sum()

    return run


def twice(f: Function, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def points() -> Tensor:
    return torch.tensor([[0.5, 1.0, -0.75]] * 2, dtype=torch.double).t()


@FLAGS
@pytest.mark.parametrize("written", ONE, ids=lambda f: f.__name__)
def test_second_derivatives_agree_with_the_reference(written: Function, flag: bool) -> None:
    f = total(s2s.autograd_script(written), flag)
    truth = total(s2s.autograd_function(written), flag)
    for x in (points(), points().contiguous(), points()[:, 0]):
        want = twice(truth, x)
        torch.testing.assert_close(twice(f, x), want)
        torch.testing.assert_close(grad(lambda t: grad(f)(t).sum())(x), want)
    torch.testing.assert_close(torch.diag(jacfwd(jacrev(f))(x)), want)
    torch.testing.assert_close(torch.diag(jacrev(jacfwd(f))(x)), want)
    batch = torch.stack([x, x])
    torch.testing.assert_close(vmap(grad(lambda t: grad(f)(t).sum()))(batch)[1], want)
    scripted = total(s2s.autograd_script(written).op, flag)
    torch.testing.assert_close(twice(scripted, x), want)


@FLAGS
@pytest.mark.parametrize("written", ONE, ids=lambda f: f.__name__)
def test_first_derivatives_of_the_same(written: Function, flag: bool) -> None:
    f = total(s2s.autograd_script(written), flag)
    truth = total(s2s.autograd_function(written), flag)
    x = points()[:, 0].requires_grad_()
    (want,) = torch.autograd.grad(truth(x), x)
    torch.testing.assert_close(torch.autograd.grad(f(x), x)[0], want)
    torch.testing.assert_close(grad(f)(x.detach()), want)
    torch.testing.assert_close(jacfwd(f)(x.detach()), want)
    torch.testing.assert_close(vmap(grad(f))(torch.stack([x.detach()] * 2))[1], want)


@FLAGS
def test_of_several_outputs_transforms_refuse_the_second_derivative(flag: bool) -> None:
    f = total(s2s.autograd_script(swapped), flag)
    truth = total(s2s.autograd_function(swapped), flag)
    x = points()[:, 0].contiguous()
    torch.testing.assert_close(twice(f, x), twice(truth, x))
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(grad(f)(x), torch.autograd.grad(truth(leaf), leaf)[0])
    with pytest.raises(RuntimeError, match="no second derivative through [st], .*one of the outp"):
        grad(lambda t: grad(f)(t).sum())(x)


def test_nothing_is_kept_alive() -> None:
    """A saved output makes no cycle, under whatever name."""
    import gc
    import weakref

    f = s2s.autograd_script(contiguous)
    gc.disable()
    try:
        out = f(points().contiguous().requires_grad_(), True)
        alive = weakref.ref(out)
        del out
        assert alive() is None
    finally:
        gc.enable()
