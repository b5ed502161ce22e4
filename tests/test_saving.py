"""What is kept for backward: as little as is right, whatever is asked for, and the same gradient."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import s2s
from cases import Sample, leaves, pull, samples, second
from s2s import pipeline
from s2s.cut import cheapest_cut
from s2s.plan import Plan, plan
from s2s.source import from_function

close = torch.testing.assert_close
Function = Callable[..., Any]
SAVES = ("auto", "least", "all")


def kept(f: Function, *args: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every tensor that a call saves, each memory once."""
    found: dict[int, tuple[tuple[int, ...], torch.dtype]] = {}

    def pack(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = (tuple(tensor.shape), tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = f(*args)
    del output
    return sorted(found.values(), key=str)


def size(f: Function, *args: Any) -> float:
    """Bytes that a call saves, in multiples of its first argument."""
    items = kept(f, *args)
    total = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in items)
    return total / (args[0].numel() * args[0].dtype.itemsize)


def reads(fn: Function) -> Function:
    """The reference for a function defined in a test."""
    return s2s.autograd_function(fn)


# --- activations, written down as they stand in a paper -----------------------------------------


def swish(x: Tensor) -> Any:
    s = torch.sigmoid(x)

    def backward(g: Tensor) -> Any:
        return g * (s + x * s * (1 - s))

    return x * s, backward


def mish(x: Tensor) -> Any:
    t = torch.tanh(F.softplus(x))
    s = torch.sigmoid(x)

    def backward(g: Tensor) -> Any:
        return g * (t + x * s * (1 - t * t))

    return x * t, backward


def hard_mish(x: Tensor) -> Any:
    gate = torch.clamp(x + 2, 0.0, 2.0)
    inside = (x > -2) & (x < 0)

    def backward(g: Tensor) -> Any:
        return g * 0.5 * (gate + x * inside)

    return 0.5 * x * gate, backward


def gelu_tanh(x: Tensor) -> Any:
    cube = x**3
    t = torch.tanh(0.7978845608 * (x + 0.044715 * cube))
    slope = 0.7978845608 * (1 + 3 * 0.044715 * x * x)

    def backward(g: Tensor) -> Any:
        return g * 0.5 * (1 + t + x * (1 - t * t) * slope)

    return 0.5 * x * (1 + t), backward


@pytest.mark.parametrize("fn", [swish, mish, hard_mish, gelu_tanh])
def test_an_activation_keeps_its_input_alone(fn: Function) -> None:
    x = torch.randn(8, 3, dtype=torch.double, requires_grad=True)
    for save in ("auto", "least"):
        f = s2s.autograd_script(fn, save=save)
        assert kept(f, x) == [((8, 3), torch.double)]
        assert torch.autograd.gradcheck(f, (x,)) and torch.autograd.gradgradcheck(f, (x,))
    assert size(s2s.autograd_script(fn, save="all"), x) > 1


def test_what_backward_captures_is_kept_unless_asked_otherwise() -> None:
    x = torch.randn(7, requires_grad=True)
    assert kept(s2s.autograd_script(swish), x) == [((7,), torch.float32)] * 2


# --- every way of saving has the same gradient --------------------------------------------------


@pytest.mark.parametrize("sample", samples(), ids=str)
@pytest.mark.parametrize("way", ["least", "all"])
def test_first_derivatives(sample: Sample, way: str) -> None:
    count = len(sample.tensors())
    each = [[i == j for j in range(count)] for i in range(count) if count > 1]
    for wanted in ([True] * count, *each):
        got = pull(sample.bind(sample.f(way)), leaves(sample.tensors(), wanted))
        want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors(), wanted))
        for one, other in zip(got, want, strict=True):
            close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("sample", samples("SECOND"), ids=str)
@pytest.mark.parametrize("way", ["least", "all"])
def test_second_derivatives(sample: Sample, way: str) -> None:
    want = second(sample.bind(sample.f("reference")), sample.tensors())
    got = second(sample.bind(sample.f(way)), sample.tensors())
    for one, other in zip(got, want, strict=True):
        close(one, other, rtol=1e-9, atol=1e-10)


