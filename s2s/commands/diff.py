"""``s2s diff``: what a change does to the generated code."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..ir import Diagnostic
from .shared import NoSuchThing, collecting, counted, format_option, of_classes, of_file

if TYPE_CHECKING:
    from ..gitfiles import Versions
    from ..review.changes import Change
    from ..review.versions import Version

__all__ = ["diff"]

_FORMS = ("eager", "torchscript", "func", "op")
_EXIT = (
    "Exit code: 0 if both sides can be read, 1 if something cannot (and with --exit-code where the "
    "generated code differs), 2 for wrong usage or no such file."
)


class _Diff(click.Command):
    """Keeps what stands behind ``--`` apart, which click throws together with the rest."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            index = args.index("--")
            ctx.meta["paths"] = args[index + 1 :]
            args = args[:index]
        return super().parse_args(ctx, args)


@click.command(cls=_Diff, epilog=_EXIT, options_metavar="[OPTIONS]")
@click.argument("versions", metavar="OLD NEW | [REV [REV]] -- PATH...", nargs=-1)
@click.option("--form", type=click.Choice(_FORMS), help="Which text to show. [default: eager]")
@click.option("--summary", is_flag=True, help="Say what the change means, and show no text.")
@format_option("markdown", "a comment in a review")
@click.option("--classes", is_flag=True, help="Compare autograd.Function classes, too.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if the generated code differs.")
@click.pass_context
def diff(
    context: click.Context,
    versions: tuple[str, ...],
    form: str | None,
    summary: bool,
    style: str,
    classes: bool,
    exit_code: bool,
) -> None:
    """Show what a change does to the generated code, function by function.

    First what it means: which gradients changed, what more or less is saved, which forms and
    derivatives are no longer there. Then the generated text, statement by statement. Comments and
    layout are not compared, so a change of these alone does not show.

    OLD and NEW are two files, or two folders. With `--`, the versions come from git: one REV is
    compared with the files as they are, two with each other, and A...B is B against where it left
    A. Without REV it is HEAD. PATHs are files and folders, as for git. Nothing is checked out,
    imported or run.

    With --classes, an autograd.Function class is compared as the function that `s2s convert` makes
    of it, and so with that function where one side is converted.

    \b
    Examples:
      s2s diff old/model.py model.py
      s2s diff -- src                    what I have changed since the last commit
      s2s diff main...HEAD -- src        what a branch does
      s2s diff --summary v1.2 v1.3 -- src/acts.py
    """
    paths = context.meta.get("paths")
    options = [p for p in paths or () if p.startswith("--")]
    if options:  # written behind the paths
        raise click.UsageError(f"put {options[0]} in front of `--`")
    pairs = _from_git(versions, paths) if paths is not None else _from_files(versions)
    problems: list[Diagnostic] = []
    entries, same = _compared(pairs, classes, problems)
    shown = [_entry(old, new, changes, form, summary) for old, new, changes in entries]
    if style == "json":
        click.echo(_json(shown, same, problems))
    elif style == "markdown":
        click.echo("\n".join([*map(_markdown, shown), _total(shown, same)]))
    else:
        _print(shown, same, paths is not None)
    if style != "json":
        _print_problems(problems)
    sys.exit(1 if problems or (exit_code and shown) else 0)


def _print_problems(problems: Sequence[Diagnostic]) -> None:
    from .. import report

    for problem in problems:
        click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)


# --- the two sides --------------------------------------------------------------------------------


def _from_git(given: Sequence[str], paths: Sequence[str]) -> list[Versions]:
    from .. import gitfiles

    if any(name.startswith("-") for name in given):
        raise click.UsageError(f"no such option: {next(n for n in given if n.startswith('-'))}")
    try:
        old, new = gitfiles.revisions(given)
        return gitfiles.changed_files(old, new, paths)
    except gitfiles.GitError as error:
        raise NoSuchThing(str(error)) from None


def _from_files(given: Sequence[str]) -> list[Versions]:
    from ..gitfiles import Versions

    missing = [name for name in given if not Path(name).exists()]
    if missing:
        hint = f"; for a revision, write `s2s diff {' '.join(given)} -- PATH`"
        raise NoSuchThing(f"no such file: {missing[0]}{hint}")
    if len(given) != 2:
        raise click.UsageError("name two files, OLD and NEW, or put `--` in front of the paths")
    old, new = map(Path, given)
    if old.is_dir() != new.is_dir():
        raise click.UsageError("compare two files, or two folders")
    if not old.is_dir():
        for path in (old, new):
            if not path.is_file():
                raise NoSuchThing(f"not a regular file: {path}")
        return [Versions(str(old), str(new), _content(old), _content(new))]
    names = sorted({*_below(old), *_below(new)})
    both = [(old / name, new / name) for name in names]
    return [Versions(str(a), str(b), _content(a), _content(b)) for a, b in both]


