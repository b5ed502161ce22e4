"""The command ``s2s``. It reads files; unless a flag says so, nothing of theirs is run.

What takes time to import (libcst for the compiler, rich for colours, torch for ``--with-torch``) is
imported by the commands that need it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .errors import TransformError, is_warning
from .ir import Diagnostic, Span

if TYPE_CHECKING:
    from .ir import Pair, Source
    from .locate import Target

__all__ = ["main"]

FORMS = ("eager", "torchscript", "func", "op", "call")
_EXIT_CODES = (
    "Exit code: 0 if all is well, 1 if there are problems, 2 for wrong usage or no such file."
)


class _NoSuchThing(click.ClickException):
    """What was named cannot be found, or written."""

    exit_code = 2


@click.group(epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="s2s", message="%(prog)s %(version)s")
def commands() -> None:
    """Custom gradients for PyTorch: see what is generated, find what is wrong.

    Files are read, not imported, and torch is not needed.

    \b
    Examples:
      s2s dump model.py:swish    what the function swish is compiled to
      s2s check src tests        every problem in two folders
      s2s explain-code S2S202    what a code means, with an example
    """


def main() -> None:
    """The entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a comment in another script, a terminal in ASCII
            stream.reconfigure(errors="backslashreplace")
    commands(prog_name="s2s")


# --- dump -----------------------------------------------------------------------------------


@commands.command(epilog=_EXIT_CODES)
@click.argument("target", metavar="PATH_OR_MODULE[:NAME]")
@click.option(
    "--form",
    type=click.Choice([*FORMS, "all"]),
    help="Which text to print. [default: eager]",
)
@click.option("--after", metavar="PASS", help="Print forward and backward as a pass leaves them.")
@click.option(
    "--with-torch",
    is_flag=True,
    help="Import the module for real, which runs it, and print the types that TorchScript finds.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, all of it or nothing.")
def dump(
    target: str, form: str | None, after: str | None, with_torch: bool, output: str | None
) -> None:
    """Print what decorated functions are compiled to.

    PATH_OR_MODULE is a .py file or the name of a module, which is found and not imported. NAME is
    a function in it, with as much of its qualified name as tells it from others. Without NAME:
    every function under autograd_script, or for a package, every one that its modules give it.

    \b
    The forms:
      eager        the torch.autograd.Function that normal calls run
      torchscript  the typed pair that torch.jit.script compiles
      func         the Function for torch.func, vmap and forward mode
      op           the operator, for scripted and exported programs
      call         the function that chooses one of these at each call
      all          all of these, one after the other

    \b
    Examples:
      s2s dump s2s.functions:swish
      s2s dump model.py:Layer.scale --form torchscript
      s2s dump model.py:make.spike --after lift_backward
      s2s dump model.py --form all -o generated.py

    The eager, func, op and call texts are what runs, to the letter. The types of the torchscript
    text come from the source; --with-torch asks TorchScript, for one that the source does not tell.
    """
    if after is not None and with_torch:
        raise click.UsageError("--after shows a step before torch comes in: leave out --with-torch")
    step = None if after is None else (_form_of(after, form), after)
    where = _target(target)
    problems: list[Diagnostic] = []
    sources = _functions(where, problems)
    texts: list[str] = []
    if with_torch:
        for source in sources:
            with _collecting(problems, source.span(source.function)):
                texts += _loaded_texts(source, form or "eager")
    else:
        for pair in _distinct(_pairs(sources, problems)):
            with _collecting(problems, pair.source.span(pair.source.function)):
                texts += _texts(pair, form or "eager") if step is None else [_stage(pair, *step)]
    _finish(texts, problems, output, [where.module.path, *(Path(s.file) for s in sources)])


def _form_of(step: str, form: str | None) -> str:
    """The form whose pipeline has that step."""
    from . import pipeline

    if form in ("call", "all"):
        raise click.UsageError(f"--after needs one of the forms {', '.join(pipeline.FORMS)}")
    forms = [form] if form else list(pipeline.FORMS)
    steps = {f: ["lift_backward", *(p.__name__ for p in pipeline.FORMS[f])] for f in forms}
    for name, names in steps.items():
        if step in names:
            return name
    known = dict.fromkeys(name for names in steps.values() for name in names)
    shown = f" of the form {form}" if form else ""
    raise click.UsageError(f"no pass {step!r}; the passes{shown} are {', '.join(known)}")


def _target(text: str) -> Target:
    from . import locate

    try:
        return locate.target(text)
    except locate.LocateError as error:
        raise _NoSuchThing(str(error)) from None


