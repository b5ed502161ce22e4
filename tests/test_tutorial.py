"""The tutorial: every file in it is written, every command run, and prints what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from s2s.cli import commands
from s2s.commands.tutorial import TEXT

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.S | re.M)


def printed(command: str, folder: Path) -> str:
    """What a command line of the tutorial prints, in a folder."""
    program, *arguments = command.split()
    start = [sys.executable, *(["-m", "s2s"] if program == "s2s" else []), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "S2S_REFERENCE": "0"}
    done = subprocess.run(start, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 or "check" in command, done.stderr
    return done.stdout


def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    text = TEXT.read_text("utf-8")
    asked = 0

    def followed(block: re.Match[str]) -> str:
        nonlocal asked
        language, body = block.groups()
        if language == "python":
            name = body.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(body, "utf-8")
            return block[0]
        asked += 1
        command = body.splitlines()[0].removeprefix("$ ")
        return f"```console\n$ {command}\n{printed(command, tmp_path)}```"

    real = BLOCK.sub(followed, text)
    if os.environ.get("S2S_UPDATE_GOLDEN") == "1":
        TEXT.write_text(real, "utf-8")
    assert asked >= 6 and (tmp_path / "review" / "snake.snake.html").exists()
    assert real == text


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(commands, ["tutorial"])
    assert result.exit_code == 0 and result.stdout == TEXT.read_text("utf-8")