def _below(folder: Path) -> Iterator[Path]:
    from ..locate import python_files

    def unreadable(error: OSError) -> None:
        raise NoSuchThing(f"cannot read {error.filename}: {error.strerror}")

    return (path.relative_to(folder) for path in python_files(folder, unreadable))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise NoSuchThing(f"cannot read {path}: {error.strerror or error}") from None


_Compared = tuple["Version | None", "Version | None", "tuple[Change, ...]"]


def _compared(
    pairs: Sequence[Versions], classes: bool, problems: list[Diagnostic]
) -> tuple[list[_Compared], int]:
    """The functions that differ, with what that means, and the number of the others."""
    from ..review.changes import changes
    from ..review.matching import matched

    before: list[Version] = []
    after: list[Version] = []
    for pair in pairs:
        before += _versions(pair.old_path, pair.old, classes, problems)
        after += _versions(pair.new_path, pair.new, classes, problems)
    found: list[_Compared] = []
    same = 0
    for old, new in matched(before, after):
        one = new or old
        assert one is not None
        with collecting(problems, one.source.span(one.source.function)):
            means = changes(old, new)
            if means:
                found.append((old, new, means))
            else:
                same += 1
    return found, same


def _versions(
    path: str, content: bytes | None, classes: bool, problems: list[Diagnostic]
) -> list[Version]:
    """The functions of one file that are compiled, as they are on one side."""
    from ..review.versions import version

    found: list[Version] = []
    if content is None:
        return found
    functions, others = of_file(Path(path), False, classes, problems, path, content)
    for source in (*functions, *of_classes(others, problems)):
        with collecting(problems, source.span(source.function)):
            found.append(version(source))
    return found


# --- what is shown --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """One function that differs: its sentences, and the difference of one of its texts."""

    name: str
    old: str  # file:line, "" where it is new
    new: str
    changes: tuple[Change, ...]
    form: str
    lines: tuple[str, ...]


def _entry(
    old: Version | None,
    new: Version | None,
    changes: tuple[Change, ...],
    form: str | None,
    summary: bool,
) -> _Entry:
    from ..review.canonical import changed_rows
    from ..review.changes import forms_changed

    before, after = (dict(v.texts) if v else {} for v in (old, new))
    differing = forms_changed(old, new) if old and new else _FORMS
    chosen = form or (differing[0] if differing else "eager")
    lines: tuple[str, ...] = ()
    if not summary and (before or after):
        lines = changed_rows(before.get(chosen, ""), after.get(chosen, ""))
    one = new or old
    assert one is not None
    return _Entry(one.name, _place(old), _place(new), changes, chosen, lines)


def _place(version: Version | None) -> str:
    return f"{version.source.file}:{version.line}" if version else ""


def _total(entries: Sequence[_Entry], same: int) -> str:
    alone = [e for e in entries if not (e.old and e.new)]
    parts = [f"{counted(len(entries) - len(alone), 'function')} changed"]
    added, removed = (sum(not getattr(e, side) for e in entries) for side in ("old", "new"))
    parts += [f"{added} added"] if added else []
    parts += [f"{removed} removed"] if removed else []
    parts += [f"{same} the same"] if same else []
    return ", ".join(parts)


def _print(entries: Sequence[_Entry], same: int, one_tree: bool) -> None:
    from .. import report

    coloured = report.is_coloured(sys.stdout)
    for entry in entries:
        where = entry.new or entry.old
        moved = entry.old and entry.old.rpartition(":")[0] != where.rpartition(":")[0]
        came = f" (from {entry.old})" if moved and one_tree else ""
        click.echo(_styled(f"{entry.name}, {where}{came}", coloured, bold=True))
        for change in entry.changes:
            click.echo(f"  {report.one_line(change.text)} (line {change.line})")
        if entry.lines:
            click.echo(f"\n  {entry.form}:")
        colours = {"-": "red", "+": "green"}
        for line in entry.lines:
            shown = f"  {report.one_line(line)}".rstrip()
            click.echo(_styled(shown, coloured, fg=colours.get(line[:1])))
        click.echo()
    click.echo(_total(entries, same))


def _styled(text: str, coloured: bool, **style: Any) -> str:
    return click.style(text, **style) if coloured else text


def _markdown(entry: _Entry) -> str:
    from .. import report

    rows = [f"### `{entry.name}` ({entry.new or entry.old})", ""]
    rows += [f"- {report.one_line(c.text)}" for c in entry.changes]
    if entry.lines:
        body = [report.one_line(line) for line in entry.lines]
        fence = "```" if not any("```" in line for line in body) else "~~~~"
        rows += ["", f"{fence}diff", *body, fence]
    return "\n".join([*rows, ""])


def _json(entries: Sequence[_Entry], same: int, problems: Sequence[Diagnostic]) -> str:
    from .. import report

    functions = [
        {
            "name": e.name,
            "old": e.old or None,
            "new": e.new or None,
            "changes": [dataclasses.asdict(c) for c in e.changes],
            "form": e.form,
            "diff": list(e.lines),
        }
        for e in entries
    ]
    answer = {"functions": functions, "same": same, "problems": report.rows(problems)}
    return json.dumps(answer, indent=2)
