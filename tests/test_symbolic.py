"""The gradient formulas that PyTorch ships: s2s compiles every one, and no number changes.

Three things that are not s2s say what is right: TorchScript's own lifting of closures, the closure
as Python runs it, and PyTorch's derivative of the operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import symbolic
from s2s import TransformError, pipeline
from s2s.captures import captures
from symbolic import BUILTIN_NAMES, FORMULAS, HELPERS, Formula

pytestmark = [
    pytest.mark.skipif(not FORMULAS, reason="this build of PyTorch has no library with formulas"),
    pytest.mark.filterwarnings("ignore:torch.meshgrid"),
]
every = pytest.mark.parametrize("formula", FORMULAS.values(), ids=str)

# tensors that a formula gives no gradient: running statistics and class weights have none in
# PyTorch; the bounds of clamp have one, which the formula leaves out
NO_GRADIENT = {
    "batch_norm": ("running_mean", "running_var"),
    "clamp_2": ("min", "max"),
    "nll_loss": ("weight",),
}

# what s2s does not yet do as PyTorch does; an entry that has come true makes its test fail
NOT_SECOND: dict[str, str] = {}
NOT_FORWARD_MODE = {
    "_dim_arange": "an output of integers is taken for one that has a derivative",
}


def every_but(failing: Mapping[str, str]) -> pytest.MarkDecorator:
    """Every formula; those of the table are expected to fail, for the reason given there."""
    marked = [
        pytest.param(f, marks=[pytest.mark.xfail(strict=True, reason=failing[f.name])])
        if f.name in failing
        else f
        for f in FORMULAS.values()
    ]
    return pytest.mark.parametrize("formula", marked, ids=str)


@pytest.fixture(autouse=True)
def sum_to_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of tensors that TorchScript has and Python has not."""

    def method(tensor: Tensor, size: Any) -> Tensor:
        summed: Tensor = torch.ops.aten._grad_sum_to_size(tensor, size)
        return summed

    monkeypatch.setattr(Tensor, "_grad_sum_to_size", method, raising=False)


# --- the texts ----------------------------------------------------------------------------------


def test_the_library_holds_as_many_formulas_as_it_did() -> None:
    assert (len(FORMULAS), len(HELPERS)) == (128, 27)
    assert set(symbolic.EXAMPLES) == set(FORMULAS)
    assert all(name.startswith("AD_") for name in HELPERS)


@every
def test_every_form_is_written(formula: Formula) -> None:
    pair = symbolic.pair(formula)  # verified
    for form in ("eager", "torchscript", "func", "op"):
        compile(pipeline.emit(pair, form).text, form, "exec")


@every
def test_torchscript_compiles_the_pair(formula: Formula) -> None:
    forward, backward = symbolic.scripted(formula)
    assert forward.name == f"{symbolic.pair(formula).name}_forward"
    assert backward.name == f"{symbolic.pair(formula).name}_backward"


@every
def test_a_formula_is_refused_only_for_the_name_of_a_builtin(formula: Formula) -> None:
    source = symbolic.source(formula, formula.name)
    if formula.name not in BUILTIN_NAMES:
        pipeline.lift(pipeline.read(source))
        return
    with pytest.raises(TransformError) as caught:
        pipeline.read(source)
    assert caught.value.code == "S2S217"


@every
def test_backward_captures_what_torchscript_finds(formula: Formula) -> None:
    _, _, names = symbolic.closure(formula)
    found = captures(symbolic.rule(formula))
    assert {c.kind for c in found} <= {"input", "output", "intermediate"}
    assert sorted(c.name for c in found) == sorted(names)


# --- the numbers ----------------------------------------------------------------------------------


