"""Ways inside ways: transforms of transforms, transforms of compiled code, exported transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from ..judge import (
    Case,
    filled,
    gradients,
    leaves,
    like,
    pull,
    real,
    same,
    second,
    split,
)
from .base import way
from .compiled import _compile
from .forward import _moved, _real, _square, matrix
from .scripted import scripted_call
from .transforms import _batch, _each


def _units(case: Case) -> list[Tensor]:
    return like(case.pulled()[: len(case.smooth_outputs())])


def _loss(case: Case, f: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A random combination of the outputs."""
    units = _units(case)
    bound = case.bind(case.f) if f is None else f

    def loss(*tensors: Tensor) -> Any:
        total = torch.zeros((), dtype=torch.double)
        for u, t in zip(units, bound(*tensors)):
            total = total + (u * t).sum()
        return total

    return loss


def _places(case: Case) -> tuple[int, ...]:
    return tuple(range(len(case.places)))


def _gradients(case: Case) -> list[Tensor]:
    _real(case)
    return case.pulled()[len(case.smooth_outputs()) :]


@way("jacrev of jacfwd")
def reverse_over_forward(case: Case) -> None:
    case.need("linear")
    _real(case)
    want = case.derivative_of_backward().T  # entry (i, j) is d(d loss / dx_i) / dx_j, both orders
    blocks = jacrev(jacfwd(_loss(case), _places(case)), _places(case))(*case.tensors())
    same([_square(blocks, case)], [want.T])


