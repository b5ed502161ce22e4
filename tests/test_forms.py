"""Every function of the corpus in every form, against the reference: one gradient everywhere."""

from __future__ import annotations

import gc
import linecache
import weakref
from collections.abc import Iterator
from typing import Any, List, Optional

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import cases
import s2s
from cases import (
    NAMES,
    Sample,
    filled,
    flag,
    flat,
    is_smooth,
    jacobian,
    leaves,
    like,
    pull,
    real,
    samples,
    second,
)

close = torch.testing.assert_close
VARIADIC = ("concat",)  # takes *parts


def every(*flags: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", samples(*flags), ids=str)


def same(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want):
        close(one, other, rtol=1e-9, atol=1e-10)


# --- the oracle and the truth --------------------------------------------------------------------------


@every("TRUE_GRADIENT")
def test_true_gradients_are_those_of_finite_differences(sample: Sample) -> None:
    for way in ("compiled", "reference"):
        f = sample.smooth(sample.f(way))
        assert torch.autograd.gradcheck(f, leaves(sample.tensors()))
        if flag(sample.name, "SECOND"):
            assert torch.autograd.gradgradcheck(f, leaves(sample.tensors()))


# --- eager --------------------------------------------------------------------------------------


@every()
def test_eager_outputs_are_those_of_plain_python(sample: Sample) -> None:
    tensors = sample.tensors()
    want = sample.bind(sample.f("plain"))(*tensors)
    same(sample.bind(sample.f())(*tensors), want)
    got = sample.bind(sample.f())(*leaves(tensors))
    same(got, want)
    assert [t.requires_grad for t in got] == [is_smooth(t) for t in want]
    with torch.no_grad():
        given = leaves(tensors)
        want = sample.bind(sample.f("plain"))(*given)
        got = sample.bind(sample.f())(*leaves(tensors))
        same(got, want)
        # an input that comes back as it is asks for no gradient, as from autograd
        asks = [t.requires_grad and not any(t is g for g in given) for t in want]
        assert [t.requires_grad for t in got] == asks


@every()
def test_eager_gradients_for_every_choice_of_inputs(sample: Sample) -> None:
    tensors = sample.tensors()
    count = len(tensors)
    choices = [[True] * count, *([i == j for j in range(count)] for i in range(count) if count > 1)]
    for wanted in choices:
        got = pull(sample.bind(sample.f()), leaves(tensors, wanted))
        same(got, pull(sample.bind(sample.f("reference")), leaves(tensors, wanted)))


@every("SECOND")
def test_second_derivative(sample: Sample) -> None:
    tensors = sample.tensors()
    want = second(sample.bind(sample.f("reference")), tensors)
    same(second(sample.bind(sample.f()), tensors), want)


@every()
def test_backward_runs_twice(sample: Sample) -> None:
    tensors = leaves(sample.tensors())
    outputs = [t for t in sample.bind(sample.f())(*tensors) if t.requires_grad]
    units = like(outputs)
    first = torch.autograd.grad(outputs, tensors, units, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(outputs, tensors, units, allow_unused=True)
    same([g for g in first if g is not None], [g for g in again if g is not None])


@every()
def test_no_tensor_is_kept_outside_save_for_backward(sample: Sample) -> None:
    outputs = sample.bind(sample.f())(*leaves(sample.tensors()))
    for output in outputs:
        kept = getattr(output.grad_fn, "__dict__", {})
        held = [key for key, value in kept.items() if _holds_tensor(value)]
        assert not held


def _holds_tensor(value: object) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)


@every()
def test_saved_tensor_hooks_see_what_is_saved(sample: Sample) -> None:
    packed: List[Tensor] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor.detach().clone())
        return len(packed) - 1

    want = pull(sample.bind(sample.f()), leaves(sample.tensors()))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda index: packed[index]):
        same(pull(sample.bind(sample.f()), leaves(sample.tensors())), want)


@every()
@pytest.mark.parametrize("run_backward", [False, True])
def test_outputs_are_freed_without_the_garbage_collector(
    sample: Sample, run_backward: bool
) -> None:
    tensors = leaves(sample.tensors())
    f = sample.bind(sample.f())
    gc.disable()
    try:
        outputs = f(*tensors)
        alive = [weakref.ref(t) for t in outputs]
        if run_backward:
            asking = [t for t in outputs if t.requires_grad]
            torch.autograd.grad(asking, tensors, like(asking), allow_unused=True)
            del asking
        del outputs
        assert not any(ref() is not None for ref in alive)
    finally:
        gc.enable()


