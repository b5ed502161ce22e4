"""``s2s check``: every problem of every function, and what may be a mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import is_warning
from ..ir import Diagnostic, Span, replace
from .modules import compared, left_over
from .shared import (
    EXIT_CODES,
    collecting,
    counted,
    find_files,
    find_named,
    find_target,
    format_option,
    of_classes,
    of_file,
)

if TYPE_CHECKING:
    from ..classes.find import FunctionClass
    from ..ir import Source

__all__ = ["check"]


@click.command(epilog=EXIT_CODES)
@click.argument("targets", metavar="PATH[:NAME]...", nargs=-1, required=True)
@format_option("github", "annotations in GitHub Actions")
@click.option("--classes", is_flag=True, help="Check autograd.Function classes, too.")
@click.option("--strict", is_flag=True, help="Count warnings as problems: exit with 1 for them.")
@click.option(
    "--generated",
    metavar="DIR",
    type=Path,
    help="Report what is stale in DIR, where `s2s dump --write DIR` wrote modules.",
)
def check(
    targets: tuple[str, ...], style: str, classes: bool, strict: bool, generated: Path | None
) -> None:
    """Report every problem of every decorated function, and what may be a mistake.

    What may be a mistake is a warning (S2S1..). The comment `# s2s: ignore[S2S102]` at the end of
    its line, or of the def line, says that it is meant. `s2s explain-code S2S102` shows an example.

    A folder stands for the .py files in it, at any depth; hidden folders, virtual environments,
    node_modules and __pycache__ are left out. Functions under autograd_function are not compiled,
    and so not checked.

    An autograd.Function class is checked where NAME names it, and with --classes every one in the
    files and folders: what of it has no closure form (S2S22.), and all that is said of functions.

    \b
    Examples:
      s2s check model.py
      s2s check src tests --format github
      s2s check ops.py:Swish
      s2s check src --classes
      s2s check src --generated generated

    --generated also reports generated modules that are missing, that differ from what the functions
    compile to now, and that are left over from functions that are gone. Comments and layout are not
    compared, so a formatter may run over DIR.
    """
    from .. import report

    paths, named = _split(targets)
    if generated is not None and named:
        raise click.UsageError("--generated compares whole files: name no function")
    lost: list[tuple[str, Path]] = []
    problems: list[Diagnostic] = []
    doubts: list[Diagnostic] = []
    seen = _Seen()
    belonging: set[Path] = set()

    def every() -> Iterator[list[Diagnostic]]:
        """The problems file by file; those of the generated folder come last."""
        for path, is_named in find_files(paths, lost):
            found: list[Diagnostic] = []
            read = of_file(path, is_named, classes, found)
            seen.files.add(os.path.realpath(path))
            _check(*read, found, seen)
            if generated is not None and not any(not is_warning(p.code) for p in found):
                found += compared(path, generated, paths, belonging)
            yield found
        for file, functions, others, found in named:
            homes = [*(s.file for s in functions), *(c.file for c in others)]
            seen.files.update(map(os.path.realpath, homes or [str(file)]))
            _check(functions, others, found, seen)
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
    counts = {kind: len(getattr(seen, kind)) for kind in ("files", "functions", "classes")}
    if style == "json":
        click.echo(report.as_json(problems, doubts, counts))
    elif seen.files or not lost:
        among = counted(counts["functions"], "function")
        if classes or seen.classes:
            among += f" and {counted(counts['classes'], 'class')}"
        extra = f" and {counted(len(doubts), 'warning')}" if doubts else ""
        among += f" of {counted(counts['files'], 'file')}"
        click.echo(f"{counted(len(problems), 'problem')}{extra} in {among}")
    for why, path in lost:
        click.echo(f"Error: {why}: {path}", err=True)
    sys.exit(2 if lost else 1 if problems or (strict and doubts) else 0)


@dataclass(frozen=True)
class _Seen:
    """What has been checked, so that each is checked and counted once: files, and of functions
    and classes the places."""

    files: set[str] = field(default_factory=set)
    functions: set[Span] = field(default_factory=set)
    classes: set[Span] = field(default_factory=set)


_Named = tuple[Path, "Sequence[Source]", "Sequence[FunctionClass]", list[Diagnostic]]


def _split(targets: Sequence[str]) -> tuple[list[Path], list[_Named]]:
    """Files and folders, and the functions and classes that are named in files or modules."""
    paths: list[Path] = []
    named: list[_Named] = []
    for text in targets:
        if ":" not in text or Path(text).exists():
            paths.append(Path(text))
            continue
        where = find_target(text)
        found: list[Diagnostic] = []
        named.append((where.module.path, *find_named(where, found), found))
    return paths, named


def _check(
    functions: Sequence[Source],
    classes: Sequence[FunctionClass],
    problems: list[Diagnostic],
    seen: _Seen,
) -> None:
    """Add the problems and warnings of functions and classes that are not yet seen."""
    from .. import pipeline
    from ..warn import warnings_for

    new = [s for s in functions if _is_new(s.span(s.function), seen.functions)]
    others = [c for c in classes if _is_new(c.span(c.node), seen.classes)]
    for source in (*new, *of_classes(others, problems)):
        with collecting(problems, source.span(source.function)):
            rule = pipeline.read(source)
            problems += warnings_for(rule)
            pair = pipeline.lift(rule)
            for form in pipeline.FORMS:
                pipeline.emit(pair, form)


def _is_new(span: Span, seen: set[Span]) -> bool:
    span = replace(span, file=os.path.realpath(span.file))
    before = len(seen)
    seen.add(span)
    return len(seen) > before
