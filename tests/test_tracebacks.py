"""An error inside of generated code names the user's line, wherever it was raised."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import linecache
import os
import re
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest
import torch

import s2s

ROOT = Path(__file__).parent.parent

# one function per statement that fails, in forward or in backward; FAILS marks its line
FUNCTION = """

@s2s.autograd_script
def {name}(x, w):
    {before}
    s = torch.sigmoid(x)
    {forward}

    def backward(g):
        h = g * s
        {backward}
        return h * w, g * s

    return s * w, backward
"""
FORWARD = {
    "shapes": "s = s @ s.reshape(-1, 7)  # FAILS",
    "sizes": "t = torch.cat([s, s.reshape(1, -1)])  # FAILS",
    "argument": "t = torch.softmax(s, dim='x')  # FAILS",
    "raised": "if x.dim() == 1:\n        raise ValueError(f'no vector: {x.shape}')  # FAILS",
    "asserted": "assert x.dim() > 1, 'no vector'  # FAILS",
    "index": "t = s[99]  # FAILS",
    "long_call": "t = torch.add(\n        s,\n        s.reshape(-1, 7),  # FAILS\n    )",
    "helper": "t = flatten(s)  # FAILS",
    "inner": "def inner(v):\n        return v.reshape(-1, 7)  # FAILS\n\n    t = inner(s)",
    "calls": "t = shapes_of(s)  # FAILS",
}
BACKWARD = {
    "b_shapes": "h = h @ h.reshape(-1, 7)  # FAILS",
    "b_type": "t = h + {}  # FAILS",
    "b_raised": "raise ValueError(f'no gradient {h.shape}')  # FAILS",
    "b_asserted": "assert h.dim() > 1  # FAILS",
    "b_index": "t = [1, 2][h.dim() + 5]  # FAILS",
    "b_key": "t = {'a': 1}[str(h.dim())]  # FAILS",
    "b_attribute": "t = h.nothing  # FAILS",
    "b_comprehension": "t = [v.reshape(-1, 7) for v in (h, h)]  # FAILS",
    "b_helper": "t = flatten(h)  # FAILS",
    "b_twice": "assert not torch.is_grad_enabled()  # FAILS",
    "b_undefined": "t = flaten(h)  # FAILS",
}
# fails where the intermediate is computed again, for a second derivative alone
AGAIN = """

@s2s.autograd_script
def again(x, w):
    s = torch.sigmoid(x)
    u = s / (1 if not torch.is_grad_enabled() else s.new_zeros(()).item().hex)  # FAILS

    def backward(g):
        return g * u * w, g * u

    return u * w, backward
"""
# what autograd itself says of a gradient is raised after backward has returned
RETURNED = """

@s2s.autograd_script
def returned(x, w):
    def backward(g):
        return (g * w).repeat(2), g * x  # FAILS

    return x * w, backward
"""
HEAD = "import torch\nimport s2s\n\n\ndef flatten(t):\n    return t.reshape(-1, 7)\n"
SHAPES_OF = """

@s2s.autograd_script
def shapes_of(x):
    return x.reshape(-1, 7), lambda g: g.reshape(-1)
"""


def functions() -> str:
    text = HEAD + SHAPES_OF
    for name, statement in FORWARD.items():
        text += FUNCTION.format(name=name, before="", forward=statement, backward="")
    for name, statement in BACKWARD.items():
        text += FUNCTION.format(name=name, before="", forward="", backward=statement)
    return text + AGAIN + RETURNED


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The module of a user, with all of these functions."""
    path = tmp_path_factory.mktemp("user") / "user_functions.py"
    path.write_text(functions())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with pytest.warns(s2s.GradientWarning):  # a misspelt name, which is meant to fail here
        spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)


def forward(f: Any) -> None:
    f(*inputs())


def without_grad(f: Any) -> None:
    f(*(t.detach() for t in inputs()))


def backward(f: Any) -> None:
    f(*inputs()).sum().backward()


def second(f: Any) -> None:
    given = inputs()
    first = torch.autograd.grad(f(*given).sum(), given, create_graph=True)
    torch.autograd.grad(first[0].sum(), given)


