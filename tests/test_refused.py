"""What is refused: with which code, at which line, and what to write instead.

Every file of ``refused/`` holds a refused function, the line marked ``# <code> here``, and its
corrected twin.
"""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import s2s
from s2s.errors import CODES
from s2s.source import from_file

FILES = sorted((Path(__file__).parent / "refused").glob("*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"refused_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse(make: Any) -> s2s.TransformError:
    with pytest.raises(s2s.TransformError) as caught:
        make()
    error: s2s.TransformError = caught.value
    return error


every = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every
def test_is_refused_with_its_code_at_the_marked_line(path: Path) -> None:
    code = path.stem.split("_")[0]
    lines = path.read_text().splitlines()
    (line,) = [n for n, text in enumerate(lines, 1) if f"# {code} here" in text]
    error = refuse(load(path).refused)
    assert (error.code, error.lineno) == (code, line)
    assert error.filename == str(path)
    assert error.text == lines[line - 1]
    assert error.offset is not None and 1 <= error.offset <= len(lines[line - 1])


@every
def test_says_what_is_wrong_and_what_to_write(path: Path) -> None:
    error = refuse(load(path).refused)
    problem = error.diagnostics[0]
    assert problem.hint and f"hint: {problem.hint}" in str(error)
    assert str(error).startswith(f"[{problem.code}] {problem.message}")
    assert problem.message[-1] != "."
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.lineno, again.hint) == (str(error), error.lineno, error.hint)


@every
def test_the_corrected_twin_has_its_gradient(path: Path) -> None:
    module = load(path)
    inputs = [t.requires_grad_() for t in module.inputs()]
    assert torch.autograd.gradcheck(module.corrected(), inputs)


def test_every_code_of_a_single_function_has_an_example() -> None:
    shown = {path.stem.split("_")[0] for path in FILES}
    elsewhere = {"S2S205", "S2S206", "S2S215", "S2S301", "S2S302"}  # below
    assert shown | elsewhere == set(CODES)


# --- what no decorated function in a file can show ------------------------------------------------


def test_a_function_without_source() -> None:
    scope: dict[str, Any] = {"s2s": s2s}
    text = "@s2s.autograd_script\ndef f(x):\n    return x, lambda g: g\n"
    error = refuse(lambda: exec(compile(text, "<nowhere>", "exec"), scope))
    assert (error.code, error.filename) == ("S2S205", "<nowhere>")
    assert "linecache" in error.hint


def test_a_lambda() -> None:
    error = refuse(lambda: s2s.autograd_script(lambda x: (x, lambda g: g)))
    assert error.code == "S2S205"


def test_a_file_that_changed_after_import(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text("def f(x):\n    return 2 * x, lambda g: 2 * g\n")
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    path.write_text("def f(x):\n    return 3 * x, lambda g: 3 * g\n")
    error = refuse(lambda: s2s.autograd_script(scope["f"]))
    assert (error.code, error.filename) == ("S2S206", str(path))


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(x):\n    return (x\n")
    error = refuse(lambda: from_file(path, "broken"))
    assert (error.code, error.filename, error.lineno) == ("S2S215", str(path), 2)


def test_all_problems_come_at_once() -> None:
    def make() -> Any:
        @s2s.autograd_script
        def f(a: Any, b: Any) -> Any:
            n = 0

            def backward(g: Any) -> Any:
                nonlocal n
                g *= 2
                return g * b

            return a * b, backward

        return f

    error = refuse(make)
    assert [p.code for p in error.diagnostics] == ["S2S204", "S2S210", "S2S202"]
    assert all(f"[{p.code}]" in str(error) and p.hint in str(error) for p in error.diagnostics)


def test_an_error_names_both_counts() -> None:
    (path,) = [p for p in FILES if p.stem == "S2S202_one_gradient_for_two"]
    message = str(refuse(load(path).refused))
    assert "backward returns 1 gradient (g * b)" in message
    assert "multiply has 2 inputs (a, b)" in message
