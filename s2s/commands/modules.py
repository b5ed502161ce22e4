"""Generated modules of a folder: ``dump --write`` writes them, ``check --generated`` compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir import Diagnostic, Span
from .shared import NoSuchThing, collecting, counted

if TYPE_CHECKING:
    from ..generated import Written
    from ..locate import Module

__all__ = ["compared", "left_over", "write_modules"]

_SHOWN = 40  # lines of a difference


# --- dump --write ---------------------------------------------------------------------------------


def write_modules(targets: Sequence[str], folder: Path, form: str, marks: bool) -> None:
    """Write what the targets compile to, remove what is left over, say what was done, and leave."""
    from .. import generated, report

    if folder.exists() and not folder.is_dir():
        raise NoSuchThing(f"{folder} is not a folder")
    problems: list[Diagnostic] = []
    made: dict[Path, Written] = {}
    for module in _modules(targets):
        written = None
        with collecting(problems, Span(str(module.path), 1)):
            written = generated.generate(module, folder, form, marks)
        if written is not None and written.path in made:
            other = made[written.path].module.path
            raise NoSuchThing(f"{other} and {module.path} are both {folder / written.path}")
        if written is not None:
            made[written.path] = written
    same = sum(not _write(folder, written) for written in made.values())
    failed = {generated.place(m) for m in _modules(targets)} - set(made) if problems else set()
    for path, label in list(generated.leftovers(folder, set(made) | failed)):
        _remove(folder, path)
        click.echo(f"removed {path}: no function of {label} is there any more")
    if same or not made:
        click.echo(f"{counted(same, 'module')} as before")
    for problem in problems:
        click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)
    sys.exit(1 if problems else 0)


def _modules(targets: Sequence[str]) -> Iterator[Module]:
    """Each module once."""
    from .. import locate

    def unreadable(error: OSError) -> None:
        raise NoSuchThing(f"cannot read {error.filename}: {error.strerror}")

    seen: set[Path] = set()
    for target in targets:
        try:
            for module in locate.modules(target, unreadable):
                if module.path.resolve() not in seen:
                    seen.add(module.path.resolve())
                    yield module
        except locate.LocateError as error:
            raise NoSuchThing(str(error)) from None


def _write(folder: Path, written: Written) -> bool:
    """Write one module, unless it is there as it should be."""
    from .. import generated
    from ..report import write_whole

    path = folder / written.path
    try:
        if path.exists() and path.read_bytes() == written.text.encode():
            return False
        if path.exists() and generated.origin(path) is None:
            raise NoSuchThing(f"{path} is there, and was not written by s2s: it is not overwritten")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, written.text)
    except OSError as error:
        raise NoSuchThing(f"cannot write {path}: {error.strerror or error}") from None
    click.echo(f"wrote {path}, {counted(written.functions, 'function')}")
    return True


def _remove(folder: Path, path: Path) -> None:
    """Remove a file, and the folders that this leaves empty."""
    try:
        path.unlink()
        for parent in path.parents:
            if parent == folder or any(parent.iterdir()):
                break
            parent.rmdir()
    except OSError as error:
        raise NoSuchThing(f"cannot remove {path}: {error.strerror or error}") from None


# --- check --generated ----------------------------------------------------------------------------


def compared(
    path: Path, folder: Path, paths: Sequence[Path], belonging: set[Path]
) -> list[Diagnostic]:
    """What is wrong with the module that belongs to a source file; adds it to ``belonging``."""
    from .. import generated, locate

    problems: list[Diagnostic] = []
    with collecting(problems, Span(str(path), 1)):
        module = locate.module_of(path)
        there = folder / generated.place(module)
        known = generated.origin(there)
        written = generated.generate(module, folder, known.form if known else "eager")
        if written is not None:
            belonging.add(written.path)
            problems += _stale(written, there, known is not None, _again(paths, folder))
    return problems


def _again(paths: Sequence[Path], folder: Path) -> str:
    return f"run `s2s dump {' '.join(map(str, paths))} --write {folder}`"


def _stale(written: Written, path: Path, ours: bool, hint: str) -> Iterator[Diagnostic]:
    from ..review.canonical import changed_rows, same_program

    source = written.module.path
    if not path.exists():
        what = f"{path} is missing: {source} has {counted(written.functions, 'function')}"
        yield Diagnostic("missing", Span(str(source), 1), what, hint)
        return
    if not ours:
        what = f"{path} was not written by s2s, where the module of {source} belongs"
        yield Diagnostic("stale", Span(str(path), 1), what, "move that file, or write to a folder")
        return
    text = path.read_text("utf-8", "replace")
    if same_program(text, written.text):
        return
    what = f"{path} is not what {source} compiles to now"
    try:
        lines = changed_rows(text, written.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = ("it is not valid Python",)
    if len(lines) > _SHOWN:
        lines = (*lines[:_SHOWN], f"... and {counted(len(lines) - _SHOWN, 'more line')}")
    yield Diagnostic("stale", Span(str(path), _first(text, lines)), what, hint, lines)


def _first(text: str, lines: Sequence[str]) -> int:
    """The line of the file where the difference starts."""
    gone = [line[1:] for line in lines if line.startswith("-")]
    rows = text.split("\n")
    return rows.index(gone[0]) + 1 if gone and gone[0] in rows else 1


def left_over(folder: Path, paths: Sequence[Path], belonging: set[Path]) -> list[Diagnostic]:
    """Generated modules whose functions are gone."""
    from .. import generated

    hint = f"{_again(paths, folder)}, which removes it"
    return [
        Diagnostic(
            "leftover",
            Span(str(path), 1),
            f"{path} is left over: no function of {label} is there any more",
            hint,
        )
        for path, label in generated.leftovers(folder, belonging)
    ]
