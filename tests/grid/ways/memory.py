"""What is saved, when it is freed, and what notices that it changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from ..judge import Case, NotApplicable, filled, gradients, like, must, pull, same
from .base import way


@way("checkpoint, not reentrant")
def checkpointed(case: Case) -> None:
    want = case.pulled()
    f = case.bind(case.f)
    same(pull(lambda *a: checkpoint(f, *a, use_reentrant=False), case.leaves()), want)


@way("checkpoint, reentrant")
def checkpointed_reentrant(case: Case) -> None:
    want = case.pulled()
    f = case.bind(case.f)
    tensors = case.leaves()
    outputs = checkpoint(f, *tensors, use_reentrant=True)
    pairs = [(t, u) for t, u in zip(outputs, like(outputs)) if t.requires_grad]
    torch.autograd.backward([t for t, _ in pairs], [u for _, u in pairs])
    same([*outputs, *(t.grad for t in tensors)], want)


@way("checkpoint, selective")
def selective(case: Case) -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    want = case.pulled()
    f = case.bind(case.f)

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(
            lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE
        )

    same(
        pull(lambda *a: checkpoint(f, *a, use_reentrant=False, context_fn=contexts), case.leaves()),
        want,
    )


@way("saved_tensors_hooks to bfloat16")
def packed(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")

    def pack(t: Tensor) -> Any:
        return (t.dtype, t.to(torch.bfloat16)) if t.is_floating_point() else (t.dtype, t)

    def run(f: Callable[..., Any]) -> list[Tensor]:
        with saved_tensors_hooks(pack, lambda p: p[1].to(p[0])):
            return pull(case.bind(f), case.leaves())

    want = case.want(run)
    same(run(case.f), want, tolerance=(0.05, 0.05))


@way("saved_tensors_hooks see every saved tensor")
def seen(case: Case) -> None:
    """With all that is saved set to zero, nothing of the inputs may reach the gradient."""

    def run(scale: float) -> list[Tensor]:
        with saved_tensors_hooks(torch.zeros_like, lambda t: t):
            tensors = [(t * scale).requires_grad_() for t in case.tensors()]
            outputs = case.bind(case.f)(*tensors)
        return filled(gradients(outputs, tensors, like(outputs)), tensors)

    same(run(1.0), run(1.125))


@way("save_on_cpu")
def on_cpu(case: Case) -> None:
    want = case.pulled()
    with save_on_cpu():
        same(pull(case.bind(case.f), case.leaves()), want)


def _changed(case: Case, change: Callable[[list[Tensor], list[Tensor]], None]) -> None:
    """After the change, the gradient is the old one or an error."""
    want = case.pulled()
    roots = case.leaves()
    tensors = [t * 1 for t in roots]
    outputs = [t for t in case.bind(case.f)(*tensors)]
    units = like(outputs)
    asked = [(t.view_as(t), u) for t, u in zip(outputs, units)]
    change(tensors, outputs)
    try:
        grads = gradients([t for t, _ in asked], roots, [u for _, u in asked])
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return
        raise
    same(filled(grads, roots), want[len(outputs) :])


@way("an input changes in place after the call")
def input_changes(case: Case) -> None:
    for index in range(len(case.places)):

        def change(tensors: list[Tensor], outputs: list[Tensor], index: int = index) -> None:
            with torch.no_grad():
                tensors[index].mul_(-3)

        _changed(case, change)


@way("an output changes in place after the call")
def output_changes(case: Case) -> None:
    for index in range(len(case.smooth_outputs())):
        want = case.pulled()
        roots = case.leaves()
        outputs = list(case.bind(case.f)(*roots))
        units = like(outputs)
        if not outputs[index].requires_grad:
            continue
        outputs[index] = outputs[index].mul_(2)
        try:
            grads = gradients(outputs, roots, [u / (1 + (i == index)) for i, u in enumerate(units)])
        except RuntimeError as error:
            if "inplace" in str(error) or "in-place" in str(error):
                return
            raise
        same(filled(grads, roots), want[len(outputs) :])


def _live() -> int:
    return sum(1 for o in gc.get_objects() if issubclass(type(o), Tensor))


@way("no live tensors after 200 rounds without gc", cost=1)
def growth(case: Case) -> None:
    """Each round runs forward; every second one, backward too; every fourth, a second backward."""
    f = case.bind(case.f)

    def one(round_: int) -> None:
        tensors = case.leaves()
        outputs = f(*tensors)
        if round_ % 2:
            grads = gradients(outputs, tensors, like(outputs), create_graph=round_ % 4 == 3)
            del grads

    try:
        for round_ in range(8):
            one(round_)
    except Exception:

        def one(round_: int) -> None:  # no second derivative here
            tensors = case.leaves()
            outputs = f(*tensors)
            if round_ % 2:
                gradients(outputs, tensors, like(outputs))

    gc.collect()
    gc.disable()
    try:
        before = _live()
        for round_ in range(200):
            one(round_)
        after = _live()
    finally:
        gc.enable()
    must(after - before < 20, f"{after - before} more tensors are alive after 200 rounds")


@way("outputs and inputs die without gc")
def freed(case: Case) -> None:
    gc.disable()
    try:
        tensors = case.leaves()
        outputs = case.bind(case.f)(*tensors)
        alive = [weakref.ref(t) for t in (*tensors, *outputs)]
        del outputs, tensors
        must(all(r() is None for r in alive), "a tensor outlives its last user")
    finally:
        gc.enable()


@way("saved tensors die with backward")
def saved_freed(case: Case) -> None:
    gc.disable()
    try:
        roots = case.leaves()
        tensors = [t * 1 for t in roots]
        outputs = case.bind(case.f)(*tensors)
        if any(t._base is not None for t in outputs):
            raise NotApplicable("a view keeps its base")
        alive = [weakref.ref(t) for t in tensors]
        del tensors
        grads = gradients(outputs, roots, like(outputs))
        must(all(r() is None for r in alive), "an input outlives backward")
        del grads
    finally:
        gc.enable()
