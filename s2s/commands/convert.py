"""``s2s convert``: autograd.Function classes of a file as decorated functions, and back."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir import Diagnostic, Span
from .shared import EXIT_CODES, NoSuchThing, collecting, find_target, write

if TYPE_CHECKING:
    from ..convert.closures import Converted
    from ..convert.text import FileText
    from ..locate import Target

__all__ = ["convert"]


@click.command(epilog=EXIT_CODES)
@click.argument("target", metavar="PATH_OR_MODULE[:NAME]")
@click.option(
    "--to",
    "form",
    type=click.Choice(["closure", "function"]),
    default="closure",
    show_default=True,
    help="What to write: decorated functions, or plain autograd.Function classes.",
)
@click.option("--in-place", is_flag=True, help="Write the file itself.")
@click.option("-o", "--output", metavar="FILE", type=Path, help="Write to FILE.")
@click.option("--diff", "as_diff", is_flag=True, help="Print what changes, as a unified diff.")
@click.option(
    "--keep-names",
    is_flag=True,
    help="Leave `class Cls` with `apply` behind, for other files that call Cls.apply.",
)
def convert(
    target: str,
    form: str,
    in_place: bool,
    output: Path | None,
    as_diff: bool,
    keep_names: bool,
) -> None:
    """Rewrite autograd.Function classes as functions with a nested backward, or back.

    Each class of the file, or NAME alone, becomes a function under autograd_script; ctx goes, and
    `Cls.apply` is the function wherever the file says it. Comments, layout, line ends and encoding
    stay. Without --in-place the new text is printed. The file is read, and not imported.

    A class is left as it is, with its line and the reason, where it is used in another way
    (derived from, `isinstance`, `Cls.CONSTANT`, named in __all__), where another file of the
    project uses it, or where ctx is used in a way that has no closure form. Other projects are not
    seen: --keep-names leaves a class of the name that has `apply` and nothing else.

    With --to function each function under autograd_script becomes a plain autograd.Function class
    and a function of its name and signature that applies it: the file needs s2s no longer. That
    is the eager form. It does not do what s2s does around it: torch.jit.script, torch.func, vmap,
    forward mode, backward under the autocast of forward, and the error for a value from outside
    that requires grad. A function is left as it is where it has cast_inputs, or where the file
    hands it to s2s or torch.jit.script.

    \b
    Examples:
      s2s convert ops.py --diff
      s2s convert ops.py --to function --diff
      s2s convert ops.py --in-place
      s2s convert ops.py:Swish --in-place --keep-names
    """
    from .. import report
    from ..locate import LocateError

    if in_place and output is not None:
        raise click.UsageError("--in-place or --output, not both")
    if keep_names and form == "function":
        raise click.UsageError("--keep-names is for --to closure: functions keep their names")
    where = find_target(target)
    problems: list[Diagnostic] = []
    done = None
    try:
        with collecting(problems, Span(str(where.module.path), 1)):
            if form == "function":
                done = _ejected(where)
            else:
                done = _converted(where, keep_names)
    except LocateError as error:
        raise (NoSuchThing if where.name else click.ClickException)(str(error)) from None
    if done is not None:
        before, converted = done
        problems += converted.problems
        for note in converted.notes:
            click.echo(report.one_line(note), err=True)
        _hand_over(before, converted, where, in_place, output, as_diff)
    for problem in problems:
        click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)
    sys.exit(1 if problems else 0)


def _converted(where: Target, keep: bool) -> tuple[FileText, Converted]:
    from ..classes.find import classes_in
    from ..convert.closures import to_closures
    from ..convert.text import FileText
    from ..locate import LocateError
    from ..source import from_file, parse_text

    path = where.module.path
    content = path.read_bytes()
    from_file(path, where.module.name, content)  # says what is wrong with a file that has no tree
    file = FileText.read(str(path), content)
    classes = classes_in(file.text, str(path), where.module.name, parse_text(file.text))
    names = [c.qualname for c in classes]
    if not names:
        what = f"{path} has no autograd.Function class with a forward and a backward"
        raise LocateError(what)
    only = where.name
    if only and only not in names:
        close = [n for n in names if n.replace("<locals>.", "").endswith(only)]
        if len(close) != 1:
            raise LocateError(f"{path} has no Function class {only}; it has {', '.join(names)}")
        only = close[0]
    return file, to_closures(file, where.module, only, keep)


def _ejected(where: Target) -> tuple[FileText, Converted]:
    from ..convert.functions import to_functions
    from ..convert.text import FileText
    from ..locate import LocateError, functions

    path = where.module.path
    sources = functions(where)
    own = [s for s in sources if s.file == str(path)]
    if not own:
        raise LocateError(f"{path} imports {sources[0].name}: name {sources[0].file} instead")
    file = FileText.read(str(path), path.read_bytes())
    return file, to_functions(file, own)


def _hand_over(
    before: FileText,
    converted: Converted,
    where: Target,
    in_place: bool,
    output: Path | None,
    as_diff: bool,
) -> None:
    """Write or print the new text."""
    from .. import report

    after = converted.file
    if as_diff:
        name = before.path.lstrip("/")
        old, new = before.text.split("\n"), after.text.split("\n")
        for row in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""):
            click.echo(row)
    if in_place:
        if converted.count:
            _write(where.module.path, after)
    elif output is not None:
        write(output, after.content, [where.module.path])
    elif not as_diff and report.is_coloured(sys.stdout):
        report.print_coloured(after.text)
    elif not as_diff:
        sys.stdout.buffer.write(after.content)


def _write(path: Path, file: FileText) -> None:
    from ..report import write_whole

    try:
        write_whole(path, file.content)
    except OSError as error:
        raise NoSuchThing(f"cannot write {path}: {error.strerror or error}") from None