def _functions(where: Target, problems: list[Diagnostic]) -> tuple[Source, ...]:
    from . import locate

    try:
        with _collecting(problems, Span(str(where.module.path), 1)):
            return locate.functions(where)
    except locate.LocateError as error:
        raise (_NoSuchThing if where.name else click.ClickException)(str(error)) from None
    return ()


def _pairs(sources: Sequence[Source], problems: list[Diagnostic]) -> list[Pair]:
    from . import pipeline

    pairs: list[Pair] = []
    for source in sources:
        with _collecting(problems, source.span(source.function)):
            pairs.append(pipeline.lift(pipeline.read(source)))
    return pairs


def _distinct(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """One class name each: of two functions called ``scale`` the second becomes ``scale_1``."""
    from .emit.layout import camel
    from .ir import replace

    taken: set[str] = set()
    for pair in pairs:
        name, number = pair.name, 0
        while camel(name) in taken:
            number += 1
            name = f"{pair.name}_{number}"
        if name != pair.name:
            place = f"{pair.source.qualname}, line {pair.source.function.lineno},"
            click.echo(f"note: {place} is printed as {name}", err=True)
        taken.add(camel(name))
        yield replace(pair, name=name)


def _texts(pair: Pair, form: str) -> list[str]:
    return _titled(form, lambda name: _text(pair, name))


def _titled(form: str, text: Callable[[str], str]) -> list[str]:
    """The text of a form, or of all forms with a line above each that says which it is."""
    if form == "all":
        return [f"# --- {name} ---\n\n{text(name)}" for name in FORMS]
    return [text(form)]


def _text(pair: Pair, form: str) -> str:
    from . import pipeline
    from .emit.call import emit_call

    return emit_call(pair).text if form == "call" else pipeline.emit(pair, form).text


def _stage(pair: Pair, form: str, step: str) -> str:
    from . import pipeline
    from .emit.pair import emit_pair

    stages = {stage.name: stage.pair for stage in pipeline.stages(pair, form)}
    return emit_pair(stages[step]).text


def _loaded_texts(source: Source, form: str) -> list[str]:
    """The texts of a function of a module that is imported for it."""
    from .decorator import source as text_of

    function = _loaded(source)
    return _titled(form, lambda name: text_of(function, name))


# --- check ----------------------------------------------------------------------------------


@commands.command(epilog=_EXIT_CODES)
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
def check(paths: tuple[Path, ...], style: str, strict: bool) -> None:
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
    """
    from . import report

    lost: list[str] = []
    problems: list[Diagnostic] = []
    doubts: list[Diagnostic] = []
    files = functions = 0
    for path, named in _files(paths, lost):
        found: list[Diagnostic] = []
        functions += _check_file(path, named, found)
        files += 1
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
        among = f"{_counted(functions, 'function')} of {_counted(files, 'file')}"
        extra = f" and {_counted(len(doubts), 'warning')}" if doubts else ""
        click.echo(f"{_counted(len(problems), 'problem')}{extra} in {among}")
    for line in lost:
        click.echo(f"Error: {line}", err=True)
    sys.exit(2 if lost else 1 if problems or (strict and doubts) else 0)


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _files(paths: Sequence[Path], lost: list[str]) -> Iterator[tuple[Path, bool]]:
    """Each file once, with whether it was named itself; what cannot be found goes to ``lost``."""
    from .locate import python_files

    def unreadable(error: OSError) -> None:
        lost.append(f"cannot read {error.filename}: {error.strerror}")

    seen: set[str] = set()
    for path in paths:
        if path.is_dir():
            files = python_files(path, unreadable)
        elif path.is_file():
            files = iter([path])
        else:
            lost.append(f"{'not a regular file' if path.exists() else 'no such file'}: {path}")
            continue
        for file in files:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file, file is path


def _check_file(path: Path, named: bool, problems: list[Diagnostic]) -> int:
    """Add the problems and warnings of one file; returns how many functions were checked."""
    from . import locate, pipeline
    from .source import from_file
    from .warn import warnings_for

    sources: list[Source] = []
    with _collecting(problems, Span(str(path), 1)):
        if named or b"autograd_script" in path.read_bytes():
            every = from_file(path, locate.module_of(path).name)
            sources += [source for source in every if locate.is_compiled(source)]
    for source in sources:
        with _collecting(problems, source.span(source.function)):
            rule = pipeline.read(source)
            problems += warnings_for(rule)
            pair = pipeline.lift(rule)
            for form in pipeline.FORMS:
                pipeline.emit(pair, form)
    return len(sources)


# --- explain-code ---------------------------------------------------------------------------


@commands.command("explain-code", epilog=_EXIT_CODES)
@click.argument("code", required=False)
def explain_code(code: str | None) -> None:
    """Print what a code means, a function that has it, and its corrected twin.

    Without CODE: every code, errors (S2S2.., S2S3..) and warnings (S2S1..).

    \b
    Examples:
      s2s explain-code
      s2s explain-code S2S202
    """
    from . import codes, report
    from .errors import CODES, WARNINGS

    if code is None:
        for number in sorted({**CODES, **WARNINGS}):
            kind = "warning" if is_warning(number) else "error"
            click.echo(f"{number}  {kind:<7}  {codes.meaning(number)}")
        return
    number = code.strip("[]").upper()
    number = number if number.startswith("S2S") else f"S2S{number}"
    if number not in codes.WHY:
        raise _NoSuchThing(f"no code {code}; `s2s explain-code` lists them")
    kind = "warning" if is_warning(number) else "error"
    paragraph = click.wrap_text(codes.WHY[number], 88)
    click.echo(f"{number} ({kind}): {codes.meaning(number)}\n\n{paragraph}")
    for example in codes.examples(number):
        for title, text in ((example.title, example.wrong), ("Corrected:", example.corrected)):
            click.echo(f"\n{title}\n")
            shown = textwrap.indent(text, "    ") + "\n"
            if report.is_coloured(sys.stdout):
                report.print_coloured(shown)
            else:
                click.echo(shown, nl=False)


# --- shared ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _collecting(problems: list[Diagnostic], span: Span) -> Iterator[None]:
    """Whatever goes wrong with a file or a function is one more problem, and the rest goes on."""
    from .locate import LocateError

    try:
        with warnings.catch_warnings():  # of the user's text, such as a "\d" in a plain string
            warnings.simplefilter("ignore")
            yield
    except TransformError as error:
        problems.extend(error.diagnostics)
    except LocateError:
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


def _finish(
    texts: Sequence[str], problems: Sequence[Diagnostic], output: str | None, inputs: Sequence[Path]
) -> None:
    """Print or write the texts, then the problems, and leave."""
    from . import report

    text = "\n\n".join(texts)
    if output is not None and not problems:
        _write(Path(output), text, inputs)
    elif output is None and report.is_coloured(sys.stdout):
        report.print_coloured(text)
    elif output is None:
        click.echo(text, nl=False)
    for problem in problems:
        click.echo(report.as_text(problem, report.is_coloured(sys.stderr)), err=True)
    if problems and output is not None:
        click.echo(f"{output} is not written", err=True)
    sys.exit(1 if problems else 0)


def _write(path: Path, text: str, inputs: Sequence[Path]) -> None:
    from .report import write_whole

    if path.exists() and any(path.samefile(one) for one in inputs):
        raise _NoSuchThing(f"{path} is what is read: it is not overwritten")
    try:
        write_whole(path, text)
    except OSError as error:
        raise _NoSuchThing(f"cannot write {path}: {error.strerror or error}") from None


# --- with torch -----------------------------------------------------------------------------


def _loaded(source: Source) -> Any:
    """The function that a source is, from its module, imported for it.

    Raises TransformError with why that is not possible.
    """
    from .locate import Module

    span = source.span(source.function)
    hint = "leave out --with-torch: that reads the file, and needs no more"
    if "<locals>" in source.qualname:
        outer = source.qualname.split(".<locals>")[0]
        what = f"{source.qualname} exists only while {outer} runs, and cannot be imported"
        raise TransformError([Diagnostic("error", span, what, hint)])
    home = Module(Path(source.file), source.module)
    os.environ["S2S_REFERENCE"] = "0"  # nothing is compiled where that is set
    if str(home.root) not in sys.path:
        sys.path.insert(0, str(home.root))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is no part of the text
            module = importlib.import_module(source.module)
        found = Path(module.__file__ or "")
        if not found.samefile(home.path):
            raise ImportError(f"that name imports {found}")
        value: Any = module
        for part in source.qualname.split("."):
            value = getattr(value, part)
        if not hasattr(value, "__s2s__"):
            raise ImportError(f"{source.qualname} is not under autograd_script there")
    except TransformError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{source.module} cannot be imported: {type(error).__name__}: {error}"
        raise TransformError([Diagnostic("error", span, what, hint)]) from None
    return value
