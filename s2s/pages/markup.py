"""Python as lines of spans: what each part of a line is, and which captured value it names."""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape
from pygments import token
from pygments.lexers import PythonLexer

from ..names import writes

__all__ = ["Mark", "Piece", "html_of", "names_in", "outermost", "pieces", "visible"]

# the first that holds a token's type names its class in the style sheet
_CLASSES = (
    (token.Comment, "comment"),
    (token.String.Doc, "comment"),
    (token.String, "string"),
    (token.Number, "number"),
    (token.Keyword, "keyword"),
    (token.Operator.Word, "keyword"),
    (token.Name.Decorator, "decorator"),
    (token.Name.Function, "defined"),
    (token.Name.Class, "defined"),
    (token.Operator, "sign"),
    (token.Punctuation, "sign"),
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Piece(NamedTuple):
    """A part of a line: its text, its class, and the captured name that it reads or binds."""

    text: str
    kind: str = ""
    name: str = ""


class Mark(NamedTuple):
    """A place where a captured name stands. Lines from 1, columns from 0, in characters."""

    line: int
    start: int
    end: int
    name: str


def pieces(text: str, marks: Iterable[Mark] = ()) -> list[list[Piece]]:
    """The lines of a text, each as its pieces; joined they give the text back.

    >>> pieces("x = 1  # one", [Mark(1, 0, 1, "x")])[0][:3]
    [Piece(text='x', kind='', name='x'), Piece(text=' ', kind='', name=''), \
Piece(text='=', kind='sign', name='')]
    """
    rows: list[list[Piece]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        for index, part in enumerate(value.split("\n")):
            if index:
                rows.append([])
            if part:
                rows[-1].append(Piece(part, _class_of(kind)))
    found: dict[int, list[Mark]] = {}
    for mark in sorted(marks):
        found.setdefault(mark.line, []).append(mark)
    return [list(_cut(row, found.get(number, []))) for number, row in enumerate(rows, 1)]


def _class_of(kind: object) -> str:
    return next((name for group, name in _CLASSES if kind in group), "")


def _cut(row: list[Piece], marks: list[Mark]) -> Iterator[Piece]:
    """The pieces of a line, cut where a mark begins and ends."""
    column = 0
    for piece in row:
        end = column + len(piece.text)
        for mark in marks:
            if mark.start >= column and mark.end <= end:
                before = piece.text[: mark.start - column]
                if before:
                    yield piece._replace(text=before)
                yield Piece(piece.text[len(before) : mark.end - column], piece.kind, mark.name)
                piece = piece._replace(text=piece.text[mark.end - column :])
                column = mark.end
        if piece.text:
            yield piece
        column = end


def names_in(
    functions: Iterable[ast.AST], rows: Sequence[str], names: Mapping[str, str], whole: bool = False
) -> Iterator[Mark]:
    """Where variables of some functions stand; ``names`` says what each is shown as.

    ``rows`` are the lines of the text that was parsed. Parameters of inner functions and variables
    of comprehensions are others of the same name, and are left out; with ``whole``, for text that
    a user wrote, so are all variables of inner functions. ``ctx.alpha`` counts as ``alpha``.
    """
    for function in functions:
        for node, name in _named(function, frozenset(names), whole, True):
            row = rows[node.lineno - 1]
            column = node.col_offset
            if isinstance(node, ast.Attribute):
                column = (node.end_col_offset or 0) - len(name.encode())
            start = len(row.encode()[:column].decode(errors="replace"))
            if row[start : start + len(name)] == name:  # Python 3.11 misplaces what f-strings hold
                yield Mark(node.lineno, start, start + len(name), names[name])


def _named(
    node: ast.AST, names: frozenset[str], whole: bool, outermost: bool = False
) -> Iterator[tuple[ast.Name | ast.arg | ast.Attribute, str]]:
    if isinstance(node, ast.Name) and node.id in names:
        yield node, node.id
    elif isinstance(node, ast.arg) and node.arg in names:
        yield node, node.arg
    elif isinstance(node, ast.Attribute) and node.attr in names and _is_context(node.value):
        yield node, node.attr
    elif isinstance(node, _COMPREHENSIONS):
        bound = {n for g in node.generators for n in _bound(g.target)}
        yield from _named(node.generators[0].iter, names, whole)
        names -= bound
    elif isinstance(node, _FUNCTIONS) and not outermost:
        names -= _own(node, whole)
    for child in ast.iter_child_nodes(node):
        yield from _named(child, names, whole)


def _is_context(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and (node.id == "ctx" or node.id.startswith("ctx_"))


def _bound(target: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def _own(function: ast.AST, whole: bool) -> set[str]:
    """The variables of a function: its parameters, and with ``whole`` what its body binds."""
    arguments: ast.arguments = function.args  # type: ignore[attr-defined]
    own = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)}
    if whole and not isinstance(function, ast.Lambda):
        own.update(n for part in function.body for n in writes(part))  # type: ignore[attr-defined]
    return own


def outermost(tree: ast.AST) -> Iterator[ast.AST]:
    """The functions that stand in no other function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield node
        else:
            yield from outermost(node)


def html_of(row: Iterable[Piece], colours: Mapping[str, int] = {}) -> Markup:
    """The spans of one line. Characters that nobody sees are written out: they may make a line
    read as what it is not.

    >>> html_of([Piece("a<b"), Piece("x", "", "x")], {"x": 2})
    Markup('a&lt;b<span class="name c2">x</span>')
    """
    done = []
    for text, kind, name in row:
        shown = visible(text)
        if name in colours:
            kind = f"name c{colours[name]}"
        done.append(f'<span class="{kind}">{shown}</span>' if kind else shown)
    return Markup("".join(done))


def visible(text: str) -> Markup:
    """The text for a page, with every character in it that has no shape of its own spelled out.

    >>> visible("1 < 2\\u202e")
    Markup('1 &lt; 2<span class="odd" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>')
    """
    if text.isprintable():
        return escape(text)
    return Markup("").join(escape(c) if c in "\t\n" or c.isprintable() else _odd(c) for c in text)


def _odd(character: str) -> Markup:
    title = unicodedata.name(character, "a control character")
    shown = f"U+{ord(character):04X}"
    return Markup('<span class="odd" title="{}">{}</span>').format(title, shown)