@every
def test_the_scripted_pair_computes_what_torchscripts_own_does(formula: Formula) -> None:
    forward, backward, _ = symbolic.closure(formula)
    ours, ours_back = symbolic.scripted(formula)
    for given in symbolic.arguments(formula):
        torch.manual_seed(1)
        *want, context = forward(*copied(given))
        torch.manual_seed(1)
        got, saved = ours(*copied(given))
        same(got, want)
        units = like(flat(want))
        if isinstance(want[0], list):
            same(ours_back(units, *saved), backward(context, units))
        else:  # no gradient for the indices of max_pool2d_with_indices
            asked = units[: len(symbolic.rule(formula).backwards[0].params)]
            same(ours_back(*units, *saved), backward(context, *asked))


@every
def test_the_decorated_function_and_operator_compute_what_the_closure_does(
    formula: Formula,
) -> None:
    compiled = symbolic.compiled(formula)
    for given in symbolic.arguments(formula):
        want, grads = by_hand(formula, given)
        for function in (compiled.function, compiled.op):
            if function is compiled.op and is_number_in_torchscript(given):
                continue
            tensors = leaves(formula, given)
            got = flat(call(formula, function, tensors))
            same(got, want)
            asking = asking_of(tensors)
            close(gradients(got, asking), summed(grads, asking))


@every
def test_the_decorated_function_computes_what_pytorch_does(formula: Formula) -> None:
    for given in symbolic.arguments(formula):
        found = []
        for function in (symbolic.compiled(formula).function, plain(formula)):
            tensors = leaves(formula, given)
            outputs = flat(call(formula, function, tensors))
            found.append((outputs, gradients(outputs, asking_of(tensors))))
        (got, grads), (want, true) = found
        same(got, want)
        close(grads, true, 1e-6)  # a sixth and a slope in it are of single precision


@every_but(NOT_SECOND)
def test_second_derivatives_are_those_of_pytorch(formula: Formula) -> None:
    if formula.name == "hardsigmoid":
        pytest.skip("PyTorch has no second derivative of it")
    for given in symbolic.arguments(formula):
        close(
            second(formula, symbolic.compiled(formula).function, given),
            second(formula, plain(formula), given),
            1e-6,
        )


@every_but(NOT_FORWARD_MODE)
def test_forward_mode_is_that_of_pytorch(formula: Formula) -> None:
    for given in symbolic.arguments(formula):
        close(
            along(formula, symbolic.compiled(formula).function, given),
            along(formula, plain(formula), given),
            1e-6,
        )


# --- arguments and gradients ------------------------------------------------------------------------

Given = Sequence[Any]


def flat(value: Any) -> list[Any]:
    """What is in lists and tuples, in order."""
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in flat(part)]
    return [value]


