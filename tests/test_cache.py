"""The cache folder: the same texts, gradients, warnings and errors, whatever lies in it."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import s2s
from s2s import cache, decorator, pipeline

ROOT = Path(__file__).parent.parent
Text = str

SEVEN = """
import torch
import s2s

FACTOR = 7


@s2s.autograd_script
def seven(x):
    s = torch.sin(x)

    def backward(g):
        return FACTOR * g * s

    return x * s, backward
"""

DOUBTFUL = """
import torch
import s2s


@s2s.autograd_script
def product(x, w):
    def backward(g):
        return g * helper(w), None

    return x * w, backward
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing known from before."""
    place = tmp_path / "cache"
    monkeypatch.setenv("S2S_CACHE_DIR", str(place))
    monkeypatch.setattr(decorator, "_PREPARED", {})
    yield place


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were read and not found in the cache."""
    found: list[str] = []
    read = pipeline.read

    def counted(source: Any, *options: Any) -> Any:
        found.append(source.qualname)
        return read(source, *options)

    monkeypatch.setattr(pipeline, "read", counted)
    return found


def run(text: Text, path: Path, name: str = "written") -> ModuleType:
    """A module from a text, as a new process would import it."""
    decorator._PREPARED.clear()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def slope(f: Any, at: float = 0.5) -> float:
    x = torch.tensor([at], requires_grad=True)
    f(x).sum().backward()
    assert x.grad is not None
    return round((x.grad / torch.sin(x.detach())).item(), 4)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def test_what_a_gradient_needs_is_written_by_the_first_gradient(
    folder: Path, tmp_path: Path, reads: list[str]
) -> None:
    path = tmp_path / "m.py"
    first = run(SEVEN, path)
    first.seven(torch.zeros(2))
    few = len(entries(folder))
    path.write_text(SEVEN.replace("torch.sin", "torch.cos"))  # edited while the process runs
    assert slope(first.seven) == 7
    assert len(entries(folder)) == few + 1
    assert slope(run(SEVEN, path).seven) == 7 and reads == ["seven"]


# --- the same, cold and warm ----------------------------------------------------------------------

CORPUS = """
import json, sys, warnings
sys.path.insert(0, "tests")
import cases
from s2s import source

found = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    every = [f for name in cases.NAMES for f in cases.functions(name)]
for f in every:
    for form in ("eager", "func", "op", "call"):
        found[f"{f.__module__}.{f.__qualname__} {form}"] = source(f, form)
    found[f"{f.__module__}.{f.__qualname__} interface"] = repr(f.__s2s__.interface)
found["libraries"] = [name for name in ("libcst", "symtable", "torch._dynamo") if name in sys.modules]
for f in every[::3]:
    found[f"{f.__module__}.{f.__qualname__} torchscript"] = source(f, "torchscript")
found["warnings"] = [str(w.message) for w in caught if "S2S" in str(w.message)]
print(json.dumps(found))
"""


