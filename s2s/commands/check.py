"""``s2s check``: every problem of every function, and what may be a mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import is_warning
from ..ir import Diagnostic, Span
from .modules import compared, left_over
from .shared import EXIT_CODES, collecting, counted, find_files

if TYPE_CHECKING:
    from ..ir import Source

__all__ = ["check"]


@click.command(epilog=EXIT_CODES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=Path)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="For people, for programs, or for annotations in GitHub Actions.",
)
@click.option("--strict", is_flag=True, help="Count warnings as problems: exit with 1 for them.")
@click.option(
    "--generated",
    metavar="DIR",
    type=Path,
    help="Report what is stale in DIR, where `s2s dump --write DIR` wrote modules.",
)
def check(paths: tuple[Path, ...], style: str, strict: bool, generated: Path | None) -> None:
    """Report every problem of every decorated function, and what may be a mistake.

    What may be a mistake is a warning (S2S1..). The comment `# s2s: ignore[S2S102]` at the end of
    its line, or of the def line, says that it is meant. `s2s explain-code S2S102` shows an example.

    A folder stands for the .py files in it, at any depth; hidden folders, virtual environments,
    node_modules and __pycache__ are left out. Functions under autograd_function are not compiled,
    and so not checked.

    \b
    Examples:
      s2s check model.py
      s2s check src tests --format github
      s2s check src --generated generated

    --generated also reports generated modules that are missing, that differ from what the functions
    compile to now, and that are left over from functions that are gone. Comments and layout are not
    compared, so a formatter may run over DIR.
    """
    from .. import report

    lost: list[tuple[str, Path]] = []
    problems: list[Diagnostic] = []
    doubts: list[Diagnostic] = []
    files = functions = 0
    belonging: set[Path] = set()

    def every() -> Iterator[list[Diagnostic]]:
        """The problems file by file; those of the generated folder come last."""
        nonlocal files, functions
        for path, named in find_files(paths, lost):
            found: list[Diagnostic] = []
            functions += _check_file(path, named, found)
            files += 1
            if generated is not None and not any(not is_warning(p.code) for p in found):
                found += compared(path, generated, paths, belonging)
            yield found
        if generated is not None:
            yield left_over(generated, paths, belonging)

    for found in every():
        for problem in found:
            doubtful = is_warning(problem.code)
            (doubts if doubtful else problems).append(problem)
            if style == "text":
                click.echo(report.as_text(problem, report.is_coloured(sys.stdout), doubtful))
            elif style == "github":
                click.echo(report.as_github(problem, "warning" if doubtful else "error"))
    if style == "json":
        click.echo(report.as_json(problems, files, functions, doubts))
    elif files or not lost:
        among = f"{counted(functions, 'function')} of {counted(files, 'file')}"
        extra = f" and {counted(len(doubts), 'warning')}" if doubts else ""
        click.echo(f"{counted(len(problems), 'problem')}{extra} in {among}")
    for why, path in lost:
        click.echo(f"Error: {why}: {path}", err=True)
    sys.exit(2 if lost else 1 if problems or (strict and doubts) else 0)


def _check_file(path: Path, named: bool, problems: list[Diagnostic]) -> int:
    """Add the problems and warnings of one file; returns how many functions were checked."""
    from .. import locate, pipeline
    from ..source import from_file
    from ..warn import warnings_for

    sources: list[Source] = []
    with collecting(problems, Span(str(path), 1)):
        if named or b"autograd_script" in path.read_bytes():
            every = from_file(path, locate.module_of(path).name)
            sources += [source for source in every if locate.is_compiled(source)]
    for source in sources:
        with collecting(problems, source.span(source.function)):
            rule = pipeline.read(source)
            problems += warnings_for(rule)
            pair = pipeline.lift(rule)
            for form in pipeline.FORMS:
                pipeline.emit(pair, form)
    return len(sources)