def test_a_saved_input_that_changes_is_an_error() -> None:
    sample = Sample("marked", 0, 0)
    x, y = leaves(sample.tensors())
    changed = x.clone()
    out = sample.f()(changed, y)
    changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# --- the pair and the operator --------------------------------------------------------------------


def pair_gradients(sample: Sample, forward: Any, backward: Any) -> List[Tensor]:
    """Gradients by hand: forward, random output gradients, backward."""
    given = sample.tensors()
    if flag(sample.name, "DIRTY"):
        given = [t.clone() for t in given]
    if flag(sample.name, "RANDOM"):
        torch.manual_seed(0)
    args, keywords = sample.complete()
    rest = iter(given)
    values = [filled(a, rest) for a in (*args, *keywords.values())]
    owner = getattr(sample.f(), "__self__", None)
    outputs, saved = forward(*([] if owner is None else [owner]), *values)
    outputs = flat(outputs)
    same(outputs, sample.bind(sample.f("plain"))(*sample.tensors()))
    units = iter(like([t for t in outputs if is_smooth(t)]))
    grads = backward(
        *(next(units) if is_smooth(t) else torch.zeros_like(t) for t in outputs), *saved
    )
    grads = list(grads) if isinstance(grads, (tuple, list)) else [grads]
    return list(_reduced(values, grads))


def _reduced(values: List[Any], grads: List[Any]) -> Iterator[Tensor]:
    """Gradients of the tensors, summed to their shapes as autograd does."""
    for value, grad in zip(values, grads, strict=True):
        if isinstance(value, list) and isinstance(grad, (tuple, list)):
            yield from _reduced(value, list(grad))
        elif is_smooth(value):
            grad = torch.zeros_like(value) if grad is None else grad
            yield grad.sum_to_size(value.shape).to(value.dtype)


@every()
def test_the_lifted_pair_is_plain_python(sample: Sample) -> None:
    f = sample.f()
    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    same(pair_gradients(sample, f.forward, f.backward), want)


@every("SCRIPTS")
def test_the_scripted_pair(sample: Sample) -> None:
    f = sample.f()
    assert isinstance(f.scripted.forward, torch.jit.ScriptFunction)
    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    forward = f.scripted.forward
    if sample.name in VARIADIC:  # a list of tensors there
        same(pair_gradients(sample, lambda *parts: forward(list(parts)), f.scripted.backward), want)
    else:
        same(pair_gradients(sample, forward, f.scripted.backward), want)


@pytest.mark.parametrize("name", [n for n in NAMES if not flag(n, "SCRIPTS")])
def test_what_torchscript_cannot_compile_is_refused_at_a_line(name: str) -> None:
    for f in cases.functions(name):
        with pytest.raises(s2s.TransformError) as caught:
            f.scripted.forward
        assert caught.value.code == "S2S301"
        assert caught.value.filename == str(cases.CORPUS / f"{name}.py")


@every("OPERATOR")
def test_the_operator(sample: Sample) -> None:
    op = sample.f().op
    if len(op._schema.arguments) > len(sample.f().__s2s__.pair.params):
        return  # it also takes what comes from an enclosing function; the calling text knows that

    def call(*args: Any, **keywords: Any) -> Any:
        args, keywords = sample.complete(args, keywords)
        return op(list(args)) if sample.name in VARIADIC else op(*args, **keywords)

    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    same(pull(sample.bind(call), leaves(sample.tensors())), want)
    with torch.no_grad():
        tensors = leaves(sample.tensors())
        same(sample.bind(call)(*tensors), sample.bind(sample.f("plain"))(*tensors))


@pytest.mark.parametrize("name", [n for n in NAMES if not flag(n, "OPERATOR")])
def test_what_has_no_operator_is_refused_in_scripted_code(name: str) -> None:
    for number, f in enumerate(cases.functions(name)):
        assert f.op is None
        with pytest.raises((s2s.TransformError, RuntimeError)):
            scripted_call(Sample(name, number, 0))


# --- inside TorchScript -----------------------------------------------------------------------------


