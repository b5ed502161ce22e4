"""Plain calls: which inputs ask, what the gradients look like, dtypes, sizes, orders."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..judge import Case, NotApplicable, filled, gradients, leaves, like, pull, same, second, third
from .base import way


@way("eager")
def eager(case: Case) -> None:
    same(pull(case.bind(case.f), case.leaves()), case.pulled())


@way("no grad")
def no_grad(case: Case) -> None:
    want = case.pulled()
    with torch.no_grad():
        got = case.bind(case.f)(*case.leaves())
    same(got, want[: len(got)])
    with torch.inference_mode():
        got = case.bind(case.f)(*case.tensors())
    same(got, want[: len(got)])


@way("backward into .grad")
def into_grad(case: Case) -> None:
    want = case.pulled()
    tensors = case.leaves()
    for _ in range(2):
        outputs = case.bind(case.f)(*tensors)
        units = like(outputs)
        pairs = [(t, u) for t, u in zip(outputs, units) if t.requires_grad]
        torch.autograd.backward([t for t, _ in pairs], [u for _, u in pairs])
    same([t.grad for t in tensors], [2 * g for g in want[len(outputs) :]])


@way("backward twice with retain_graph")
def twice(case: Case) -> None:
    want = case.pulled()
    tensors = case.leaves()
    outputs = case.bind(case.f)(*tensors)
    first = gradients(outputs, tensors, like(outputs), retain_graph=True)
    again = gradients(outputs, tensors, like(outputs))
    same([*filled(first, tensors), *filled(again, tensors)], want[len(outputs) :] * 2)


@way("autograd.grad of part of the inputs")
def part(case: Case) -> None:
    want = case.pulled()
    for index in range(len(case.places)):
        tensors = case.leaves()
        outputs = case.bind(case.f)(*tensors)
        (got,) = gradients(outputs, [tensors[index]], like(outputs))
        same([got], [want[len(outputs) + index]])


@way("every subset of inputs requires grad")
def subsets(case: Case) -> None:
    count = len(case.places)
    for wanted in itertools.product((True, False), repeat=count):
        if any(wanted):
            want = case.want(lambda f, w=wanted: pull(case.bind(f), case.leaves(w)))  # type: ignore[misc]
            same(pull(case.bind(case.f), case.leaves(wanted)), want, f"{wanted}:")


@way("unused outputs")
def unused(case: Case) -> None:
    count = len(case.smooth_outputs())
    if count < 2:
        raise NotApplicable("one output")

    def run(f: Callable[..., Any]) -> list[Tensor]:
        found = []
        for index in range(count):
            tensors = case.leaves()
            output = case.bind(f)(*tensors)[index]
            found += filled(gradients([output], tensors, like([output])), tensors)
        return found

    want = case.want(run)
    same(run(case.f), want)


def _cast(dtype: torch.dtype) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        if any(t.is_complex() for t in case.tensors()) and not dtype.is_complex:
            raise NotApplicable("complex")

        def cast(f: Callable[..., Any]) -> list[Tensor]:
            return pull(case.bind(f), leaves([t.to(dtype) for t in case.tensors()]))

        want = case.want(cast)
        same(cast(case.f), want)

    return run


for _dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex128):
    way(str(_dtype).removeprefix("torch."))(_cast(_dtype))


def _gradients_as(case: Case, change: Callable[[Tensor], Tensor]) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = case.bind(f)(*tensors)
        units = [change(t) for t in outputs]
        return filled(gradients(outputs, tensors, units), tensors)

    want = case.want(run)
    same(run(case.f), want)


@way("gradients with stride 0")
def stride_0(case: Case) -> None:
    _gradients_as(case, lambda t: t.new_full((), 1.5).expand(t.shape))


@way("sliced gradients")
def sliced(case: Case) -> None:
    def every_other(t: Tensor) -> Tensor:
        (wide,) = like([t.new_empty((*t.shape[:-1], 2 * t.shape[-1]) if t.dim() else (2,))])
        return wide[..., ::2] if t.dim() else wide[1]

    _gradients_as(case, every_other)


@way("transposed gradients")
def transposed(case: Case) -> None:
    def turned(t: Tensor) -> Tensor:
        (made,) = like([t.new_empty(t.shape[::-1])])
        return made.permute(*range(t.dim() - 1, -1, -1)) if t.dim() > 1 else made

    _gradients_as(case, turned)


@way("zero and missing gradients")
def zeros(case: Case) -> None:
    _gradients_as(case, torch.zeros_like)


@way("inputs that are not contiguous")
def strided_inputs(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        roots = [torch.stack([t, t], -1).requires_grad_() for t in case.tensors()]
        views = [r[..., 0] for r in roots]
        outputs = case.bind(f)(*views)
        return [*outputs, *filled(gradients(outputs, roots, like(outputs)), roots)]

    want = case.want(run)
    same(run(case.f), want)


@way("expanded inputs")
def expanded_inputs(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        roots = [t[:1].clone().requires_grad_() if t.dim() else t for t in case.tensors()]
        shapes = [t.shape for t in case.tensors()]
        outputs = case.bind(f)(*(r.expand(s) for r, s in zip(roots, shapes)))
        return [*outputs, *filled(gradients(outputs, roots, like(outputs)), roots)]

    want = case.want(run)
    same(run(case.f), want)


@way("inputs that are not leaves")
def not_leaves(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = [t * 3 for t in case.bind(f)(*(t * 2 for t in tensors))]
        return filled(gradients(outputs, tensors, like(outputs)), tensors)

    want = case.want(run)
    same(run(case.f), want)


@way("one tensor for every input")
def one_tensor(case: Case) -> None:
    tensors = case.tensors()
    if len(tensors) < 2 or len({t.shape for t in tensors}) > 1:
        raise NotApplicable("inputs of different shapes")

    def run(f: Callable[..., Any]) -> list[Tensor]:
        (x,) = leaves(tensors[:1])
        outputs = case.bind(f)(*[x] * len(tensors))
        return filled(gradients(outputs, [x], like(outputs)), [x])

    want = case.want(run)
    same(run(case.f), want)


@way("empty")
def empty(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.tensors()
        head = tensors[0][:0]
        rest = [t[:0] if t.shape == tensors[0].shape else t for t in tensors[1:]]
        return pull(case.bind(f), leaves([head, *rest]))

    want = case.want(run)
    same(run(case.f), want)


@way("0-dim")
def scalar(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        return pull(case.bind(f), leaves([t.reshape(-1)[0] for t in case.tensors()]))

    want = case.want(run)
    same(run(case.f), want)


@way("second derivative")
def second_derivative(case: Case) -> None:
    want = case.want(lambda f: second(case.bind(f), case.tensors()))
    same(second(case.bind(case.f), case.tensors()), want)


@way("gradgradcheck")
def finite_differences(case: Case) -> None:
    """The second derivative is that of the user's backward: independent of the reference."""
    same(pull(case.bind(case.f), case.leaves()), case.pulled())

    def run(f: Callable[..., Any]) -> bool:
        options: dict[str, Any] = {"atol": 1e-4, "check_undefined_grad": False}
        return torch.autograd.gradgradcheck(case.bind(f), case.leaves(), **options)

    case.want(run)
    run(case.f)


