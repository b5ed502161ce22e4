"""The README: its code runs and prints what it shows, its commands work, its picture is true."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from click.testing import CliRunner

from s2s.cli import commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


class Block(NamedTuple):
    language: str
    text: str


BLOCKS = [Block(*match) for match in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.S | re.M)]
TOUR = "\n\n".join(block.text for block in BLOCKS if block.language == "python")


# what `s2s diff` is shown with: swish, and swish with noise
NOISY = "torch.sigmoid(x + torch.randn_like(x))"
CHANGED = [("before.py", "", ""), ("after.py", "torch.sigmoid(x)", NOISY)]


@pytest.fixture
def tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Python blocks as one file, in the current folder."""
    path = tmp_path / "tour.py"
    path.write_text(TOUR, "utf-8")
    for name, old, new in CHANGED:
        (tmp_path / name).write_text(TOUR[: TOUR.index("\n\nx = ")].replace(old, new) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return path


def test_the_tour_prints_what_the_readme_shows(tour: Path) -> None:
    scope: dict[str, Any] = {"__name__": "tour"}
    compared = 0
    for index, block in enumerate(BLOCKS):
        if block.language != "python":
            continue
        before = TOUR[: TOUR.index(block.text)].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * before + block.text, str(tour), "exec"), scope)
        following = BLOCKS[index + 1]
        if following.language == "text":
            assert printed.getvalue().strip() == following.text.strip()
            compared += 1
    assert compared >= 6
    assert torch.is_tensor(scope["x"])


@pytest.mark.parametrize("text", [b.text for b in BLOCKS if b.language == "console"])
def test_commands_print_what_the_readme_shows(tour: Path, text: str) -> None:
    command, _, shown = text.partition("\n")
    prompt, program, *arguments = command.split()
    assert (prompt, program) == ("$", "s2s")
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code in (0, 1), result.output
    assert result.stdout == shown


def test_the_first_command_dumps_and_runs() -> None:
    (command,) = [b.text for b in BLOCKS if b.language == "sh" and "s2s dump" in b.text]
    command = command.replace("python -c", f"{sys.executable} -c")
    command = command.replace("s2s dump", f"{sys.executable} -m s2s dump")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("import torch\n\n\nclass Swish(")
    assert done.stdout.endswith("tensor([0.9277, 0.9277, 0.9277])\n")


def test_the_install_and_test_commands_are_those_of_ci() -> None:
    shell = "".join(block.text for block in BLOCKS if block.language == "sh")
    script = (ROOT / ".ci" / "run").read_text()
    arguments = "-c constraints.txt -e '.[test]'"
    assert f"pip install {arguments}" in shell and arguments in script
    assert "python -m pytest" in shell and "python -m pytest" in script


def test_the_architecture_names_every_file() -> None:
    table = README.partition("## Architecture")[2].partition("## Limits")[0]
    named = set(re.findall(r"`((?:\w+/)?\w+\.py)`", table))
    package = ROOT / "s2s"
    files = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    files = {f for f in files if not f.endswith("__init__.py") and not f.startswith("functions/")}
    assert named == files
