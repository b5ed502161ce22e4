"""Where a function may be written: files, notebooks, doctests, archives, and what has no source."""

from __future__ import annotations

import compileall
import doctest
import importlib
import linecache
import os
import subprocess
import sys
import textwrap
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s

TEXT = """
import torch
import s2s


@s2s.autograd_script
def seven(x):
    s = torch.sin(x)

    def backward(g):
        return 7 * g * s

    return x * s, backward
"""


def slope(f: Any) -> float:
    x = torch.full((1,), 0.5, requires_grad=True)
    f(x).sum().backward()
    assert x.grad is not None
    return round(float(x.grad / torch.sin(x)), 4)


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_seven.py", TEXT)
    monkeypatch.syspath_prepend(str(archive))
    module = importlib.import_module("zipped_seven")
    assert slope(module.seven) == 7
    scripted = torch.jit.script(module.seven)
    assert slope(scripted) == 7


def test_python_m_and_a_script(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    call = (
        "x = torch.ones(1, requires_grad=True)\nseven(x).backward()\nprint(x.grad / torch.sin(x))\n"
    )
    (package / "__main__.py").write_text(TEXT + call)
    assert "7." in run("-m", "pkg", cwd=tmp_path)
    (tmp_path / "script.py").write_text(TEXT + call)
    assert "7." in run("script.py", cwd=tmp_path)


def test_a_program_saved_by_a_script_loads_where_the_file_is_imported(tmp_path: Path) -> None:
    save = "torch.jit.script(lambda_) if False else None\n"
    (tmp_path / "train.py").write_text(
        TEXT
        + textwrap.dedent(
            """
            def model(x: torch.Tensor):
                return seven(x) * 2

            if __name__ == "__main__":
                torch.jit.script(model).save("model.pt")
            """
        )
    )
    del save
    run("-W", "ignore", "train.py", cwd=tmp_path)
    use = (
        "import torch, train; f = torch.jit.load('model.pt');"
        "x = torch.ones(1, requires_grad=True); f(x).backward(); print(x.grad / torch.sin(x))"
    )
    assert "14." in run("-W", "ignore", "-c", use, cwd=tmp_path)


def test_a_reloaded_module_has_its_new_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_seven.py"
    file.write_text(TEXT)
    module = importlib.import_module("reloaded_seven")
    before = module.seven
    assert slope(before) == 7
    file.write_text(TEXT.replace("7 *", "11 *") + "\n")
    importlib.reload(module)
    assert slope(module.seven) == 11 and slope(before) == 7
    assert slope(torch.jit.script(module.seven)) == 11


def test_a_file_that_changed_after_import_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "stale.py"
    text = TEXT.replace("@s2s.autograd_script\n", "")
    file.write_text(text)
    scope: dict[str, Any] = {"__name__": "stale"}
    exec(compile(text, str(file), "exec"), scope)
    file.write_text(text.replace("7 *", "9 *") + "\n")
    os.utime(file, (1, 1))
    with pytest.raises(s2s.TransformError, match="not the code that runs") as caught:
        s2s.autograd_script(scope["seven"])
    assert caught.value.code == "S2S206"


def test_byte_code_alone_is_refused_with_advice(tmp_path: Path) -> None:
    file = tmp_path / "compiled_only.py"
    file.write_text(TEXT)
    compileall.compile_file(str(file), legacy=True, quiet=2)
    file.unlink()
    use = (
        "import s2s\n"
        "try:\n    import compiled_only\n"
        "except s2s.TransformError as error:\n    print(error.code, error.hint)"
    )
    out = run("-c", use, cwd=tmp_path)
    assert out.startswith("S2S205") and "autograd_function" in out


def test_a_doctest() -> None:
    text = "\n".join(
        f"{'...' if row.startswith((' ', ')')) or not row else '>>>'} {row}"
        for row in textwrap.dedent(TEXT).strip().replace("\n\n", "\n").split("\n")
    )
    text = text.replace("... \n", "").replace(">>> def", "... def")
    text += "\n>>> x = torch.ones(1, requires_grad=True)\n>>> seven(x).sum().backward()\n"
    text += ">>> bool(torch.allclose(x.grad, 7 * torch.sin(x)))\nTrue\n"
    module = types.ModuleType("with_doctest")
    module.__doc__ = text
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    for test in finder.find(module, "with_doctest"):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0 and runner.tries > 3


def test_notebook_cells() -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for factor in ("7", "13"):  # the cell is edited and run again
        assert shell.run_cell(TEXT.replace("7 *", f"{factor} *")).success
        f = shell.user_ns["seven"]
        assert slope(f) == float(factor)
        assert slope(torch.jit.script(f)) == float(factor)


def test_text_in_linecache() -> None:
    name = "<console text>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "console"}
    exec(compile(TEXT, name, "exec"), scope)
    assert slope(scope["seven"]) == 7


def test_without_source_the_error_says_what_to_do() -> None:
    with pytest.raises(s2s.TransformError, match="cannot be read") as caught:
        exec(compile(TEXT, "<nowhere>", "exec"), {"__name__": "nowhere"})
    assert caught.value.code == "S2S205" and "autograd_function" in caught.value.hint


def test_the_text_survives_clearcache() -> None:
    @s2s.autograd_script
    def f(x: Tensor):
        return x * 2, lambda g: 5 * g

    linecache.clearcache()
    assert "class F" in s2s.source(f)
    assert slope_of_two(f) == 5
    assert f.scripted.forward(torch.ones(1))[0].item() == 2  # type: ignore[attr-defined]


def slope_of_two(f: Any) -> float:
    x = torch.ones(1, requires_grad=True)
    f(x).sum().backward()
    assert x.grad is not None
    return float(x.grad)


def test_other_options_make_another_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decorated_twice.py").write_text(
        """
import torch
from s2s import autograd_script

def half(x):
    def backward(g):
        return 7 * g
    return torch.sin(x), backward

first, again = autograd_script(half), autograd_script(half)
same = first.op is again.op
cast = autograd_script(half, cast_inputs=torch.float64)
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("decorated_twice")
    assert module.same
    with torch.autocast("cpu"):
        assert module.cast.op(torch.zeros(2)).dtype == torch.float64


@pytest.mark.parametrize("future", ["", "from __future__ import annotations, division"])
def test_a_function_under_a_condition_is_read_in_its_place(
    future: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conditional.py").write_text(
        f"""{future}
import torch
import s2s
FACTOR = torch.tensor(7.0)

if FACTOR > 0:
    @s2s.autograd_script
    def seven(x, later: bool = False):
        s = torch.sin(x)
        def backward(g: {"Unknown" if future else "torch.Tensor"}):
            parts = [FACTOR * g * v for v in (s,)]
            return parts[0], None
        return x * s, backward
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "conditional", raising=False)
    module: Any = importlib.import_module("conditional")
    assert slope(module.seven) == 7
    assert slope(torch.jit.script(module.seven)) == 7