def func_grad(f: Any) -> None:
    torch.func.grad(lambda x, w: f(x, w).sum())(*(t.detach() for t in inputs()))


def vmap(f: Any) -> None:
    torch.func.vmap(f)(torch.rand(2, 3), torch.rand(2, 3))


def jvp(f: Any) -> None:
    given = tuple(t.detach() for t in inputs())
    torch.func.jvp(f, given, given)


def operator(f: Any) -> None:
    f.op(*inputs())


def operator_backward(f: Any) -> None:
    f.op(*inputs()).sum().backward()


def scripted_forward(f: Any) -> None:
    f.scripted.forward(*inputs())


def scripted_backward(f: Any) -> None:
    _, saved = f.scripted.forward(*inputs())
    f.scripted.backward(torch.ones(3), *saved)


def lifted(f: Any) -> None:
    f.forward(*inputs())


def model(f: Any) -> Callable[..., Any]:
    scope: dict[str, Any] = {"f": f, "Tensor": torch.Tensor, "__name__": "model"}
    text = "def model(x: Tensor, w: Tensor):\n    return f(x, w) * 2\n"
    name = f"<model of {f.__name__}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), scope)
    made: Callable[..., Any] = torch.jit.script(scope["model"])
    return made


def in_a_scripted_model(f: Any) -> None:
    model(f)(*inputs())


def backward_of_a_scripted_model(f: Any) -> None:
    model(f)(*inputs()).sum().backward()


ERRORS: list[tuple[str, Callable[[Any], None]]] = [
    *((name, forward) for name in FORWARD),
    *((name, backward) for name in BACKWARD if name != "b_twice"),
    ("b_twice", second),
    ("again", second),
    ("raised", without_grad),
    ("b_shapes", func_grad),
    ("shapes", vmap),
    ("b_raised", jvp),
    ("asserted", operator),
    ("shapes", scripted_forward),
    ("b_shapes", scripted_backward),
    ("shapes", lifted),
    ("shapes", in_a_scripted_model),
    ("b_shapes", backward_of_a_scripted_model),
    ("b_asserted", operator_backward),
    ("returned", backward),
]


def place(user: ModuleType, name: str) -> tuple[str, int]:
    """Where the function of that name fails."""
    lines = Path(str(user.__file__)).read_text().split("\n")
    start = lines.index(f"def {name}(x, w):")
    return str(user.__file__), next(i for i in range(start, 999) if "# FAILS" in lines[i]) + 1


def named(error: BaseException) -> tuple[str, int] | None:
    """The innermost place that an error names outside of torch, s2s and its texts.

    TorchScript's errors are text: it quotes lines, or lists what Python had called.
    """
    message = str(error)
    quoted = re.findall(r"^.*# (\S+):(\d+)\n *~+ <--- HERE", message, re.M)
    listed = re.findall(r"^At:\n  (\S+)\((\d+)\)", message, re.M)
    if quoted or listed:
        file, line = (quoted or listed)[-1]
        return file, int(line)
    found = None
    for file, line in entries(error.__traceback__):
        ours = file.startswith("<") or file.startswith(str(ROOT / "s2s")) or "/torch/" in file
        if not ours and file != __file__:
            found = file, line
    return found