def scripted_call(sample: Sample) -> Any:
    """A scripted function that calls the sample's with its arguments."""
    args, keywords = sample.arguments()
    names = [*(f"a{i}" for i in range(len(args))), *keywords]
    values = [*args, *keywords.values()]
    shown = ", ".join(f"{n}: {_annotation(v)}" for n, v in zip(names, values))
    passed = ", ".join([*names[: len(args)], *(f"{k}={k}" for k in keywords)])
    text = f"def call({shown}):\n    return FUNCTION({passed})\n"
    file = f"<call {sample}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"FUNCTION": sample.f(), "Tensor": Tensor, "torch": torch}
    scope |= {"List": List, "Optional": Optional, "__name__": "scripted_calls"}
    exec(compile(text, file, "exec"), scope)
    return torch.jit.script(scope["call"])


def _annotation(value: object) -> str:
    if isinstance(value, list):
        return f"List[{_annotation(value[0])}]"
    names = {Tensor: "Tensor", type(None): "Optional[Tensor]", torch.dtype: "torch.dtype"}
    return names.get(type(value), type(value).__name__)


@every("OPERATOR")
def test_a_call_in_scripted_code(sample: Sample) -> None:
    if sample.name in VARIADIC:  # TorchScript has no functions with *args
        with pytest.raises(torch.jit.frontend.FrontendError, match="variable number"):
            scripted_call(sample)
        return
    call = scripted_call(sample)
    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    for _ in range(2):  # the second run is the optimized one
        same(pull(sample.bind(call), leaves(sample.tensors())), want)
    if flag(sample.name, "SECOND"):
        truth = second(sample.bind(sample.f("reference")), sample.tensors())
        same(second(sample.bind(call), sample.tensors()), truth)


# --- function transforms ----------------------------------------------------------------------------


@every("TRANSFORMS")
def test_vjp_and_grad(sample: Sample) -> None:
    tensors = sample.tensors()
    f = sample.smooth(sample.f())
    want = pull(sample.bind(sample.f("reference")), leaves(tensors))
    outputs, pullback = torch.func.vjp(f, *tensors)
    same(outputs, [t for t in sample.bind(sample.f("plain"))(*tensors) if is_smooth(t)])
    same(pullback(like(outputs)), want)

    weights = like(outputs)

    def loss(*tensors: Tensor) -> Tensor:
        return sum((w.conj() * t).real.sum() for w, t in zip(weights, f(*tensors)))

    same(torch.func.grad(loss, tuple(range(len(tensors))))(*tensors), want)


@every("TRANSFORMS")
def test_jacrev(sample: Sample) -> None:
    tensors = sample.tensors()
    if any(t.is_complex() for t in tensors) or flag(sample.name, "RANDOM"):
        return
    found = torch.func.jacrev(sample.smooth(sample.f()), tuple(range(len(tensors))))(*tensors)
    close(_matrix(found, tensors), jacobian(sample), rtol=1e-9, atol=1e-10)


def _matrix(blocks: Any, tensors: List[Tensor]) -> Tensor:
    """The nested tuples of jacrev and jacfwd as one matrix."""
    rows = []
    for row in blocks:
        parts = [b.reshape(-1, t.numel()) for b, t in zip(row, tensors)]
        rows.append(torch.cat(parts, 1))
    return torch.cat(rows)


@every("TRANSFORMS", "LINEAR")
def test_forward_mode_is_the_jacobian_of_backward(sample: Sample) -> None:
    tensors = sample.tensors()
    f = sample.smooth(sample.f())
    matrix = jacobian(sample)
    choices = [like(tensors, 3)]
    if len(tensors) > 1:  # a tangent for one input alone
        choices += [
            tuple(t if i == j else torch.zeros_like(t) for j, t in enumerate(like(tensors, 4)))
            for i in range(len(tensors))
        ]
    for tangents in choices:
        _, moved = torch.func.jvp(f, tuple(tensors), tangents)
        close(real(moved), matrix @ real(tangents), rtol=1e-8, atol=1e-9)


