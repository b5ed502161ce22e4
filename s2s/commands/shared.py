"""What the commands share: what was named, to functions; what goes wrong, to a report."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import TransformError
from ..ir import Diagnostic, Span
from ..options import SAVES

if TYPE_CHECKING:
    from ..classes.find import FunctionClass
    from ..ir import Pair, Save, Source
    from ..locate import Target

__all__ = [
    "EXIT_CODES",
    "NoSuchThing",
    "collecting",
    "counted",
    "find_files",
    "finish",
    "find_functions",
    "find_named",
    "lift_all",
    "find_target",
    "format_option",
    "of_classes",
    "of_file",
    "saving_options",
    "write",
]

F = TypeVar("F", bound=Callable[..., Any])
EXIT_CODES = (
    "Exit code: 0 if all is well, 1 if there are problems, 2 for wrong usage or no such file."
)


class NoSuchThing(click.ClickException):
    """What was named cannot be found, or written."""

    exit_code = 2


def format_option(other: str, what_for: str) -> Callable[[F], F]:
    """``--format``: text for a person, json for a program, or ``other``."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(["text", "json", other]),
        default="text",
        show_default=True,
        help=f"For a person, for a program, or for {what_for}.",
    )


def saving_options(command: F) -> F:
    """``--save`` and ``--recompute``, which stand in place of what the decorators say."""
    save = click.option(
        "--save",
        type=click.Choice(SAVES),
        help="Keep that much for backward, whatever the decorator says.",
    )
    recompute = click.option(
        "--recompute",
        metavar="NAME",
        multiple=True,
        help="Compute NAME again in backward. May be given several times.",
    )
    return save(recompute(command))


def find_target(text: str) -> Target:
    """The file or module, and the function or class in it, that an argument names."""
    from .. import locate

    try:
        return locate.target(text)
    except locate.LocateError as error:
        raise NoSuchThing(str(error)) from None


def find_functions(
    where: Target, problems: list[Diagnostic], classes: bool = False
) -> list[Source]:
    """The decorated functions of a target, and Function classes as the closures they become.

    A file that cannot be read, and a class that has no closure form, are problems.
    """
    functions, found = find_named(where, problems, classes)
    return [*functions, *of_classes(found, problems)]


def find_named(
    where: Target, problems: list[Diagnostic], classes: bool = False
) -> tuple[Sequence[Source], Sequence[FunctionClass]]:
    """The decorated functions of a target, and its Function classes: where one is named, where
    the file decorates no function, and with ``classes``.
    """
    from .. import locate
    from ..classes import named

    functions: tuple[Source, ...] = ()
    found: tuple[FunctionClass, ...] = ()
    missing: locate.LocateError | None = None
    with collecting(problems, Span(str(where.module.path), 1)):
        try:
            functions = locate.functions(where)
        except locate.LocateError as error:
            missing = error
        try:
            if missing is not None or (classes and not where.name):
                found = named.classes(where)
        except locate.LocateError as error:
            missing = error
        if missing is not None and not found:
            known = [cls.qualname for cls in named.classes_of(where.module)]
            others = f"; its Function classes: {', '.join(known[:10])}" if known else ""
            others = others if where.name else ", and no autograd.Function class"
            raise (NoSuchThing if where.name else click.ClickException)(f"{missing}{others}")
    return functions, found


def of_classes(classes: Iterable[FunctionClass], problems: list[Diagnostic]) -> list[Source]:
    """Classes as the closures that they are compiled as; why one has none goes to problems."""
    found: list[Source] = []
    for cls in classes:
        with collecting(problems, cls.span(cls.node)):
            from ..parse_function import as_function

            found.append(as_function(cls))
    return found


