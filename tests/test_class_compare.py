"""The judge of ``benchmarks/classes.py`` tells each kind of silent difference from the others."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.class_compare import (  # noqa: E402
    AT_CALL,
    EQUAL,
    IN_PLACE,
    NOT_RUN,
    SECOND,
    VALUES,
    Verdict,
    compare,
    runs,
)
from benchmarks.class_inputs import guess  # noqa: E402
from benchmarks.class_source import classes_in  # noqa: E402

Function = torch.autograd.Function


def by_reference(cls: Any) -> Callable[..., Any]:
    """A naive converter: whatever the class keeps stays on an object, by reference."""

    class Kept(types.SimpleNamespace):
        saved_tensors: tuple[Any, ...] = ()

        def save_for_backward(self, *tensors: Any) -> None:
            self.saved_tensors = tensors

        def mark_dirty(self, *_: Any) -> None:
            pass

        mark_non_differentiable = mark_dirty

    class Naive(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.kept = Kept(needs_input_grad=ctx.needs_input_grad)
            return cls.forward(ctx.kept, *inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return cls.backward(ctx.kept, *grads)

    return Naive.apply


class Swish(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, s = ctx.saved_tensors
        return grad * (s * (1 + x * (1 - s)))


class Exact(Function):
    """The same with nothing kept but the input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Cube(Function):
    """Untrue on purpose: its first gradient is that of another function."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 7 * grad * x**3


class Plain(Function):
    """A second derivative of nothing: what backward reads is no tensor of the graph."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 7 * grad * x.detach() ** 3


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 7 * grad * x**3


