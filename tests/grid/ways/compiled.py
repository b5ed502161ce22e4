"""torch.compile and torch.export."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

from ..judge import Case, NotApplicable, filled, gradients, leaves, like, pull, same
from .base import way


def _compile(f: Callable[..., Any], backend: str = "aot_eager", **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(f, backend=backend, fullgraph=True, **options)


def _backend(backend: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        want = case.pulled()
        compiled = _compile(case.bind(case.f), backend)
        for _ in range(2):
            same(pull(compiled, case.leaves()), want)

    return run


way("compile, eager backend", cost=1)(_backend("eager"))
way("compile, aot_eager", cost=1)(_backend("aot_eager"))
way("compile, aot_eager_decomp_partition", cost=1)(_backend("aot_eager_decomp_partition"))
way("compile, inductor", cost=3)(_backend("inductor"))


@way("compile, every subset requires grad", cost=2)
def subsets(case: Case) -> None:
    count = len(case.places)
    if count < 2:
        raise NotApplicable("one input")
    compiled = _compile(case.bind(case.f))
    for chosen in range(count):
        wanted = [i == chosen for i in range(count)]
        want = case.want(lambda f, w=wanted: pull(case.bind(f), case.leaves(w)))  # type: ignore[misc]
        same(pull(compiled, case.leaves(wanted)), want, f"{wanted}:")


@way("compile, dynamic shapes", cost=2)
def dynamic(case: Case) -> None:
    def run(f: Callable[..., Any], size: int) -> list[Tensor]:
        x, *rest = case.tensors()
        grown = torch.cat([x, 1.5 * x, 0.5 * x])[: x.shape[0] + size]
        same_shape = [torch.cat([t] * 3)[: len(grown)] if t.shape == x.shape else t for t in rest]
        return pull(f, leaves([grown, *same_shape]))

    wants = [case.want(lambda f, s=size: run(case.bind(f), s)) for size in (0, 1, 2)]  # type: ignore[misc]
    compiled = _compile(case.bind(case.f), dynamic=True)
    for size, want in enumerate(wants):
        same(run(compiled, size), want, f"{size} more rows:")


@way("compile, in a loop", cost=2)
def loop(case: Case) -> None:
    def looped(f: Callable[..., Any]) -> Callable[..., Any]:
        first = case.first(f)

        def run(x: Tensor) -> tuple[Tensor]:
            total = first(x) * 0
            for _ in range(3):
                total = total * 0.5 + first(x)
                x = x * 1.25
            return (total,)

        return run

    want = case.want(lambda f: pull(looped(f), leaves(case.tensors()[:1])))
    same(pull(_compile(looped(case.f)), leaves(case.tensors()[:1])), want)


@way("compile, called twice in a chain", cost=1)
def chained(case: Case) -> None:
    def twice(f: Callable[..., Any]) -> Callable[..., Any]:
        first = case.first(f)
        return lambda x: (first(first(x)),)

    x = case.tensors()[:1]
    want = case.want(lambda f: pull(twice(f), leaves(x)))
    same(pull(_compile(twice(case.f)), leaves(x)), want)


@way("compile, under no_grad", cost=1)
def no_grad(case: Case) -> None:
    want = case.pulled()
    compiled = _compile(case.bind(case.f))
    with torch.no_grad():
        got = compiled(*case.leaves())
    same(got, want[: len(got)])
    same(pull(compiled, case.leaves()), want)


@way("compile, no_grad inside", cost=1)
def no_grad_inside(case: Case) -> None:
    def run(f: Callable[..., Any]) -> Callable[..., Any]:
        bound = case.bind(f)

        def inside(*tensors: Tensor) -> Any:
            with torch.no_grad():
                held = bound(*tensors)
            return tuple(a * b for a, b in zip(held, bound(*tensors)))

        return inside

    want = case.want(lambda f: pull(run(f), case.leaves()))
    same(pull(_compile(run(case.f)), case.leaves()), want)


@way("compile, autocast", cost=1)
def autocast(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")

    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = leaves([t.float() for t in case.tensors()])
        with torch.autocast("cpu", torch.bfloat16):
            outputs = f(*tensors)
        return [*outputs, *filled(gradients(outputs, tensors, like(outputs)), tensors)]

    want = case.want(lambda f: run(case.bind(f)))
    same(run(_compile(case.bind(case.f))), want, tolerance=(0.05, 0.02))


@way("compile, autocast inside", cost=1)
def autocast_inside(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")

    def within(f: Callable[..., Any]) -> Callable[..., Any]:
        bound = case.bind(f)

        def run(*tensors: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return bound(*tensors)

        return run

    floats = [t.float() for t in case.tensors()]
    want = case.want(lambda f: pull(within(f), leaves(floats)))
    same(pull(_compile(within(case.f)), leaves(floats)), want, tolerance=(0.05, 0.02))


@way("compile, checkpoint inside", cost=1)
def checkpoint_inside(case: Case) -> None:
    from torch.utils.checkpoint import checkpoint

    want = case.pulled()
    f = case.bind(case.f)
    compiled = _compile(lambda *a: checkpoint(f, *a, use_reentrant=False))
    same(pull(compiled, case.leaves()), want)


@way("compile, module with parameters", cost=1)
def module(case: Case) -> None:
    class Net(nn.Module):
        def __init__(self, f: Any) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.full((), 1.25, dtype=torch.double))
            self.f = case.first(f)

        def forward(self, x: Tensor) -> Tensor:
            return self.f(x * self.scale)

    def run(f: Any, change: Callable[[Any], Any]) -> list[Tensor]:
        net = Net(f)
        (x,) = leaves(case.tensors()[:1])
        out = change(net)(x)
        asked = [x, net.scale]
        return [out, *filled(gradients([out], asked, like([out])), asked)]

    want = case.want(lambda f: run(f, lambda net: net))
    same(run(case.f, _compile), want)


@way("compile, graph breaks around", cost=1)
def breaks(case: Case) -> None:
    want = case.pulled()
    bound = case.bind(case.f)

    def broken(*tensors: Tensor) -> Any:
        tensors = tuple(t * 1 for t in tensors)
        torch._dynamo.graph_break()
        outputs = bound(*tensors)
        torch._dynamo.graph_break()
        return tuple(t * 1 for t in outputs)

    torch._dynamo.reset()
    same(pull(torch.compile(broken, backend="aot_eager"), case.leaves()), want)


@way("compile, one graph for six calls", cost=1)
def recompiles(case: Case) -> None:
    want = case.pulled()
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(case.bind(case.f), backend=counter, fullgraph=True)
    for _ in range(6):
        same(pull(compiled, case.leaves()), want)
    if counter.frame_count != 1:
        raise RuntimeError(f"compiled {counter.frame_count} times")


@way("compile(func.grad)", cost=1)
def compile_grad(case: Case) -> None:
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = tuple(like(want[:count]))
    bound = case.bind(case.f)
    places = tuple(range(len(case.places)))

    def loss(*tensors: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.double)
        for u, t in zip(units, bound(*tensors)):
            total = total + (u.conj() * t).real.sum() if u.is_complex() else total + (u * t).sum()
        return total

    same(_compile(torch.func.grad(loss, places))(*case.tensors()), want[count:])


@way("compile(vmap)", cost=1)
def compile_vmap(case: Case) -> None:
    from .transforms import _batch, _each

    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    compiled = _compile(torch.func.vmap(case.bind(case.f)))
    asked = leaves(batch)
    outputs = compiled(*asked)
    units = [torch.stack([u] * len(batch[0])) for u in like([t[0] for t in outputs])]
    same([*outputs, *filled(gradients(outputs, asked, units), asked)], want)


@way("compile(vmap(grad))", cost=1)
def compile_vmap_grad(case: Case) -> None:
    from .transforms import _batch, _each

    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    if any(t.is_complex() for t in batch):
        raise NotApplicable("complex")
    count = len(case.smooth_outputs())
    units = tuple(like([t[0] for t in want[:count]]))
    bound = case.bind(case.f)

    def loss(*tensors: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.double)
        for u, t in zip(units, bound(*tensors)):
            total = total + (u * t).sum()
        return total

    gradient = torch.func.grad(loss, tuple(range(len(batch))))
    same(_compile(torch.func.vmap(gradient))(*batch), want[count:])


@way("compile(jvp)", cost=1)
def compile_jvp(case: Case) -> None:
    from .forward import _moved

    case.need("linear")
    tangents = tuple(like(case.tensors(), 3))
    want = _moved(case, list(tangents))
    bound = case.bind(case.f)
    compiled = _compile(lambda *a: torch.func.jvp(bound, a, tangents)[1])
    same(compiled(*case.tensors()), want)


@way("compiled autograd", cost=2)
def compiled_autograd(case: Case) -> None:
    want = case.pulled()
    torch._dynamo.reset()
    tensors = case.leaves()
    outputs = case.bind(case.f)(*tensors)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        pairs = [(t, u) for t, u in zip(outputs, like(outputs)) if t.requires_grad]
        torch.autograd.backward([t for t, _ in pairs], [u for _, u in pairs])
    same([*outputs, *(t.grad for t in tensors)], want)


class Net(nn.Module):
    """The function as a module of its tensors."""

    def __init__(self, bound: Any) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, *tensors: Tensor) -> Any:
        return self.bound(*tensors)


def _exported(strict: bool, grad: bool, decomposed: bool) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        want = case.pulled()
        torch._dynamo.reset()
        with torch.set_grad_enabled(grad):
            program = torch.export.export(
                Net(case.bind(case.f)), tuple(case.tensors()), strict=strict
            )
        if decomposed:
            program = program.run_decompositions()
        same(pull(program.module(), case.leaves()), want)

    return run


way("export strict, trained", cost=1)(_exported(True, True, False))
way("export not strict, trained", cost=1)(_exported(False, True, False))
way("export under no_grad, trained", cost=1)(_exported(False, False, False))
way("export, decomposed, trained", cost=1)(_exported(False, True, True))


@way("export, dynamic shape, trained", cost=1)
def export_dynamic(case: Case) -> None:
    torch._dynamo.reset()
    x, *rest = case.tensors()
    if any(t.shape == x.shape for t in rest) or x.dim() == 0:
        raise NotApplicable("inputs share their shape")
    longer = torch.cat([x, 1.5 * x])
    want = case.want(lambda f: pull(case.bind(f), leaves([longer, *rest])))
    shapes = ({0: torch.export.Dim.AUTO}, *(None for _ in rest))
    program = torch.export.export(
        Net(case.bind(case.f)), (x, *rest), dynamic_shapes=(shapes,), strict=False
    )
    same(pull(program.module(), leaves([longer, *rest])), want)


@way("export, saved and loaded", cost=1)
def export_saved(case: Case) -> None:
    want = case.pulled()
    program = torch.export.export(Net(case.bind(case.f)), tuple(case.tensors()), strict=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    same(pull(torch.export.load(buffer).module(), case.leaves()), want)


@way("compile of an exported program", cost=1)
def compile_exported(case: Case) -> None:
    want = case.pulled()
    program = torch.export.export(Net(case.bind(case.f)), tuple(case.tensors()), strict=False)
    same(pull(_compile(program.module()), case.leaves()), want)


def _packaged(program: Any) -> Any:
    """The program as AOTInductor compiles it: C++ that runs without Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=f"{folder}/program.pt2"
        )
        return torch._inductor.aoti_load_package(path)


