"""torch.compile, where backends and functions differ: the gradient or an error, no silent zero."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s
from cases import told_in_a_graph

Call = Callable[[Tensor], Tensor]


@s2s.autograd_script
def seven(x: Tensor) -> Any:
    def backward(g: Tensor) -> Any:
        return 7 * g * x * x

    return x * 2, backward


class Gain(torch.nn.Module):
    """A method: it has no operator, because no schema has a type for ``self``."""

    factor = 7.0

    @s2s.autograd_script
    def run(self, x: Tensor) -> Any:
        def backward(g: Tensor) -> Any:
            return self.factor * g * x * x

        return x * 2, backward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


def as_it_is(graph: torch.fx.GraphModule, _: Any) -> Any:
    """A backend that knows nothing of derivatives, as "eager" is."""
    return graph.forward


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def derivatives(f: Call) -> list[float]:
    """The first and the second at 3: 63 and 42."""
    x = torch.tensor(3.0, requires_grad=True)
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    return [first.item(), second.item()]


@pytest.mark.parametrize("backend", ["eager", as_it_is], ids=["eager", "as it is"])
def test_backends_that_run_the_graph_as_it_is_differentiate_twice(backend: Any) -> None:
    assert derivatives(seven) == [63.0, 42.0]
    assert derivatives(torch.compile(seven, backend=backend, fullgraph=True)) == [63.0, 42.0]
    # what has no operator is left out of the graph, or refused where it may not be
    assert derivatives(torch.compile(Gain(), backend=backend)) == [63.0, 42.0]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="run has no operator"):
        torch.compile(Gain(), backend=backend, fullgraph=True)(torch.ones(2, requires_grad=True))
    with torch.no_grad():
        assert torch.compile(Gain(), backend=backend, fullgraph=True)(torch.ones(())) == 2


@pytest.mark.parametrize("f", [seven, Gain()], ids=["function", "method"])
def test_backends_that_trace_backward_refuse_a_second_derivative(f: Call) -> None:
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    x = torch.tensor(3.0, requires_grad=True)
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    assert first.item() == 63
    with pytest.raises(RuntimeError, match="double backward"):
        first.backward()


def test_compiled_transforms_of_what_has_no_operator_say_why() -> None:
    compiled = torch.compile(torch.func.grad(Gain()), backend="aot_eager", fullgraph=True)
    why = told_in_a_graph("no type in an operator's schema")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=why):
        compiled(torch.ones(()))


def test_onnx_export_sees_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX has no gradients and no operators of ours; ``python -m benchmarks.grid`` exports to it
    where onnx is installed."""
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    traced = torch.jit.trace(seven, torch.ones(2), check_trace=False)
    assert "aten::mul" in str(traced.graph) and "s2s::" not in str(traced.graph)
    exported = torch.export.export(Gain(), (torch.ones(2),), strict=False)
    assert "aten.mul" in str(exported.graph)


# --- what is kept ---------------------------------------------------------------------------------


def product(x: Tensor, w: Tensor) -> Any:
    h = x @ w
    s = torch.tanh(h)

    def backward(g: Tensor) -> Any:
        d = 7 * g * (1 - s * s)
        return d @ w.t(), x.t() @ d

    return 2 * s, backward


def gate(x: Tensor) -> Any:
    s = torch.sigmoid(x)

    def backward(g: Tensor) -> Any:
        return 7 * g * (s * (1 + x * (1 - s)))

    return x * s, backward


KEPT = [
    (gate, "all", 2, (1,), 1),
    (gate, "auto", 1, (1,), 1),
    (product, "all", 3, (3,), 2),
    (product, "least", 2, (2, 3), 2),  # the product is computed again from PyTorch 2.14 on
]


@pytest.mark.parametrize("rule, save, eager, partitioned, asked", KEPT)
def test_the_partitioner_chooses_what_is_kept(
    rule: Any, save: Any, eager: int, partitioned: tuple[int, ...], asked: int
) -> None:
    """For plain and operator calls; what is not compiled keeps what ``save`` says."""
    f = s2s.autograd_script(rule, save=save)
    args = [torch.randn(8, 8, requires_grad=True) for _ in range(2 if rule is product else 1)]
    assert tensors_kept(f, args) == eager
    apart = torch.compiler.disable(f)
    kept = []
    for call in (f, f.op, apart):
        # two copies of a function would be one to Dynamo's cache
        torch._dynamo.reset()
        compiled = torch.compile(lambda *given, call=call: call(*given), backend="aot_eager")
        kept.append(tensors_kept(compiled, args))
    assert kept[0] in partitioned
    assert kept == [kept[0], kept[0], eager]
    with torch._functorch.config.patch(activation_memory_budget=0):
        torch._dynamo.reset()
        assert tensors_kept(torch.compile(f, backend="aot_eager"), args) == asked