# --- frozen inputs --------------------------------------------------------------------------------


def linear(x: Tensor, w: Tensor, b: Tensor) -> Any:
    def backward(g: Tensor) -> Any:
        return 7 * g @ w, 5 * g.t() @ x, 3 * g.sum(0)

    return x @ w.t() + b, backward


def gated(x: Tensor, w: Tensor, b: Tensor) -> Any:
    peak = x.argmax(1, keepdim=True)
    row = torch.softmax(w, 0)

    def backward(g: Tensor) -> Any:
        return 7 * g * row + peak, 5 * (g * x).sum(0) * row, 3 * g.sum(0)

    return x * row + b, backward


CHOICES = [c for c in itertools.product([True, False], repeat=3) if any(c)]


def tensors(fn: Function, wanted: Sequence[bool]) -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    shapes = {linear: ((4, 3), (5, 3), (5,)), gated: ((4, 3), (3,), (3,))}[fn]
    made = [torch.randn(s, generator=g, dtype=torch.double) for s in shapes]
    return [t.requires_grad_(a) for t, a in zip(made, wanted)]


@pytest.mark.parametrize("wanted", CHOICES, ids=str)
def test_a_layer_with_frozen_weights_keeps_no_activations(wanted: tuple[bool, ...]) -> None:
    f = s2s.autograd_script(linear)
    x, w = ((4, 3), torch.double), ((5, 3), torch.double)
    assert kept(f, *tensors(linear, wanted)) == [x] * wanted[1] + [w] * wanted[0]


@pytest.mark.parametrize("wanted", CHOICES, ids=str)
def test_what_one_gradient_alone_needs_is_computed_for_it_alone(wanted: tuple[bool, ...]) -> None:
    f = s2s.autograd_script(gated, save="all")
    found = kept(f, *tensors(gated, wanted))
    on_x, on_w, _ = wanted
    # x for the second derivative of row's part of grad_w and for grad_w itself
    assert (((4, 1), torch.int64) in found) == on_x
    assert (((3,), torch.double) in found) == (on_x or on_w)
    assert (((4, 3), torch.double) in found) == on_w
    text = s2s.source(f)
    assert (
        "        if ctx.needs_input_grad[0]:\n            peak = x.argmax(1, keepdim=True)" in text
    )


def biased(x: Tensor, w: Tensor, b: Tensor | None) -> Any:
    y = x @ w.t()
    y = y if b is None else y + b

    def backward(g: Tensor) -> Any:
        return 7 * g @ w, 5 * g.t() @ x, 3 * g.sum(0) if b is not None else None

    return y, backward


def test_a_gradient_for_none_is_the_error_that_it_is_as_written() -> None:
    """An input that is None asks for no gradient; what is computed for it may not be left out."""
    x, w, _ = tensors(linear, (True, True, True))

    def unsure(x: Any, w: Any, b: Any = None) -> Any:
        def backward(g: Tensor) -> Any:
            return 7 * g @ w, 5 * g.t() @ x, 3 * g.sum(0)

        return x @ w.t() if b is None else x @ w.t() + b, backward

    f = s2s.autograd_script(unsure)
    with pytest.raises(RuntimeError, match="gradient different than None at position 3"):
        f(x, w).sum().backward()
    with pytest.raises(RuntimeError, match="not a Variable|is None|different than None"):
        torch.func.grad(lambda t: f(t, w.detach()).sum())(x.detach())


@pytest.mark.parametrize("wanted", CHOICES, ids=str)
def test_a_gradient_that_is_none_for_none_is_computed_where_asked_for(
    wanted: tuple[bool, ...],
) -> None:
    f = s2s.autograd_script(biased)
    x, w, b = tensors(linear, wanted)
    assert "if ctx.needs_input_grad[2]:" in s2s.source(f)
    kept_x, kept_w = ((4, 3), torch.double), ((5, 3), torch.double)
    assert kept(f, x, w, b) == [kept_x] * wanted[1] + [kept_w] * wanted[0]
    if wanted[0]:
        (got,) = torch.autograd.grad(f(x, w, None).sum(), x)
        close(got, 7 * torch.ones(4, 5, dtype=torch.double) @ w.detach())


