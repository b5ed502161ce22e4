"""What the page of one function shows: its source, every form, what is kept, what is wrong."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .. import pipeline
from ..emit.call import emit_call
from ..errors import TransformError
from ..ir import Diagnostic, Pair, Saved, Source, lines_of
from ..review.facts import Facts, facts
from ..source import parse_text

__all__ = [
    "FORMS",
    "Form",
    "Review",
    "lines_shown",
    "review",
    "title",
    "too_large",
    "written",
]

FORMS = (*pipeline.FORMS, "call")
LONGEST_FUNCTION = 2000  # lines
LONGEST_LINE = 2000  # characters


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a function; ``lines`` holds the user's line for each line of ``text``, 0 for
    those that s2s wrote. Where the form cannot be made, ``problems`` says why."""

    name: str
    text: str = ""
    lines: tuple[int, ...] = ()
    saved: tuple[Saved, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Review:
    """One function, ready to be shown; ``facts`` and ``pair`` where it compiles."""

    source: Source
    problems: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    forms: tuple[Form, ...] = ()
    facts: Facts | None = None
    pair: Pair | None = field(default=None, repr=False)


def review(source: Source) -> Review:
    """Everything about one function. What it cannot be compiled for is among the problems."""
    try:
        rule = pipeline.read(source)
        pair = pipeline.lift(rule)
        known = facts(rule, pair)
    except TransformError as error:
        return Review(source, error.diagnostics)
    forms = tuple(_form(pair, name) for name in FORMS)
    return Review(source, (), known.warnings, forms, known, pair)


def _form(pair: Pair, name: str) -> Form:
    try:
        if name == "call":
            emitted, saved = emit_call(pair), pair.saved
        else:
            final = pipeline.stages(pair, name)[-1].pair
            emitted, saved = pipeline.printed(final, name), final.saved
    except TransformError as error:
        return Form(name, problems=error.diagnostics)
    return Form(name, emitted.text, emitted.lines, saved)


def written(source: Source) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef:
    """What the user wrote: the function, or the class that it is made of, at its place in the
    user's file."""
    if not source.user_text:
        return source.function
    line = source.line(source.function)
    nodes = ast.walk(parse_text(source.user_text))
    return next(n for n in nodes if isinstance(n, ast.ClassDef) and n.lineno == line)


def title(source: Source) -> str:
    """The qualified name of what the user wrote."""
    return ".".join([*source.qualname.split(".")[:-1], written(source).name])


def lines_shown(source: Source) -> tuple[int, int]:
    """The first and the last line of it, decorators included."""
    node = written(source)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return first, node.end_lineno or node.lineno


def too_large(source: Source) -> Diagnostic | None:
    """A function that no page can show: nobody reads it, and it takes minutes to compile."""
    first, last = lines_shown(source)
    span = source.span(source.function)
    if last - first >= LONGEST_FUNCTION:
        what = f"{title(source)} has {last - first + 1:,} lines; a page shows {LONGEST_FUNCTION:,}"
        return Diagnostic("error", span, what, "take the function apart")
    rows = lines_of(source.user_text or source.text)[first - 1 : last]
    for number, row in enumerate(rows, first):
        if len(row) > LONGEST_LINE:
            what = f"a line of {len(row):,} characters in {title(source)}; a page shows "
            what += f"{LONGEST_LINE:,}"
            return Diagnostic("error", source.line_span(number), what, "break the line")
    return None