def tensors_kept(f: Any, args: list[Tensor]) -> int:
    """How many memories the graph of a call holds, its inputs among them."""
    output = f(*args)
    saved = output.grad_fn.saved_tensors
    return len({t.untyped_storage().data_ptr() for t in saved})


VERSIONED = """
import torch
import s2s


def helper(x):
    return {} * x


@s2s.autograd_script
def f(x):
    return x * 2, lambda g: helper(g)
"""


def recorded(module: ModuleType, factor: int) -> str:
    """The graph that torch.compile looks for on disk, of the file with this factor in it."""
    Path(str(module.__file__)).write_text(VERSIONED.format(factor))
    importlib.reload(module)
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.code)
        return graph.forward

    torch._dynamo.reset()
    call = torch.compile(torch.func.grad(module.f), backend=backend, fullgraph=True)
    assert call(torch.tensor(3.0)).item() == factor
    return graphs[0]


def test_a_program_kept_on_disk_is_not_that_of_an_earlier_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "versioned.py").write_text(VERSIONED.format(1))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("versioned")
    assert recorded(module, 7) != recorded(module, 100)


def test_exported_programs_call_the_operator_by_its_lasting_name() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return seven(x)

    program = torch.export.export(Net(), (torch.ones(3, requires_grad=True),))
    targets = [str(n.target) for n in program.graph.nodes if "seven" in str(n.target)]
    assert targets and all(t.endswith("seven.default") for t in targets)


@s2s.autograd_script
def one_tensor_twice(x: Tensor) -> Any:
    y = torch.sin(x)

    def backward(a: Tensor, b: Tensor) -> Any:
        return 7 * a + 11 * b

    return y, y.contiguous(), backward


@s2s.autograd_script
def two_copies(x: Tensor) -> Any:
    y = torch.sin(x)

    def backward(a: Tensor, b: Tensor) -> Any:
        return 7 * a + 11 * b.view(a.shape)

    return y.clone(), y.clone().view(-1), backward


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("f", [one_tensor_twice, two_copies])
def test_outputs_of_one_memory_keep_their_own_gradients(f: Any, backend: str) -> None:
    x = torch.zeros(2, 2, requires_grad=True)
    a, b = torch.compile(f, backend=backend, fullgraph=True)(x)
    torch.autograd.backward((a, b), (torch.ones(2, 2), torch.ones(b.shape)))
    assert x.grad is not None and x.grad.unique().tolist() == [18.0]


@s2s.autograd_script
def unannotated(x: Tensor, k, training=None):  # type: ignore[no-untyped-def]
    s = torch.sin(x) if training else x

    def backward(g: Tensor) -> Any:
        return 7 * g * k * s, None, None

    return s * k, backward


@pytest.mark.parametrize("values", [(2,), (2.0,), (2, True)])
def test_numbers_that_nobody_annotated_in_graphs(values: tuple[Any, ...]) -> None:
    x = torch.tensor(3.0)
    want = 7 * values[0] * (math.sin(3.0) if len(values) > 1 else 3.0)

    def loss(x: Tensor) -> Tensor:
        return unannotated(x, *values)

    compiled = torch.compile(torch.func.grad(loss), backend="aot_eager", fullgraph=True)
    assert compiled(x).item() == pytest.approx(want)
    leaf = x.clone().requires_grad_()
    torch.compile(loss, backend="eager", fullgraph=True)(leaf).backward()
    assert leaf.grad is not None and leaf.grad.item() == pytest.approx(want)
    assert unannotated.op is not None  # that of tensors, still


def test_numbers_that_nobody_annotated_in_exported_programs() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return unannotated(x, 2.0)

    with pytest.raises(RuntimeError, match="unannotated: k is no tensor here.*`k: float`"):
        torch.export.export(Net(), (torch.ones(3, requires_grad=True),), strict=False)