@way("AOTInductor package of the forward", cost=3)
def aoti(case: Case) -> None:
    want = case.pulled()
    count = len(case.smooth_outputs())
    with torch.no_grad():
        program = torch.export.export(Net(case.bind(case.f)), tuple(case.tensors()), strict=False)
        got = _packaged(program)(*case.tensors())
    same(got, want[:count])


@way("AOTInductor package of the gradient", cost=3)
def aoti_gradient(case: Case) -> None:
    """Recorded by make_fx, as in "make_fx of func.grad": the rule is in the package."""
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = tuple(like(want[:count]))

    def pulled(*tensors: Tensor) -> Any:
        _, pullback = torch.func.vjp(case.bind(case.f), *tensors)
        return pullback(units)

    graph = make_fx(pulled)(*case.tensors())
    with torch.no_grad():
        program = torch.export.export(graph, tuple(case.tensors()), strict=False)
        got = _packaged(program)(*case.tensors())
    same(got, want[count:])


def _onnx(dynamo: bool) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        for name in ("onnx", "onnxscript") if dynamo else ("onnx",):
            if importlib.util.find_spec(name) is None:
                raise NotApplicable(f"{name} is not installed")
        from onnx.reference import ReferenceEvaluator

        want = case.pulled()
        file = io.BytesIO()
        given = tuple(t.float() for t in case.tensors())
        if any(t.is_complex() for t in case.tensors()):
            raise NotApplicable("complex")
        net = Net(case.bind(case.f)).eval()
        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            if dynamo:
                exported: Any = torch.onnx.export(net, given, dynamo=True)
                exported.save(file)
            else:
                torch.onnx.export(net, given, file, dynamo=False)
        program = ReferenceEvaluator(file.getvalue())
        names = [i.name for i in program.proto_.graph.input]
        got = program.run(None, dict(zip(names, (t.numpy() for t in given))))
        count = len(case.smooth_outputs())
        wanted = [t.float() for t in want[:count]]
        same([torch.as_tensor(a) for a in got], wanted, tolerance=(1e-3, 1e-4))

    return run


way("ONNX export of the forward", cost=1)(_onnx(True))
way("ONNX export of the forward, by tracing", cost=1)(_onnx(False))


@way("opcheck", cost=1)
def opcheck(case: Case) -> None:
    op = case.scriptable
    if op is None:
        op = getattr(case.f, "op", None)
        if op is None:
            raise NotApplicable("no operator")
    from torch.testing._internal.optests import opcheck as run

    if not isinstance(op, torch._ops.OpOverload):
        op = op.default
    args = list(case.args)
    for i in case.places:
        args[i] = args[i].clone().requires_grad_()
    if any(a.name != f"{a.name}" for a in op._schema.arguments) or len(op._schema.arguments) < len(
        args
    ):
        raise NotApplicable("lists")
    first, second = [], {}
    for value, argument in zip(args, op._schema.arguments):
        if argument.kwarg_only:
            second[argument.name] = value
        else:
            first.append(value)
    run(op, tuple(first), second)