def test_the_corpus_has_the_same_texts_cold_and_warm(tmp_path: Path) -> None:
    environment = os.environ | {"S2S_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CORPUS]
    found = []
    for _ in range(2):
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, warm = found
    assert (cold.pop("libraries"), warm.pop("libraries")) == (["libcst", "symtable"], [])
    assert len(cold) > 300
    assert warm == cold


def test_a_second_run_reads_nothing(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    first = run(SEVEN, tmp_path / "m.py")
    assert reads == ["seven"]
    forms = ("eager", "torchscript", "func", "op", "call")
    texts = [s2s.source(first.seven, form) for form in forms]
    again = run(SEVEN, tmp_path / "m.py")
    assert slope(again.seven) == 7
    assert again.seven(torch.ones(1)).item() == pytest.approx(0.8415, abs=1e-4)
    assert torch.func.grad(again.seven)(torch.tensor(0.5)).item() == pytest.approx(3.356, abs=1e-3)
    assert [s2s.source(again.seven, form) for form in forms] == texts
    assert reads == ["seven"]
    assert again.seven.__s2s__.pair.name == "seven"  # what is asked for is read
    assert reads == ["seven", "seven"]


CLASS = """
import torch
import s2s


class Seven(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sin(x)
        ctx.save_for_backward(s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        (s,) = ctx.saved_tensors
        return 7 * g * s


seven = s2s.from_function(Seven)
"""


def test_classes_are_kept_too(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    for number in (1, 1):
        seven = run(CLASS, tmp_path / "a.py").seven
        assert slope(seven) == 7.0 and len(reads) == number
        assert (seven.__name__, seven.__module__) == ("seven_fn", "written")
    assert "def backward(g):" in s2s.source(seven, "closure")  # this is not kept
    warm = "import sys, a; print('libcst' in sys.modules, a.seven.__name__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    for libraries in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", warm],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        assert done.stdout.split() == [str(libraries), "seven_fn"]
    # another text, or another name, is another function
    assert slope(run(CLASS.replace("7 *", "5 *"), tmp_path / "a.py").seven) == 5.0
    named = CLASS.replace("(Seven)", "(Seven, 'six')")
    assert run(named, tmp_path / "a.py").seven.__name__ == "six"
    changed = run(CLASS, tmp_path / "a.py")
    (tmp_path / "a.py").write_text(CLASS.replace("7 *", "5 *"))
    with pytest.raises(s2s.TransformError, match="is not the code that runs"):
        s2s.from_function(changed.Seven)


def test_other_types_of_arguments_are_kept_too(
    folder: Path, tmp_path: Path, reads: list[str]
) -> None:
    text = SEVEN.replace("def seven(x):", "def seven(x, y):").replace("* s\n", "* s, None\n")
    values = []
    for _ in range(2):
        module = run(text.replace("x * s, b", "x * s + y, b"), tmp_path / "m.py")
        at_two = functools.partial(module.seven, y=2)
        values.append((module.seven(torch.ones(1), 2.0).item(), slope(at_two)))
    assert values[0] == values[1]
    assert reads == ["seven"]


def test_warnings_come_again(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    shown = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(DOUBTFUL, tmp_path / "m.py")
        shown.append([(str(w.message), w.filename, w.lineno, w.category) for w in caught])
    assert shown[0] == shown[1]
    assert [message[1:7] for message, *_ in shown[0]] == ["S2S104"]


def test_a_name_that_appears_later_is_no_mistake(folder: Path, tmp_path: Path) -> None:
    def codes(text: Text) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(text, tmp_path / "m.py")
        return [str(w.message)[1:7] for w in caught]

    assert "S2S104" in codes(DOUBTFUL)
    builtins.helper = abs  # type: ignore[attr-defined]
    try:
        assert "S2S104" not in codes(DOUBTFUL)
    finally:
        del builtins.helper  # type: ignore[attr-defined]
    assert "S2S104" in codes(DOUBTFUL)


def test_errors_come_again(folder: Path, tmp_path: Path) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(s2s.TransformError) as caught:
            run(SEVEN.replace("FACTOR * g * s", "FACTOR * g * s, None"), tmp_path / "m.py")
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "S2S202" in messages[0]
    assert entries(folder) == []  # an error is not kept


def test_tracebacks_show_the_text(folder: Path, tmp_path: Path) -> None:
    shown = []
    for _ in range(2):
        module = run(SEVEN.replace("* s\n", "* s.no\n"), tmp_path / "m.py")
        try:
            slope(module.seven)
        except AttributeError as error:
            rows = traceback.extract_tb(error.__traceback__)
            shown.append([(r.lineno, r.line) for r in rows if "<s2s" in r.filename])
    assert shown[0] == shown[1]
    assert shown[0][-1][1] == "return ctx.FACTOR * g * s.no"


# --- never out of date ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * s, b", "x * s + 1, b"),  # the function itself
        ("FACTOR = 7", "FACTOR = torch.ones(1)"),  # a global that it reads: no number any more
        ("import torch\n", "import torch\nfrom torch import sin\n"),  # what else the file binds
        ("\n\n@s2s", "\n# a line more\n\n@s2s"),  # where it stands
    ],
)
def test_a_changed_file_is_read_again(
    folder: Path, tmp_path: Path, reads: list[str], old: str, new: str
) -> None:
    run(SEVEN, tmp_path / "m.py")
    changed = run(SEVEN.replace(old, new), tmp_path / "m.py")
    assert reads == ["seven", "seven"]
    assert changed.seven(torch.ones(1)).item() == pytest.approx(0.8415 + ("+ 1" in new), abs=1e-4)
    run(SEVEN, tmp_path / "m.py")
    assert len(reads) == 2  # the first one is still there


def test_an_enclosing_function_counts(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    factory = "import s2s\n\ndef make(k):\n    {}\n" + textwrap.indent(
        SEVEN.split("\n\n\n", 1)[1].replace("FACTOR", "k"), "    "
    )
    text = factory + "    return seven\n"
    first = run("import torch\n" + text.format("pass"), tmp_path / "m.py").make(7)
    assert slope(first) == 7 and reads == ["make.<locals>.seven"]
    second = run("import torch\n" + text.format("k = k + 1"), tmp_path / "m.py").make(7)
    assert slope(second) == 8 and len(reads) == 2
    third = run("import torch\n" + text.format("k = k + 1"), tmp_path / "m.py").make(1)
    assert slope(third) == 2 and len(reads) == 2  # the value of k is no part of the text


def test_other_options_are_another_key(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    texts = []
    for options in ("", '(save="all")', '(recompute="s")', '(save="all")'):
        text = SEVEN.replace("@s2s.autograd_script", f"@s2s.autograd_script{options}")
        path = tmp_path / "m.py"
        texts.append(s2s.source(run(text.replace("sin(x)", "exp(x)"), path).seven))
    assert len(reads) == 3
    assert texts[1] == texts[3] and texts[1] != texts[2]


@pytest.mark.parametrize("what", ["s2s", "torch"])
def test_another_version_is_another_key(
    folder: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    run(SEVEN, tmp_path / "m.py")
    if what == "s2s":
        monkeypatch.setattr(cache, "versions", lambda: "another")
    else:
        monkeypatch.setattr(torch, "__version__", "9.9")
    run(SEVEN, tmp_path / "m.py")
    assert reads == ["seven", "seven"]


def test_a_text_that_is_not_what_runs_is_refused_as_ever(folder: Path, tmp_path: Path) -> None:
    run(SEVEN, tmp_path / "m.py")
    decorator._PREPARED.clear()
    code = compile(SEVEN.replace("torch.sin", "torch.cos"), str(tmp_path / "m.py"), "exec")
    with pytest.raises(s2s.TransformError, match="S2S206"):
        exec(code, {"__name__": "written"})


# --- what can be wrong with a folder --------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff\x00" * 400,
        lambda data: data.replace(b"torch.sin", b"torch.cos"),  # valid JSON, other text
        lambda data: data.split(b"\n")[0] + b"\n[1, 2]",
    ],
)
def test_a_damaged_entry_is_written_again(
    folder: Path, tmp_path: Path, reads: list[str], damage: Any
) -> None:
    module = run(SEVEN, tmp_path / "m.py")
    assert slope(module.seven) == 7 and s2s.source(module.seven, "func")
    whole = {path: path.read_bytes() for path in entries(folder)}
    assert len(whole) == 3
    for path, data in whole.items():
        path.write_bytes(damage(data))
    again = run(SEVEN, tmp_path / "m.py")
    assert slope(again.seven) == 7 and "torch.sin" in s2s.source(again.seven, "func")
    assert reads == ["seven", "seven"]
    assert {path: path.read_bytes() for path in entries(folder)} == whole


def test_an_entry_of_another_shape_counts_as_none(folder: Path, tmp_path: Path) -> None:
    run(SEVEN, tmp_path / "m.py")
    (path,) = entries(folder)
    cache.write(path.stem, {"interface": {"name": "seven"}, "call": {}})
    assert slope(run(SEVEN, tmp_path / "m.py").seven) == 7


def test_it_can_be_turned_off(
    folder: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S2S_CACHE", "0")
    for _ in range(2):
        assert slope(run(SEVEN, tmp_path / "m.py").seven) == 7
    assert reads == ["seven", "seven"] and not folder.exists()


@pytest.mark.skipif(os.name != "posix", reason="no such permissions")
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can be written to by others.*S2S_CACHE_DIR"):
        module = run(SEVEN, tmp_path / "m.py")
    assert slope(module.seven) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        run(SEVEN, tmp_path / "m.py")
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="no such permissions")
def test_what_is_made_belongs_to_the_user_alone(folder: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run(SEVEN, tmp_path / "m.py")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in entries(folder)] == [0o600]


def test_a_place_where_no_folder_can_be_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("S2S_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert slope(run(SEVEN, tmp_path / "m.py").seven) == 7


def test_a_folder_that_disappears_is_no_error(folder: Path, tmp_path: Path) -> None:
    run(SEVEN, tmp_path / "m.py")
    for path in entries(folder):
        path.unlink()
    folder.rmdir()
    assert slope(run(SEVEN, tmp_path / "m.py").seven) == 7


def test_old_entries_go_when_there_are_too_many(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_SWEEP_EVERY", 1)
    monkeypatch.setattr(cache, "LIMIT", 30_000)
    stale = folder / "x.1.2.part"
    for number in range(20):
        cache.write(f"{number:064}", {"text": "x" * 3000})
        path = folder / f"{number:064}.json"
        os.utime(path, (number, number))  # the higher the younger
        if number == 10:
            stale.write_text("")
            os.utime(stale, (0, 0))
    left = entries(folder)
    assert sum(path.stat().st_size for path in left) <= 30_000
    assert left[-1].stem == f"{19:064}" and len(left) >= 5
    assert not stale.exists()


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SEVEN)
    code = "import m, torch; x = torch.ones(1, requires_grad=True); m.seven(x).backward()"
    code += "; print(round((x.grad / torch.sin(x)).item()))"
    environment = os.environ | {
        "S2S_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
    }
    command = [sys.executable, "-c", code]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in started] == ["7"] * 3
    names = [path.name for path in (tmp_path / "cache").iterdir()]
    assert len(names) == 2 and all(name.endswith(".json") for name in names)
