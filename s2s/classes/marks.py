"""Where the lines of a rewritten text come from.

Before a tree is taken apart, each statement gets a comment in front with the line that it stands
on; the comments travel with the statements, and are read off the text in the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

__all__ = ["mark", "marked", "unmarked"]

_MARK = re.compile(r"\s*#@(\d+)$")


def mark(line: int) -> cst.EmptyLine:
    """The comment that says where the following statement comes from."""
    return cst.EmptyLine(comment=cst.Comment(f"#@{line}"))


class _Mark(cst.CSTTransformer):
    """Marks every statement, and gives each a line of its own."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, before: int) -> None:
        super().__init__()
        self.before = before

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.BaseStatement]:
        if not isinstance(original_node, (cst.BaseStatement, cst.SimpleStatementSuite)):
            return updated_node
        place = mark(self.get_metadata(PositionProvider, original_node).start.line + self.before)
        if isinstance(updated_node, cst.SimpleStatementSuite):
            return cst.IndentedBlock(_apart(updated_node, (), place))
        above = (*getattr(updated_node, "leading_lines", ()), place)
        if isinstance(updated_node, cst.SimpleStatementLine) and len(updated_node.body) > 1:
            return cst.FlattenSentinel(_apart(updated_node, above, place))
        return updated_node.with_changes(leading_lines=above)


def _apart(
    node: cst.SimpleStatementLine | cst.SimpleStatementSuite,
    above: Sequence[cst.EmptyLine],
    place: cst.EmptyLine,
) -> list[cst.BaseStatement]:
    """``a; b`` as two marked lines."""
    bare = [small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for small in node.body]
    lines = [cst.SimpleStatementLine([small], leading_lines=[place]) for small in bare]
    lines[0] = lines[0].with_changes(leading_lines=above or [place])
    lines[-1] = lines[-1].with_changes(trailing_whitespace=node.trailing_whitespace)
    return list(lines)


def marked(text: str, first: int) -> cst.FunctionDef:
    """A function, or a method at whatever depth, with a mark on each statement.

    ``first`` is the number of the first line of ``text`` in its file.
    """
    nested = text[:1].isspace()
    whole = MetadataWrapper(
        cst.parse_module(f"if True:\n{text}\n" if nested else f"{text}\n"), unsafe_skip_copy=True
    )
    node: cst.CSTNode = whole.visit(_Mark(first - 1 - nested)).body[0]
    if isinstance(node, cst.If):
        node = node.body.body[0]
    assert isinstance(node, cst.FunctionDef)
    return node


def unmarked(text: str) -> tuple[str, tuple[int, ...]]:
    """The text without its marks, and the line that each of its lines comes from, 0 for none.

    >>> unmarked("#@7\\nx = f(\\n    1)\\n#@9\\ny = 2")
    ('x = f(\\n    1)\\ny = 2', (7, 8, 9))
    """
    rows: list[str] = []
    lines: list[int] = []
    current = 0
    for row in text.split("\n"):
        found = _MARK.match(row)
        if found:
            current = int(found[1])
            continue
        rows.append(row)
        lines.append(current if row.strip() else 0)
        # a comment stands in front of its statement, whose mark follows
        current += bool(current) and not row.lstrip().startswith("#")
    return "\n".join(rows), tuple(lines)
