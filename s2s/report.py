"""What the command gives out: diagnostics in three styles, coloured text, whole files."""

from __future__ import annotations

import json
import os
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from .ir import Diagnostic, Span

__all__ = [
    "as_github",
    "as_json",
    "as_text",
    "is_coloured",
    "one_line",
    "print_coloured",
    "rows",
    "write_whole",
]

_WIDTH = 96  # of a source line, around the column that is meant
_LONGEST = 400  # of any other line


def as_text(problem: Diagnostic, coloured: bool = False, warning: bool = False) -> str:
    """``file:line:column: code message``, the source line with a caret, notes and hint."""
    code = _coloured(problem.code, "33" if warning else "31") if coloured else problem.code
    kind = "warning: " if warning else ""
    rows = [f"{one_line(str(problem.span))}: {code} {kind}{one_line(problem.message)}"]
    rows += _excerpt(problem.span)
    rows += [f"  {one_line(note)}" for note in problem.notes]
    rows.append(f"  hint: {one_line(problem.hint)}")
    return "\n".join(rows)


def as_json(
    problems: Sequence[Diagnostic], warnings: Sequence[Diagnostic], counts: Mapping[str, int]
) -> str:
    """One object with all problems and warnings, and how much was looked at."""
    found = {"problems": rows(problems), "warnings": rows(warnings)}
    return json.dumps({**found, **counts}, indent=2)


def rows(problems: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Problems as plain data."""
    return [
        {
            "code": p.code,
            "file": p.span.file,
            "line": p.span.line,
            "column": p.span.column,
            "message": p.message,
            "notes": p.notes,
            "hint": p.hint,
        }
        for p in problems
    ]


def as_github(problem: Diagnostic, kind: str = "error") -> str:
    """A workflow command that GitHub shows beside the line."""
    span = problem.span
    file = os.path.relpath(span.file) if os.path.isabs(span.file) else span.file
    place = f"file={_property(file)},line={span.line},col={span.column}"
    message = "\n".join([problem.message, *problem.notes, f"hint: {problem.hint}"])
    return f"::{kind} {place},title={_property(problem.code)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def one_line(text: str) -> str:
    """The text on one line of bounded length, with nothing in it that a terminal would obey.

    >>> one_line("a\\x1b[31m\\nb")
    'a?[31m b'
    """
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def _excerpt(span: Span) -> list[str]:
    """The source line and a caret below its column; of a long line, the part around it."""
    if not span.text.strip():
        return []
    column = max(0, min(span.column - 1, len(span.text)))
    start = 0 if len(span.text) <= _WIDTH else max(0, column - _WIDTH // 2)
    shown = one_line(span.text[start : start + _WIDTH])
    before = sum(_cells(c) for c in shown[: column - start])
    number = f"{span.line:>5} | "
    return [f"{number}{shown.rstrip()}", f"{'':>5} | {' ' * before}^"]


def _cells(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[1;{colour}m{text}\x1b[0m"


def is_coloured(stream: TextIO) -> bool:
    """Does a stream lead to a terminal that is to have colours?"""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def print_coloured(text: str) -> None:
    """Python on a terminal, in its own colours; the characters are those of ``text``."""
    from rich.console import Console
    from rich.syntax import Syntax

    syntax = Syntax(text, "python", theme="ansi_dark", background_color="default")
    Console(soft_wrap=True, highlight=False).print(syntax.highlight(text), end="")


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file so that nobody ever sees half of it; text as UTF-8. Raises OSError."""
    content = text.encode() if isinstance(text, str) else text
    if path.exists() and not path.is_file() and not path.is_dir():  # /dev/stdout, a pipe
        path.write_bytes(content)
        return
    real = Path(os.path.realpath(path))  # a link stays one
    mask = os.umask(0)
    os.umask(mask)
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