def entries(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    for summary in traceback.extract_tb(trace):
        yield summary.filename, summary.lineno or 0


def provoked(f: Any, way: Callable[[Any], None]) -> BaseException:
    try:
        way(f)
    except Exception as error:
        return error
    raise AssertionError(f"{f.__name__} did not fail in {way.__name__}")


def test_errors_name_the_line_that_the_user_wrote(user: ModuleType) -> None:
    assert len(ERRORS) == 34
    missed = []
    for name, way in ERRORS:
        error = provoked(getattr(user, name), way)
        found, wanted = named(error), place(user, name)
        if name.removeprefix("b_") == "helper":  # fails in the helper, which it was called from
            places = list(entries(error.__traceback__))
            assert places[-1] == (str(user.__file__), 6) and places[-2] == wanted
        elif name == "calls":
            outer = list(entries(error.__traceback__))
            assert wanted in outer and found == (str(user.__file__), 11)
        elif found != wanted:
            missed.append((name, way.__name__, found))
    # autograd checks what backward has returned, when no line of it is running any more
    assert [(name, way) for name, way, _ in missed] == [("returned", "backward")]


def test_the_entry_has_the_variables_and_the_error_stays_itself(user: ModuleType) -> None:
    error = provoked(user.raised, forward)
    assert type(error) is ValueError and str(error) == "no vector: torch.Size([3])"
    assert error.__context__ is None and error.__cause__ is None
    *_, (generated, _), (users, line) = traceback.walk_tb(error.__traceback__)
    assert generated.f_code.co_filename == "<s2s eager user_functions.raised>"
    assert (users.f_code.co_filename, line) == place(user, "raised")
    assert users.f_code.co_name == "raised"
    assert set(users.f_locals) == {"ctx", "x", "w", "s"}
    assert users.f_locals["s"] is generated.f_locals["s"]
    shown = "".join(traceback.format_exception(error))
    assert "    raise ValueError(f'no vector: {x.shape}')  # FAILS\nValueError: no vector" in shown
    assert "<the" not in shown and "<point>" not in shown


def test_an_error_keeps_nothing_alive(user: ModuleType) -> None:
    x, w = inputs()
    gone = weakref.ref(w)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError):
            user.raised(x, w)
        del w
        assert gone() is None
    finally:
        gc.enable()


def test_functions_look_as_if_they_were_not_guarded(user: ModuleType) -> None:
    f = user.shapes
    assert f.Function.__qualname__ == "Shapes"
    assert f.Function.backward.__qualname__ == "Shapes.backward"
    assert f.Function.forward.__code__.co_varnames == ("ctx", "x", "w", "s")
    assert inspect.getsource(f.Function.backward) in s2s.source(f)
    assert "<point>" not in vars(user)


STOPS = """
import os, pdb, sys
import torch
import s2s

@s2s.autograd_script
def halve(x):
    y = x / 2

    def backward(g):
        {stop}
        return g / 2 + 0 * y

    return y, backward

halve(torch.ones(2, requires_grad=True)).sum().backward()
"""


def debugged(tmp_path: Path, stop: str, commands: str, **environment: str) -> str:
    """What pdb prints."""
    file = tmp_path / "stops.py"
    file.write_text(STOPS.format(stop=stop))
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [
        sys.executable,
        *(["-m", "pdb", "-c", "c"] if stop != "breakpoint()" else []),
        str(file),
    ]
    done = subprocess.run(command, input=commands, text=True, capture_output=True, env=given)
    return done.stdout


def test_pdb_lists_the_text_that_runs(tmp_path: Path) -> None:
    printed = debugged(tmp_path, "breakpoint()", "l 1, 20\np g\nc\n", S2S_REFERENCE="0")
    assert "> <s2s eager stops.halve>" in printed
    assert "class Halve(torch.autograd.Function):" in printed and "def backward(ctx, g):" in printed
    assert "tensor([1., 1.])" in printed


def test_reference_stops_at_the_users_own_breakpoints(tmp_path: Path) -> None:
    printed = debugged(tmp_path, "breakpoint()", "l\np y\nc\n", S2S_REFERENCE="1")
    assert re.search(r"> \S+stops\.py\(1[123]\)backward\(\)", printed)
    assert "    def backward(g):" in printed and "<s2s " not in printed
    assert "tensor([0.5000, 0.5000]" in printed


def test_pdb_ends_up_at_the_users_line_after_an_error(tmp_path: Path) -> None:
    printed = debugged(tmp_path, "g.nothing", "p g\nl\nup\nl\nq\n", S2S_REFERENCE="0")
    assert re.search(r"> \S+stops\.py\(11\)backward\(\)\n-> g\.nothing", printed)
    assert "tensor([1., 1.])" in printed
    assert "> <s2s eager stops.halve>(14)backward()" in printed
    assert "    def backward(ctx, g):" in printed
