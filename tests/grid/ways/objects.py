"""The function as a Python object: pickles, copies, processes, reloads, subclasses, deployment."""

from __future__ import annotations

import copy
import importlib
import io
import multiprocessing
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

from ..judge import Case, NotApplicable, filled, gradients, like, must, pull, same
from .base import way
from .scripted import PULL, ROOT, fresh_process, pull_data, scripted_call


class Holder(nn.Module):
    """A module that holds the function, with the arguments that are no tensors."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.double))

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def _importable(case: Case) -> None:
    if not case.module:
        raise NotApplicable("not in an importable module")


@way("pickle of a module that holds it")
def pickled(case: Case) -> None:
    _importable(case)
    want = case.pulled()
    again = pickle.loads(pickle.dumps(Holder(case.f)))
    same(pull(case.bind(again), case.leaves()), want)


@way("pickle after every form was used")
def pickled_after_use(case: Case) -> None:
    """A factory's product too: what pickle finds is the name."""
    _importable(case)
    want = case.pulled()
    same(pull(case.bind(scripted_call(case)), case.leaves()), want)
    outputs, pulled = torch.func.vjp(case.bind(case.f), *case.tensors())
    same([*outputs, *pulled(tuple(like(outputs)))], want)
    again = pickle.loads(pickle.dumps(Holder(case.f)))
    same(pull(case.bind(again), case.leaves()), want)
    same(pull(case.bind(copy.deepcopy(again)), case.leaves()), want)


@way("deepcopy of a module that holds it")
def copied(case: Case) -> None:
    want = case.pulled()
    same(pull(case.bind(copy.deepcopy(Holder(case.f))), case.leaves()), want)
    same(pull(case.bind(copy.copy(case.f)), case.leaves()), want)


