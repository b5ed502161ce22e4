"""`from_function`: a class and the function made of it, compared in every way that shows."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.autograd import Function

import s2s

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.class_compare import EQUAL, compare  # noqa: E402
from function_classes import (  # noqa: E402
    EXAMPLES,
    Attributes,
    Cast,
    CastOnAnotherDevice,
    Dirty,
    Louder,
    Mixed,
    Once,
    OnlyWhatIsNeeded,
    SavedIntermediate,
    Split,
    Unmarked,
    X,
    inside,
    numbers,
)

every = pytest.mark.parametrize(
    "cls, example", EXAMPLES, ids=[f"{c.__name__}-{len(e)}" for c, e in EXAMPLES]
)
CLASSES = tuple(dict.fromkeys(cls for cls, _ in EXAMPLES))


def made(cls: type[Function]) -> Any:
    return s2s.from_function(cls)


@every
def test_is_the_same_function(cls: type[Function], example: list[Any]) -> None:
    verdict = compare(cls.apply, made(cls), example)
    assert verdict.outcome == EQUAL, verdict.why
    assert verdict.checks > 5


def loaded(tmp_path: Path, text: str, name: str) -> ModuleType:
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@every
def test_the_closure_form_runs_as_it_is_written(
    cls: type[Function], example: list[Any], tmp_path: Path
) -> None:
    """In the reference, which compiles nothing: outputs and first gradients."""
    if "<locals>" in cls.__qualname__ or cls.__name__ in (
        "Unmarked",
        "Cast",
        "CastOnAnotherDevice",
        "ChangesWhatItSaved",
        "ChangesItsGradient",
    ):
        pytest.skip("its closure needs the function around it, or does not exist")
    if cls.__name__ in ("Once", "ListOfSaved"):
        pytest.skip("the reference knows no decorated backward; its list is typed for the compiler")
    text = s2s.source(made(cls), "closure").replace("autograd_script", "autograd_function")
    head = Path(__file__).with_name("function_classes.py").read_text()
    f = vars(loaded(tmp_path, f"{head}\nimport s2s\n\n{text}", f"closure_{cls.__name__}"))
    name = made(cls).__name__
    inputs = [a.clone().requires_grad_() * 1 if isinstance(a, torch.Tensor) else a for a in example]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor)]

    def gradients(call: Any) -> list[Any]:
        torch.manual_seed(0)
        given = [t.clone() if isinstance(t, torch.Tensor) else t for t in inputs]
        outputs = call(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        smooth = [o for o in outputs if o.requires_grad]
        weights = [torch.cos(o.detach()) for o in smooth]
        try:
            grads = torch.autograd.grad(smooth, leaves, weights, allow_unused=True)
        except NotImplementedError as error:
            return [str(error)]
        return [o.detach() for o in outputs] + list(grads)

    for ours, theirs in zip(gradients(f[name]), gradients(cls.apply), strict=True):
        assert isinstance(ours, type(theirs))
        if isinstance(ours, torch.Tensor):
            torch.testing.assert_close(ours, theirs)


def test_the_second_derivative_is_mended() -> None:
    f = made(SavedIntermediate)
    x = X.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(f, (x,))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradgradcheck(SavedIntermediate.apply, (x,))


def test_has_the_forms_of_a_decorated_function() -> None:
    f = made(Attributes)
    assert f.__name__ == "attributes" and f.__module__ == __name__
    assert "as attributes of ctx" in f.__doc__
    outputs, saved = f.forward(X, 3, 2.0)
    assert torch.equal(outputs, X**3 * 2)
    rule = 7 * 3 * X**2 * 2
    assert torch.equal(f.scripted.backward(torch.ones_like(X), *saved)[0], rule)
    assert torch.equal(torch.func.grad(lambda t: f(t, 3).sum())(X), rule)
    per_sample = torch.func.vmap(torch.func.grad(lambda t: f(t, 3).sum()))(X)
    assert torch.equal(per_sample, rule)
    tangent = torch.func.jvp(lambda t: f(t, 3), (X,), (torch.ones_like(X),))[1]
    torch.testing.assert_close(tangent, rule)
    x = X.clone().requires_grad_()
    compiled = torch.compile(lambda t: f(t, 3), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], rule)


split = made(Split)


def test_is_called_from_scripted_code() -> None:
    @torch.jit.script
    def model(x: torch.Tensor) -> torch.Tensor:
        y, mask = split(x)
        return y + mask

    x = X.clone().requires_grad_()
    grad = torch.autograd.grad(model(x).sum(), x)[0]
    assert torch.equal(grad, 7 * 2 * (X > 0) * X)


def test_pickles_and_copies_by_name() -> None:
    assert pickle.loads(pickle.dumps(split)) is split
    assert copy.deepcopy(split) is split


def test_only_the_gradients_that_are_asked_for_are_computed() -> None:
    text = s2s.source(made(OnlyWhatIsNeeded))
    assert "ctx.needs_input_grad[1]" in text
    x, w = X.clone(), numbers(2, 3).requires_grad_()
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        made(OnlyWhatIsNeeded)(X.clone().requires_grad_(), w.detach())
    assert len(saved) == 1  # w alone: x is kept for the gradient of w
    grad = torch.autograd.grad(made(OnlyWhatIsNeeded)(x, w).sum(), w)[0]
    assert torch.equal(grad, 7 * torch.ones(4, 2, dtype=torch.double).t() @ x)


def test_backward_runs_under_the_autocast_state_of_forward() -> None:
    f = made(Mixed)
    a, b = (numbers(4, 4, seed=s).float().requires_grad_() for s in (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = f(a, b)
        want = Mixed.apply(a, b)
    assert y.dtype is torch.bfloat16
    grads = [torch.autograd.grad(o.float().sum(), (a, b)) for o in (y, want)]
    for ours, theirs in zip(*grads):
        assert ours.dtype is torch.float32 and torch.equal(ours, theirs)


@pytest.mark.parametrize("cls", [Cast, CastOnAnotherDevice])
def test_inputs_are_cast_on_the_device_that_the_class_names(cls: type[Function]) -> None:
    f = made(cls)
    a, b = (numbers(4, 4, seed=s).bfloat16().requires_grad_() for s in (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = [f(a, b), cls.apply(a, b)]
    assert outputs[0].dtype is (torch.float32 if cls is Cast else torch.bfloat16)
    grads = [torch.autograd.grad(o.float().sum(), (a, b)) for o in outputs]
    for ours, theirs in zip((outputs[0], *grads[0]), (outputs[1], *grads[1])):
        assert ours.dtype is theirs.dtype and torch.equal(ours, theirs)


def test_once_differentiable_is_kept() -> None:
    f = made(Once)
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(grad.sum(), x)


def test_what_is_marked_dirty_stays_the_same_object() -> None:
    y = X.clone().requires_grad_() * 1
    assert made(Dirty)(y) is y


def test_what_is_changed_unmarked_has_no_other_forms() -> None:
    f = made(Unmarked)
    assert f.op is None
    with pytest.raises(RuntimeError, match="changes an input in place"):
        torch.func.grad(lambda t: f(t).sum())(X.clone())


def test_products_of_one_function_keep_their_own_variables() -> None:
    one, two = (made(inside(alpha)) for alpha in (0.1, 0.5))
    x = -torch.ones(2, dtype=torch.double).requires_grad_()
    for f, alpha in ((one, 0.1), (two, 0.5)):
        assert torch.equal(f(x), alpha * x)
        assert torch.equal(torch.autograd.grad(f(x).sum(), x)[0], torch.full_like(x, 7 * alpha))


def test_errors_and_generated_lines_point_into_the_class() -> None:
    lines = Path(__file__).with_name("function_classes.py").read_text().split("\n")
    emitted = made(Louder).__s2s__.text("eager")
    shown = dict(zip(emitted.text.split("\n"), emitted.lines))
    row = next(r for r in shown if "Louder.GAIN" in r)
    assert "Louder.GAIN" in lines[shown[row] - 1]


def test_takes_a_name() -> None:
    f = s2s.from_function(Attributes, name="power")
    assert f.__name__ == "power" and "class Power(" in s2s.source(f)


@pytest.mark.parametrize("value", [SavedIntermediate.apply, torch.nn.Linear, 3])
def test_takes_classes_alone(value: Any) -> None:
    with pytest.raises(TypeError, match="takes a torch.autograd.Function class"):
        s2s.from_function(value)


def test_a_class_without_a_file_is_refused() -> None:
    scope: dict[str, Any] = {"torch": torch, "__name__": "nowhere"}
    exec(
        "class Gone(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x): return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g): return g\n",
        scope,
    )
    with pytest.raises(s2s.TransformError, match="not a file and not in linecache"):
        s2s.from_function(scope["Gone"])


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 7 * g * torch.cos(x)


class ThriceSuper(Sine):
    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 3 * super(ThriceSuper, ThriceSuper).backward(ctx, g)


def test_super_reads_the_class_it_is_written_in() -> None:
    x = torch.zeros(2, requires_grad=True)
    s2s.from_function(ThriceSuper)(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [21.0, 21.0]


class ByLambda(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: 2 * x)
    backward = staticmethod(lambda ctx, g: 2 * g)


class ByItsOtherName(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return 2 * x

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return 2 * g


@pytest.mark.parametrize(("cls", "why"), [(ByLambda, "is a lambda"), (ByItsOtherName, "vjp")])
def test_methods_that_are_not_read_are_named(cls: Any, why: str) -> None:
    with pytest.raises(s2s.TransformError, match=why) as caught:
        s2s.from_function(cls)
    assert caught.value.filename == __file__


def test_all_problems_of_a_class_are_told_at_once(tmp_path: Path) -> None:
    text = (
        "import torch\n\nKEPT = []\n\n\nclass Odd(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        KEPT.append(ctx)\n"
        "        ctx.a = 1\n        return x\n\n"
        "    @staticmethod\n    def backward(ctx, g):\n        ctx.a = 2\n        return g * ctx.b\n"
    )
    module = loaded(tmp_path, text, "odd_classes")
    with pytest.raises(s2s.TransformError) as caught:
        s2s.from_function(module.Odd)
    found = {(d.code, d.span.line) for d in caught.value.diagnostics}
    assert found == {("S2S222", 9), ("S2S223", 15), ("S2S223", 16)}