@way("hessian of a batch")
def hessian_of_batch(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    tensors = [torch.stack([t, t]) for t in case.tensors()]
    blocks = vmap(hessian(_loss(case), _places(case)))(*tensors)
    for row in range(2):
        one = [[b[row] for b in line] for line in blocks]
        same([_square(one, case)], [want])


@way("autograd.functional: hessian, hvp, vhp")
def functional_second(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    given = tuple(case.tensors())
    options: dict[str, Any] = {"strict": False}
    same([_square(torch.autograd.functional.hessian(_loss(case), given, **options), case)], [want])
    tangents = tuple(like(case.tensors(), 3))
    _, left = torch.autograd.functional.vhp(_loss(case), given, tangents, **options)
    same(left, split(real(list(tangents)) @ want, list(given)))


@way("autograd.functional.jvp, the double backward trick")
def double_backward_trick(case: Case) -> None:
    case.need("linear")
    _real(case)
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    _, got = torch.autograd.functional.jvp(case.bind(case.f), tuple(case.tensors()), tangents)
    same(got, want)


@way("autograd.functional.jacobian, forward mode")
def functional_forward(case: Case) -> None:
    case.need("linear")
    _real(case)
    want = case.jacobian()
    blocks = torch.autograd.functional.jacobian(
        case.bind(case.f), tuple(case.tensors()), vectorize=True, strategy="forward-mode"
    )
    same([matrix(blocks, case.tensors())], [want])


@way("jacrev with chunk_size 1")
def chunked(case: Case) -> None:
    _real(case)
    want = case.jacobian()
    blocks = jacrev(case.bind(case.f), _places(case), chunk_size=1)(*case.tensors())
    same([matrix(blocks, case.tensors())], [want])


@way("autograd.grad inside vmap")
def tape_inside_vmap(case: Case) -> None:
    """The gradient graph of a vmapped call, kept by plain autograd."""
    case.need("linear")
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    count = len(case.smooth_outputs())
    asked = leaves(batch)
    outputs = vmap(lambda *a: tuple(t * 2 for t in case.bind(case.f)(*a)))(*asked)
    units = [torch.stack([u] * len(batch[0])) for u in like([t[0] for t in outputs])]
    grads = gradients(outputs, asked, units, create_graph=True)
    same(filled(grads, asked), [2 * g for g in want[count:]])


@way("second derivative through vmap")
def second_through_vmap(case: Case) -> None:
    batch = _batch(case)
    size = len(batch[0])

    def by_hand(f: Callable[..., Any]) -> list[Tensor]:
        rows = []
        for i in range(size):
            tensors = leaves([t[i] for t in batch])
            outputs = case.bind(f)(*tensors)
            grads = gradients(outputs, tensors, like(outputs), create_graph=True)
            grads = [g for g in grads if g is not None and g.requires_grad]
            rows.append(filled(gradients(grads, tensors, like(grads, 1)), tensors))
        return [torch.stack(values) for values in zip(*rows)]

    want = case.want(by_hand)
    asked = leaves(batch)
    outputs = vmap(case.bind(case.f))(*asked)
    units = [torch.stack([u] * size) for u in like([t[0] for t in outputs])]
    grads = gradients(outputs, asked, units, create_graph=True)
    kept = [g for g in grads if g is not None and g.requires_grad]
    seconds = [torch.stack([u] * size) for u in like([g[0] for g in kept], 1)]
    same(filled(gradients(kept, asked, seconds), asked), want)


@way("func.grad inside plain autograd")
def grad_inside_tape(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward().T @ real(tangents), case.tensors())
    asked = case.leaves()
    grads = grad(_loss(case), _places(case))(*asked)
    same(filled(gradients(grads, asked, tangents), asked), want)


@way("checkpoint inside func.grad")
def checkpoint_in_grad(case: Case) -> None:
    want = _gradients(case)
    f = case.bind(case.f)
    loss = _loss(case, lambda *a: checkpoint(f, *a, use_reentrant=False))
    same(grad(loss, _places(case))(*case.tensors()), want)


@way("no_grad inside func.grad")
def no_grad_in_grad(case: Case) -> None:
    _real(case)
    bound = case.bind(case.f)

    def held(*tensors: Tensor) -> Any:
        with torch.no_grad():
            constant = bound(*tensors)
        return tuple(a * b for a, b in zip(constant, bound(*tensors)))

    def by_hand(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = case.bind(f)(*tensors)
        scaled = [t.detach() * t for t in outputs]
        return filled(gradients(scaled, tensors, like(scaled)), tensors)

    want = case.want(by_hand)
    same(grad(_loss(case, held), _places(case))(*case.tensors()), want)


@way("constant inputs under func.grad")
def constants_in_grad(case: Case) -> None:
    """One input at a time is differentiated; the others are plain tensors or ask on their own."""
    want = _gradients(case)
    for index in _places(case):
        others = [t.requires_grad_(i != index) for i, t in enumerate(case.tensors())]
        got = grad(_loss(case), index)(*others)
        same([got], [want[index]])


@way("make_fx of jvp", cost=1)
def traced_jvp(case: Case) -> None:
    case.need("linear")
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    bound = case.bind(case.f)
    graph = make_fx(lambda *a: jvp(bound, a, tangents)[1])(*case.tensors())
    same(graph(*case.tensors()), want)


@way("make_fx of hessian", cost=1)
def traced_hessian(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    graph = make_fx(hessian(_loss(case), _places(case)))(*case.tensors())
    same([_square(graph(*case.tensors()), case)], [want])


@way("make_fx, the graph trained", cost=1)
def traced_then_trained(case: Case) -> None:
    """The graph of forward alone, as it is traced with and without inputs that ask."""
    want = case.pulled()
    for given in (case.tensors(), case.leaves()):
        graph = make_fx(case.bind(case.f))(*given)
        same(pull(graph, case.leaves()), want)


@way("make_fx symbolic of vjp", cost=1)
def traced_symbolic(case: Case) -> None:
    want = case.pulled()
    units = tuple(_units(case))

    def pulled(*tensors: Tensor) -> Any:
        _, pullback = vjp(case.bind(case.f), *tensors)
        return pullback(units)

    graph = make_fx(pulled, tracing_mode="symbolic")(*case.tensors())
    same(graph(*case.tensors()), want[len(units) :])


@way("aot_function", cost=1)
def aot(case: Case) -> None:
    from functorch.compile import aot_function, nop

    want = case.pulled()
    compiled = aot_function(case.bind(case.f), fw_compiler=nop, bw_compiler=nop)
    same(pull(compiled, case.leaves()), want)


@way("vmap of compile", cost=1)
def vmap_of_compiled(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    torch._dynamo.reset()
    compiled = torch.compile(case.bind(case.f), backend="aot_eager")
    got = vmap(compiled)(*batch)
    same(got, want[: len(got)])


@way("func.grad of compile", cost=1)
def grad_of_compiled(case: Case) -> None:
    want = _gradients(case)
    torch._dynamo.reset()
    compiled = torch.compile(case.bind(case.f), backend="aot_eager")
    same(grad(_loss(case, compiled), _places(case))(*case.tensors()), want)


@way("jvp of compile", cost=1)
def jvp_of_compiled(case: Case) -> None:
    case.need("linear")
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    torch._dynamo.reset()
    compiled = torch.compile(case.bind(case.f), backend="aot_eager")
    _, got = jvp(compiled, tuple(case.tensors()), tangents)
    same(got, want)


def _second_of_compiled(backend: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        want = case.want(lambda f: second(case.bind(f), case.tensors()))
        torch._dynamo.reset()
        compiled = torch.compile(case.bind(case.f), backend=backend)
        same(second(compiled, case.tensors()), want)

    return run


way("second derivative of compile, aot_eager", cost=1)(_second_of_compiled("aot_eager"))
way("second derivative of compile, eager backend", cost=1)(_second_of_compiled("eager"))


@way("compile(jacrev)", cost=1)
def compile_jacrev(case: Case) -> None:
    _real(case)
    want = case.jacobian()
    compiled = _compile(jacrev(case.bind(case.f), _places(case)))
    same([matrix(compiled(*case.tensors()), case.tensors())], [want])


@way("compile(jacfwd)", cost=1)
def compile_jacfwd(case: Case) -> None:
    case.need("linear")
    _real(case)
    want = case.jacobian()
    compiled = _compile(jacfwd(case.bind(case.f), _places(case)))
    same([matrix(compiled(*case.tensors()), case.tensors())], [want])


@way("compile(hessian)", cost=1)
def compile_hessian(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    compiled = _compile(hessian(_loss(case), _places(case)))
    same([_square(compiled(*case.tensors()), case)], [want])


@way("compile(grad of grad)", cost=1)
def compile_grad_of_grad(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward().T @ real(tangents), case.tensors())
    inner = grad(_loss(case), _places(case))

    def outer(*tensors: Tensor) -> Any:
        total = torch.zeros((), dtype=torch.double)
        for g, t in zip(inner(*tensors), tangents):
            total = total + (g * t).sum()
        return total

    same(_compile(grad(outer, _places(case)))(*case.tensors()), want)


@way("compile of a training step", cost=1)
def compile_step(case: Case) -> None:
    """Forward, backward and update in one compiled function, as many write it."""
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = _units(case)
    bound = case.bind(case.f)

    def step(*tensors: Tensor) -> Any:
        outputs = bound(*tensors)
        total = torch.zeros((), dtype=torch.double)
        for u, t in zip(units, outputs):
            total = total + (u * t).sum()
        total.backward()
        return outputs

    _real(case)
    torch._dynamo.reset()
    tensors = case.leaves()
    outputs = torch.compile(step, backend="aot_eager")(*tensors)
    same([*outputs, *(t.grad for t in tensors)], want)
    assert count == len(outputs)


@way("compile of a scripted call", cost=1)
def compile_scripted(case: Case) -> None:
    want = case.pulled()
    call = scripted_call(case)
    torch._dynamo.reset()
    same(pull(torch.compile(case.bind(call), backend="aot_eager"), case.leaves()), want)


class _Module(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run

    def forward(self, *tensors: Tensor) -> Any:
        return self.run(*tensors)


def _export(name: str, change: Callable[[Case], Any]) -> None:
    def check(strict: bool) -> Callable[[Case], None]:
        def run(case: Case) -> None:
            want = _gradients(case)
            torch._dynamo.reset()
            net = _Module(change(case))
            program = torch.export.export(net, tuple(case.tensors()), strict=strict)
            same(program.module()(*case.tensors()), want)

        return run

    way(f"export of {name}, not strict", cost=1)(check(False))
    way(f"export of {name}, strict", cost=1)(check(True))


_export("func.grad", lambda case: grad(_loss(case), _places(case)))


def _pullback(case: Case) -> Any:
    units = tuple(_units(case))

    def run(*tensors: Tensor) -> Any:
        _, pulled = vjp(case.bind(case.f), *tensors)
        return pulled(units)

    return run


_export("vjp", _pullback)


@way("export of vmap, trained", cost=1)
def export_vmap(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    torch._dynamo.reset()
    net = _Module(vmap(case.bind(case.f)))
    program = torch.export.export(net, tuple(batch), strict=False).module()
    asked = leaves(batch)
    outputs = program(*asked)
    units = [torch.stack([u] * len(batch[0])) for u in like([t[0] for t in outputs])]
    same([*outputs, *filled(gradients(outputs, asked, units), asked)], want)


@way("export of vmap of grad", cost=1)
def export_vmap_grad(case: Case) -> None:
    _real(case)
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    torch._dynamo.reset()
    net = _Module(vmap(grad(_loss(case), _places(case))))
    program = torch.export.export(net, tuple(batch), strict=False).module()
    same(program(*batch), want[len(case.smooth_outputs()) :])


@way("export of jvp", cost=1)
def export_jvp(case: Case) -> None:
    case.need("linear")
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    bound = case.bind(case.f)
    torch._dynamo.reset()
    net = _Module(lambda *a: jvp(bound, a, tangents)[1])
    program = torch.export.export(net, tuple(case.tensors()), strict=False).module()
    same(program(*case.tensors()), want)


@way("export of a checkpointed call, trained", cost=1)
def export_checkpoint(case: Case) -> None:
    want = case.pulled()
    f = case.bind(case.f)
    torch._dynamo.reset()
    net = _Module(lambda *a: checkpoint(f, *a, use_reentrant=False))
    program = torch.export.export(net, tuple(case.tensors()), strict=False).module()
    same(pull(program, case.leaves()), want)


@way("transforms of an exported program", cost=1)
def grad_of_exported(case: Case) -> None:
    want = _gradients(case)
    torch._dynamo.reset()
    net = _Module(case.bind(case.f))
    program = torch.export.export(net, tuple(case.tensors()), strict=False).module()
    same(grad(_loss(case, program), _places(case))(*case.tensors()), want)


@way("jvp of an exported program", cost=1)
def jvp_of_exported(case: Case) -> None:
    case.need("linear")
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    torch._dynamo.reset()
    net = _Module(case.bind(case.f))
    program = torch.export.export(net, tuple(case.tensors()), strict=False).module()
    _, got = jvp(program, tuple(case.tensors()), tangents)
    same(got, want)


@way("second derivative of an exported program", cost=1)
def second_of_exported(case: Case) -> None:
    want = case.want(lambda f: second(case.bind(f), case.tensors()))
    torch._dynamo.reset()
    net = _Module(case.bind(case.f))
    program = torch.export.export(net, tuple(case.tensors()), strict=False).module()
    same(second(program, case.tensors()), want)


@way("export, aot_export_joint_simple", cost=1)
def joint(case: Case) -> None:
    from torch._functorch.aot_autograd import aot_export_joint_simple

    want = case.pulled()
    graph = aot_export_joint_simple(case.bind(case.f), case.leaves(), trace_joint=True)
    outputs, grads = graph(case.tensors(), _units(case))
    same([*outputs, *grads], want)


def _grad_of_grad(case: Case, f: Callable[..., Any]) -> tuple[list[Tensor], list[Tensor]]:
    """d <d loss, tangents> with the outputs squared, so that their own derivative counts too."""
    _real(case)
    tangents = like(case.tensors(), 3)
    units = _units(case)

    def by_hand(truth: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        squares = [t * t for t in case.bind(truth)(*tensors)]
        grads = gradients(squares, tensors, units, create_graph=True)
        total = sum((g * t).sum() for g, t in zip(grads, tangents) if g is not None)
        return filled(gradients([total], tensors, None), tensors)  # type: ignore[list-item]

    want = case.want(by_hand)
    bound = case.bind(f)
    inner = grad(_loss(case, lambda *a: tuple(t * t for t in bound(*a))), _places(case))

    def outer(*tensors: Tensor) -> Any:
        return sum((g * t).sum() for g, t in zip(inner(*tensors), tangents))

    return list(grad(outer, _places(case))(*case.tensors())), want


@way("grad of grad of squares")
def grad_of_grad(case: Case) -> None:
    same(*_grad_of_grad(case, case.f))


@way("jit.script, grad of grad")
def script_grad_of_grad(case: Case) -> None:
    same(*_grad_of_grad(case, scripted_call(case)))


@way("jit.script, hessian by reverse mode")
def script_hessian(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    loss = _loss(case, case.bind(scripted_call(case)))
    blocks = jacrev(jacrev(loss, _places(case)), _places(case))(*case.tensors())
    same([_square(blocks, case)], [want])


@way("jit.script, vmap of vjp")
def script_vmap(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    units = tuple(like([t[0] for t in want[: len(case.smooth_outputs())]]))
    bound = case.bind(scripted_call(case))

    def pulled(*tensors: Tensor) -> Any:
        outputs, pullback = vjp(bound, *tensors)
        return (*outputs, *pullback(units))

    same(vmap(pulled)(*batch), want)


@way("jit.script, func.grad inside plain autograd")
def script_grad_inside_tape(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward().T @ real(tangents), case.tensors())
    asked = case.leaves()
    grads = grad(_loss(case, case.bind(scripted_call(case))), _places(case))(*asked)
    same(filled(gradients(grads, asked, tangents), asked), want)


@way("jit.script, backward through vmap")
def script_backward_through_vmap(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    asked = leaves(batch)
    outputs = vmap(case.bind(scripted_call(case)))(*asked)
    units = [torch.stack([u] * len(batch[0])) for u in like([t[0] for t in outputs])]
    same([*outputs, *filled(gradients(outputs, asked, units), asked)], want)


@way("jit.script, forward over reverse")
def script_forward_over_reverse(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward() @ real(tangents), case.tensors())
    loss = _loss(case, case.bind(scripted_call(case)))
    _, got = jvp(grad(loss, _places(case)), tuple(case.tensors()), tuple(tangents))
    same(got, want)


@way("jit.script, dual level by hand")
def script_dual_level(case: Case) -> None:
    from torch.autograd import forward_ad

    from .forward import _tangents

    case.need("linear")
    tangents = like(case.tensors(), 3)
    want = _moved(case, tangents)
    bound = case.bind(scripted_call(case))
    for _ in range(2):
        with forward_ad.dual_level():
            given = [forward_ad.make_dual(t, d) for t, d in zip(case.tensors(), tangents)]
            got = _tangents(bound(*given))
        same(got, want)


@way("compile(func.grad), then plain backward", cost=1)
def compiled_grad_inside_tape(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward().T @ real(tangents), case.tensors())
    asked = case.leaves()
    grads = _compile(grad(_loss(case), _places(case)))(*asked)
    same(filled(gradients(grads, asked, tangents), asked), want)


@way("compile(vmap(jacrev))", cost=1)
def compile_vmap_jacrev(case: Case) -> None:
    _real(case)
    want = case.jacobian()
    batch = [torch.stack([t, t]) for t in case.tensors()]
    compiled = _compile(vmap(jacrev(case.bind(case.f), _places(case))))
    blocks = compiled(*batch)
    for row in range(2):
        same([matrix([[b[row] for b in line] for line in blocks], case.tensors())], [want])


@way("jit.trace of func.grad")
def trace_of_grad(case: Case) -> None:
    want = _gradients(case)
    traced = torch.jit.trace(
        grad(_loss(case), _places(case)), tuple(case.tensors()), check_trace=False
    )
    for scale in (1.0, 1.0):
        same(traced(*(scale * t for t in case.tensors())), want)


@way("jit.trace of a scripted call")
def trace_of_scripted(case: Case) -> None:
    want = case.pulled()
    call = scripted_call(case)
    traced = torch.jit.trace(case.bind(call), tuple(case.tensors()), check_trace=False)
    for _ in range(2):
        same(pull(traced, case.leaves()), want)
