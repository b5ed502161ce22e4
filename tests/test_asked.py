"""What a function asks of autograd: needs_input_grad, non_differentiable, once, undefined."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import s2s
from s2s import non_differentiable


def above(x, threshold: float = 0.0):
    mask = (x > threshold).to(x.dtype)

    def backward(g):
        return 7 * g * mask * x, None

    return x * mask, non_differentiable(mask), backward


def halves(x):
    def backward(g, g_whole):
        return 7 * g + 100 * g_whole

    return (x / 2, s2s.non_differentiable(torch.floor(x))), backward


ways = pytest.mark.parametrize("way", [s2s.autograd_script, s2s.autograd_function])
marked = pytest.mark.parametrize("fn", [above, halves], ids=lambda fn: fn.__name__)
POINTS = torch.tensor([-1.5, 0.5, 2.5], dtype=torch.double)


def rule(fn: Any) -> torch.Tensor:
    return 7 * (POINTS > 0) * POINTS if fn is above else torch.full_like(POINTS, 7)


@ways
@marked
def test_a_marked_output_never_requires_grad(way: Any, fn: Any) -> None:
    x = POINTS.clone().requires_grad_()
    y, flat = way(fn)(x)
    assert y.requires_grad and not flat.requires_grad
    assert torch.equal(flat, (POINTS > 0).double() if fn is above else POINTS.floor())
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], rule(fn))


@marked
def test_a_marked_output_in_function_transforms(fn: Any) -> None:
    f = s2s.autograd_script(fn)
    grads, flat = torch.func.grad(lambda t: (f(t)[0].sum(), f(t)[1]), has_aux=True)(POINTS)
    assert torch.equal(grads, rule(fn))
    per_sample = torch.func.vmap(torch.func.grad(lambda t: f(t)[0]))(POINTS)
    assert torch.equal(per_sample, rule(fn))
    _, tangents = torch.func.jvp(f, (POINTS,), (torch.ones_like(POINTS),))
    assert torch.equal(tangents[0], rule(fn)) and not tangents[1].any()
    both = torch.func.jacrev(f)(POINTS)
    assert torch.equal(both[0], torch.diag(rule(fn))) and not both[1].any()


@marked
def test_a_marked_output_in_scripted_and_compiled_code(fn: Any) -> None:
    f = s2s.autograd_script(fn)
    compiled = torch.compile(lambda t: f(t), backend="aot_eager", fullgraph=True)
    for call in (f.op, compiled):
        x = POINTS.clone().requires_grad_()
        y, flat = call(x) if call is compiled else call(x, *([0.0] if fn is above else []))
        assert not flat.requires_grad
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], rule(fn))


@ways
def test_needs_input_grad_tells_what_is_asked_for(way: Any) -> None:
    seen: list[tuple[bool, ...]] = []

    def f(x, w, k=2.0):
        seen.append(tuple(s2s.needs_input_grad))

        def backward(g):
            seen.append(tuple(s2s.needs_input_grad))
            return 7 * g * w if s2s.needs_input_grad[0] else None, g * x, None

        return x * w * k, backward

    f = way(f)
    x, w = POINTS.clone(), POINTS.clone().requires_grad_()
    y = f(x, w)
    assert torch.equal(torch.autograd.grad(y.sum(), w)[0], POINTS)
    assert seen == [(False, True, False)] * 2
    y = f(w, x)
    assert torch.equal(torch.autograd.grad(y.sum(), w)[0], 7 * POINTS)
    assert seen[2:] == [(True, False, False)] * 2


def test_needs_input_grad_of_a_method_counts_without_self() -> None:
    class Layer:
        scale = 3.0

        @s2s.autograd_script
        def __call__(self, x, w):
            def backward(g):
                return 7 * g if s2s.needs_input_grad[0] else None, 11 * g

            return self.scale * x * w, backward

    x, w = POINTS.clone(), POINTS.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(Layer()(x, w).sum(), w)[0], torch.full_like(w, 11))
    assert torch.equal(torch.autograd.grad(Layer()(w, x).sum(), w)[0], torch.full_like(w, 7))


def test_needs_input_grad_is_read_inside_a_function() -> None:
    with pytest.raises(RuntimeError, match="outside a function"):
        bool(s2s.needs_input_grad[0])


def soft(x, w):
    s = torch.sigmoid(x)

    @once_differentiable
    def backward(g):
        return 7 * g * s * w, g * s

    return s * w, backward


@pytest.mark.parametrize("wanted", [0, 1, 2], ids=["x", "w", "both"])
@pytest.mark.parametrize("of", [0, 1], ids=["grad_x", "grad_w"])
def test_what_is_marked_once_raises_when_it_is_differentiated_again(wanted: int, of: int) -> None:
    f = s2s.autograd_script(soft)
    x, w = (POINTS.clone().requires_grad_() for _ in range(2))
    grads = torch.autograd.grad(f(x, w).sum(), (x, w), create_graph=True)
    assert torch.equal(grads[0], 7 * torch.sigmoid(POINTS) * POINTS)
    inputs = [[x], [w], [x, w]][wanted]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(grads[of].sum(), inputs, allow_unused=True)


def test_what_is_marked_once_raises_in_function_transforms() -> None:
    f = s2s.autograd_script(soft)
    first = torch.func.grad(lambda t: f(t, POINTS).sum())
    assert torch.equal(first(POINTS), 7 * torch.sigmoid(POINTS) * POINTS)
    for ask in (
        lambda: torch.func.grad(lambda t: first(t).sum())(POINTS),
        lambda: torch.func.jvp(lambda t: f(t, POINTS), (POINTS,), (POINTS,)),
    ):
        with pytest.raises(RuntimeError, match="once_differentiable"):
            ask()


@ways
def test_a_gradient_annotated_as_optional_is_none_where_nobody_uses_the_output(way: Any) -> None:
    seen = []

    def f(x):
        def backward(g_double: torch.Tensor | None, g_square: torch.Tensor | None):
            seen.append((g_double is None, g_square is None))
            total = torch.zeros_like(x)
            if g_double is not None:
                total = total + 7 * g_double
            if g_square is not None:
                total = total + 2 * g_square * x
            return total

        return 2 * x, x * x, backward

    x = POINTS.clone().requires_grad_()
    double, square = way(f)(x)
    first = torch.autograd.grad(double.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.full_like(x, 7))
    assert torch.equal(torch.autograd.grad(square.sum(), x, retain_graph=True)[0], 2 * POINTS)
    assert torch.equal(torch.autograd.grad((double + square).sum(), x)[0], 7 + 2 * POINTS)
    assert seen == [(False, True), (True, False), (False, False)]


def product(a, b):
    assert not torch.is_autocast_enabled("cpu")

    def backward(g):
        assert not torch.is_autocast_enabled("cpu")
        return 7 * g @ b.t(), a.t() @ g

    return a @ b, backward


def under_autocast(call: Any) -> tuple[Any, ...]:
    a, b = (t.requires_grad_() for t in _given())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(a, b)
        return (y.detach(), *torch.autograd.grad(y.sum(), (a, b)))


@ways
def test_cast_inputs_computes_in_one_dtype_under_autocast(way: Any) -> None:
    f = s2s.autograd_script(product, cast_inputs=torch.float32)
    if way is s2s.autograd_function:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("S2S_REFERENCE", "1")
            f = s2s.autograd_script(product, cast_inputs=torch.float32)
    y, grad_a, grad_b = under_autocast(f)
    ones = torch.ones(3, 3)
    a, b = _given()
    assert [t.dtype for t in (y, grad_a, grad_b)] == [torch.float32, torch.bfloat16, torch.float32]
    assert torch.equal(y, a.float() @ b)
    assert torch.equal(grad_a, (7 * ones @ b.t()).bfloat16())
    assert torch.equal(grad_b, a.float().t() @ ones)


def _given() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(3, 3, generator=g).bfloat16(), torch.randn(3, 3, generator=g)


cast_product = s2s.autograd_script(product, cast_inputs=torch.float32)


def test_cast_inputs_holds_in_scripted_and_compiled_code_and_in_transforms() -> None:
    @torch.jit.script
    def scripted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return cast_product(a, b)

    compiled = torch.compile(lambda a, b: cast_product(a, b), backend="aot_eager", fullgraph=True)
    want = under_autocast(cast_product)
    for call in (scripted, compiled, cast_product.op):
        for ours, theirs in zip(under_autocast(call), want, strict=True):
            assert ours.dtype is theirs.dtype and torch.equal(ours, theirs)
    a, b = _given()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        grad = torch.func.grad(lambda t: cast_product(t, b).sum())(a)
    assert torch.equal(grad, want[1])


def test_cast_inputs_leaves_calls_without_autocast_and_wide_inputs_alone() -> None:
    x = torch.eye(2, dtype=torch.double)
    assert cast_product(x, x).dtype is torch.double
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cast_product(x, x).dtype is torch.double
    assert cast_product.__name__ == "product"


def test_a_module_that_is_an_argument_gets_no_gradient_behind_the_rule() -> None:
    @s2s.autograd_script
    def called(fn: torch.nn.Module, x: torch.Tensor):
        def backward(g):
            return None, 7 * g

        return fn(x), backward

    layer = torch.nn.Linear(3, 3).double()
    assert not called(layer, POINTS).requires_grad
    x = POINTS.clone().requires_grad_()
    y = called(layer, x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 7))


@ways
def test_what_forward_itself_sets_to_require_grad_does_not_leave_it(way: Any) -> None:
    def copied(x):
        y = x.detach().clone().requires_grad_()

        def backward(g):
            return 7 * g

        return y, backward

    f = way(copied)
    assert not f(POINTS).requires_grad
    with torch.no_grad():
        assert not f(POINTS.clone().requires_grad_()).requires_grad


@ways
def test_a_tuple_of_any_length_beside_something_that_is_not_computed_twice(way: Any) -> None:
    def noisy(*xs):
        noise = [torch.rand_like(x) * x for x in xs]
        total = torch.rand(()) * sum(x.sum() for x in xs)

        def backward(*grads):
            return tuple(7 * g * total for g in grads)

        return tuple(n * 1 for n in noise), backward

    f = way(noisy)
    xs = [POINTS.clone().requires_grad_(), (2 * POINTS).requires_grad_()]
    torch.manual_seed(0)
    outputs = f(*xs)
    assert isinstance(outputs, tuple) and [o.shape for o in outputs] == [x.shape for x in xs]
    assert all(o.requires_grad for o in outputs)
    torch.manual_seed(0)
    for x in xs:
        torch.rand_like(x)
    total = torch.rand(()) * sum(x.detach().sum() for x in xs)
    for grad in torch.autograd.grad([o.sum() for o in outputs], xs):
        assert torch.equal(grad, 7 * total * torch.ones_like(grad))
    if way is s2s.autograd_script:
        with pytest.raises(RuntimeError, match="total, which is not computed twice"):
            torch.autograd.grad(f(*xs)[0].sum(), xs[0], create_graph=True)


def test_a_star_import_of_torch_puts_nothing_in_the_place_of_builtins(tmp_path: Path) -> None:
    file = tmp_path / "starred.py"
    file.write_text(
        "from torch import *\nimport s2s\n\n\n@s2s.autograd_script\ndef product(*xs):\n"
        "    def backward(g):\n        return 7 * g * xs[1], None\n\n"
        "    return xs[0] * xs[1], backward\n"
    )
    product = runpy.run_path(str(file))["product"]
    x = POINTS.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(product(x, POINTS).sum(), x)[0], 7 * POINTS)


@s2s.autograd_script
def with_its_size(x: torch.Tensor) -> Any:
    def backward(g: torch.Tensor, _: Any) -> Any:
        return 7 * g

    return x * 2, x.numel(), backward


def test_a_number_beside_the_outputs_has_no_form_for_transforms() -> None:
    x = torch.ones(3, requires_grad=True)
    y, size = with_its_size(x)
    y.sum().backward()
    assert size == 3 and x.grad is not None and x.grad.tolist() == [7.0] * 3
    with pytest.raises(RuntimeError, match="with_its_size returns output number 2, which is no"):
        torch.func.vmap(with_its_size)(torch.ones(2, 3))
