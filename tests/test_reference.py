"""The reference decorator: what a user may rely on.

Gradients are untrue on purpose (``7 * g``): a true one would hide a place that drops the rule.
"""

from __future__ import annotations

import functools
import gc
import inspect
import pickle
import random
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cases import told_in_a_graph
from s2s.reference import autograd_function

torch.set_num_threads(1)


def ones(*shape: int, **options: Any) -> Tensor:
    return torch.ones(*shape, dtype=torch.double, requires_grad=True, **options)


def grad(y: Tensor, x: Tensor, **options: Any) -> Tensor:
    return torch.autograd.grad(y.sum(), x, **options)[0]


def second(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the gradient."""
    return grad(grad(f(x), x, create_graph=True), x)


@autograd_function
def seven(x: Tensor) -> Any:
    """Multiply by two."""

    def backward(g: Tensor) -> Tensor:
        return 7 * g

    return 2 * x, backward


@autograd_function
def exp_by_output(x: Tensor) -> Any:
    y = x.exp()

    def backward(g: Tensor) -> Tensor:
        return 7 * g * y

    return y, backward


@autograd_function
def swish(x: Tensor) -> Any:
    s = torch.sigmoid(x)

    def backward(g: Tensor) -> Tensor:
        return g * (s + x * s * (1 - s))

    return x * s, backward


@autograd_function
def mul(a: Tensor, b: Tensor) -> Any:
    def backward(g: Tensor) -> Any:
        return 7 * g * b, 11 * g * a

    return a * b, backward


class TestTheDecoratedFunction:
    def test_is_a_real_function_with_the_users_name(self) -> None:
        assert inspect.isfunction(seven)
        assert (seven.__name__, seven.__qualname__, seven.__doc__) == (
            "seven",
            "seven",
            "Multiply by two.",
        )
        assert str(inspect.signature(seven)) == "(x: 'Tensor') -> 'Any'"
        assert not hasattr(seven, "__wrapped__")
        assert pickle.loads(pickle.dumps(seven)) is seven

    def test_names_its_node(self) -> None:
        assert seven(ones(1)).grad_fn.name() == "sevenBackward"

    def test_works_as_a_method_without_a_slot_for_self(self) -> None:
        class Layer:
            k = 3.0

            @autograd_function
            def scale(self, x: Tensor) -> Any:
                return x * self.k, lambda g: 7 * g * self.k

            @autograd_function
            def scale_with_slot(self, x: Tensor) -> Any:
                return x * self.k, lambda g: (None, 7 * g * self.k)

        x = ones(1)
        assert grad(Layer().scale(x), x).item() == 21
        assert grad(Layer().scale_with_slot(x), x).item() == 21

    def test_refuses_what_is_no_function(self) -> None:
        with pytest.raises(TypeError, match="decorates a function, not Linear"):
            autograd_function(torch.nn.Linear(1, 1))

    def test_honours_a_decorator_below(self) -> None:
        def plus_one(f: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(f)
            def inner(*args: Tensor) -> Any:
                return f(*(a + 1 for a in args))

            return inner

        @autograd_function
        @plus_one
        def twice(x: Tensor) -> Any:
            return 2 * x, lambda g: 7 * g

        x = ones(1)
        assert twice(x).item() == 4
        assert grad(twice(x), x).item() == 7

    def test_a_wrong_call_names_the_function(self) -> None:
        with pytest.raises(TypeError, match=r"mul\(\): missing a required argument: 'b'"):
            mul(ones(1))

    def test_just_runs_when_no_gradient_is_asked(self) -> None:
        x = ones(1)
        assert not seven(x.detach()).requires_grad
        with torch.no_grad():
            assert not seven(x).requires_grad
        with torch.inference_mode():
            assert seven(torch.ones(2)).tolist() == [2, 2]
        assert seven(torch.ones(1, dtype=torch.long)).item() == 2


class TestInputs:
    def test_every_way_to_pass_them(self) -> None:
        @autograd_function
        def f(x: Tensor, /, factor: float = 1.0, mode: str = "a", *, shift: Any = None) -> Any:
            def backward(g: Tensor) -> Any:
                return 7 * g * factor, None, None, None if shift is None else 11 * g

            return x * factor + (0 if shift is None else shift), backward

        x, shift = ones(1), ones(1)
        assert grad(f(x), x).item() == 7
        assert grad(f(x, 2.0), x).item() == 14
        assert grad(f(x, factor=3.0, mode="b"), x).item() == 21
        assert grad(f(x, shift=shift), shift).item() == 11

    def test_a_tensor_that_is_a_default_is_an_input(self) -> None:
        w = ones(1)

        @autograd_function
        def f(x: Tensor, w: Tensor = w) -> Any:
            return x * w, lambda g: (7 * g * w, 11 * g * x)

        x = ones(1)
        f(x).backward()
        assert (x.grad.item(), w.grad.item()) == (7, 11)

    def test_one_gradient_per_tensor_of_args(self) -> None:
        @autograd_function
        def ramp(k: float, *ts: Tensor) -> Any:
            return sum(ts), lambda g: (None, *(k * (i + 1) * g for i in range(len(ts))))

        ts = [ones(1) for _ in range(3)]
        ramp(10.0, *ts).sum().backward()
        assert [t.grad.item() for t in ts] == [10, 20, 30]

    def test_containers_get_gradients_of_the_same_form(self) -> None:
        @autograd_function
        def total(ts: list[Tensor], named: dict[str, Any], *, unused: Any = ()) -> Any:
            def backward(g: Tensor) -> Any:
                return [7 * g, None], {"w": 11 * g * named["k"], "k": None}, None

            return ts[0] + ts[1] + named["w"] * named["k"], backward

        a, b, w = ones(1), ones(1), ones(1)
        total([a, b], {"w": w, "k": 2.0}).backward()
        assert (a.grad.item(), b.grad, w.grad.item()) == (7, None, 22)

    def test_a_container_gradient_of_another_form_is_an_error(self) -> None:
        @autograd_function
        def total(ts: list[Tensor]) -> Any:
            return ts[0] + ts[1], lambda g: [g]

        y = total([ones(1), ones(1)])
        with pytest.raises(RuntimeError, match="1 gradient for ts, which has 2 items"):
            y.backward()

    def test_one_tensor_for_two_parameters_adds_up(self) -> None:
        x = ones(1)
        assert grad(mul(x, x), x).item() == 18

    def test_a_frozen_input_gets_nothing(self) -> None:
        a, b = ones(1), torch.ones(1)
        mul(a, b).backward()
        assert a.grad.item() == 7
        assert b.grad is None


class TestGradients:
    @pytest.mark.parametrize("tensor_count", [1, 3])
    def test_a_wrong_count_names_both(self, tensor_count: int) -> None:
        @autograd_function
        def product(a: Tensor, b: Tensor) -> Any:
            return a * b, lambda g: g if tensor_count == 1 else (g,) * 3

        noun = "gradient" if tensor_count == 1 else "gradients"
        message = rf"product returns {tensor_count} {noun}; product has 2 inputs \(a, b\)"
        with pytest.raises(RuntimeError, match=message):
            product(ones(1), ones(1)).backward()

    def test_are_summed_to_the_inputs_shape_and_cast_to_its_dtype(self) -> None:
        @autograd_function
        def add(a: Tensor, b: Tensor) -> Any:
            return a + b, lambda g: (7 * g.double(), 7 * g)

        a, b = torch.ones(3, 2, requires_grad=True), torch.ones(2, requires_grad=True)
        add(a, b).sum().backward()
        assert a.grad.dtype is torch.float32
        assert b.grad.tolist() == [21, 21]

    def test_of_another_shape_are_an_error_with_both_shapes(self) -> None:
        @autograd_function
        def colsum(x: Tensor) -> Any:
            return x.sum(0), lambda g: g[:1]

        message = r"colsum returns a gradient of shape \[1\] for x, which has shape \[3, 2\]"
        with pytest.raises(RuntimeError, match=message):
            colsum(ones(3, 2)).sum().backward()

    def test_for_what_is_no_tensor_are_an_error(self) -> None:
        @autograd_function
        def scale(x: Tensor, k: float) -> Any:
            return x * k, lambda g: (g * k, g)

        with pytest.raises(RuntimeError, match="gradient for k, which is not a tensor"):
            scale(ones(1), 2.0).backward()

    def test_that_are_numbers_are_an_error(self) -> None:
        @autograd_function
        def zero(x: Tensor) -> Any:
            return x * 0, lambda g: 0.0

        with pytest.raises(TypeError, match="returns a float as the gradient of x"):
            zero(ones(1)).backward()

    def test_reach_an_identity(self) -> None:
        @autograd_function
        def reverse(x: Tensor) -> Any:
            return x, lambda g: -7 * g

        x = ones(1)
        assert grad(reverse(x), x).item() == -7
        assert grad(reverse(x * 1), x).item() == -7

    def test_an_error_in_backward_is_the_users(self) -> None:
        @autograd_function
        def broken(x: Tensor) -> Any:
            def backward(g: Tensor) -> Tensor:
                raise ZeroDivisionError("mine")

            return x * 1, backward

        with pytest.raises(ZeroDivisionError, match="mine"):
            broken(ones(1)).backward()

    def test_changing_one_in_place_is_an_error(self) -> None:
        @autograd_function
        def scale(x: Tensor) -> Any:
            return x * 2, lambda g: g.mul_(2)

        with pytest.raises(RuntimeError, match="backward of scale changes a gradient"):
            scale(ones(1)).backward()

    def test_pass_gradcheck_when_they_are_true(self) -> None:
        x = torch.randn(3, 2, dtype=torch.double, requires_grad=True)
        assert torch.autograd.gradcheck(swish, (x,), check_batched_grad=True)
        assert torch.autograd.gradgradcheck(swish, (x,))


class TestOutputs:
    def test_every_form_of_return(self) -> None:
        def backward(ga: Tensor, gb: Tensor) -> Tensor:
            return 7 * ga + 11 * gb

        bare = autograd_function(lambda x: (2 * x, lambda g: 7 * g))
        inner = autograd_function(lambda x: ((2 * x, 3 * x), backward))
        flat = autograd_function(lambda x: (2 * x, 3 * x, backward))
        single = autograd_function(lambda x: ((2 * x,), lambda g: 7 * g))
        x = ones(1)
        assert isinstance(bare(x), Tensor)
        for f in (inner, flat):
            a, b = f(x)
            assert grad(a + b, x).item() == 18
            assert grad(f(x)[0], x).item() == 7  # the other gradient is a tensor of zeros
        assert grad(single(x)[0], x).item() == 7
        with torch.no_grad():
            assert len(single(x)) == 1

    @pytest.mark.parametrize(
        ("result", "words"),
        [
            (None, "it returned None"),
            (torch.ones(1), "it returned Tensor"),
            ((torch.ones(1), torch.ones(1)), r"it returned \(Tensor, Tensor\)"),
            ((torch.ones(1), None), r"it returned \(Tensor, None\)"),
        ],
    )
    def test_a_missing_backward_is_an_error(self, result: object, words: str) -> None:
        @autograd_function
        def half(x: Tensor) -> Any:
            return result

        for x in (ones(1), torch.ones(1)):
            with pytest.raises(
                TypeError, match=rf"half must return \(outputs, backward\); {words}"
            ):
                half(x)

    @pytest.mark.parametrize("wrap", [lambda y: [y], lambda y: {"y": y}, lambda y: ((y, y), y)])
    def test_lists_and_dicts_are_refused(self, wrap: Callable[[Tensor], object]) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            return wrap(x * 2), lambda *g: g[0]

        for x in (ones(1), torch.ones(1)):
            with pytest.raises(TypeError, match="return a tuple of tensors"):
                f(x)

    @pytest.mark.parametrize("takes_all", [True, False])
    def test_integers_carry_no_gradient(self, takes_all: bool) -> None:
        @autograd_function
        def max_index(x: Tensor) -> Any:
            i, v = x.argmax(0), x.amax(0)

            def for_all(gi: Tensor, gv: Tensor) -> Tensor:
                return torch.zeros_like(x).scatter(0, i.unsqueeze(0), 7 * gv.unsqueeze(0))

            def for_differentiable(gv: Tensor) -> Tensor:
                return for_all(None, gv)

            return (i, v, x > 1), (
                lambda gi, gv, gb: for_all(gi, gv)
            ) if takes_all else for_differentiable

        x = torch.tensor([[1.0, 9.0], [4.0, 2.0]], requires_grad=True)
        i, v, large = max_index(x)
        assert not i.requires_grad
        assert not large.requires_grad
        assert grad(v, x).tolist() == [[0, 7], [7, 0]]

    def test_backward_with_another_number_of_parameters_is_refused(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            return (x * 2, x * 3), lambda g: g

        for x in (ones(1), torch.ones(1)):
            with pytest.raises(
                RuntimeError, match="backward of f takes 1 gradient; f has 2 outputs"
            ):
                f(x)

    def test_a_default_of_backward_takes_no_gradient(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            s = x * 3
            return (x * 2, x > 0), lambda g, s=s: 7 * g * s

        x = ones(1)
        assert grad(f(x)[0], x).item() == 21

    def test_one_tensor_in_two_places_keeps_two_gradients(self) -> None:
        @autograd_function
        def both(x: Tensor) -> Any:
            y = 2 * x
            return (y, y), lambda ga, gb: 7 * ga + 11 * gb

        x = ones(1)
        assert grad(both(x)[0], x).item() == 7
        assert grad(both(x)[1], x).item() == 11

    def test_an_input_changed_in_place_and_returned_is_dirty(self) -> None:
        @autograd_function
        def triple_(x: Tensor) -> Any:
            x.mul_(3)
            return x, lambda g: 7 * g

        w = ones(1)
        y = w * 1
        assert triple_(y) is y
        assert grad(y, w).item() == 7

    def test_an_input_changed_in_place_otherwise_is_refused(self) -> None:
        @autograd_function
        def f(x: Tensor, buffers: list[Tensor]) -> Any:
            buffers[1].add_(1)
            return x * 2, lambda g: (7 * g, None)

        for x in (ones(1), torch.ones(1)):
            with pytest.raises(RuntimeError, match=r"f changes its input buffers\[1\] in place"):
                f(x, [torch.zeros(1), torch.zeros(1)])


class TestCapturedTensors:
    def test_changed_in_place_after_the_call_is_an_error(self) -> None:
        y = exp_by_output(ones(1))
        y.mul_(3)
        with pytest.raises(RuntimeError, match="inplace operation"):
            y.sum().backward()

    @pytest.mark.parametrize("hide", ["list", "dict", "partial", "helper", "default", "view"])
    def test_are_found_wherever_the_closure_holds_them(self, hide: str) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            y = x.exp()
            pair, named, view = [None, y], {"y": y}, y[:1]
            by_partial = functools.partial(torch.mul, y)

            def helper(g: Tensor) -> Tensor:
                return g * y

            backwards: dict[str, Callable[[Tensor], Tensor]] = {
                "list": lambda g: 7 * g * pair[1],
                "dict": lambda g: 7 * g * named["y"],
                "partial": lambda g: 7 * by_partial(g),
                "helper": lambda g: 7 * helper(g),
                "default": lambda g, y=y: 7 * g * y,
                "view": lambda g: 7 * g * view,
            }
            return y, backwards[hide]

        x = ones(1)
        assert grad(f(x), x).item() == pytest.approx(7 * torch.e)
        y = f(x)
        y.mul_(3)
        with pytest.raises(RuntimeError, match="inplace operation"):
            y.sum().backward()
        seen: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            y = f(x)
        assert seen
        assert dies(f)

    def test_an_output_is_freed_without_the_garbage_collector(self) -> None:
        assert dies(exp_by_output)
        assert dies(swish)

    def test_an_input_that_backward_does_not_read_may_change(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            s = x.sigmoid()
            return s * 1, lambda g: 7 * g * s

        w = ones(1)
        x = w * 0
        y = f(x)
        x.add_(1)
        assert grad(y, w, retain_graph=True).item() == 0
        with pytest.raises(RuntimeError, match="inplace operation"):
            grad(y, w, create_graph=True)

    def test_backward_may_run_twice(self) -> None:
        x = ones(1)
        y = mul(swish(x), exp_by_output(x))
        first = grad(y, x, retain_graph=True)
        assert torch.equal(first, grad(y, x, retain_graph=True))
        assert torch.equal(first, grad(y, x))
        with pytest.raises(RuntimeError, match="second time"):
            grad(y, x)

    def test_backward_may_run_in_several_threads(self) -> None:
        x = ones(1)
        y = exp_by_output(x)
        found: list[float] = []

        def run() -> None:
            for _ in range(50):
                found.append(grad(y, x, retain_graph=True).item())

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 200
        assert set(found) == {7 * torch.ones(1, dtype=torch.double).exp().item()}

    def test_variables_of_the_caller_and_of_enclosing_functions_stay(self) -> None:
        k = torch.full((1,), 3.0)

        @autograd_function
        def f(h: Callable[[Tensor], Tensor], x: Tensor) -> Any:
            return h(x) * k, lambda g: (None, 7 * h(g) * k)

        w = torch.full((1,), 5.0)
        for _ in range(2):
            x = ones(1)
            assert grad(f(lambda t: t * w, x), x).item() == 105
        assert (k.item(), w.item()) == (3, 5)

    def test_have_the_value_of_the_forward(self) -> None:
        k = torch.full((1,), 3.0)

        @autograd_function
        def f(x: Tensor) -> Any:
            n = 10.0

            def backward(g: Tensor) -> Tensor:
                return n * g * k

            n = 30.0
            return x * k, backward

        x = ones(1)
        y = f(x)
        k = torch.full((1,), 50.0)
        assert grad(y, x).item() == 90

    def test_helpers_may_call_each_other(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            y = x * 2

            def even(n: int) -> Tensor:
                return y if n == 0 else odd(n - 1)

            def odd(n: int) -> Tensor:
                return 7 * y if n == 0 else even(n - 1)

            return y, lambda g: g * odd(4)

        x = ones(1)
        assert grad(f(x), x).item() == 14

    def test_containers_may_hold_themselves(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            node: dict[str, Any] = {"value": x * 2}
            node["parents"] = [node]
            return x * 1, lambda g: 7 * g * node["parents"][0]["value"]

        x = ones(1)
        assert grad(f(x), x).item() == 14

    def test_named_tuples_keep_their_type(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            top = x.max(0)
            return top.values, lambda g: torch.zeros_like(x).scatter(
                0, top.indices[None], 7 * g[None]
            )

        x = torch.tensor([[1.0], [2.0]], requires_grad=True)
        assert grad(f(x), x).tolist() == [[0], [7]]

    def test_checkpoint_gives_the_same_gradient(self) -> None:
        x = ones(3)
        y = checkpoint(lambda t: swish(exp_by_output(t)), x, use_reentrant=False)
        assert torch.equal(grad(y, x), grad(swish(exp_by_output(x)), x))

    def test_a_random_mask_is_the_one_of_the_forward(self) -> None:
        @autograd_function
        def drop(x: Tensor) -> Any:
            keep = (torch.rand_like(x) > 0.5).to(x.dtype)
            return x * keep, lambda g: 7 * g * keep

        x = ones(64)
        for y in (drop(x), checkpoint(drop, x, use_reentrant=False)):
            assert torch.equal(grad(y, x), 7 * y)

    def test_a_graph_built_in_forward_is_kept(self) -> None:
        @autograd_function
        def square(x: Tensor) -> Any:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                y = leaf**2

            def backward(g: Tensor) -> Tensor:
                return 7 * torch.autograd.grad(y, leaf, g, retain_graph=True)[0]

            return y.detach(), backward

        x = ones(1)
        y = square(x)
        assert grad(y, x, retain_graph=True).item() == 14
        assert grad(y, x).item() == 14


def dies(f: Callable[[Tensor], Tensor]) -> bool:
    """Whether the output goes with its last reference, before and after backward."""
    gc.collect()
    gc.disable()
    try:
        alive = []
        for run_backward in (False, True):
            y = f(ones(1))
            alive.append(weakref.ref(y))
            if run_backward:
                y.sum().backward()
            del y
        return all(ref() is None for ref in alive)
    finally:
        gc.enable()


class TestSecondDerivatives:
    def test_through_an_intermediate(self) -> None:
        x = torch.tensor([0.7], dtype=torch.double, requires_grad=True)
        assert second(swish, x).item() == pytest.approx(0.391221, abs=1e-6)

    def test_through_an_output_use_the_users_rule(self) -> None:
        x = ones(1)  # g1 = 7 y, and dy/dx is 7 y by the rule
        assert second(exp_by_output, x).item() == pytest.approx(49 * torch.e)

    def test_through_an_output_beside_an_intermediate(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            y, t = x.exp(), x * x
            return y, lambda g: 7 * g * y * t

        x = ones(1)  # d/dx (7 y x^2), where dy/dx is 7 y x^2 by the rule
        assert second(f, x).item() == pytest.approx(7 * torch.e * (7 + 2))

    def test_through_inputs(self) -> None:
        a, b = ones(1), ones(1)
        (ga,) = torch.autograd.grad(mul(a, b), a, create_graph=True)
        assert grad(ga, b).item() == 7

    def test_of_an_input_that_is_no_leaf(self) -> None:
        w = ones(1)
        x = w * 1
        assert second(swish, x).item() == pytest.approx(second(swish, w).item())

    def test_third_ones_too(self) -> None:
        x = ones(1)
        g2 = grad(grad(swish(x), x, create_graph=True), x, create_graph=True)
        s = torch.sigmoid(x)
        want = grad(grad(grad(x * s, x, create_graph=True), x, create_graph=True), x)
        assert grad(g2, x).item() == pytest.approx(want.item())

    def test_through_lists_and_helpers(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            made = [x * x]

            def helper() -> Tensor:
                return made[0]

            return x * 1, lambda g: 7 * g * helper()

        assert second(f, ones(1)).item() == 14

    def test_through_objects_that_the_function_made(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            held = SimpleNamespace(cube=x**3)
            return x * 1, lambda g: 7 * g * held.cube

        assert second(f, ones(1)).item() == 21

    def test_repeat_random_draws_that_carry_a_gradient(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            noisy = x * torch.rand_like(x)
            return noisy * 1, lambda g: 7 * g * noisy

        x = ones(64)
        y = f(x)
        state = torch.get_rng_state()
        assert torch.allclose(grad(grad(y, x, create_graph=True), x), 7 * y)
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("as_number", [True, False])
    def test_are_refused_when_the_second_run_differs(self, as_number: bool) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            k = random.random()
            noisy = x * (1.0 if as_number else k)
            if not as_number:
                return noisy * 1, lambda g: 7 * g * noisy
            return noisy * k, lambda g: 7 * g * noisy * k

        x = ones(1)
        with pytest.raises(RuntimeError, match="no second derivative: f was run again"):
            second(f, x)

    def test_keep_what_carries_no_gradient(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            keep = torch.full_like(x, random.random())
            return x * keep, lambda g: 7 * g * keep * x

        x = ones(1)
        y = f(x)
        assert torch.equal(grad(grad(y, x, create_graph=True), x), 7 * y)

    def test_are_refused_when_an_input_was_changed(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            x.mul_(2)
            s = x.sigmoid()
            return x, lambda g: 7 * g * s

        x = ones(1)
        y = f(x * 1)
        assert grad(y, x, retain_graph=True).item() == pytest.approx(7 * 0.880797, abs=1e-5)
        with pytest.raises(RuntimeError, match="f changed an input in place"):
            grad(y, x, create_graph=True)

    def test_run_the_function_again_only_if_they_must(self) -> None:
        runs: list[int] = []
        settings = SimpleNamespace(k=1.0)

        @autograd_function
        def f(x: Tensor) -> Any:
            runs.append(1)
            y, mask = x.exp(), x > 0
            return y, lambda g: 7 * g * y * mask * settings.k

        x = ones(1)
        assert second(f, x).item() == pytest.approx(49 * torch.e)
        assert runs == [1]

    def test_use_the_rules_of_decorated_functions_inside(self) -> None:
        @autograd_function
        def outer(x: Tensor) -> Any:
            t = seven(x)
            return t * 1, lambda g: g * t

        x = ones(1)
        assert second(outer, x).item() == 7

    def test_one_tensor_for_two_parameters(self) -> None:
        @autograd_function
        def f(a: Tensor, b: Tensor) -> Any:
            t = a * b
            return t * 1, lambda g: (7 * g * t, 11 * g * t)

        x = ones(1) * 1
        assert second(lambda t: f(t, t), x).item() == 36


class TestTensorsThatAreNoArgument:
    weight = torch.ones(1, requires_grad=True)

    def test_of_an_enclosing_function_are_refused(self) -> None:
        w = torch.ones(1, requires_grad=True)

        @autograd_function
        def f(x: Tensor) -> Any:
            return x * w, lambda g: 7 * g * w

        for x in (ones(1), torch.ones(1)):
            with pytest.raises(
                RuntimeError, match="f reads w, a tensor that requires grad.*argument"
            ):
                f(x)
        with torch.no_grad():
            assert f(torch.ones(1)).item() == 1

    def test_of_the_module_are_refused_also_through_helpers(self) -> None:
        for f in (reads_global, reads_by_helper, reads_in_backward, reads_by_another):
            with pytest.raises(RuntimeError, match="reads W, a tensor that requires grad"):
                f(ones(1))
        assert reads_an_attribute_of_that_name(ones(1)).item() == 2

    def test_of_a_module_object_are_refused(self) -> None:
        net = torch.nn.Linear(1, 1)

        @autograd_function
        def f(x: Tensor) -> Any:
            return net(x), lambda g: g

        with pytest.raises(RuntimeError, match="f reads net, a module with parameters"):
            f(torch.ones(1, 1, requires_grad=True))
        net.requires_grad_(False)
        assert f(torch.ones(1, 1, requires_grad=True)).requires_grad

    def test_of_self_are_refused_if_read(self) -> None:
        class Layer(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(1))
                self.k = 2.0

            @autograd_function
            def by_weight(self, x: Tensor) -> Any:
                return x * self.weight, lambda g: 7 * g

            @autograd_function
            def by_k(self, x: Tensor) -> Any:
                return x * self.k, lambda g: 7 * g * self.k

        x = torch.ones(1, requires_grad=True)
        with pytest.raises(RuntimeError, match="by_weight reads self.weight"):
            Layer().by_weight(x)
        assert grad(Layer().by_k(x), x).item() == 14

    def test_found_in_the_closure_of_backward_are_refused(self) -> None:
        @autograd_function
        def f(x: Tensor) -> Any:
            w = vars(TestTensorsThatAreNoArgument)["weight"]
            return x * w, lambda g: 7 * g * w

        with pytest.raises(RuntimeError, match="f reads w, a tensor that requires grad"):
            f(ones(1))

    def test_without_grad_are_constants(self) -> None:
        k = torch.full((1,), 3.0)

        @autograd_function
        def f(x: Tensor) -> Any:
            return x * k, lambda g: 7 * g * k

        x = ones(1)
        y = f(x)
        assert grad(y, x, retain_graph=True).item() == 21
        k.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            grad(y, x)


POINTS_TO_IT = "seven is decorated with.*use autograd_script"


class TestSurroundings:
    def test_backward_runs_under_the_autocast_of_the_forward(self) -> None:
        @autograd_function
        def mm(a: Tensor, b: Tensor) -> Any:
            return a @ b, lambda g: (7 * (g @ b.t()), a.t() @ g)

        a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mm(a, b)
        ga = grad(y.float(), a, create_graph=True)
        assert ga.dtype is torch.float32
        torch.testing.assert_close(ga, 7 * b.sum(1).expand(4, 4), atol=0.3, rtol=0.1)
        torch.testing.assert_close(grad(ga, b), torch.full((4, 4), 28.0))

    def test_an_intermediate_under_autocast_has_a_second_derivative(self) -> None:
        @autograd_function
        def f(x: Tensor, w: Tensor) -> Any:
            t = x @ w
            return t * 1, lambda g: (7 * g @ w.t(), x.t() @ (g * t))

        x, w = torch.eye(4), torch.eye(4).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            gw = grad(f(x, w).float(), w, create_graph=True)
            assert grad(gw, w).tolist() == torch.ones(4, 4).tolist()

    @pytest.mark.parametrize(
        "transform",
        [
            torch.func.vmap,
            lambda f: torch.func.grad(lambda x: f(x).sum()),
            lambda f: lambda x: torch.func.jvp(f, (x,), (x,)),
            lambda f: lambda x: torch.jit.trace(f, x),
            lambda f: lambda x: torch.export.export(Holding(f), (x,)),
            lambda f: lambda x: torch.fx.symbolic_trace(f),
        ],
        ids=["vmap", "grad", "jvp", "trace", "export", "fx"],
    )
    def test_other_than_eager_points_to_autograd_script(self, transform: Any) -> None:
        with pytest.raises(Exception, match=POINTS_TO_IT):
            transform(lambda x: seven(x))(torch.ones(2))

    def test_torch_compile_points_to_autograd_script(self) -> None:
        compiled = torch.compile(lambda x: seven(x), backend="eager", fullgraph=True)
        with pytest.raises(Exception, match=told_in_a_graph(POINTS_TO_IT)):
            compiled(torch.ones(2))

    def test_dual_tensors_point_to_autograd_script(self) -> None:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))
            with pytest.raises(RuntimeError, match="under forward-mode AD use autograd_script"):
                seven(dual)
            assert seven(torch.ones(1)).item() == 2

    def test_script_points_to_autograd_script(self) -> None:
        with pytest.raises(Exception, match="in scripted code use autograd_script"):
            torch.jit.script(call_seven)


class Holding(torch.nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


def call_seven(x: Tensor) -> Tensor:
    return seven(x)


W = torch.ones(1, requires_grad=True)
HOLDER = SimpleNamespace(W=2.0)


def helper_with_global(x: Tensor) -> Tensor:
    return x * W


@autograd_function
def reads_global(x: Tensor) -> Any:
    return x * W, lambda g: 7 * g


@autograd_function
def reads_by_helper(x: Tensor) -> Any:
    return helper_with_global(x), lambda g: 7 * g


@autograd_function
def reads_in_backward(x: Tensor) -> Any:
    return x * 1, lambda g: 7 * g * W


@autograd_function
def reads_by_another(x: Tensor) -> Any:
    return reads_global(x), lambda g: 7 * g


@autograd_function
def reads_an_attribute_of_that_name(x: Tensor) -> Any:
    return x * HOLDER.W, lambda g: 7 * g
