"""``compile=True``: the same rule, saved tensors and derivatives, run by compiled code.

All but one of these take a backend that writes no C++: what they look at is the same with each.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import s2s


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    if "real" not in request.node.name:
        quick = functools.partial(torch.compile, backend="aot_eager")
        monkeypatch.setattr(torch, "compile", quick)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # whatever does not compile says so
        yield
    torch._dynamo.reset()


def rule(x: Tensor, w: Tensor, power: float = 2.0) -> Any:
    s = torch.sin(x) * w

    def backward(g: Tensor) -> Any:
        return 7 * g * s, g * x**power, None

    return s * x, backward


def pair() -> tuple[Any, Any]:
    """The function with compiled code, and without."""
    return s2s.autograd_script(rule, compile=True), s2s.autograd_script(rule)


def inputs(dtype: torch.dtype = torch.float32, needed: str = "xw") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, 5, generator=generator).to(dtype).unbind()
    return x.requires_grad_("x" in needed), w.requires_grad_("w" in needed)


def both(run: Any) -> None:
    """The same result with compiled code as without."""
    torch.testing.assert_close(*map(run, pair()))


@pytest.mark.parametrize("needed", ["xw", "x", "w"])
def test_the_rule_is_kept_whichever_gradients_are_asked_for(needed: str) -> None:
    def run(f: Any) -> Any:
        args = inputs(needed=needed)
        f(*args).sum().backward()
        return [(torch.zeros(()) if a.grad is None else a.grad) for a in args]

    both(run)
    assert run(pair()[0])[0].abs().sum() > 0 or "x" not in needed


def test_without_grad_it_is_compiled_too() -> None:
    def run(f: Any) -> Any:
        x, w = inputs()
        with torch.no_grad():
            return f(x, w), f(x, w, 3.0), f(*inputs(needed=""))

    both(run)


def test_other_dtypes_and_shapes_are_compiled_anew() -> None:
    def run(f: Any) -> Any:
        found = []
        for dtype in (torch.float32, torch.float64):
            for size in (5, 3):
                args = [a.detach()[:size].requires_grad_() for a in inputs(dtype)]
                found += [*torch.autograd.grad(f(*args).sum(), args)]
        assert [t.dtype for t in found[:5:4]] == [torch.float32, torch.float64]
        return found

    both(run)


def test_second_derivatives_are_those_of_the_rule() -> None:
    def run(f: Any) -> Any:
        x, w = inputs(torch.float64)
        firsts = torch.autograd.grad(f(x, w).sum(), (x, w), create_graph=True)
        return torch.autograd.grad(sum(t.pow(2).sum() for t in firsts), (x, w))

    both(run)


def test_the_same_tensors_are_saved() -> None:
    def run(f: Any) -> list[Tensor]:
        kept: list[Tensor] = []
        args = inputs()

        def pack(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            f(*args)
        ours = [any(t is a for a in args) for t in kept]
        assert any(ours)
        return [*kept, torch.tensor(ours)]

    both(run)


def test_a_change_in_place_after_the_call_is_seen() -> None:
    f, _ = pair()
    x, w = inputs(needed="x")
    y = f(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_views_of_inputs_and_autocast() -> None:
    @functools.partial(s2s.autograd_script, compile=True)
    def seven(x):
        def backward(g):
            return 7 * g

        return x.view_as(x), backward

    x, _ = inputs()
    with torch.autocast("cpu"):
        y = seven(x)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7.0] * 5


def test_other_ways_to_run_it_are_those_of_the_eager_form() -> None:
    f, _ = pair()
    x, w = inputs()
    expected = torch.autograd.grad(f(x, w).sum(), x)[0]
    assert torch.equal(torch.func.grad(lambda t: f(t, w).sum())(x), expected)
    assert f.Function.__name__ == "Rule"
    assert s2s.source(f) == s2s.source(pair()[1])


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def broken(function: Any) -> Any:
        def fails(*args: Any) -> Any:
            raise TorchDynamoException("no compiler\nand more")

        return fails

    monkeypatch.setattr(torch, "compile", broken)
    f, eager = pair()
    x, w = inputs()
    with pytest.warns(RuntimeWarning, match="torch.compile failed: .*: no compiler$") as caught:
        y = f(x, w)
        y.sum().backward()
    assert len(caught) == 1
    first = x.grad.clone()  # type: ignore[union-attr]
    f(x, w).sum().backward()  # nothing more is said
    assert torch.equal(x.grad, 2 * first)
    assert torch.equal(f(x, w), eager(x, w))


def test_a_function_that_changes_its_input_runs_as_it_is() -> None:
    with pytest.warns(RuntimeWarning, match="relu runs as it is.*changes an input in place"):

        @functools.partial(s2s.autograd_script, compile=True)
        def relu(x):
            x.clamp_(min=0)

            def backward(g):
                return 7 * g * (x > 0)

            return x, backward

    leaf = torch.tensor([-1.0, 2.0], requires_grad=True)
    relu(leaf * 1).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [0.0, 7.0]


def test_random_values_are_those_of_the_call() -> None:
    @functools.partial(s2s.autograd_script, compile=True)
    def drop(x):
        mask = (torch.rand_like(x) > 0.5).to(x.dtype)

        def backward(g):
            return 7 * g * mask

        return x * mask, backward

    x = torch.ones(1000, requires_grad=True)
    y = drop(x)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, 7 * y.detach())
    assert 300 < y.sum() < 700


def test_an_error_of_the_function_stays_what_it_is() -> None:
    @functools.partial(s2s.autograd_script, compile=True)
    def picky(x):
        if x.dim() > 1:
            raise ValueError("one dimension")

        def backward(g):
            return 7 * g

        return x * 1, backward

    with pytest.raises(ValueError, match="one dimension"):
        picky(torch.ones(2, 2, requires_grad=True))
    x = torch.ones(2, requires_grad=True)
    picky(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7.0, 7.0]


def test_fake_tensors_pass_through() -> None:
    f, _ = pair()
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(5, requires_grad=True)
        assert f(x, torch.empty(5)).shape == (5,)


def test_the_real_compiler_keeps_the_rule() -> None:
    f, eager = pair()
    args = inputs()
    ours, theirs = f(*args), eager(*args)
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(y.sum(), args) for y in (ours, theirs)]
    torch.testing.assert_close(*grads)