def is_smooth(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with every tensor changed, those in lists too."""
    if isinstance(value, list):
        return [changed(one, change) for one in value]
    return change(value) if isinstance(value, Tensor) else value


def is_number_in_torchscript(given: Given) -> bool:
    """Formulas say `int` for a dtype; an operator then takes numbers alone."""
    return any(isinstance(value, (torch.dtype, torch.memory_format)) for value in given)


def copied(given: Given) -> list[Any]:
    return [changed(value, Tensor.clone) for value in given]


def leaves(formula: Formula, given: Given) -> list[Any]:
    """Copies that require a gradient wherever the formula gives one."""

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.clone().requires_grad_(tensor.is_floating_point())

    left_out = NO_GRADIENT.get(formula.name, ())
    return [
        changed(value, Tensor.clone if param.name in left_out else leaf)
        for param, value in zip(parameters(formula), given, strict=True)
    ]


def asking_of(given: Given) -> list[Tensor]:
    return [t for t in flat(given) if isinstance(t, Tensor) and t.requires_grad]


def parameters(formula: Formula) -> list[inspect.Parameter]:
    return list(inspect.signature(symbolic.original(formula)).parameters.values())


def call(formula: Formula, function: Callable[..., Any], given: Given) -> Any:
    """A call with keyword-only arguments by name, and the same random numbers every time."""
    torch.manual_seed(1)
    pairs = list(zip(parameters(formula), given, strict=True))
    positional = [value for param, value in pairs if param.kind != param.KEYWORD_ONLY]
    keywords = {param.name: value for param, value in pairs if param.kind == param.KEYWORD_ONLY}
    return function(*positional, **keywords)


def plain(formula: Formula) -> Callable[..., Any]:
    """The formula without its rule: PyTorch differentiates what forward does."""

    def forward(*args: Any, **keywords: Any) -> Any:
        *outputs, _ = symbolic.original(formula)(*args, **keywords)
        return outputs

    return forward


def by_hand(formula: Formula, given: Given) -> tuple[list[Tensor], list[Any]]:
    """The outputs, and what the closure returns for each tensor that asks for a gradient."""
    with torch.no_grad():
        *outputs, backward = call(formula, symbolic.original(formula), copied(given))
        units = like(flat(outputs))
        if isinstance(outputs[0], (list, tuple)):
            returned = backward(units)
        else:
            returned = backward(*units[: len(inspect.signature(backward).parameters)])
    tensors = leaves(formula, given)
    slots = [returned] if len(tensors) == 1 else returned
    return flat(outputs), list(_asked(tensors, slots))


def _asked(given: Given, slots: Given) -> Iterator[Any]:
    for value, grad in zip(given, slots, strict=True):
        if isinstance(value, list) and grad is not None:
            yield from _asked(value, grad)
        elif isinstance(value, Tensor) and value.requires_grad:
            yield grad
        else:
            assert grad is None


def like(outputs: Sequence[Tensor]) -> list[Tensor]:
    """A gradient for every output, the same at every call."""
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(t.shape, dtype=t.dtype, generator=generator)
        if is_smooth(t)
        else torch.zeros_like(t)
        for t in outputs
    ]


def gradients(outputs: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """By autograd; zeros where there is none."""
    asked = [t for t in outputs if t.requires_grad]
    units = [unit for t, unit in zip(outputs, like(outputs)) if t.requires_grad]
    if not asked:
        return summed([None] * len(tensors), tensors)
    return summed(torch.autograd.grad(asked, tensors, units, allow_unused=True), tensors)


def second(formula: Formula, function: Callable[..., Any], given: Given) -> list[Tensor]:
    """The derivative of the gradients, by the arguments and by the gradients of the outputs."""
    tensors = leaves(formula, given)
    outputs = [t for t in flat(call(formula, function, tensors)) if is_smooth(t)]
    units = [unit.requires_grad_() for unit in like(outputs)]
    asking = asking_of(tensors)
    if not any(t.requires_grad for t in outputs):  # not of ones_like in PyTorch, say
        return summed([None] * len([*asking, *units]), [*asking, *units])
    grads = torch.autograd.grad(outputs, asking, units, create_graph=True, allow_unused=True)
    return gradients([g for g in grads if g is not None], [*asking, *units])


def along(formula: Formula, function: Callable[..., Any], given: Given) -> list[Tensor]:
    """The outputs, and how they move as the arguments do."""
    tensors = leaves(formula, given)
    asking = asking_of(tensors)

    def pure(*moving: Tensor) -> tuple[Tensor, ...]:
        places = {id(t): m for t, m in zip(asking, moving)}
        filled = [changed(value, lambda t: places.get(id(t), t)) for value in tensors]
        return tuple(flat(call(formula, function, filled)))

    start = tuple(t.detach() for t in asking)
    results = torch.func.jvp(pure, start, tuple(like(start)))
    return flat(results)


def summed(grads: Sequence[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the tensors' shapes, as autograd makes them."""
    return [
        torch.zeros_like(t) if g is None else g.sum_to_size(t.shape)
        for g, t in zip(grads, tensors, strict=True)
    ]


def same(got: Any, want: Any) -> None:
    """The same numbers, to the last bit."""
    for one, other in zip(flat(got), flat(want), strict=True):
        assert one is other if other is None else torch.equal(one, other)


def close(got: Sequence[Tensor], want: Sequence[Tensor], tolerance: float = 1e-9) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
