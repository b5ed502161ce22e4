"""A file to rewrite: its rows, with their line ends, its encoding and where each row came from.

What no edit touches comes out byte for byte as it went in.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import Span, replace

__all__ = ["Edit", "FileText", "Row", "edited", "position", "removed", "with_rows"]

Position = tuple[int, int]  # row from 0, character from 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line without its end, the end, and the line of the user's file that it comes from."""

    text: str
    end: str
    line: int


@dataclass(frozen=True, slots=True)
class FileText:
    """A file as rows."""

    path: str
    rows: tuple[Row, ...]
    encoding: str
    bom: bool
    original: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(row.text for row in self.rows)

    @property
    def content(self) -> bytes:
        """What is written: the rows with their own ends, in the file's encoding."""
        content = "".join(row.text + row.end for row in self.rows).encode(self.encoding)
        return codecs.BOM_UTF8 + content if self.bom else content

    @property
    def end(self) -> str:
        """The usual line end."""
        counted = Counter(row.end for row in self.rows if row.end)
        return counted.most_common(1)[0][0] if counted else "\n"

    def line(self, row: int) -> int:
        """The user's line of a row; the nearest above a row that is new."""
        return next((r.line for r in self.rows[row::-1] if r.line), 1)

    def span(self, node: ast.AST) -> Span:
        """The place in the user's file of a node of the tree of ``text``."""
        line = self.line(getattr(node, "lineno", 1) - 1)
        text = self.original[line - 1] if line <= len(self.original) else ""
        return Span(self.path, line, len(text) - len(text.lstrip()) + 1, text)

    @classmethod
    def read(cls, path: str, content: bytes) -> FileText:
        """Raises SyntaxError or UnicodeDecodeError where the bytes are no text."""
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        bom = content.startswith(codecs.BOM_UTF8)
        encoding = encoding.removesuffix("-sig") if bom else encoding
        text = content[len(codecs.BOM_UTF8) * bom :].decode(encoding)
        parts = re.split(r"(\r\n|\r|\n)", text)
        ends = [*parts[1::2], ""]
        rows = tuple(Row(t, e, i) for i, (t, e) in enumerate(zip(parts[::2], ends), 1))
        return cls(path, rows, encoding, bom, tuple(parts[::2]))


@dataclass(frozen=True, slots=True)
class Edit:
    """Text in the place of what stands from ``start`` up to ``end``."""

    start: Position
    end: Position
    new: str


def position(file: FileText, line: int, column: int) -> Position:
    """A position from what a tree says: line from 1, column in bytes of UTF-8."""
    before = file.rows[line - 1].text.encode()[:column]
    return line - 1, len(before.decode(errors="replace"))


def edited(file: FileText, edits: Sequence[Edit]) -> FileText:
    """The file with all edits made; none may overlap another."""
    rows = list(file.rows)
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        (top, left), (bottom, right) = edit.start, edit.end
        text = rows[top].text[:left] + edit.new + rows[bottom].text[right:]
        parts = text.split("\n")
        made = [Row(part, file.end, 0) for part in parts]
        made[0] = replace(made[0], line=rows[top].line)
        made[-1] = replace(made[-1], end=rows[bottom].end, line=rows[bottom].line)
        rows[top : bottom + 1] = made
    return replace(file, rows=tuple(rows))


def with_rows(
    file: FileText, first: int, last: int, texts: Sequence[str], lines: Sequence[int] = ()
) -> FileText:
    """The rows from ``first`` up to, not including, ``last`` replaced by others.

    ``lines`` are those of the user's file that the new rows come from.
    """
    known = [*lines, *[0] * (len(texts) - len(lines))]
    made = [Row(text, file.end, line) for text, line in zip(texts, known)]
    if made and last == len(file.rows):
        made[-1] = replace(made[-1], end=file.rows[-1].end)
    return replace(file, rows=(*file.rows[:first], *made, *file.rows[last:]))


def removed(file: FileText, first: int, last: int) -> FileText:
    """Without some rows, and without the larger part of the blank lines that then meet."""
    above = first
    while above > 0 and not file.rows[above - 1].text.strip():
        above -= 1
    below = last
    while below < len(file.rows) and not file.rows[below].text.strip():
        below += 1
    if below == len(file.rows):  # nothing follows: the end of the file stays as it is
        return replace(file, rows=(*file.rows[:above], *file.rows[last:]))
    kept = max(first - above, below - last)
    space = file.rows[above:first] if first - above == kept else file.rows[last:below]
    return replace(file, rows=(*file.rows[:above], *space, *file.rows[below:]))