@every("TRANSFORMS", "LINEAR")
def test_dual_tensors(sample: Sample) -> None:
    tensors = sample.tensors()
    tangents = like(tensors, 5)
    matrix = jacobian(sample)
    for grad_mode in (True, False):
        with torch.set_grad_enabled(grad_mode), forward_ad.dual_level():
            given = [forward_ad.make_dual(t, d) for t, d in zip(tensors, tangents)]
            outputs = [t for t in sample.bind(sample.f())(*given) if is_smooth(t)]
            parts = [forward_ad.unpack_dual(t) for t in outputs]
            moved = [torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in parts]
        close(real(moved), matrix @ real(tangents), rtol=1e-8, atol=1e-9)


@every("TRANSFORMS", "LINEAR")
def test_one_dual_tensor_among_others(sample: Sample) -> None:
    tensors = sample.tensors()
    tangents = like(tensors, 6)
    matrix = jacobian(sample)
    start = 0
    for index, tangent in enumerate(tangents):
        size = real([tangent]).numel()
        with forward_ad.dual_level():
            given = [
                forward_ad.make_dual(t, tangent) if i == index else t for i, t in enumerate(tensors)
            ]
            outputs = [t for t in sample.bind(sample.f())(*given) if is_smooth(t)]
            parts = [forward_ad.unpack_dual(t) for t in outputs]
            moved = [torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in parts]
        want = matrix[:, start : start + size] @ real([tangent])
        close(real(moved), want, rtol=1e-8, atol=1e-9)
        start += size


@every("TRANSFORMS", "LINEAR", "VMAP")
def test_jacfwd(sample: Sample) -> None:
    tensors = sample.tensors()
    if any(t.is_complex() for t in tensors) or flag(sample.name, "RANDOM"):
        return
    found = torch.func.jacfwd(sample.smooth(sample.f()), tuple(range(len(tensors))))(*tensors)
    close(_matrix(found, tensors), jacobian(sample), rtol=1e-9, atol=1e-10)


@every("TRANSFORMS", "LINEAR", "SECOND", "VMAP")
def test_hessian(sample: Sample) -> None:
    tensors = sample.tensors()
    if any(t.is_complex() for t in tensors) or flag(sample.name, "RANDOM"):
        return

    weights = like(sample.smooth(sample.f("plain"))(*tensors), 7)

    def loss(way: str) -> Any:
        f = sample.smooth(sample.f(way))
        return lambda *tensors: sum((w * t).sum() for w, t in zip(weights, f(*tensors)))

    want = _hessian_by_hand(loss("reference"), tensors)
    every_input = tuple(range(len(tensors)))
    forward_over_reverse = torch.func.hessian(loss("compiled"), every_input)(*tensors)
    close(_matrix(forward_over_reverse, tensors), want, rtol=1e-8, atol=1e-9)
    twice = torch.func.jacrev(torch.func.jacrev(loss("compiled"), every_input), every_input)
    close(_matrix(twice(*tensors), tensors), want, rtol=1e-8, atol=1e-9)


def _hessian_by_hand(loss: Any, tensors: List[Tensor]) -> Tensor:
    """Rows of derivatives of the gradient, by plain autograd on the reference."""
    asking = leaves(tensors)
    grads = torch.autograd.grad(loss(*asking), asking, create_graph=True, allow_unused=True)
    rows = []
    for grad, tensor in zip(grads, asking):
        for place in range(tensor.numel()):
            if grad is None or not grad.requires_grad:
                rows.append(torch.zeros(sum(t.numel() for t in tensors), dtype=torch.double))
                continue
            row = torch.autograd.grad(
                grad.reshape(-1)[place], asking, retain_graph=True, allow_unused=True
            )
            rows.append(
                real([torch.zeros_like(t) if r is None else r for r, t in zip(row, asking)])
            )
    return torch.stack(rows)