class Two(Function):
    """A view of an input, a number, nothing, and a tensor without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        index = x.argmax(-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(x, y)
        return x.view_as(x), x * y, index, 3, None

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any, *_: Any) -> Any:
        x, y = ctx.saved_tensors
        return a + b * y, b * x


def points(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def judged(original: Any, ours: Callable[..., Any], inputs: int = 1) -> Verdict:
    return compare(original.apply, ours, [points(4, 3) for _ in range(inputs)])


@pytest.mark.parametrize("cls, inputs", [(Exact, 1), (Swish, 1), (Cube, 1), (Once, 1), (Two, 2)])
def test_a_class_is_equal_to_itself(cls: Any, inputs: int) -> None:
    verdict = judged(cls, cls.apply, inputs)
    assert (verdict.outcome, verdict.why) == (EQUAL, "")
    assert not verdict.loud and not verdict.mended and verdict.checks > 10


@pytest.mark.parametrize("cls, inputs", [(Swish, 1), (Cube, 1), (Two, 2)])
def test_keeping_by_reference_looks_right_and_is_not(cls: Any, inputs: int) -> None:
    verdict = judged(cls, by_reference(cls), inputs)
    assert verdict.outcome in (IN_PLACE, VALUES)
    assert "changed in place" in verdict.why or "forward" in verdict.why


def test_an_output_kept_by_reference_is_found_by_a_change_of_it() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    verdict = judged(Exp, by_reference(Exp))
    assert verdict.outcome == IN_PLACE
    assert verdict.why.startswith("output 0 changed in place")


def test_another_value_and_another_gradient() -> None:
    assert judged(Exact, lambda x: x * torch.sigmoid(x) + 1).why.startswith("forward")
    other = judged(Cube, lambda x: x.clone())
    assert (other.outcome, other.why.split(":")[0]) == (VALUES, "backward")


def test_another_second_derivative_is_found_and_a_right_one_is_mended() -> None:
    verdict = judged(Cube, Plain.apply)
    assert verdict.outcome == SECOND and "numeric" in verdict.why
    verdict = judged(Swish, Exact.apply)
    assert (verdict.outcome, verdict.mended) == (EQUAL, ["second derivative"])
    verdict = judged(Plain, Cube.apply)
    assert (verdict.outcome, verdict.mended) == (EQUAL, ["second derivative"])
    assert judged(Swish, Swish.apply).both_wrong == ["second derivative"]


def test_an_error_of_the_original_must_stay_one() -> None:
    verdict = judged(Once, Plain.apply)
    assert verdict.outcome == SECOND and "no error, for" in verdict.why
    assert judged(Once, Cube.apply).mended == ["second derivative"]

    class Picky(Exact):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if x.shape != (4, 3):
                raise ValueError("the shape")
            return Exact.forward(ctx, x)

    verdict = judged(Picky, Exact.apply)
    assert verdict.outcome == VALUES and "[7, 11]" in verdict.why


def test_an_error_of_ours_alone_is_loud() -> None:
    verdict = judged(Cube, Once.apply)
    assert verdict.outcome == EQUAL
    assert [line.split(":")[0] for line in verdict.loud] == ["second derivative"]


def test_what_always_raises_is_refused_at_the_call() -> None:
    def ours(x: Tensor) -> Tensor:
        raise RuntimeError("refused")

    verdict = judged(Cube, ours)
    assert (verdict.outcome, verdict.why) == (AT_CALL, "forward: RuntimeError: refused")


def test_a_second_derivative_beside_a_kink() -> None:
    class Kinked(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, (x > 0.9995) * 5.0 + 1)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, steep = ctx.saved_tensors
            return grad * steep * (x.detach() ** 2 + 2 * x.detach() * (x - x.detach()))

    class Right(Kinked):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, steep = ctx.saved_tensors
            return grad * steep * x**2

    class Wrong(Kinked):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, steep = ctx.saved_tensors
            return grad * steep * x.detach() ** 2

    example = [torch.tensor([0.9994, 0.2], dtype=torch.float64)]
    assert compare(Kinked.apply, Right.apply, example).outcome == EQUAL
    verdict = compare(Wrong.apply, Right.apply, example)
    assert (verdict.outcome, verdict.mended) == (EQUAL, ["second derivative"])


def test_a_class_that_is_never_twice_the_same_is_not_judged() -> None:
    class Empty(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            Empty.calls += 1
            return x + Empty.calls

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    assert judged(Empty, Empty.apply).outcome == NOT_RUN


def test_a_gradient_where_the_class_raises_is_right_or_told() -> None:
    class Both(Function):
        """Saves nothing where x needs no gradient, and then fails."""

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            if ctx.needs_input_grad[0]:
                ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    class Saved(Both):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

    class Other(Saved):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensors
            return grad * y, grad * x * (1 if ctx.needs_input_grad[0] else 7)

    verdict = judged(Both, Saved.apply, 2)
    assert verdict.outcome == EQUAL
    assert verdict.mended == ["only input 1 requires grad", "input 0 of integers, backward"]
    verdict = judged(Both, Other.apply, 2)
    assert verdict.outcome == VALUES and "no error, for" in verdict.why


def two(x: Tensor, y: Tensor, first: Any = None, third: Any = None, last: Any = None) -> Any:
    a, b, index, number, nothing = Two.apply(x, y)
    return (
        first(x, a) if first else a,
        b,
        third(index) if third else index,
        number,
        last if last is not None else nothing,
    )


MANNERS: dict[str, tuple[Callable[..., Any], str]] = {
    "aliasing": (lambda x, y: two(x, y, first=lambda x, a: a.clone()), "memory"),
    "identity": (lambda x, y: two(x, y, first=lambda x, a: x), "is input"),
    "requires_grad": (lambda x, y: two(x, y, first=lambda x, a: a.detach()), "requires_grad"),
    "an integer": (lambda x, y: two(x, y, third=lambda i: i.double()), "dtype"),
    "None": (lambda x, y: two(x, y, last=torch.zeros(())), "outputs"),
    "a list": (lambda x, y: list(two(x, y)), "list"),
}


@pytest.mark.parametrize("name", MANNERS)
def test_manners_that_are_lost(name: str) -> None:
    ours, told = MANNERS[name]
    verdict = judged(Two, ours, 2)
    assert verdict.outcome == VALUES and told in verdict.why, verdict.why


def test_a_gradient_of_zeros_is_not_none() -> None:
    class Nothing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, None

    class Zeros(Nothing):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, torch.zeros_like(grad)

    verdict = judged(Nothing, Zeros.apply, 2)
    assert verdict.outcome == VALUES and "None" in verdict.why


def test_random_draws_are_compared_with_one_seed() -> None:
    class Drop(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = torch.rand_like(x) > 0.5
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    class Redrawn(Drop):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * (torch.rand_like(grad) > 0.5)

    assert judged(Drop, Drop.apply).outcome == EQUAL
    assert judged(Drop, Redrawn.apply).outcome == VALUES


def test_state_of_an_earlier_call_is_told_apart() -> None:
    class Shared(Function):
        kept: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            Shared.kept = x.detach().clone()
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 7 * grad * Shared.kept**3

    verdict = judged(Cube, Shared.apply)
    assert verdict.outcome == VALUES and "another call" in verdict.why


def test_the_example_is_left_alone() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * grad

    example = [points(4, 3)]
    verdict = compare(Doubled.apply, Doubled.apply, example)
    assert verdict.outcome == EQUAL and torch.equal(example[0], points(4, 3))
    lost = compare(Doubled.apply, lambda x: Doubled.apply(x.clone()), example)
    assert lost.outcome == VALUES


def test_inputs_are_found_for_what_names_and_defaults_tell() -> None:
    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, input: Any, weight: Any, bias: Any = None, scale: float = 2.0) -> Any:
            ctx.save_for_backward(input, weight)
            return scale * torch.nn.functional.linear(input, weight, bias)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            input, weight = ctx.saved_tensors
            return grad @ weight, grad.flatten(0, -2).T @ input.flatten(0, -2), None, None

    found = guess(Linear)
    assert found is not None and found[1] == "backward"
    assert runs(Linear.apply, found[0]) == "backward"

    class Hopeless(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            raise RuntimeError("needs another machine")

    assert guess(Hopeless) is None


PACKAGE = {
    "toy/__init__.py": "",
    "toy/base.py": """
import torch
from torch.autograd import Function as F
from . import _kernels
from .helpers import by_torch, by_kernel

class Base(F):
    @staticmethod
    def forward(ctx, x):
        return by_torch(x)

class Fast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return by_kernel(x)
    @staticmethod
    def backward(ctx, g):
        return _kernels.backward(g)

class Function:
    '''Not PyTorch's.'''

class Other(Function):
    pass
""",
    "toy/helpers.py": """
import torch
import triton

def by_torch(x):
    return torch.relu(x)

def by_kernel(x):
    return triton.run(x)
""",
    "toy/more.py": """
from .base import Base

def make():
    class Inner(Base):
        @staticmethod
        def backward(ctx, g):
            return g
    return Inner
""",
    "tests/test_toy.py": "import torch\nclass T(torch.autograd.Function): pass",
}


def test_classes_and_what_they_use_are_read(tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {one.qualname: one for one in classes_in(tmp_path)}
    assert set(found) == {"Base", "Fast", "make.<locals>.Inner"}
    assert not found["Base"].has_rule  # no backward
    assert found["make.<locals>.Inner"].only_torch
    assert found["Fast"].foreign == ("toy._kernels.backward", "triton")
    assert (found["Fast"].module, found["Fast"].path) == ("toy.base", "toy/base.py")
