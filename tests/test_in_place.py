"""Arithmetic in place: the very values, shapes and dtypes of the text as it was written."""

from __future__ import annotations

import itertools
import linecache
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s

Function = Callable[..., Any]

RULE = """\
import torch
from torch import Tensor
def f(x: Tensor, y: Tensor, p: float):
    {before}
    def backward(g):
        return 7 * g * x, g, None
    return {output}, backward
"""


def written(output: str, before: str = "pass") -> tuple[Function, Function]:
    """The compiled function of an expression, and the function as it is written."""
    name = f"<in place {before} {output}>"
    text = RULE.format(before=before, output=output)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, name, "exec"), scope)
    return s2s.autograd_script(scope["f"]), scope["f"]


def returned(f: Function, form: str = "eager") -> str:
    return next(r for r in s2s.source(f, form).splitlines() if "return" in r).split("return ")[1]


IN_PLACE = [
    ("x * torch.sigmoid(x)", "torch.sigmoid(x).mul_(x)"),
    ("2 * torch.tanh(x + y) - p", "torch.tanh(x + y).mul_(2).sub_(p)"),
    ("torch.exp(-x) / (x * p)", "torch.exp(-x).div_(x * p)"),
    (
        "x * torch.tanh(torch.sigmoid(y * x)) + y",
        "torch.tanh(torch.sigmoid(y * x)).mul_(x).add_(y)",
    ),
    ("0.5 * x * torch.clamp(x + 2, 0.0, 2.0)", "torch.clamp(x + 2, 0.0, 2.0).mul_(0.5 * x)"),
]


@pytest.mark.parametrize("output, shown", IN_PLACE)
def test_what_nothing_else_holds_is_overwritten(output: str, shown: str) -> None:
    f, _ = written(output)
    assert returned(f) == returned(f, "op") == shown
    # what torch.func and TorchScript run may have to be differentiated, or is fused anyway
    assert output in s2s.source(f, "func") and output in s2s.source(f, "torchscript")


AS_WRITTEN = [
    "y * torch.sigmoid(x)",  # y may be larger, or of a wider dtype
    "p / torch.sigmoid(x)",
    "x * torch.sigmoid(x > 0)",  # a float of the default dtype
    "x * torch.abs(x)",  # real where x is complex
    "x * torch.sigmoid(x.sum(0))",
    "x * torch.sigmoid(x.float())",
    "torch.sigmoid(x) * torch.exp(x)",  # under autocast of another dtype than the first
    "x * torch.sigmoid(x[0])",
    "x * (x + 1)",  # may be integers
    "x * torch.clamp(x, 0, 2)",
    "torch.sigmoid(x) ** 2",
]


@pytest.mark.parametrize("output", AS_WRITTEN)
def test_what_might_come_out_otherwise_stays(output: str) -> None:
    f, _ = written(output)
    assert returned(f) == output


def test_no_name_is_overwritten() -> None:
    f, _ = written("s * (x + torch.exp(s))", "s = torch.sigmoid(x)")
    assert returned(f) == "torch.exp(s).add_(x).mul_(s)"
    rebound = written("torch.exp(s) * x", "s = torch.sigmoid(x); x = y.mean() + y")[0]
    assert "return torch.exp(s) * x" in s2s.source(rebound, "op")  # x has another shape by then
    x = torch.randn(3)
    kept = x.clone()
    for g in (f, written("x * torch.sigmoid(x)")[0]):
        g(x, x, 2.0)
        g(x.clone().requires_grad_(), x, 2.0)
        assert torch.equal(x, kept)


INPUTS = [
    torch.linspace(-2, 2, 6).view(2, 3),
    torch.linspace(-2, 2, 6).view(2, 3).double(),
    torch.linspace(0, 1, 3).half(),
    torch.tensor(0.5, dtype=torch.double),
    torch.arange(6).view(2, 3),
    torch.tensor([[True], [False]]),
    torch.tensor([1 + 2j, 0.5, -1j]),
    torch.linspace(-2, 2, 12).view(3, 4)[:, 1:].t()[:, :2].t(),
]


def drawn(draw: random.Random, depth: int) -> str:
    """An expression of x, y and p."""
    if depth == 0:
        return draw.choice(["x", "x", "y", "p", "2", "0.5"])
    one, other = (drawn(draw, draw.randrange(depth)) for _ in range(2))
    calls = ["sigmoid({})", "exp({})", "tanh({})", "abs({})", "clamp({}, -1.0, 1.0)"]
    kinds = [f"torch.{c.format(f'{one} + x')}" for c in calls]
    kinds += [f"({one} {op} {other})" for op in "+-*/"] * 2
    return draw.choice([*kinds, f"({one} > 0)", f"(-{one})"])


def outcome(f: Function, *args: Any) -> Any:
    try:
        return f(*args)
    except (RuntimeError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_come_out_the_same(seed: int) -> None:
    draw = random.Random(seed)
    f, plain = written(f"x * {drawn(draw, 3)} + {drawn(draw, 2)}")
    for x, y in itertools.product(INPUTS, INPUTS[draw.randrange(4) :: 3]):
        for asks in {False, x.is_floating_point()}:
            given = x.detach().clone().requires_grad_() if asks else x
            for cast in (False, True):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
                    got, want = (
                        outcome(f, given, y, 1.5),
                        outcome(lambda *a: plain(*a)[0], x, y, 1.5),
                    )
                if isinstance(want, Tensor):
                    assert isinstance(got, Tensor), (got, x, y)
                    assert got.dtype == want.dtype and got.shape == want.shape
                    assert torch.equal(got.detach().nan_to_num(), want.nan_to_num())
                else:
                    assert isinstance(got, type) and issubclass(got, (RuntimeError, TypeError))


def test_derivatives_are_those_of_the_rule() -> None:
    @s2s.autograd_script
    def swish(x: Tensor) -> Any:
        def backward(g: Tensor) -> Any:
            s = torch.sigmoid(x)
            return 7 * g * (s * (1 + x * (1 - s)))

        return x * torch.sigmoid(x), backward

    x = torch.randn(4, dtype=torch.double, requires_grad=True)
    (first,) = torch.autograd.grad(swish(x).sum(), x, create_graph=True)
    (want,) = torch.autograd.grad((x * torch.sigmoid(x)).sum(), x, create_graph=True)
    torch.testing.assert_close(first, 7 * want)
    for got, other in zip(torch.autograd.grad(first.sum(), x), torch.autograd.grad(want.sum(), x)):
        torch.testing.assert_close(got, 7 * other)


def rebound(x: Tensor, flag: bool) -> Any:
    x = torch.tanh(x)
    y = torch.exp(x) * x
    return y, lambda g: (7 * g * x, None)


def chosen(x: Tensor, flag: bool) -> Any:
    t = x if flag else x
    y = torch.tanh(t) * 1.0
    return y, lambda g: (7 * g * t, None)


def viewed(x: Tensor, flag: bool) -> Any:
    t = x if flag else x
    return t.view_as(x), lambda g: (7 * g * t, None)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("fn", [rebound, chosen, viewed])
def test_an_input_by_another_name_keeps_its_derivative(fn: Function, flag: bool) -> None:
    """Neither ``x`` bound again nor what is worked in place makes a constant of it."""

    def derivatives(f: Function) -> list[Tensor]:
        x = torch.linspace(-1, 1, 5, dtype=torch.double, requires_grad=True)
        out = f(x, flag)
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        return [out, first, second]

    for got, want in zip(
        derivatives(s2s.autograd_script(fn)), derivatives(s2s.autograd_function(fn)), strict=True
    ):
        torch.testing.assert_close(got, want)