@way("torch.save of a module that holds it")
def saved(case: Case) -> None:
    _importable(case)
    want = case.pulled()
    buffer = io.BytesIO()
    torch.save(Holder(case.f), buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    same(pull(case.bind(again), case.leaves()), want)


@way("pickle, opened in a fresh process", cost=2)
def pickled_elsewhere(case: Case) -> None:
    _importable(case)
    want, data = pull_data(case)
    data["module"] = Holder(case.f)
    with tempfile.TemporaryDirectory() as folder:
        same(fresh_process(case, "program = data['module']\n" + PULL, folder, data), want)


def _child(queue: Any, module: Any, case_args: Any, keep: Any, places: Any, units: Any) -> None:
    torch.set_num_threads(1)
    try:
        args = list(case_args)
        for i in places:
            args[i] = args[i].clone().requires_grad_()
        out = module(*args)
        outputs = list(out) if isinstance(out, (tuple, list)) else [out]
        outputs = [outputs[i] for i in keep]
        asked = [args[i] for i in places]
        grads = filled(gradients(outputs, asked, units), asked)
        queue.put([t.detach().numpy() for t in (*outputs, *grads)])
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")


def _process(kind: str) -> Callable[[Case], None]:
    def run(case: Case) -> None:
        if kind == "spawn":
            _importable(case)
        want, data = pull_data(case)
        context: Any = multiprocessing.get_context(kind)
        queue = context.Queue()
        given = (queue, Holder(case.f), data["args"], data["keep"], data["places"], data["units"])
        child = context.Process(target=_child, args=given)
        child.start()
        found = queue.get(timeout=120)
        child.join(timeout=30)
        if isinstance(found, str):
            raise RuntimeError(found)
        same([torch.from_numpy(a) for a in found], want)

    return run


way("multiprocessing, fork", cost=1)(_process("fork"))
way("multiprocessing, spawn", cost=3)(_process("spawn"))


class Rows(Dataset[Any]):
    """A data set whose items are the function's gradients."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        found = pull(self.case.bind(self.case.f), self.case.leaves())
        return [t.clone() for t in found]


@way("DataLoader workers", cost=2)
def workers(case: Case) -> None:
    want = case.pulled()
    loader = DataLoader(Rows(case), batch_size=None, num_workers=1, multiprocessing_context="fork")
    for row in loader:
        same(row, want)


class Answers(Dataset[Any]):
    """What a worker that starts anew needs: the function by name, and the arguments."""

    def __init__(self, case: Case) -> None:
        self.module = Holder(case.f)
        self.data = pull_data(case)[1]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        args = list(self.data["args"])
        asked = [args[i].clone().requires_grad_() for i in self.data["places"]]
        for place, t in zip(self.data["places"], asked):
            args[place] = t
        out = self.module(*args)
        outputs = list(out) if isinstance(out, (tuple, list)) else [out]
        outputs = [outputs[i] for i in self.data["keep"]]
        grads = filled(gradients(outputs, asked, self.data["units"]), asked)
        return [t.detach().clone() for t in (*outputs, *grads)]


@way("DataLoader workers, spawned", cost=3)
def spawned_workers(case: Case) -> None:
    _importable(case)
    want = case.pulled()
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "spawn"}
    for row in DataLoader(Answers(case), batch_size=None, **options):
        same(row, want)


@way("importlib.reload", cost=1)
def reloaded(case: Case) -> None:
    """In a module of its own, so that no other function is redefined."""
    compiled = getattr(case.f, "__s2s__", None)
    if compiled is None:
        raise NotApplicable("s2s alone")
    want = case.pulled()
    text = compiled.rule.source.text.replace("from ..decorator import", "from s2s.decorator import")
    if "def make_" in text:
        raise NotApplicable("made by a factory")
    with tempfile.TemporaryDirectory() as folder:
        name = f"grid_reload_{case.name}"
        (Path(folder) / f"{name}.py").write_text(text)
        sys.path.insert(0, folder)
        try:
            module = importlib.import_module(name)
            old = getattr(module, compiled.rule.name)
            for _ in range(2):
                module = importlib.reload(module)
                new = getattr(module, compiled.rule.name)
                same(pull(case.bind(new), case.leaves()), want)
                same(pull(case.bind(old), case.leaves()), want, "the old one:")
                outputs, pulled = torch.func.vjp(case.bind(new), *case.tensors())
                same([*outputs, *pulled(tuple(like(outputs)))], want)
                if new.op is not None:
                    torch._dynamo.reset()
                    program = torch.export.export(
                        Bound(case.bind(new)), tuple(case.tensors()), strict=False
                    )
                    same(pull(program.module(), case.leaves()), want, "exported:")
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)


class Bound(nn.Module):
    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


class Tagged(Tensor):
    """A subclass that adds nothing: every operation on it gives it again."""


@way("a tensor subclass")
def subclass(case: Case) -> None:
    want = case.pulled()
    tensors = [t.as_subclass(Tagged).requires_grad_() for t in case.tensors()]
    outputs = case.bind(case.f)(*tensors)
    units = [u for u in like(outputs)]
    grads = filled(gradients(outputs, tensors, units), tensors)
    same([t.as_subclass(Tensor) for t in (*outputs, *grads)], want)


class Wrapped(Tensor):
    """A wrapper subclass: it holds a tensor and unwraps it in ``__torch_dispatch__``."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, strides=inner.stride(), device=inner.device
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Wrapped({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils._pytree import tree_map_only

        args = tree_map_only(Wrapped, lambda t: t.inner, args)
        kwargs = tree_map_only(Wrapped, lambda t: t.inner, kwargs or {})
        return tree_map_only(Tensor, Wrapped, func(*args, **kwargs))


@way("a wrapper tensor subclass")
def wrapper(case: Case) -> None:
    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = [Wrapped(t).requires_grad_() for t in case.tensors()]
        outputs = case.bind(f)(*tensors)
        units = [Wrapped(u) for u in like([t.inner for t in outputs])]
        full = filled(gradients(outputs, tensors, units), tensors)
        return [t.inner if isinstance(t, Wrapped) else t for t in (*outputs, *full)]

    want = case.want(run)
    same(run(case.f), want)


@way("under a TorchFunctionMode and a TorchDispatchMode")
def modes(case: Case) -> None:
    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    want = case.pulled()
    with Count(), torch.device("cpu"):
        same(pull(case.bind(case.f), case.leaves()), want)


@way("fake tensors")
def fake(case: Case) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    want = case.pulled()
    given = case.tensors()
    with FakeTensorMode() as mode:
        tensors = [mode.from_tensor(t).requires_grad_() for t in given]
        rest = [mode.from_tensor(v) if isinstance(v, Tensor) else v for v in case.args]
        for place, t in zip(case.places, tensors):
            rest[place] = t
        out = case.f(*rest)
        outputs = list(out) if isinstance(out, (tuple, list)) else [out]
        outputs = [outputs[i] for i in case.smooth_outputs()]
        grads = filled(gradients(outputs, tensors, [torch.ones_like(t) for t in outputs]), tensors)
    for one, other in zip([*outputs, *grads], want):
        must(one.shape == other.shape and one.dtype == other.dtype, f"{one.shape}, {other.shape}")


@way("meta tensors")
def meta(case: Case) -> None:
    want = case.pulled()
    tensors = [t.to("meta").requires_grad_() for t in case.tensors()]
    args = [v.to("meta") if isinstance(v, Tensor) else v for v in case.args]
    for place, t in zip(case.places, tensors):
        args[place] = t
    out = case.f(*args)
    outputs = list(out) if isinstance(out, (tuple, list)) else [out]
    outputs = [outputs[i] for i in case.smooth_outputs()]
    grads = filled(gradients(outputs, tensors, [torch.ones_like(t) for t in outputs]), tensors)
    for one, other in zip([*outputs, *grads], want):
        must(one.shape == other.shape and one.dtype == other.dtype, f"{one.shape}, {other.shape}")


@way("fx.symbolic_trace")
def symbolic(case: Case) -> None:
    want = case.pulled()
    names = [f"a{i}" for i in range(len(case.places))]
    scope: dict[str, Any] = {"bound": case.bind(case.f)}
    exec(f"def run({', '.join(names)}):\n    return bound({', '.join(names)})", scope)
    graph = torch.fx.symbolic_trace(scope["run"])
    same(pull(graph, case.leaves()), want)


@way("deployment: dumped text, s2s blocked", cost=2)
def deployed(case: Case) -> None:
    compiled = getattr(case.f, "__s2s__", None)
    if compiled is None:
        raise NotApplicable("s2s alone")
    want, data = pull_data(case)
    source, name = compiled.rule.source, compiled.rule.name
    lifted = [c.name for c in compiled.pair.constants if c.lifted]
    data["args"] = (*data["args"], *(compiled.constant(n) for n in lifted))
    with tempfile.TemporaryDirectory() as folder:
        dumped = subprocess.run(
            [sys.executable, "-m", "s2s", "dump", source.file, "-o", f"{folder}/deployed_text.py"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
        if dumped.returncode:
            raise RuntimeError(dumped.stderr.strip().splitlines()[-1])
        body = (
            f"sys.path.insert(0, {folder!r})\n"
            "sys.modules['s2s'] = None\n"
            f"from deployed_text import {name}\n"
            f"def program(*args):\n    given = args[:len(args) - {len(lifted)}]\n"
            f"    return {name}(*given, **dict(zip({lifted}, args[len(given):])))\n" + PULL
        )
        same(fresh_process(case, body, folder, data), want)
