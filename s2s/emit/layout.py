"""What the forms share: names, headers, joining statements to text with a line map."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import libcst as cst

from ..ir import Emitted, Pair, Param, Stmt, lines_of
from ..names import fresh, of_kind, walk
from ..syntax import code, expression, renamed_text

__all__ = [
    "Line",
    "as_list",
    "camel",
    "class_name",
    "file_name",
    "header",
    "indented",
    "inside_strings",
    "module_text",
    "own",
    "parameters",
    "simple_default",
    "statement_lines",
]


class Line(NamedTuple):
    """A line of generated text, the user's line it comes from (0: ours), and whether it lies
    inside a string, where indentation would change what it says."""

    text: str
    line: int = 0
    raw: bool = False


def camel(name: str) -> str:
    """A class name for a function name.

    >>> camel("layer_norm"), camel("_hard_mish"), camel("swish2")
    ('LayerNorm', 'HardMish', 'Swish2')
    """
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Function"


def class_name(pair: Pair, suffix: str = "") -> str:
    """The name of the generated class; a clash with a name the function uses gets ``_1``."""
    return fresh(camel(pair.name) + suffix, pair.taken)


def file_name(form: str, pair: Pair) -> str:
    """The name under which a text is compiled and shown in tracebacks."""
    module = f"{pair.source.module}." if pair.source.module else ""
    return f"<s2s {form} {module}{pair.source.qualname}>"


def indented(lines: Iterable[Line], depth: int) -> list[Line]:
    """The lines, moved right; blank lines stay empty, and strings keep what they say."""
    space = " " * depth
    return [
        line._replace(text=space + line.text) if line.text and not line.raw else line
        for line in lines
    ]


def statement_lines(body: Sequence[Stmt], names: Mapping[str, str] | None = None) -> list[Line]:
    """The text of statements, each line with the user's line it comes from.

    ``names`` stand for others in it: ``{"eps": "ctx.eps"}``.
    """
    names = names or {}
    lines: list[Line] = []
    for statement in body:
        text = code(statement.node).rstrip("\n")
        if any(n.id in names for n in of_kind(statement.tree, ast.Name)):
            text = renamed_text(text, names)
        inside = inside_strings(text)
        leading = len(getattr(statement.node, "leading_lines", ()))
        for index, row in enumerate(text.split("\n")):
            number = statement.line + max(0, index - leading) if statement.line else 0
            lines.append(Line(row, number, index in inside))
    return lines


def inside_strings(text: str) -> set[int]:
    """Which lines of a text start inside a string."""
    if "\n" not in text or not ('"' in text or "'" in text):
        return set()
    found: set[int] = set()
    for node in walk(ast.parse(text)):
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and node.end_lineno:
            if isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes)):
                continue
            found.update(range(node.lineno, node.end_lineno))
    return found


def header(pair: Pair) -> list[str]:
    """The import statements and two blank lines."""
    return [*import_lines(pair.imports), "", ""]


def import_lines(statements: Sequence[str]) -> list[str]:
    """Import statements, the standard library first and apart; the others in their order."""
    standard = [i for i in statements if _module(i) in sys.stdlib_module_names]
    others = [i for i in statements if i not in standard]
    gap = [""] if standard and others else []
    return [*sorted(standard), *gap, *others]


def _module(statement: str) -> str:
    return statement.split()[1].split(".")[0]


def own(*texts: str) -> list[Line]:
    """Lines that s2s wrote."""
    return [Line(row) for text in texts for row in text.split("\n")]


def module_text(
    form: str, pair: Pair, lines: Sequence[Line], names: Sequence[str], extra: int = 0
) -> Emitted:
    """The finished text of one form."""
    text = "\n".join(line.text for line in lines).rstrip("\n") + "\n"
    numbers = tuple(_users_lines(pair, lines))
    file = file_name(form, pair)
    return Emitted(form, text, file, tuple(names), numbers, extra, pair.source.file)


def _users_lines(pair: Pair, lines: Sequence[Line]) -> Iterator[int]:
    """The line map. Inside a rewritten statement the lines have moved: the same text, nearest.
    A line that s2s wrote and that reads as one of the user's repeats it, for a second derivative;
    the head of a function comes from the head of the user's.
    """
    function = pair.source.function
    first, last = function.lineno, function.end_lineno or function.lineno
    places = _places(pair.source.text, first, last)
    heads = _heads(pair)
    for line in lines:
        text = line.text.strip() if line.line else line.text.strip().replace("ctx.", "")
        found = places.get(text) if line.line or "=" in text or "(" in text else None
        number = min(line.line, last)
        if found:
            number = min(found, key=lambda one: abs(one - line.line))
        elif not line.line and text.startswith("def "):
            number = heads.get(text[4:].partition("(")[0], 0)
        yield pair.source.user_line(number)


@functools.lru_cache(maxsize=16)  # of one function, in all its forms
def _places(text: str, first: int, last: int) -> Mapping[str, Sequence[int]]:
    """Where each line of a part of a file stands, with and without its comment."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(lines_of(text)[first - 1 : last], first):
        for line in {row.strip(), row.partition("  #")[0].strip()}:
            found.setdefault(line, []).append(number)
    return found


def _heads(pair: Pair) -> dict[str, int]:
    """The functions that s2s writes, and the lines where the user's that they come from begin."""
    name, function = pair.name, pair.source.function
    found = dict.fromkeys(("forward", "setup_context", name, f"{name}_forward"), function.lineno)
    nested = [n for n in walk(function) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    # the last statement is the user's return; those in front may be forward's, computed again
    last = next((s.line for s in reversed(pair.backward) if s.line), 0)
    around = [n.lineno for n in nested[1:] if n.lineno <= last <= (n.end_lineno or n.lineno)]
    backward = min(around, default=0)
    return found | dict.fromkeys(("backward", "jvp", "pullback", f"{name}_backward"), backward)


def simple_default(param: Param) -> str | None:
    """The default's text if it is a plain literal, which can be written again."""
    if param.default is None:
        return None
    try:
        node = expression(param.default)
    except cst.ParserSyntaxError:
        return None
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        node = node.expression
    literal = isinstance(node, (cst.Integer, cst.Float, cst.SimpleString))
    constant = isinstance(node, cst.Name) and node.value in ("None", "True", "False")
    return param.default if literal or constant else None


def parameters(pair: Pair) -> list[str]:
    """Forward's parameters, positional, with the defaults that can be repeated.

    Names of enclosing functions follow, and no default may stand before them; a list of tensors
    comes last, as ``*tensors``.
    """
    lifted = [c for c in pair.constants if c.lifted]
    shown: list[str] = []
    keep = not lifted
    for param in reversed([p for p in pair.params if p.name != pair.listed]):
        default = simple_default(param)
        keep = keep and default is not None
        shown.insert(0, f"{param.name}={default}" if keep else param.name)
    star = [f"*{pair.listed}"] if pair.listed else []
    return [*shown, *(c.name for c in lifted), *star]


def as_list(pair: Pair) -> list[str]:
    """``tensors = list(tensors)``, where the user's parameter is a list and not ``*tensors``."""
    given = [p.name for p in pair.params if p.name == pair.listed and p.kind != "variadic"]
    return [f"{name} = list({name})" for name in given]