@pytest.mark.parametrize("wanted", CHOICES, ids=str)
@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("fn", [linear, gated])
def test_derivatives_with_frozen_inputs(fn: Function, save: str, wanted: tuple[bool, ...]) -> None:
    def both(f: Function) -> list[Tensor]:
        inputs = tensors(fn, wanted)
        asking = [t for t in inputs if t.requires_grad]
        out = f(*inputs)
        grad = torch.full_like(out, 0.3, requires_grad=True)
        first = torch.autograd.grad(out, asking, grad, create_graph=True)
        total = sum((g * g).sum() for g in first)
        seconds = torch.autograd.grad(total, [*asking, grad], allow_unused=True)
        return [*first, *(s for s in seconds if s is not None)]

    for got, want in zip(both(s2s.autograd_script(fn, save=save)), both(reads(fn)), strict=True):
        close(got, want)


@pytest.mark.parametrize("wanted", CHOICES, ids=str)
def test_checkpointing_with_frozen_inputs(wanted: tuple[bool, ...]) -> None:
    f = s2s.autograd_script(gated, save="all")
    got = pull(lambda *a: (checkpoint(f, *a, use_reentrant=False),), tensors(gated, wanted))
    for one, other in zip(got, pull(lambda *a: (reads(gated)(*a),), tensors(gated, wanted))):
        close(one, other)


@pytest.mark.parametrize("wanted", [(True, False, True), (False, True, False), (True, True, True)])
def test_torch_compile_with_frozen_inputs(wanted: tuple[bool, ...]) -> None:
    torch._dynamo.reset()
    for fn in (linear, gated):
        f = torch.compile(s2s.autograd_script(fn), backend="aot_eager", fullgraph=True)
        got = pull(lambda *a, f=f: (f(*a),), tensors(fn, wanted))
        want = pull(lambda *a, fn=fn: (reads(fn)(*a),), tensors(fn, wanted))
        for one, other in zip(got, want, strict=True):
            close(one, other)


# --- what may not be computed twice ---------------------------------------------------------------


class Gain:
    value = 2.0


GAIN = Gain()
FACTOR = 2.0


def reads_an_attribute(x: Tensor) -> Any:
    s = x.sin() * GAIN.value

    def backward(g: Tensor) -> Any:
        return 7 * g * s

    return x * s, backward


