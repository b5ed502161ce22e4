"""``s2s report``: a page per function, the user's source beside what it is compiled to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir import Diagnostic, Span
from .shared import (
    EXIT_CODES,
    NoSuchThing,
    collecting,
    counted,
    find_files,
    of_classes,
    of_file,
)

if TYPE_CHECKING:
    from ..pages.review import Review
    from ..pages.site import Entry

__all__ = ["report"]


@click.command(epilog=EXIT_CODES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=Path)
@click.option("-o", "--output", metavar="DIR", required=True, type=Path, help="Where the pages go.")
@click.option("--classes", is_flag=True, help="A page for autograd.Function classes, too.")
def report(paths: tuple[Path, ...], output: Path, classes: bool) -> None:
    """Write HTML pages to review functions: the source beside what it is compiled to.

    DIR gets index.html and a page per decorated function: your lines and the lines of every form,
    linked both ways; what is kept for backward, and how; errors and warnings at their lines. Each
    page is complete in itself, needs no network, and can be read without scripts.

    With --classes, each autograd.Function class that has a closure form gets a page as well.

    A folder stands for the .py files in it, as in `s2s check`. In DIR only what an earlier report
    wrote is overwritten, or removed where its function is gone.

    \b
    Examples:
      s2s report model.py -o review
      s2s report src tests -o review && python -m webbrowser review/index.html
    """
    from ..pages.site import pages

    lost: list[tuple[str, Path]] = []
    root = _root(paths)
    entries = [_entry(path, named, classes, root) for path, named in find_files(paths, lost)]
    every = [*entries, *_lost(lost, root)]
    _write(output, dict(pages(every)))
    problems = [
        p for e in entries for p in (*e.problems, *(p for r in e.reviews for p in r.problems))
    ]
    for problem in problems:
        _say(f"{problem.span}: {problem.code} {problem.message}")
    for why, path in lost:
        _say(f"Error: {why}: {path}")
    functions = counted(sum(len(entry.reviews) for entry in entries), "function")
    functions += " and classes" if classes else ""
    among = f"{functions} in {counted(len(entries), 'file')}"
    click.echo(f"{output / 'index.html'}: {among}, {counted(len(problems), 'problem')}")
    sys.exit(2 if lost else 1 if problems else 0)


def _say(text: str) -> None:
    from ..report import one_line

    click.echo(one_line(text), err=True)


def _root(paths: Iterable[Path]) -> str:
    """The folder that all names on the pages start from: nothing above it is shown."""
    whole = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in whole]
    try:
        return os.path.commonpath(folders)
    except ValueError:  # on several drives
        return ""


def _name(path: Path, root: str) -> str:
    name = os.path.relpath(os.path.abspath(path), root) if root else path.name
    return name.replace(os.sep, "/").encode(errors="backslashreplace").decode()


# --- reading --------------------------------------------------------------------------------


def _entry(path: Path, named: bool, classes: bool, root: str) -> Entry:
    """One file of the report. What cannot be read or shown is a problem of it."""
    from ..pages.review import review, too_large
    from ..pages.site import Entry

    name = _name(path, root)
    problems: list[Diagnostic] = []
    reviews: list[Review] = []
    functions, others = of_file(path, named, classes, problems, name)
    for source in (*functions, *of_classes(others, problems)):
        large = too_large(source)
        if large is not None:
            problems.append(large)
            continue
        with collecting(problems, source.span(source.function)):
            reviews.append(review(source))
    return Entry(name, tuple(reviews), tuple(problems))


def _lost(lost: Iterable[tuple[str, Path]], root: str) -> Iterator[Entry]:
    """What was named and is not there, for the index."""
    from ..pages.site import Entry

    for why, path in lost:
        name = _name(path, root)
        yield Entry(name, (), (Diagnostic("error", Span(name, 1), why, ""),))


# --- writing --------------------------------------------------------------------------------


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the pages, all of them or none, and remove those of functions that are gone."""
    from ..report import write_whole

    old = [path for path in sorted(folder.glob("*.html")) if _is_ours(path)]
    for name in texts:
        path = folder / name
        if os.path.lexists(path) and path not in old:
            what = f"{path} was not written by s2s report, and is left as it is"
            raise NoSuchThing(f"{what}; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text)
        for path in old:
            if path.name not in texts:
                path.unlink()
    except OSError as error:
        raise NoSuchThing(f"cannot write {folder}: {error.strerror or error}") from None


def _is_ours(path: Path) -> bool:
    """Does a file begin as every page does? A link is none of ours, wherever it leads."""
    from ..pages.site import GENERATOR

    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(200)
