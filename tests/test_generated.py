"""Generated modules in a repository: they import without s2s, and stale ones are found."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import cases
from s2s import cli, generated, locate, pipeline
from s2s.emit.call import emit_call
from s2s.tracebacks import marked

ROOT = Path(__file__).parent.parent
ACTS = '''"""Activations."""
import math

import torch
import s2s
from torch import Tensor

SCALE = 2.0
TABLE = {"half": SCALE / 4}


def rate(v):
    return v * TABLE["half"] * math.pi


@s2s.autograd_script
def scaled(x: Tensor):
    def backward(grad_out):
        # the comment stays
        return 7 * grad_out * rate(x)

    return x * SCALE, backward


def make(alpha: float):
    @s2s.autograd_script
    def spike(v):
        return (v > 0).to(v.dtype), lambda g: 7 * g / (1 + alpha * v.abs())

    return spike


class Layer:
    @staticmethod
    @s2s.autograd_script
    def scale(x, *, a: float = 3.0):
        return x * a, lambda g: (7 * g * a, None)


class Other:
    @s2s.autograd_script
    def scale(self, x):
        return x * 2, lambda g: 7 * g
'''
LAYERS = """
import torch
import s2s
from .acts import scaled

@s2s.autograd_script
def both(x, y):
    z = scaled(x)
    return z * y, lambda g: (7 * g * y, 7 * g * scaled(x))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .acts import scaled\n")
    (package / "acts.py").write_text(ACTS)
    (package / "layers.py").write_text(LAYERS)
    (package / "plain.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.commands, list(arguments))


def without_s2s(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the current folder, where there is no s2s."""
    code = f"import sys\nsys.modules['s2s'] = None\n{code}"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


# --- importable modules ---------------------------------------------------------------------------


def test_a_package_becomes_modules_that_import_without_s2s(project: Path) -> None:
    result = run("dump", "src", "--write", "gen")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "wrote gen/pkg/acts.py, 4 functions\nwrote gen/pkg/layers.py, 1 function\n"
    )
    done = without_s2s(
        "import torch\n"
        "from gen.pkg import acts, layers\n"
        "def grads(y, *xs): return [g.tolist() for g in torch.autograd.grad(y.sum(), xs)]\n"
        "x = torch.tensor([1.0, -2.0], requires_grad=True)\n"
        "y = torch.tensor([3.0, 4.0], requires_grad=True)\n"
        "print([round(g, 3) for g in grads(acts.scaled(x), x)[0]])\n"
        "print(grads(acts.spike(x, alpha=1.0), x))\n"
        "print(grads(acts.scale(x, a=2.0), x), grads(acts.scale_1(None, x), x))\n"
        "print(layers.both(x, y).tolist(), grads(layers.both(x, y), x, y))\n"
        "print(acts.Scaled.__name__, acts.rate.__name__, hasattr(acts, 'Layer'))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[10.996, -21.991]",
        "[[3.5, 2.3333332538604736]]",
        "[[14.0, 14.0]] [[7.0, 7.0]]",
        "[6.0, -16.0] [[21.0, 28.0], [14.0, -28.0]]",
        "Scaled rate False",
    ]


@pytest.mark.parametrize("form", ["torchscript", "func", "op"])
def test_other_forms_import_too(project: Path, form: str) -> None:
    assert run("dump", "src", "--write", "gen", "--form", form).exit_code == 0
    both = "gen.pkg.acts" if form == "torchscript" else "gen.pkg.acts, gen.pkg.layers"
    done = without_s2s(f"import {both}\nprint('fine')")
    assert done.stdout == "fine\n", done.stderr
    own = "from .acts import" in Path("gen/pkg/layers.py").read_text()
    assert own == (form != "torchscript")  # a scripted pair has no function beside it
    assert run("check", "src", "--generated", "gen").exit_code == 0


@pytest.mark.parametrize("form", ["eager", "func"])
@pytest.mark.parametrize("name", cases.NAMES)
def test_the_corpus_as_modules_computes_the_same(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = locate.module_of(cases.CORPUS / f"{name}.py")
    written = generated.generate(module, Path("gen"), form)
    assert written is not None
    real = builtins.__import__

    def hidden(wanted: str, *rest: Any) -> Any:
        if wanted.split(".")[0] == "s2s":
            raise ImportError("no s2s here")
        return real(wanted, *rest)

    scope: dict[str, Any] = {"__name__": name}
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", hidden)
        exec(compile(written.text, f"{name}.py", "exec"), scope)
    for function in cases.functions(name):
        assert function.__name__ in scope
    if form == "func" and not cases.flag(name, "TRANSFORMS") or name in ("spike_factory",):
        return
    plain = [f for f in cases.functions(name) if "." not in f.__qualname__]
    for function in plain:
        _same(function, scope[function.__name__], cases.load(name).inputs()[0])


def _same(one: Callable[..., Any], other: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """The same outputs and first gradients at some inputs."""
    results = []
    for function in (one, other):
        torch.manual_seed(0)
        copies = [_leaf(a) for a in given]
        keywords = copies.pop() if isinstance(copies[-1], dict) else {}
        outputs = function(*copies, **keywords)
        leaves = [t for a in [*copies, *keywords.values()] for t in _tensors(a) if t.requires_grad]
        flat = [t for t in _tensors(outputs) if t.requires_grad]
        grads = torch.autograd.grad([t.abs().sum() for t in flat], leaves, allow_unused=True)
        results.append((_tensors(outputs), grads))
    for a, b in zip(*([*r[0], *r[1]] for r in results)):
        assert (a is None and b is None) or torch.equal(a, b)


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        smooth = value.is_floating_point() or value.is_complex()
        return value.clone().requires_grad_(smooth) * 1 if smooth else value
    if isinstance(value, list):
        return [_leaf(v) for v in value]
    return {k: _leaf(v) for k, v in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, (list, tuple)) else []


def test_what_needs_s2s_is_imported_from_the_source(project: Path) -> None:
    (project / "src" / "pkg" / "acts.py").write_text(
        "import torch, s2s\n"
        "@s2s.autograd_script\n"
        "def inner(x):\n"
        "    return x * 1, lambda g: 7 * g\n"
        "LIST = [inner]\n"
        "@s2s.autograd_script\n"
        "def outer(x):\n"
        "    return x * len(LIST), lambda g: g * len(LIST)\n"
    )
    run("dump", "src/pkg/acts.py", "--write", "gen")
    assert "\nfrom pkg.acts import LIST\n" in Path("gen/pkg/acts.py").read_text()


# --- what is written and what is not --------------------------------------------------------------


def test_files_are_written_once_and_leftovers_removed(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    before = Path("gen/pkg/acts.py").stat().st_mtime_ns
    assert run("dump", "src", "--write", "gen").stdout == "2 modules as before\n"
    assert Path("gen/pkg/acts.py").stat().st_mtime_ns == before
    Path("gen/pkg/mine.py").write_text("x = 1\n")
    Path("src/pkg/layers.py").write_text("import s2s\n")
    result = run("dump", "src", "--write", "gen")
    assert "removed gen/pkg/layers.py: no function of src/pkg/layers.py" in result.stdout
    assert sorted(p.name for p in Path("gen/pkg").iterdir()) == ["acts.py", "mine.py"]


def test_one_file_leaves_the_others_alone(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    assert run("dump", "src/pkg/layers.py", "--write", "gen").stdout == "1 module as before\n"
    assert Path("gen/pkg/acts.py").exists()


def test_a_file_of_the_users_is_not_overwritten(project: Path) -> None:
    Path("gen/pkg").mkdir(parents=True)
    Path("gen/pkg/acts.py").write_text("mine = 1\n")
    result = run("dump", "src", "--write", "gen")
    assert result.exit_code == 2
    assert "was not written by s2s: it is not overwritten" in result.stderr
    assert Path("gen/pkg/acts.py").read_text() == "mine = 1\n"
    result = run("check", "src", "--generated", "gen")
    assert result.exit_code == 1 and "was not written by s2s" in result.stdout


def test_a_folder_as_output_is_the_same(project: Path) -> None:
    assert run("dump", "src", "-o", "gen/").exit_code == 0
    assert run("check", "src", "--generated", "gen").exit_code == 0


def test_one_file_holds_what_its_functions_read(project: Path) -> None:
    assert run("dump", "src/pkg/acts.py:scaled", "-o", "out.py").exit_code == 0
    done = without_s2s(
        "import torch, out\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "out.scaled(x).sum().backward()\n"
        "print([round(g, 3) for g in x.grad.tolist()])"
    )
    assert done.stdout == "[10.996, 10.996]\n", done.stderr  # 7 * 0.5 * pi


def test_files_that_mean_other_things_by_a_name_are_not_joined(project: Path) -> None:
    Path("src/pkg/more.py").write_text(ACTS.replace("scaled", "more").replace("2.0", "3.0"))
    Path("src/pkg/same.py").write_text(ACTS.replace("scaled", "same"))
    given = ["src/pkg/acts.py:scaled", "src/pkg/more.py:more"]
    result = run("dump", *given, "-o", "out.py")
    assert result.exit_code == 2 and not Path("out.py").exists()
    assert "SCALE of src/pkg/acts.py and SCALE of src/pkg/more.py" in result.stderr
    assert run("dump", given[0], "src/pkg/same.py:same", "-o", "out.py").exit_code == 0
    assert Path("out.py").read_text().count("import torch\n") == 1


def test_what_does_not_compile_does_not_stop_the_rest(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    text = Path("src/pkg/layers.py").read_text()
    Path("src/pkg/layers.py").write_text(text.replace("(7 * g * y, 7 * g * scaled(x))", "g"))
    Path("src/pkg/acts.py").write_text(ACTS.replace("7 *", "5 *"))
    result = run("dump", "src", "--write", "gen")
    assert result.exit_code == 1
    assert "S2S202" in result.stderr
    assert result.stdout == "wrote gen/pkg/acts.py, 4 functions\n"
    assert Path("gen/pkg/layers.py").exists()


def test_two_files_for_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "acts.py").write_text(ACTS)
    result = run("dump", "a", "b", "--write", "gen")
    assert result.exit_code == 2
    assert "a/acts.py and b/acts.py are both gen/acts.py" in result.stderr


@pytest.mark.parametrize("more", [["--form", "all"], ["--after", "save_sizes"], ["-o", "x.py"]])
def test_what_does_not_go_together(project: Path, more: list[str]) -> None:
    assert run("dump", "src", "--write", "gen", *more).exit_code == 2


# --- check --generated ----------------------------------------------------------------------------


def test_a_stale_module_is_shown_with_what_differs(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    assert run("check", "src", "--generated", "gen").stdout == (
        "no problems in 5 functions of 4 files\n"
    )
    Path("src/pkg/acts.py").write_text(ACTS.replace("7 * grad_out", "5 * grad_out"))
    result = run("check", "src", "--generated", "gen")
    assert result.exit_code == 1
    assert "stale gen/pkg/acts.py is not what src/pkg/acts.py compiles to now\n" in result.stdout
    assert "\n  -        return 7 * grad_out * rate(x)\n" in result.stdout
    assert "\n  +        return 5 * grad_out * rate(x)\n" in result.stdout
    assert "hint: run `s2s dump src --write gen`\n" in result.stdout
    line = int(result.stdout.split(":")[1])
    assert "7 * grad_out" in Path("gen/pkg/acts.py").read_text().splitlines()[line - 1]


def test_a_formatter_and_comments_make_nothing_stale(project: Path) -> None:
    run("dump", "src", "--write", "gen", "--marks")
    path = Path("gen/pkg/acts.py")
    path.write_text(path.read_text().replace("7 * grad_out", "(7 *\n            grad_out)"))
    Path("src/pkg/acts.py").write_text(
        "# one line more\n" + ACTS.replace("the comment stays", "it")
    )
    assert run("check", "src", "--generated", "gen").exit_code == 0


def test_missing_and_left_over_modules(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    os.unlink("gen/pkg/acts.py")
    os.rename("src/pkg/layers.py", "src/pkg/deeper.py")
    result = run("check", "src", "--generated", "gen", "--format", "json")
    assert result.exit_code == 1
    found = {(p["code"], p["file"]) for p in json.loads(result.stdout)["problems"]}
    assert found == {
        ("missing", "src/pkg/acts.py"),
        ("missing", "src/pkg/deeper.py"),
        ("leftover", "gen/pkg/layers.py"),
    }
    assert run("dump", "src", "--write", "gen").exit_code == 0
    assert run("check", "src", "--generated", "gen").exit_code == 0


def test_stale_modules_as_annotations(project: Path) -> None:
    run("dump", "src", "--write", "gen")
    Path("src/pkg/acts.py").write_text(ACTS.replace("7 * grad_out", "5 * grad_out"))
    first, last = run(
        "check", "src", "--generated", "gen", "--format", "github"
    ).stdout.splitlines()
    assert first.startswith("::error file=gen/pkg/acts.py,line=")
    assert "title=stale::gen/pkg/acts.py is not what" in first
    assert "%0A-        return 7 * grad_out * rate(x)" in first
    assert last == "1 problem in 5 functions of 4 files"


@pytest.mark.parametrize("stale", [False, True])
def test_the_hooks_for_pre_commit_run(project: Path, stale: bool) -> None:
    run("dump", "src", "--write", "gen")
    if stale:
        Path("src/pkg/acts.py").write_text(ACTS.replace("7 * grad_out", "5 * grad_out"))
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text()
    checks, compares = (line.split()[1:] for line in re.findall("entry: (.*)", hooks))
    assert run(*checks, "src/pkg/acts.py", "gen/pkg/acts.py").exit_code == 0
    (given,) = re.findall(r"args: \[(.*?)\]", hooks)
    assert given == "src, --generated, generated"
    assert run(*compares, "src", "--generated", "gen").exit_code == stale


# --- marks ----------------------------------------------------------------------------------------


def test_marks_say_which_line_a_line_comes_from(project: Path) -> None:
    text = run("dump", "src/pkg/acts.py:scaled", "--marks").stdout
    number = ACTS.splitlines().index("    return x * SCALE, backward") + 1
    assert f"\n        return x * SCALE  # acts.py:{number}\n" in text
    assert "\n        # the comment stays\n" in text
    assert "# acts.py" not in run("dump", "src/pkg/acts.py:scaled").stdout


@pytest.mark.parametrize("name", cases.NAMES)
def test_marks_change_no_program(name: str) -> None:
    for source in locate.functions(locate.target(str(cases.CORPUS / f"{name}.py"))):
        pair = pipeline.lift(pipeline.read(source))
        texts = [pipeline.emit(pair, form) for form in pipeline.FORMS]
        for emitted in (*texts, emit_call(pair)):
            text = marked(emitted, "file.py")
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(emitted.text))
            assert text.count("\n") == emitted.text.count("\n")
            assert "# file.py:" in text or emitted.form == "call"


def test_marks_leave_strings_alone(tmp_path: Path) -> None:
    path = tmp_path / "text.py"
    path.write_text(
        "import s2s\n"
        "@s2s.autograd_script\n"
        "def f(x):\n"
        "    s = '''one\n"
        "    two'''\n"
        "    return x * len(s), lambda g: (g *\n"
        "        len(s))\n"
    )
    text = run("dump", str(path), "--marks").stdout
    assert "s = '''one\n    two'''  # text.py:" in text
