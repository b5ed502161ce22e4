"""``import s2s`` put where a reader looks for it, and imports that nothing needs any more."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ..names import walk
from ..source import parse_text
from .scopes import mentions
from .text import FileText, removed, with_rows

__all__ = ["with_import", "without_unused"]

_Import = (ast.Import, ast.ImportFrom)


def with_import(file: FileText, name: str, alias: str, before: int) -> FileText:
    """The file with ``import name``, called ``alias``, above the row ``before``.

    It goes among the imports, beside torch's where there are such.
    """
    tree = parse_text(file.text)
    if any(_imports(s, name, alias) and s.lineno <= before for s in tree.body):
        return file
    text = f"import {name}" + (f" as {alias}" if alias != name else "")
    tops = [
        s
        for s in tree.body
        if isinstance(s, _Import) and s.lineno <= before and _root(s) != "__future__"
    ]
    if not tops:
        return _first(file, tree, text)
    anchor = next((s for s in tops if _root(s) == "torch"), tops[-1])
    block = _block(tops, tops.index(anchor))
    plain = [s for s in block if isinstance(s, ast.Import)]
    earlier = [s for s in plain if s.names[0].name.lower() < name]
    if earlier:
        at = earlier[-1].end_lineno or earlier[-1].lineno
    elif plain:
        at = plain[0].lineno - 1
    else:
        at = (anchor if _root(anchor) == "torch" else block[0]).lineno - 1
    return with_rows(file, at, at, [text])


def _imports(statement: ast.stmt, name: str, alias: str) -> bool:
    return isinstance(statement, ast.Import) and any(
        a.name == name and (a.asname or a.name) == alias for a in statement.names
    )


def _root(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ImportFrom):
        return "." if statement.level else (statement.module or "").split(".")[0]
    assert isinstance(statement, ast.Import)
    return statement.names[0].name.split(".")[0]


def _block(tops: Sequence[ast.stmt], index: int) -> Sequence[ast.stmt]:
    """The imports on the lines right around one of them."""
    first = last = index
    while first and tops[first].lineno - (tops[first - 1].end_lineno or 0) <= 1:
        first -= 1
    while last + 1 < len(tops) and tops[last + 1].lineno - (tops[last].end_lineno or 0) <= 1:
        last += 1
    return tops[first : last + 1]


def _first(file: FileText, tree: ast.Module, text: str) -> FileText:
    """The only import of a file: below its docstring, and what it imports from the future."""
    head = [s for i, s in enumerate(tree.body) if _is_head(s, i)]
    if head:
        at = head[-1].end_lineno or head[-1].lineno
        return with_rows(file, at, at, ["", text])
    at = _top(tree.body[0]) - 1 if tree.body else len(file.rows)
    above = at
    while above and file.rows[above - 1].text.startswith("#"):
        above -= 1
    return with_rows(file, above or at, above or at, [text, ""])


def _is_head(statement: ast.stmt, index: int) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return index == 0 and isinstance(statement, ast.Expr) and _is_text(statement.value)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _top(statement: ast.stmt) -> int:
    lines: list[int] = [
        statement.lineno,
        *(d.lineno for d in getattr(statement, "decorator_list", [])),
    ]
    return min(lines)


def without_unused(file: FileText, before: FileText, origins: Collection[str]) -> FileText:
    """The file without imports of ``origins`` that ``before`` read and that nothing reads now.

    ``origins`` are full names such as ``torch.autograd.Function``. What ``__all__`` or a string
    names stays.
    """
    tree = parse_text(file.text)
    gone = _read(before) - _read(file)
    strings = {n.value for n in walk(tree) if isinstance(n, ast.Constant)}
    for statement in reversed(tree.body):
        if not isinstance(statement, _Import) or _shares_line(statement, tree.body):
            continue
        kept = [
            a
            for a in statement.names
            if _origin(statement, a) not in origins
            or (a.asname or a.name.split(".")[0]) not in gone
            or (a.asname or a.name) in strings
        ]
        if len(kept) < len(statement.names):
            file = _with_names(file, statement, kept)
    return file


def _read(file: FileText) -> set[str]:
    every = mentions(file.text, parse_text(file.text))
    return {m.name for m in every if not m.binds}


def _origin(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(statement, ast.ImportFrom):
        return f"{'.' * statement.level}{statement.module or ''}.{alias.name}"
    return alias.name


def _shares_line(statement: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    last = statement.end_lineno or statement.lineno
    return any(
        s is not statement and s.lineno <= last and _end(s) >= statement.lineno for s in body
    )


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _with_names(
    file: FileText, statement: ast.Import | ast.ImportFrom, kept: Sequence[ast.alias]
) -> FileText:
    """An import of fewer names; none is no statement."""
    first, last = statement.lineno - 1, _end(statement)
    if not kept:
        return removed(file, first, last)
    if last - first > 1:  # over several lines: as it is, with a name too many
        return file
    node = (
        ast.ImportFrom(statement.module, list(kept), statement.level)
        if isinstance(statement, ast.ImportFrom)
        else ast.Import(list(kept))
    )
    rest = file.rows[first].text.encode()[statement.end_col_offset :].decode()
    return with_rows(file, first, last, [ast.unparse(node) + rest], [file.rows[first].line])
