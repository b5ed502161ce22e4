"""TorchScript: functions, modules, loops, traces, saved programs, the profiling executor."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from ..judge import Case, NotApplicable, filled, gradients, leaves, like, pull, same, second
from .base import way

ROOT = Path(__file__).parents[3]


def annotation(value: object) -> str:
    if isinstance(value, list):
        return f"List[{annotation(value[0])}]"
    return "Tensor" if isinstance(value, Tensor) else type(value).__name__


def run_text(case: Case, text: str, name: str) -> Any:
    """What a text defines, where FUNCTION is the function under test."""
    file = f"<grid {case.name} {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    function = case.f if case.scriptable is None else case.scriptable
    module = ModuleType(f"grid_text_{case.name}_{name}")
    sys.modules[module.__name__] = module  # where Dynamo looks for the globals of a text
    scope = vars(module)
    scope |= {"FUNCTION": function, "Tensor": Tensor, "torch": torch}
    scope |= {"List": List, "Optional": Optional, "Tuple": Tuple}
    exec(compile(text, file, "exec"), scope)
    return scope[name]


def _head(case: Case) -> tuple[str, str]:
    names = [f"a{i}" for i in range(len(case.args))]
    shown = ", ".join(f"{n}: {annotation(v)}" for n, v in zip(names, case.args))
    return shown, ", ".join(names)


def scripted_call(case: Case) -> Any:
    shown, names = _head(case)
    text = f"def call({shown}):\n    return FUNCTION({names})\n"
    return torch.jit.script(run_text(case, text, "call"))


@way("jit.script function")
def script_function(case: Case) -> None:
    want = case.pulled()
    call = scripted_call(case)
    same(pull(case.bind(call), case.leaves()), want)
    with torch.no_grad():
        got = case.bind(call)(*case.leaves())
    same(got, want[: len(got)])


@way("jit.script module, frozen, optimize_for_inference")
def script_module(case: Case) -> None:
    shown, names = _head(case)
    text = (
        "class Net(torch.nn.Module):\n"
        f"    def forward(self, {shown}):\n"
        f"        return FUNCTION({names})\n"
    )
    want = case.pulled()
    net = torch.jit.script(run_text(case, text, "Net")())
    same(pull(case.bind(net), case.leaves()), want)
    frozen = torch.jit.freeze(net.eval())
    for _ in range(2):
        same(pull(case.bind(frozen), case.leaves()), want)
    ready = torch.jit.optimize_for_inference(frozen)
    for _ in range(2):
        same(pull(case.bind(ready), case.leaves()), want)


def _looped(case: Case, f: Callable[..., Any], steps: int) -> Callable[..., Tensor]:
    def loop(x: Tensor) -> Tensor:
        total = torch.zeros_like(case.first(f)(x))
        for _ in range(steps):
            total = total * 0.5 + case.first(f)(x)
            x = x * 1.25
        return total

    return loop


def scripted_loop(case: Case) -> Any:
    shown, names = _head(case)
    single = case.smooth_outputs() is not None and case.cache["single"]
    text = (
        f"def loop({shown}, steps: int):\n"
        f"    total = torch.zeros_like(FUNCTION({names}){'' if single else '[0]'})\n"
        "    for i in range(steps):\n"
        f"        total = total * 0.5 + FUNCTION({names}){'' if single else '[0]'}\n"
        "        a0 = a0 * 1.25\n"
        "    return total\n"
    )
    return torch.jit.script(run_text(case, text, "loop"))


@way("jit.script loop")
def script_loop(case: Case) -> None:
    if not isinstance(case.args[0], Tensor):
        raise NotApplicable("the first argument is no tensor")

    def run(loop: Callable[..., Tensor]) -> list[Tensor]:
        (x,) = leaves(case.tensors()[:1])
        out = loop(x)
        return [out, *filled(gradients([out], [x], like([out])), [x])]

    want = case.want(lambda f: run(_looped(case, f, 4)))
    loop = scripted_loop(case)
    for _ in range(3):
        same(run(lambda x: loop(x, *case.args[1:], 4)), want)


@way("profiling executor, requires_grad changes")
def profiling(case: Case) -> None:
    call = scripted_call(case)
    count = len(case.places)
    plans = [[False] * count, [True] * count, [True] * count, [False] * count]
    plans += [[i == 0 for i in range(count)], [i == count - 1 for i in range(count)]]
    for wanted in plans:
        want = case.want(lambda f, w=wanted: pull(case.bind(f), case.leaves(w)))  # type: ignore[misc]
        same(pull(case.bind(call), case.leaves(wanted)), want, f"{wanted}:")


@way("jit.script, 4 threads")
def script_threads(case: Case) -> None:
    want = case.pulled()
    call = scripted_call(case)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: pull(case.bind(call), case.leaves())) for _ in range(40)]
        for one in found:
            same(one.result(), want)


@way("jit.script, second derivative")
def script_second(case: Case) -> None:
    want = case.want(lambda f: second(case.bind(f), case.tensors()))
    call = scripted_call(case)
    for _ in range(3):
        same(second(case.bind(call), case.tensors()), want)


@way("jit.script under vmap and grad")
def script_transformed(case: Case) -> None:
    want = case.pulled()
    call = scripted_call(case)
    outputs, pulled = torch.func.vjp(case.bind(call), *case.tensors())
    same([*outputs, *pulled(tuple(like(outputs)))], want)


@way("jit.script, dual numbers")
def script_dual(case: Case) -> None:
    from .forward import _moved

    case.need("linear")
    tangents = like(case.tensors(), 3)
    want = _moved(case, tangents)
    _, got = torch.func.jvp(case.bind(scripted_call(case)), tuple(case.tensors()), tuple(tangents))
    same(got, want)


@way("jit.trace")
def trace(case: Case) -> None:
    want = case.pulled()
    traced = torch.jit.trace(case.bind(case.f), tuple(case.leaves()), check_trace=False)
    for _ in range(3):
        same(pull(traced, case.leaves()), want)


@way("jit.trace without grad, trained later")
def trace_no_grad(case: Case) -> None:
    want = case.pulled()
    with torch.no_grad():
        traced = torch.jit.trace(case.bind(case.f), tuple(case.tensors()), check_trace=False)
    for _ in range(3):
        same(pull(traced, case.leaves()), want)


class TracedNet(nn.Module):
    def __init__(self, bound: Any) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, *tensors: Tensor) -> Any:
        return self.bound(*tensors)


@way("jit.trace of a module")
def trace_module(case: Case) -> None:
    want = case.pulled()
    net = torch.jit.trace(TracedNet(case.bind(case.f)), tuple(case.tensors()), check_trace=False)
    for _ in range(3):
        same(pull(net, case.leaves()), want)


@way("jit.save and load here")
def save_and_load(case: Case) -> None:
    import io

    want = case.pulled()
    buffer = io.BytesIO()
    torch.jit.save(scripted_call(case), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for _ in range(2):
        same(pull(case.bind(loaded), case.leaves()), want)


def fresh_process(case: Case, body: str, folder: str, data: Any) -> list[Tensor]:
    """Run Python in a new process; it reads ``data`` and saves ``found``."""
    torch.save(data, f"{folder}/data.pt")
    text = (
        "import sys, torch\n"
        "torch.set_num_threads(1)\n"
        f"data = torch.load({folder + '/data.pt'!r}, weights_only=False)\n"
        f"{body}\n"
        f"torch.save(found, {folder + '/found.pt'!r})\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-2:]))
    found: list[Tensor] = torch.load(f"{folder}/found.pt")
    return found


PULL = (
    "args = list(data['args'])\n"
    "asked = []\n"
    "for i in data['places']:\n"
    "    args[i] = args[i].clone().requires_grad_()\n"
    "    asked.append(args[i])\n"
    "out = program(*args)\n"
    "outs = list(out) if isinstance(out, (tuple, list)) else [out]\n"
    "outs = [outs[i] for i in data['keep']]\n"
    "grads = torch.autograd.grad(outs, asked, data['units'], allow_unused=True)\n"
    "found = [t.detach() for t in outs]\n"
    "found += [torch.zeros_like(t) if g is None else g for t, g in zip(asked, grads)]"
)


def pull_data(case: Case) -> tuple[list[Tensor], dict[str, Any]]:
    want = case.pulled()
    keep = case.smooth_outputs()
    units = like(want[: len(keep)])
    return want, {"args": case.args, "places": case.places, "keep": keep, "units": units}


@way("jit.save, load in a fresh process", cost=2)
def load_elsewhere(case: Case) -> None:
    if not case.opener:
        raise NotApplicable("not in an importable module")
    want, data = pull_data(case)
    call = scripted_call(case)
    with tempfile.TemporaryDirectory() as folder:
        call.save(f"{folder}/program.pt")
        body = f"{case.opener}\nprogram = torch.jit.load({folder + '/program.pt'!r})\n{PULL}"
        same(fresh_process(case, body, folder, data), want)


@way("jit.save, load without the function's module", cost=2)
def load_alone(case: Case) -> None:
    want, data = pull_data(case)
    call = scripted_call(case)
    with tempfile.TemporaryDirectory() as folder:
        call.save(f"{folder}/program.pt")
        body = f"program = torch.jit.load({folder + '/program.pt'!r})\n{PULL}"
        same(fresh_process(case, body, folder, data), want)
