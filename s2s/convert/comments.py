"""Comments that the closure form of a class would lose: above methods, or beside what goes."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence

__all__ = ["comments_in", "is_pragma", "with_comments"]

Rows = list[tuple[str, int]]  # each row with the line that it comes from, 0 for none
_PRAGMA = re.compile(r"#\s*(noqa|type:|pylint|pragma|fmt:|isort|pyright|mypy|ruff|yapf|flake8)")


def comments_in(text: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it stands alone, of each comment of a text that parses."""
    rows = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not rows[token.start[0] - 1][: token.start[1]].strip()
            yield token.start[0], token.string, alone


def is_pragma(comment: str) -> bool:
    """Does it speak to a tool about the statement on its line?"""
    return bool(_PRAGMA.match(comment))


def with_comments(text: str, first: int, last: int, rows: Sequence[tuple[str, int]]) -> Rows:
    """The rows of a function with what they lack of the comments of lines ``first`` to ``last``.

    Each goes in front of the row that comes from its line or the next below it.
    """
    done = list(rows)
    kept = Counter(c for _, c, _ in comments_in("\n".join(row for row, _ in rows)))
    lost: list[tuple[int, str]] = []
    places: dict[str, int] = {}  # where a comment that is kept stands in the file
    whole = "\n".join(text.split("\n")[first - 1 : last])
    for above, comment, alone in comments_in(whole):
        line = above + first - 1
        places.setdefault(comment, line)
        if kept[comment]:
            kept[comment] -= 1
        elif alone or not is_pragma(comment):
            lost.append((line, comment))
    for line, comment in lost:
        index = _place(done, line)
        while index and places.get(done[index - 1][0].strip(), 0) > line:
            index -= 1
        done.insert(index, (_indent(done, index) + comment, line))
    return done


def _place(rows: Rows, line: int) -> int:
    """The row in front of which a comment of a line goes; behind the last, where none is below."""
    starts = _logical([row for row, _ in rows])
    below = [(n, i) for i, (row, n) in enumerate(rows) if n >= line and i in starts]
    below = [(n, i) for n, i in below if not rows[i][0].lstrip().startswith("#") or n > line]
    return min(below)[1] if below else len(rows)


def _logical(rows: Sequence[str]) -> set[int]:
    """The rows where a statement begins, or a comment stands."""
    found: set[int] = set()
    fresh = True
    for token in tokenize.generate_tokens(io.StringIO("\n".join(rows)).readline):
        if token.type == tokenize.NEWLINE:
            fresh = True
        elif token.type == tokenize.COMMENT:
            if fresh:
                found.add(token.start[0] - 1)
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and fresh:
            found.add(token.start[0] - 1)
            fresh = False
    return found


def _indent(rows: Rows, index: int) -> str:
    """The indentation of a row; at the end, that of the last row of the function itself."""
    if index < len(rows):
        return _space(rows[index][0])
    head = next(i for i, (row, _) in enumerate(rows) if row.lstrip().startswith("def "))
    body = next((r for r, _ in rows[head + 1 :] if r.strip() and r[:1].isspace()), "    ")
    last = [r for r, _ in rows if r.strip()][-1]
    return min(_space(body), _space(last), key=len) or "    "


def _space(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]