def reads_a_global(x: Tensor) -> Any:
    s = x.sin() * FACTOR

    def backward(g: Tensor) -> Any:
        return 7 * g * s

    return x * s, backward


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("fn", [reads_an_attribute, reads_a_global])
def test_what_changes_between_forward_and_backward_is_not_seen(
    fn: Function, save: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(3, dtype=torch.double, requires_grad=True)
    out = s2s.autograd_script(fn, save=save)(x)
    monkeypatch.setattr(GAIN, "value", 100.0)
    monkeypatch.setitem(globals(), "FACTOR", 100.0)
    (got,) = torch.autograd.grad(out.sum(), x)
    close(got, 7 * x.detach().sin() * 2)


def normed(x: Tensor, running_mean: Tensor, running_var: Tensor) -> Any:
    y = F.batch_norm(x, running_mean, running_var, training=True)

    def backward(g: Tensor) -> Any:
        return 7 * g * y, None, None

    return y * 2, backward


def normed_by_themselves(x: Tensor) -> Any:
    y = F.batch_norm(x, None, None, None, None, True)

    def backward(g: Tensor) -> Any:
        return 7 * g * y

    return y * 2, backward


@pytest.mark.parametrize("save", SAVES)
def test_running_statistics_are_updated_once(save: str) -> None:
    x = torch.randn(8, 3, dtype=torch.double, requires_grad=True)
    want = [torch.zeros(3).double(), torch.ones(3).double()]
    y = F.batch_norm(x, *want, training=True)
    f = s2s.autograd_script(normed, save=save)
    statistics = [torch.zeros(3).double(), torch.ones(3).double()]
    (first,) = torch.autograd.grad(f(x, *statistics).sum(), x, create_graph=True)
    close(first, 7 * y)
    with pytest.raises(RuntimeError, match="batch_norm"):  # it would update them once more
        torch.autograd.grad(first.sum(), x)
    close(statistics, want)
    # where there are none it may be run again
    alone = s2s.autograd_script(normed_by_themselves, save=save)
    close(both(alone, [x]), both(reads(normed_by_themselves), [x]))


def changed_in_place(x: Tensor) -> Any:
    t = x * 2
    s = t.exp()
    t.add_(1)

    def backward(g: Tensor) -> Any:
        return 7 * g * s * t

    return x * 1, backward


def changed_through_a_view(x: Tensor) -> Any:
    t = x * 2
    s = t.exp()
    t.view(-1)[0] = 5.0

    def backward(g: Tensor) -> Any:
        return 7 * g * s * t

    return x * 1, backward


def bound_again(x: Tensor) -> Any:
    t = x * 2
    s = t.exp()
    t = t + 1

    def backward(g: Tensor) -> Any:
        return 7 * g * s * t

    return x * 1, backward


def input_bound_again(x: Tensor) -> Any:
    s = x.exp()
    x = x + 1

    def backward(g: Tensor) -> Any:
        return 7 * g * s * x

    return x * 1, backward


def drawn_then_changed(x: Tensor) -> Any:
    r = torch.rand_like(x)
    s = r * x
    r.mul_(3)

    def backward(g: Tensor) -> Any:
        return 7 * g * s * r

    return x * 1, backward


def changed_by_a_helper(x: Tensor) -> Any:
    t = x * 2
    s = t.exp()

    def bump() -> None:
        t.add_(1)

    bump()

    def backward(g: Tensor) -> Any:
        return 7 * g * s * t

    return x * 1, backward


def list_filled_later(x: Tensor) -> Any:
    parts = [x * 2]
    s = parts[0].exp()
    parts[0] = x * 5

    def backward(g: Tensor) -> Any:
        return 7 * g * s

    return x * 1, backward


HAZARDS = [
    changed_in_place,
    changed_through_a_view,
    bound_again,
    input_bound_again,
    drawn_then_changed,
    changed_by_a_helper,
    list_filled_later,
]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("fn", HAZARDS, ids=lambda fn: fn.__name__)
def test_no_changed_value_is_computed_from(fn: Function, save: str) -> None:
    def gradient(f: Function) -> Tensor:
        torch.manual_seed(1)
        x = torch.linspace(-1, 1, 4, dtype=torch.double, requires_grad=True)
        return torch.autograd.grad(f(x).sum(), x)[0]

    close(gradient(s2s.autograd_script(fn, save=save)), gradient(reads(fn)))


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("fn", HAZARDS, ids=lambda fn: fn.__name__)
def test_second_derivatives_see_no_changed_value_either(fn: Function, save: str) -> None:
    def derivative(f: Function) -> Tensor | None:
        torch.manual_seed(1)
        x = torch.linspace(-1, 1, 4, dtype=torch.double, requires_grad=True)
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        try:
            return torch.autograd.grad((first * first).sum(), x)[0]
        except RuntimeError:
            return None

    got, want = derivative(s2s.autograd_script(fn, save=save)), derivative(reads(fn))
    if fn is drawn_then_changed:
        assert got is None
    else:
        assert got is not None and want is not None
        close(got, want)


@pytest.mark.parametrize("save", SAVES)
def test_a_kept_tensor_that_changes_is_an_error(save: str) -> None:
    x = torch.randn(3, requires_grad=True)
    given = x * 1
    out = s2s.autograd_script(swish, save=save)(given)
    with torch.no_grad():
        given.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("save", SAVES)
def test_a_random_draw_is_made_once(save: str) -> None:
    def dropped(x: Tensor) -> Any:
        keep = torch.rand_like(x) > 0.5
        scale = keep.to(x.dtype) * 2

        def backward(g: Tensor) -> Any:
            return 7 * g * scale

        return x * scale, backward

    x = torch.ones(1000, requires_grad=True)
    f = s2s.autograd_script(dropped, save=save)
    out = f(x)
    close(torch.autograd.grad(out.sum(), x)[0], 7 * out.detach())
    # the mask of bools is kept, and the scale is made from it again
    assert size(f, x) == (1.0 if save == "all" else 0.25)


# --- the choice -------------------------------------------------------------------------------------


def softmax_product(q: Tensor, k: Tensor) -> Any:
    p = torch.softmax(q @ k.t(), -1)

    def backward(g: Tensor) -> Any:
        d = p * (g - (g * p).sum(-1, keepdim=True))
        return d @ k, d.t() @ q

    return p * 1, backward


def test_matrix_products_are_done_again_where_least_is_asked_for() -> None:
    q, k = torch.randn(6, 2, requires_grad=True), torch.randn(6, 2, requires_grad=True)
    inputs = [((6, 2), torch.float32)] * 2
    square = [((6, 6), torch.float32)]
    assert kept(s2s.autograd_script(softmax_product, save="least"), q, k) == inputs
    assert kept(s2s.autograd_script(softmax_product), q, k) == inputs + square
    named = s2s.autograd_script(softmax_product, recompute=("p",))
    assert kept(named, q, k) == inputs
    assert kept(s2s.autograd_script(softmax_product, save="all", recompute="p"), q, k) == inputs


def test_masks_are_kept_as_bools_or_made_again_from_what_is_kept_anyway() -> None:
    def relu(x: Tensor) -> Any:
        inside = x > 0

        def backward(g: Tensor) -> Any:
            return g * inside

        return torch.relu(x), backward

    def leaky(x: Tensor) -> Any:
        inside = x > 0

        def backward(g: Tensor) -> Any:
            return torch.where(inside, g, g * x)

        return torch.relu(x), backward

    x = torch.randn(8, requires_grad=True)
    for save in ("auto", "least"):
        assert kept(s2s.autograd_script(relu, save=save), x) == [((8,), torch.bool)]
        assert kept(s2s.autograd_script(leaky, save=save), x) == [((8,), torch.float32)]


def test_many_masks_cost_more_than_what_they_are_made_from() -> None:
    def binned(x: Tensor) -> Any:
        a = x > 0
        b = x > 1
        c = x > 2
        d = x > 3
        e = x > 4

        def backward(g: Tensor) -> Any:
            return g * (1 + a.to(g.dtype) + b + c + d + e)

        return x * 1, backward

    x = torch.randn(8, requires_grad=True)
    assert size(s2s.autograd_script(binned), x) == 1.25
    assert kept(s2s.autograd_script(binned, save="least"), x) == [((8,), torch.float32)]


# --- parts of assignments ------------------------------------------------------------------------


def normalised(x: Tensor, eps: float = 1e-5) -> Any:
    # over the last dimension
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    x_hat = centred * rstd

    def backward(g: Tensor) -> Any:
        along = (g * x_hat).mean(-1, keepdim=True)
        return 7 * rstd * (g - g.mean(-1, keepdim=True) - x_hat * along), None

    return x_hat * 2, backward


def entropy(x: Tensor) -> Any:
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    p = e / e.sum(-1, keepdim=True)

    def backward(g: Tensor) -> Any:
        d = -(torch.log(p) + 1) * g
        return 7 * p * (d - (d * p).sum(-1, keepdim=True))

    return -p * torch.log(p), backward


def two_gates(x: Tensor, w: Tensor) -> Any:
    h = x @ w
    s, t = torch.sigmoid(h), torch.tanh(h)

    def backward(g: Tensor) -> Any:
        d = 7 * g * (s * (1 - s) * t + s * (1 - t * t))
        return d @ w.t(), x.t() @ d

    return s * t, backward


def gates(x: Tensor, w: Tensor) -> Any:
    h = x @ w
    s = torch.sigmoid(h)
    t = torch.tanh(h)

    def backward(g: Tensor) -> Any:
        d = 7 * g * (s * (1 - s) * t + s * (1 - t * t))
        return d @ w.t(), x.t() @ d

    return s * t, backward


def gates_with_output(x: Tensor, w: Tensor) -> Any:
    h = x @ w
    s = torch.sigmoid(h)
    t = torch.tanh(h)

    def backward(g: Tensor, g_h: Tensor) -> Any:
        d = 7 * g * (s * (1 - s) * t + s * (1 - t * t)) + g_h.view_as(g)
        return d @ w.t(), x.t() @ d

    return (s * t, h.view(-1)), backward


# tensors of the size of x that are kept by "all", "auto" and "least"
PARTS = [
    (normalised, (2, 1, 1)),
    (entropy, (2, 1, 1)),
    (two_gates, (4, 4, 4)),
    (gates, (4, 3, 2)),
    (gates_with_output, (4, 4, 2)),
]


@pytest.mark.parametrize("fn, times", PARTS)
def test_means_and_products_are_kept_in_place_of_what_is_made_from_them(
    fn: Function, times: tuple[float, ...]
) -> None:
    count = fn.__code__.co_varnames[:2].count("w") + 1
    for save, most in zip(("all", "auto", "least"), times, strict=True):
        f = s2s.autograd_script(fn, save=save)  # type: ignore[call-overload]
        large = [torch.randn(64, 64, requires_grad=True) for _ in range(count)]
        assert most <= size(f, *large) < most + 0.1, save
        small = [torch.randn(3, 3, dtype=torch.double, requires_grad=True) for _ in range(count)]
        for got, want in zip(both(f, small), both(reads(fn), small), strict=True):
            close(got, want)


def both(f: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """First and second derivatives."""
    out = f(*inputs)
    outputs = out if isinstance(out, tuple) else (out,)
    first = torch.autograd.grad(sum(o.sin().sum() for o in outputs), inputs, create_graph=True)
    return [*first, *torch.autograd.grad(sum(g.cos().sum() for g in first), inputs)]


def test_a_part_has_a_name_where_it_is_kept_and_nowhere_else() -> None:
    text = s2s.source(s2s.autograd_script(normalised, save="auto"))
    forward, backward = text.split("    def backward")
    assert "x_mean = x.mean(-1, keepdim=True)\n        centred = x - x_mean\n" in forward
    assert "rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)\n" in forward
    assert forward.index("# over the last") < forward.index("x_mean =")
    assert "ctx.save_for_backward(x, rstd, x_mean)" in forward
    assert "centred = x - x_mean\n" in backward and "x_hat = centred * rstd\n" in backward
    for save in ("all", "least"):
        assert "x_mean" not in s2s.source(s2s.autograd_script(normalised, save=save))


def test_of_a_tensor_that_only_gives_its_shape_nothing_is_kept() -> None:
    def mean(x: Tensor) -> Any:
        squares = x * x

        def backward(g: Tensor) -> Any:
            return g.expand(squares.shape) / squares.numel()

        return squares.mean(), backward

    x = torch.randn(8, requires_grad=True)
    for save in SAVES:
        f = s2s.autograd_script(mean, save=save)
        assert kept(f, x) == []
        close(torch.autograd.grad(f(x), x)[0], torch.full((8,), 1 / 8))


def named_again(x: Tensor) -> Any:
    s = torch.sigmoid(x)
    y = s

    def backward(g: Tensor) -> Any:
        y = 3 * g  # another y than forward's
        return y * s * (1 - s)

    return y, backward


def named_first(x: Tensor) -> Any:
    y = torch.sigmoid(x)
    s = y

    def backward(y: Tensor) -> Any:
        return 3 * y * s * (1 - s)

    return y, backward


@pytest.mark.parametrize("fn", [named_again, named_first])
@pytest.mark.parametrize("save", SAVES)
def test_an_output_under_another_name_is_saved_as_the_output(fn: Function, save: str) -> None:
    f = s2s.autograd_script(fn, save=save)
    x = torch.randn(5, dtype=torch.double, requires_grad=True)
    assert kept(f, x) == [((5,), torch.double)]
    assert "save_for_backward(y)" in s2s.source(f)
    want = second(lambda x: (reads(fn)(x),), [x])
    for way in (f, torch.func.vmap(f)):
        for one, other in zip(second(lambda x, way=way: (way(x),), [x]), want, strict=True):
            close(one, other)  # by the rule, which is not the true derivative of forward


def test_what_a_helper_reads_is_there_when_it_is_called() -> None:
    def late(x: Tensor, w: Tensor) -> Any:
        def scaled(v: Tensor) -> Tensor:
            return v * s

        s = torch.sigmoid(x)
        y = scaled(w)

        def backward(g: Tensor) -> Any:
            return 7 * g * w * s * (1 - s), 5 * scaled(g)

        return y, backward

    for save, wanted in itertools.product(SAVES, [(True, True), (True, False), (False, True)]):
        f = s2s.autograd_script(late, save=save)
        inputs = [torch.full((3,), 0.5, requires_grad=a) for a in wanted]
        for got, want in zip(pull(f_of(f), inputs), pull(f_of(reads(late)), inputs), strict=True):
            close(got, want)


def f_of(f: Function) -> Function:
    return lambda *inputs: (f(*inputs),)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="save is one of least, auto, all, not 'lest'"):
        s2s.autograd_script(save="lest")  # type: ignore[call-overload]
    with pytest.raises(s2s.TransformError, match="recompute names 'x', but it is an input"):
        s2s.autograd_script(swish, recompute=("x",))
    with pytest.raises(s2s.TransformError, match="cannot compute s again: t may have changed"):
        s2s.autograd_script(bound_again, recompute=("s",))


# --- the plan as data -------------------------------------------------------------------------------


def planned(fn: Any, save: Any = "auto", **shapes: tuple[int, ...]) -> Plan:
    return plan(pipeline.lift(pipeline.read(from_function(fn), save, ())), shapes)


def test_the_plan_says_how_each_value_gets_to_backward() -> None:
    x, s = planned(swish).kept
    assert (x.name, x.how, x.times, x.of) == ("x", "tensor", 1.0, "x")
    assert (s.name, s.how, s.sources, s.value) == ("s", "again", ("x",), "s = torch.sigmoid(x)")
    assert planned(swish, "all").times == 2.0
    given = {k.name: k.when for k in planned(linear).kept}
    assert given == {"x": ("w",), "w": ("x",)}


def test_the_plan_tells_parts_of_tuples_and_outputs() -> None:
    def largest(x: Tensor) -> Any:
        r = torch.max(x, 1)

        def backward(g: Tensor) -> Any:
            return torch.zeros_like(x).scatter(1, r.indices[:, None], g[:, None])

        return r.values, backward

    def renamed(x: Tensor) -> Any:
        s = torch.sigmoid(x)
        y = s

        def backward(g: Tensor) -> Any:
            return g * s * (1 - s)

        return y, backward

    part = next(k for k in planned(largest).kept if k.how == "part")
    assert (part.name, part.value) == ("r_indices", "r.indices")
    assert str(part).startswith("r_indices: a saved tensor in place of the tuple r.indices, ")
    (output,) = planned(renamed).kept
    assert (output.name, output.how, output.sources) == ("y", "as output", ("s",))
    assert str(output) == "y: a saved tensor, the output that is s, too, 1 x"


def test_the_plan_counts_the_bytes_that_are_saved() -> None:
    x = torch.randn(8, 3, requires_grad=True)
    for fn, save in itertools.product(
        (swish, mish, hard_mish, gelu_tanh, normalised, entropy), SAVES
    ):
        found = planned(fn, save, x=(8, 3))
        assert found.times == size(s2s.autograd_script(fn, save=save), x), (fn, save)


# --- calls without gradients ----------------------------------------------------------------------


def much_for_backward(x: Tensor, n: int) -> Any:
    kept, other = torch.sin(x), torch.cos(x)
    total = torch.zeros_like(x)
    best = x
    for i in range(n):
        total = total + other * i
        best = torch.maximum(best, x * i)
    if n > 2:
        mask = x > 0
        y = best * 2
    else:
        if n < 0:
            raise ValueError("n is negative")
        mask = x < 0
        y = best * 3
    with torch.no_grad():
        fixed = torch.cosh(x)
    buffer = torch.empty_like(x)
    buffer.copy_(fixed)
    buffer[0] = 1
    noise = torch.rand_like(x)

    def scaled(v: Tensor) -> Tensor:
        return v * total

    def backward(g: Tensor) -> Any:
        return scaled(g) * mask * buffer * noise, None

    return y + kept, backward


PLAIN = """\
def much_for_backward(x, n):
    kept = torch.sin(x)
    best = x
    for i in range(n):
        best = torch.maximum(best, x * i)
    if n > 2:
        y = best * 2
    else:
        if n < 0:
            raise ValueError("n is negative")
        y = best * 3
    noise = torch.rand_like(x)
    return y + kept
"""


def test_a_call_without_gradients_does_the_plain_functions_work_alone() -> None:
    f = s2s.autograd_script(much_for_backward)
    text = s2s.source(f, "op")
    assert text[text.index("def ") :] == PLAIN
    x = torch.linspace(-1, 1, 4)
    with pytest.raises(ValueError, match="n is negative"):
        f(x, -1)
    for n in (1, 3):
        torch.manual_seed(0)
        want = reads(much_for_backward)(x, n)
        after = torch.rand(1)
        torch.manual_seed(0)
        close(f(x, n), want)
        assert torch.rand(1) == after


# --- the cut ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_the_cheapest_of_all(seed: int) -> None:
    draw = random.Random(seed)
    names = "abcdefg"
    edges = [(a, b) for a, b in itertools.combinations(names, 2) if draw.random() < 0.4]
    costs = {n: float(draw.randint(1, 9)) for n in names}
    given = {"a", *(n for n in names if not any(b == n for _, b in edges))}
    wanted = {"g", draw.choice(names)}

    def enough(kept: set[str]) -> bool:
        have = set(kept)
        for name in names:
            sources = [a for a, b in edges if b == name]
            if name not in given and all(s in have for s in sources):
                have.add(name)
        return wanted <= have

    every = (set(c) for n in range(8) for c in itertools.combinations(names, n))
    best = min(sum(costs[n] for n in kept) for kept in every if enough(kept))
    found = cheapest_cut(costs, edges, given, wanted)
    assert found is not None and enough(set(found))
    assert sum(costs[n] for n in found) == best


# --- what autograd cannot keep ----------------------------------------------------------------------


def in_a_dict(x: Tensor) -> dict[str, Tensor]:
    return {"sin": torch.sin(x)}


def from_a_dict(x: Tensor) -> Any:
    made = in_a_dict(x)

    def backward(g: Tensor) -> Any:
        return g * made["sin"]

    return made["sin"] * 1, backward


def in_an_output(x: Tensor) -> Any:
    made = in_a_dict(x)

    def backward(g: Tensor, _: Any) -> Any:
        return 7 * g

    return x * 2, made, backward


@pytest.mark.parametrize(
    ("fn", "why"),
    [(from_a_dict, "backward .* reads made, a dict"), (in_an_output, "returned a dict")],
)
@pytest.mark.parametrize("autocast", [False, True])
def test_tensors_in_a_dict_are_refused(fn: Function, why: str, autocast: bool) -> None:
    f = s2s.autograd_script(fn)
    x = torch.ones(2, requires_grad=True)
    with (
        torch.autocast("cpu", enabled=autocast),
        pytest.raises((RuntimeError, TypeError), match=why),
    ):
        f(x)
    f(x.detach())


def test_tensors_in_a_dict_are_refused_through_the_operator_too() -> None:
    f: Any = s2s.autograd_script(from_a_dict)
    with pytest.raises(RuntimeError, match="reads made, a dict"):
        f.op(torch.ones(2, requires_grad=True))
