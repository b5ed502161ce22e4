"""``s2s explain``: what the compiler made of a function, for a reviewer."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..ir import Diagnostic, Save, Span
from .shared import (
    EXIT_CODES,
    collecting,
    find_files,
    find_functions,
    find_target,
    format_option,
    of_classes,
    of_file,
    saving_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..ir import Source
    from ..review.facts import Facts

__all__ = ["explain"]

_PLAIN = 80  # columns where the output is no terminal and nothing says how wide it is to be


@click.command(epilog=EXIT_CODES)
@click.argument("targets", metavar="PATH_OR_MODULE[:NAME]...", nargs=-1, required=True)
@format_option("markdown", "a comment in a review")
@saving_options
@click.option("--classes", is_flag=True, help="Take autograd.Function classes, too.")
def explain(
    targets: tuple[str, ...],
    style: str,
    save: Save | None,
    recompute: tuple[str, ...],
    classes: bool,
) -> None:
    """Say what the compiler makes of decorated functions, for somebody who reviews them.

    For each function: what is kept between forward and backward, how, and who reads it; what each
    gradient needs; which forms exist, and the line that prevents one; whether second derivatives,
    forward mode and vmap hold, and why. All of it is read from the text: nothing is imported or
    run, so what depends on the values of a call is said with "as far as can be read".

    PATH_OR_MODULE is a .py file or the name of a module; NAME is a function in it, or an
    autograd.Function class. Without NAME: every function under autograd_script, or where there is
    none, every Function class. A folder stands for the .py files in it that have such functions.
    With --classes, files and folders stand for their functions and their classes.

    \b
    Examples:
      s2s explain model.py:swish
      s2s explain s2s.functions:layer_norm
      s2s explain src tests/acts.py
      s2s explain ops.py:Swish
      s2s explain model.py:attention --save least
      s2s explain model.py --format markdown > review.md
      s2s explain model.py --format json | jq '.functions[].kept[].name'

    A function that does not compile is reported as by `s2s check`, and the others are explained.
    """
    from .. import report

    problems: list[Diagnostic] = []
    sources = [s for target in targets for s in _functions(target, problems, classes)]
    found = facts_of(sources, problems, save, recompute or None)
    if style == "json":
        click.echo(as_json(found, problems))
    elif style == "markdown":
        click.echo("\n".join(as_markdown(one) for one in found), nl=False)
    else:
        coloured = report.is_coloured(sys.stdout)
        click.echo("\n".join(as_text(one, coloured) for one in found), nl=False)
    if style != "json":
        for problem in problems:
            click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)
    sys.exit(1 if problems else 0)


def _functions(target: str, problems: list[Diagnostic], classes: bool) -> list[Source]:
    """The functions of a file or module, or of all files of a folder."""
    if not Path(target).is_dir():
        return find_functions(find_target(target), problems, classes)
    lost: list[tuple[str, Path]] = []
    found: list[Source] = []
    for path, _ in find_files([Path(target)], lost):
        functions, others = of_file(path, False, classes, problems)
        found += [*functions, *of_classes(others, problems)]
    for why, path in lost:
        problems.append(Diagnostic("error", Span(str(path), 1), why, "see its permissions"))
    return found


def facts_of(
    sources: Sequence[Source],
    problems: list[Diagnostic],
    save: Save | None = None,
    recompute: Sequence[str] | None = None,
) -> list[Facts]:
    """The facts of the functions that compile; what is wrong with the others goes to problems.

    ``save`` and ``recompute`` stand in place of what the decorators say.
    """
    from .. import pipeline
    from ..review.facts import facts

    found: list[Facts] = []
    for source in sources:
        with collecting(problems, source.span(source.function)):
            rule = pipeline.read(source, save, recompute)
            found.append(facts(rule, pipeline.lift(rule)))
    return found


# --- for programs ---------------------------------------------------------------------------------


def as_json(found: Sequence[Facts], problems: Sequence[Diagnostic]) -> str:
    """One object: the facts of each function, field by field, and the problems of the others."""
    from .. import report

    answer = {"functions": [_plain(one) for one in found], "problems": report.rows(problems)}
    return json.dumps(answer, indent=2)


def _plain(facts: Facts) -> dict[str, Any]:
    from .. import report

    row = dataclasses.asdict(facts)
    row["file"], row["line"] = facts.span.file, facts.span.line
    del row["span"]
    return {**row, "warnings": report.rows(facts.warnings)}


# --- for a review ---------------------------------------------------------------------------------


def as_markdown(facts: Facts) -> str:
    """A section with a table for each question, as GitHub shows it."""
    from ..review import words

    rows = [f"### `{facts.signature}`", "", f"{words.place(facts)}: {words.summary(facts)}", ""]
    for title, head, body in _tables(facts):
        if body:
            rows += [f"**{title}**", "", _row(head), _row(["---"] * len(head))]
            rows += [*(_row(cells) for cells in body), ""]
    rows += [f"- {w.code}, line {w.span.line}: {w.message}" for w in facts.warnings]
    return "\n".join(rows) + ("\n" if facts.warnings else "")


def _row(cells: Iterable[str]) -> str:
    shown = (" ".join(c.split()).replace("|", "\\|") for c in cells)
    return f"| {' | '.join(shown)} |"


_Table = tuple[str, list[str], list[list[str]]]


def _tables(facts: Facts) -> list[_Table]:
    """Title, head and rows of each table."""
    from ..review import words

    kept = [[k.name, words.kept_what(k), words.kept_how(k), words.kept_why(k)] for k in facts.kept]
    gradients = [[g.input, g.text, words.gradient_why(g)] for g in facts.gradients]
    forms = [[f.name, "yes" if f.exists else "no", _with_line(f.why, f.line)] for f in facts.forms]
    claims = [[c.what, c.holds, _with_line(c.why, c.line)] for c in facts.derivatives]
    return [
        ("Kept for backward", ["name", "what", "kept as", "why"], kept),
        (
            "Memory",
            ["", "kept, in multiples of inputs"],
            [list(row) for row in words.memory(facts)],
        ),
        ("Gradients", ["of", "formula", ""], gradients),
        ("Forms", ["form", "exists", "why"], forms),
        ("Derivatives", ["", "holds", "why"], claims),
    ]


def _with_line(text: str, line: int) -> str:
    return f"{text} (line {line})" if line else text


# --- for a person ---------------------------------------------------------------------------------


def as_text(facts: Facts, coloured: bool, width: int | None = None) -> str:
    """The facts as tables of the width of the terminal."""
    from rich.console import Console
    from rich.text import Text

    from .. import report
    from ..review import words

    console = Console(
        file=io.StringIO(),
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        width=width or _width(coloured),
        highlight=False,
        legacy_windows=False,
    )
    console.print(Text(report.one_line(facts.signature), "bold"))
    console.print(Text(report.one_line(f"  {words.place(facts)}: {words.summary(facts)}")))
    for title, _, body in _tables(facts):
        if body:
            console.print(Text(f"\n{title}", "bold"))
            console.print(_rich([_stacked(cells) for cells in body]))
    for warning in facts.warnings:
        console.print()
        console.print(Text(report.as_text(warning, False, True), "yellow"))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(row.rstrip() for row in written.split("\n"))


def _width(coloured: bool) -> int:
    """The columns of the terminal, or what COLUMNS says."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if coloured or sys.stdout.isatty():
        return os.get_terminal_size(sys.stdout.fileno()).columns or _PLAIN
    return _PLAIN


def _stacked(cells: Sequence[str]) -> Sequence[str]:
    """Name, and below what and how it is kept the reason: four columns are too many."""
    if len(cells) < 4:
        return cells
    name, what, how, why = cells
    return name, f"{what}: {how}\n{why}"


def _rich(body: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from .. import report

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False, expand=False)
    for index in range(len(body[0])):
        table.add_column(overflow="fold", no_wrap=index == 0, max_width=24 if index == 0 else None)
    styles = {"yes": "green", "no": "red", "partly": "yellow"}
    for cells in body:
        shown = [
            Text("\n").join(Text(report.one_line(row), styles.get(c, "")) for row in c.split("\n"))
            for c in cells
        ]
        shown[0].stylize("cyan")
        table.add_row(*(Text("  ") + shown[0], *shown[1:]))
    return table