@way("third derivative")
def third_derivative(case: Case) -> None:
    want = case.want(lambda f: third(case.bind(f), case.tensors()))
    same(third(case.bind(case.f), case.tensors()), want)


@way("gradient penalty")
def penalty(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = case.bind(f)(*tensors)
        grads = gradients(outputs, tensors, like(outputs), create_graph=True)
        size = sum(g.abs().square().sum() for g in grads if g is not None)
        total = size + sum(t.abs().square().sum() for t in outputs)  # type: ignore[operator]
        return filled(gradients([total], tensors, None), tensors)

    want = case.want(run)
    same(run(case.f), want)


@way("two calls, one graph")
def two_calls(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        one = case.bind(f)(*tensors)
        other = case.bind(f)(*(2 * t for t in tensors))
        outputs = [a + 3 * b for a, b in zip(one, other)]
        return filled(gradients(outputs, tensors, like(outputs)), tensors)

    want = case.want(run)
    same(run(case.f), want)


@way("threads, 4 x 40 calls")
def threads(case: Case) -> None:
    want = case.pulled()
    found: list[Any] = [None] * 4

    def work(index: int) -> None:
        try:
            for _ in range(40):
                found[index] = pull(case.bind(case.f), case.leaves())
        except Exception as error:
            found[index] = error

    started = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
        same(one, want)


@way("autocast to bfloat16")
def autocast(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")

    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = leaves([t.float() for t in case.tensors()])
        with torch.autocast("cpu", torch.bfloat16):
            outputs = case.bind(f)(*tensors)
        grads = gradients(outputs, tensors, like(outputs))
        return [*outputs, *filled(grads, tensors)]

    want = case.want(run)
    same(run(case.f), want)


@way("torch.autograd.functional.jacobian")
def functional_jacobian(case: Case) -> None:
    want = case.jacobian()
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")
    blocks = torch.autograd.functional.jacobian(case.bind(case.f), tuple(case.tensors()))
    rows = [
        torch.cat([b.reshape(-1, t.numel()) for b, t in zip(row, case.tensors())], 1)
        for row in blocks
    ]
    same([torch.cat(rows)], [want])


@way("is_grads_batched")
def batched_grads(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")
    want = case.jacobian()
    tensors = case.leaves()
    output = torch.cat([t.reshape(-1) for t in case.bind(case.f)(*tensors)])
    units = torch.eye(output.numel(), dtype=output.dtype)
    grads = torch.autograd.grad(output, tensors, units, is_grads_batched=True, allow_unused=True)
    full = [
        torch.zeros(len(units), *t.shape, dtype=t.dtype) if g is None else g
        for g, t in zip(grads, tensors)
    ]
    same([torch.cat([g.reshape(len(units), -1) for g in full], 1)], [want])
