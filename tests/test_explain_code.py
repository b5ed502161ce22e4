"""`s2s explain-code`: every code has an example that shows it, and a twin that does not."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import s2s
from s2s import cli, codes
from s2s.errors import CODES, WARNINGS, GradientWarning

ROOT = Path(__file__).parent.parent
EVERY = sorted({**CODES, **WARNINGS})
EXPLAINED = sorted((ROOT / "tests" / "explained").glob("*.py"))

each_code = pytest.mark.parametrize("code", EVERY)
each_file = pytest.mark.parametrize("path", EXPLAINED, ids=lambda path: path.stem)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"explained_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(make: Any) -> tuple[list[tuple[str, str, int]], Any]:
    """Code, file and line of every error and warning that decorating gives, and what it makes."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            made = make()
        except s2s.TransformError as error:
            return [(p.code, p.span.file, p.span.line) for p in error.diagnostics], None
    mine = [w for w in given if issubclass(w.category, GradientWarning)]
    return [(str(w.message)[1:7], w.filename, w.lineno) for w in mine], made


def marked(path: Path) -> int:
    code = path.stem.split("_")[0]
    lines = path.read_text().splitlines()
    (line,) = [n for n, text in enumerate(lines, 1) if f"# {code} here" in text]
    return line


@each_file
def test_an_example_has_its_code_at_the_marked_line(path: Path) -> None:
    module = load(path)
    found, _ = told(getattr(module, "refused", None) or module.doubtful)
    assert [code for code, _, _ in found] == [path.stem.split("_")[0]]
    for _, file, line in found:
        if file == str(path):  # some are about a file that the example writes
            assert line == marked(path)


@each_file
def test_the_corrected_twin_has_no_code_and_a_right_gradient(path: Path) -> None:
    module = load(path)
    found, function = told(module.corrected)
    assert found == []
    assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in module.inputs()])


@each_code
def test_every_code_says_why_and_has_an_example(code: str) -> None:
    assert codes.WHY[code].endswith(".")
    assert codes.examples(code)
    kind = "doubtful" if code in WARNINGS else "refused"
    assert all(f"def {kind}():" in path.read_text() for path in codes.files(code))


@each_code
def test_explain_code_prints_the_files_that_the_tests_run(code: str) -> None:
    result = CliRunner().invoke(cli.commands, ["explain-code", code])
    assert result.exit_code == 0, result.output
    first, _, why, *_ = result.stdout.splitlines()
    assert first.startswith(f"{code} (") and codes.meaning(code) in first
    assert codes.WHY[code].startswith(why)
    for path in codes.files(code):
        lines = {line.strip().replace(" here", "") for line in path.read_text().splitlines()}
        lines |= {""}
        for example in codes.examples(code):
            assert example.title in result.stdout
        shown = [example for example in codes.examples(code) if example.title in path.read_text()]
        for line in [*shown[0].wrong.splitlines(), *shown[0].corrected.splitlines()]:
            assert line.strip() in lines
            assert line.strip() in result.stdout


def test_without_a_code_it_lists_them_all() -> None:
    result = CliRunner().invoke(cli.commands, ["explain-code"])
    assert [line.split()[0] for line in result.stdout.splitlines()] == EVERY
    assert "S2S202  error    backward returns the wrong number of gradients\n" in result.stdout
    assert "S2S101  warning  no gradient depends on an output gradient\n" in result.stdout


@pytest.mark.parametrize("spelled", ["s2s202", "202", "[S2S202]"])
def test_a_code_may_be_spelled_in_several_ways(spelled: str) -> None:
    result = CliRunner().invoke(cli.commands, ["explain-code", spelled])
    assert result.stdout.startswith("S2S202 (error)")


def test_an_unknown_code_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli.commands, ["explain-code", "S2S999"])
    assert result.exit_code == 2
    assert "no code S2S999" in result.stderr


def test_the_examples_of_an_installed_package_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    installed = tmp_path / "examples" / "refused"
    installed.mkdir(parents=True)
    (path,) = [p for p in codes.files("S2S204")][:1]
    (installed / path.name).write_text(path.read_text())
    monkeypatch.setattr(codes, "_PLACES", (tmp_path / "examples", tmp_path / "tests"))
    assert codes.files("S2S204") == [installed / path.name]
    assert codes.examples("S2S204")[0].title