def of_file(
    path: Path,
    named: bool,
    classes: bool,
    problems: list[Diagnostic],
    shown: str = "",
    content: bytes | None = None,
) -> tuple[list[Source], list[FunctionClass]]:
    """The decorated functions of a file, and with ``classes`` its Function classes.

    ``shown`` is the file's name in what is said of it, and ``content`` what it holds, where that
    is not to be read from it. A file of a folder, not ``named`` itself, is parsed only where it
    says a word of either.
    """
    from .. import locate
    from ..classes.named import classes_of
    from ..source import from_file

    sources: list[Source] = []
    found: list[FunctionClass] = []
    with collecting(problems, Span(shown or str(path), 1)):
        content = path.read_bytes() if content is None else content
        module = locate.module_of(path)
        if named or b"autograd_script" in content:
            every = from_file(path, module.name, content, shown)
            sources += [source for source in every if locate.is_compiled(source)]
        if classes and (named or b"autograd" in content):
            found += classes_of(module, content, shown)
    return sources, found


def lift_all(
    sources: Sequence[Source],
    problems: list[Diagnostic],
    save: Save | None = None,
    recompute: Sequence[str] | None = None,
) -> list[Pair]:
    """The lifted functions, of those that can be compiled.

    ``save`` and ``recompute`` stand in place of what the decorators say.
    """
    from .. import pipeline

    lifted: list[Pair] = []
    for source in sources:
        with collecting(problems, source.span(source.function)):
            lifted.append(pipeline.lift(pipeline.read(source, save, recompute)))
    return lifted


def find_files(paths: Sequence[Path], lost: list[tuple[str, Path]]) -> Iterator[tuple[Path, bool]]:
    """Each file once, with whether it was named itself; what cannot be found goes to ``lost``,
    with why."""
    from ..locate import python_files

    def unreadable(error: OSError) -> None:
        lost.append((f"cannot be read ({error.strerror})", Path(error.filename)))

    seen: set[str] = set()
    for path in paths:
        if path.is_dir():
            found = python_files(path, unreadable)
        elif path.is_file():
            found = iter([path])
        else:
            lost.append(("not a regular file" if path.exists() else "no such file", path))
            continue
        for file in found:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file, file is path


@contextlib.contextmanager
def collecting(problems: list[Diagnostic], span: Span) -> Iterator[None]:
    """Whatever goes wrong with a file or a function is one more problem, and the rest goes on."""
    from ..locate import LocateError

    try:
        with warnings.catch_warnings():  # of the user's text, such as a "\d" in a plain string
            warnings.simplefilter("ignore")
            yield
    except TransformError as error:
        problems.extend(error.diagnostics)
    except (LocateError, click.ClickException):
        raise
    except (RecursionError, MemoryError):
        what = "something here is nested too deeply to be read"
        problems.append(Diagnostic("error", span, what, "take the longest expression apart"))
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        problems.append(Diagnostic("error", span, what, "see its permissions"))
    except Exception as error:
        what = f"s2s failed here with {type(error).__name__}: {error}"
        hint = "this is a fault of s2s: please report it, with the function"
        problems.append(Diagnostic("internal", span, what, hint))


def finish(
    texts: Sequence[str], problems: Sequence[Diagnostic], output: str | None, inputs: Sequence[Path]
) -> None:
    """Print or write the texts, then the problems, and leave."""
    from .. import report

    text = "\n\n".join(texts)
    if output is not None and not problems:
        write(Path(output), text, inputs)
    elif output is None and report.is_coloured(sys.stdout):
        report.print_coloured(text)
    elif output is None:
        click.echo(text, nl=False)
    for problem in problems:
        click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)
    if problems and output is not None:
        click.echo(f"{output} is not written", err=True)
    sys.exit(1 if problems else 0)


def write(path: Path, text: str | bytes, inputs: Sequence[Path]) -> None:
    from ..report import write_whole

    if path.exists() and any(path.samefile(one) for one in inputs):
        raise NoSuchThing(f"{path} is what is read: it is not overwritten")
    try:
        write_whole(path, text)
    except OSError as error:
        raise NoSuchThing(f"cannot write {path}: {error.strerror or error}") from None


def counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 'es' if what[-1] == 's' else 's'}"