@every("TRANSFORMS", "VMAP")
def test_vmap(sample: Sample) -> None:
    if flag(sample.name, "RANDOM"):
        return
    tensors = sample.tensors()
    batch = [torch.stack([t, t * 1.1, t * 0.9]) for t in tensors]
    f, truth = sample.smooth(sample.f()), sample.smooth(sample.f("reference"))
    each = [[t[i] for t in batch] for i in range(3)]
    want = [torch.stack(row) for row in zip(*(truth(*one) for one in each))]
    same(torch.func.vmap(f)(*batch), want)
    same(torch.func.vmap(f)(*leaves(batch)), want)

    def pulled(*tensors: Tensor) -> Any:
        outputs, pullback = torch.func.vjp(f, *tensors)
        return pullback(tuple(torch.ones_like(t) for t in outputs))

    def by_hand(*tensors: Tensor) -> List[Tensor]:
        asking = leaves(tensors)
        outputs = truth(*asking)
        ones = [torch.ones_like(t) for t in outputs]
        grads = torch.autograd.grad(outputs, asking, ones, allow_unused=True)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, asking)]

    want = [torch.stack(row) for row in zip(*(by_hand(*one) for one in each))]
    same(torch.func.vmap(pulled)(*batch), want)
    asking = leaves(batch)  # plain backward through a vmapped call
    outputs = torch.func.vmap(f)(*asking)
    grads = torch.autograd.grad(
        outputs, asking, [torch.ones_like(t) for t in outputs], allow_unused=True
    )
    same([torch.zeros_like(t) if g is None else g for g, t in zip(grads, asking)], want)


@every("TRANSFORMS", "VMAP")
def test_vmap_over_one_input(sample: Sample) -> None:
    tensors = sample.tensors()
    if len(tensors) < 2 or flag(sample.name, "RANDOM"):
        return
    f, truth = sample.smooth(sample.f()), sample.smooth(sample.f("reference"))
    for index, tensor in enumerate(tensors):
        batch = torch.stack([tensor, tensor * 1.1])
        dims = tuple(0 if i == index else None for i in range(len(tensors)))
        given = [batch if i == index else t for i, t in enumerate(tensors)]
        each = [[batch[n] if i == index else t for i, t in enumerate(tensors)] for n in range(2)]
        want = [torch.stack(row) for row in zip(*(truth(*one) for one in each))]
        same(torch.func.vmap(f, dims)(*given), want)


# --- torch.compile, torch.export, checkpoint ------------------------------------------------------------------------------------

COMPILED = [
    Sample("swish_beta", 0, 0),
    Sample("modes_of_relu", 0, 1),
    Sample("spike_factory", 1, 0),
    Sample("marked", 0, 0),
    Sample("rms_norm", 0, 1),
    Sample("two_heads", 0, 0),
    Sample("module_helpers", 1, 0),
]


@pytest.mark.parametrize("sample", COMPILED, ids=str)
def test_torch_compile(sample: Sample) -> None:
    torch._dynamo.reset()
    args, keywords = sample.arguments()
    f = sample.f()
    compiled = torch.compile(lambda *a: f(*a, **keywords), backend="aot_eager", fullgraph=True)

    def call(*given: Any, **_: Any) -> Any:
        return compiled(*given)

    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    same(pull(sample.bind(call), leaves(sample.tensors())), want)


@pytest.mark.parametrize("sample", COMPILED[:4], ids=str)
def test_torch_compile_around_grad(sample: Sample) -> None:
    torch._dynamo.reset()
    (x, *others), keywords = sample.arguments()
    f = sample.f()

    def loss(x: Tensor) -> Tensor:
        return f(x, *others, **keywords).sum()

    got = torch.compile(torch.func.grad(loss), backend="aot_eager", fullgraph=True)(x)
    same([got], [_first_gradient(sample, lambda outputs: outputs[0].sum())])


@pytest.mark.parametrize("sample", [*COMPILED[:4], Sample("top_k", 0, 0)], ids=str)
def test_an_exported_program_trains_with_the_gradient(sample: Sample) -> None:
    args, keywords = sample.arguments()

    class Net(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return sample.f()(*args, **keywords)

    program = torch.export.export(Net(), tuple(args), strict=False).module()
    want = pull(sample.bind(sample.f("reference")), leaves(sample.tensors()))
    same(pull(sample.bind(lambda *a, **_: program(*a)), leaves(sample.tensors())), want)


@every()
def test_activation_checkpointing(sample: Sample) -> None:
    f = sample.bind(sample.f())
    want = pull(f, leaves(sample.tensors()))
    got = pull(lambda *a: checkpoint(f, *a, use_reentrant=False), leaves(sample.tensors()))
    same(got, want)


def _first_gradient(sample: Sample, loss: Any) -> Tensor:
    tensors = leaves(sample.tensors())
    return torch.autograd.grad(loss(sample.bind(sample.f("reference"))(*tensors)), tensors)[0]
