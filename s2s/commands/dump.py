"""``s2s dump``: the generated text."""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import TransformError
from ..ir import Diagnostic, Save
from .modules import write_modules
from .shared import (
    EXIT_CODES,
    collecting,
    find_functions,
    find_target,
    finish,
    lift_all,
    saving_options,
)

if TYPE_CHECKING:
    from ..ir import Emitted, Pair, Source

__all__ = ["FORMS", "dump"]

FORMS = ("eager", "torchscript", "func", "op", "call")


@click.command(epilog=EXIT_CODES)
@click.argument("targets", metavar="PATH_OR_MODULE[:NAME]...", nargs=-1, required=True)
@click.option(
    "--form",
    type=click.Choice([*FORMS, "all"]),
    help="Which text to print. [default: eager]",
)
@click.option("--after", metavar="PASS", help="Print forward and backward as a pass leaves them.")
@click.option("--marks", is_flag=True, help="Say behind each line which of yours it comes from.")
@saving_options
@click.option("--classes", is_flag=True, help="Take autograd.Function classes, too.")
@click.option(
    "--with-torch",
    is_flag=True,
    help="Import the module for real, which runs it, and print the types that TorchScript finds.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, all of it or nothing.")
@click.option("--write", metavar="DIR", help="Write a module for each source file below DIR.")
def dump(
    targets: tuple[str, ...],
    form: str | None,
    after: str | None,
    marks: bool,
    save: Save | None,
    recompute: tuple[str, ...],
    classes: bool,
    with_torch: bool,
    output: str | None,
    write: str | None,
) -> None:
    """Print what decorated functions are compiled to.

    PATH_OR_MODULE is a .py file or the name of a module, which is found and not imported. NAME is
    a function in it, with as much of its qualified name as tells it from others. Without NAME:
    every function under autograd_script, or for a package, every one that its modules give it.
    NAME may be an autograd.Function class too: it is compiled as s2s.from_function does. A file
    that decorates no function stands for its classes, and with --classes for both.

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
      s2s dump model.py:attention --save least
      s2s dump ops.py:SwishFunction
      s2s dump model.py --form all -o generated.py
      s2s dump src --write generated

    With -o FILE, what the functions read of their own file is written above them, and beside each
    class a function that applies it: that file runs without s2s, too.

    The eager, func, op and call texts are what runs, to the letter. The types of the torchscript
    text come from the source; --with-torch asks TorchScript, for one that the source does not tell.

    With --write, or -o and a folder, files, folders and packages become modules that can be
    imported without s2s: pkg/acts.py becomes DIR/pkg/acts.py, with a function of the same name
    beside each class. Files that are as they should be are left alone, and files that s2s wrote
    for functions that are gone are removed. `s2s check PATH --generated DIR` says whether they are
    up to date.
    """
    if output is not None and (Path(output).is_dir() or output.endswith(("/", os.sep))):
        write, output = output, None
    if write is not None:
        other = (
            after is not None or with_torch or output is not None or save or recompute or classes
        )
        if other or form in ("call", "all"):
            wrong = "--write goes with --marks and with --form eager, torchscript, func or op"
            raise click.UsageError(wrong)
        write_modules(targets, Path(write), form or "eager", marks)
    if after is not None and with_torch:
        raise click.UsageError("--after shows a step before torch comes in: leave out --with-torch")
    if (save or recompute) and with_torch:
        raise click.UsageError("--with-torch shows what the decorator says: leave out --save")
    step = None if after is None else (_form_of(after, form), after)
    problems: list[Diagnostic] = []
    sources: list[Source] = []
    inputs: list[Path] = []
    for target in targets:
        where = find_target(target)
        inputs.append(where.module.path)
        sources += find_functions(where, problems, classes)
    texts: list[str] = []
    if with_torch:
        for source in sources:
            with collecting(problems, source.span(source.function)):
                texts += _loaded_texts(source, form or "eager")
    elif output is not None and step is None and form not in ("call", "all"):
        pairs = list(_distinct(lift_all(sources, problems, save, recompute or None)))
        texts = _modules(pairs, form or "eager", marks, problems)
    else:
        for pair in _distinct(lift_all(sources, problems, save, recompute or None)):
            with collecting(problems, pair.source.span(pair.source.function)):
                texts += _texts(pair, form or "eager", marks, step)
    finish(texts, problems, output, [*inputs, *(Path(s.file) for s in sources)])


def _form_of(step: str, form: str | None) -> str:
    """The form whose pipeline has that step."""
    from .. import pipeline

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


def _distinct(pairs: Sequence[Pair]) -> Iterator[Pair]:
    from ..emit.module import distinct

    for pair, named in zip(pairs, distinct(pairs)):
        if named.name != pair.name:
            place = f"{pair.source.qualname}, line {pair.source.line(pair.source.function)},"
            click.echo(f"note: {place} is printed as {named.name}", err=True)
        yield named


def _texts(pair: Pair, form: str, marks: bool, step: tuple[str, str] | None) -> list[str]:
    from ..tracebacks import marked

    def text(name: str) -> str:
        emitted = _emitted(pair, name) if step is None else _stage(pair, *step)
        return marked(emitted, Path(pair.source.file).name) if marks else emitted.text

    return [text("")] if step is not None else _titled(form, text)


def _modules(
    pairs: Sequence[Pair], form: str, marks: bool, problems: list[Diagnostic]
) -> list[str]:
    """One module of what the functions are compiled to, with what they read of their files."""
    from ..emit.module import joined
    from ..generated import standalone

    texts: list[str] = []
    bound: dict[str, tuple[str, str]] = {}
    for file, found in itertools.groupby(pairs, lambda pair: pair.source.file):
        here = list(found)
        with collecting(problems, here[0].source.span(here[0].source.function)):
            texts.append(standalone(here, form, marks))
            _refuse_shared_names(texts[-1], file, bound)
    return [joined(texts)]


def _refuse_shared_names(text: str, file: str, bound: dict[str, tuple[str, str]]) -> None:
    """A usage error where two files mean different things by a name."""
    from ..names import writes

    for statement in ast.parse(text).body:
        shown = ast.unparse(statement)
        for name in writes(statement):
            other, meant = bound.setdefault(name, (file, shown))
            if other != file and meant != shown:
                raise click.UsageError(
                    f"{name} of {other} and {name} of {file} do not go into one file: "
                    "write the modules apart, with --write DIR"
                )


def _titled(form: str, text: Callable[[str], str]) -> list[str]:
    """The text of a form, or of all forms with a line above each that says which it is."""
    if form == "all":
        return [f"# --- {name} ---\n\n{text(name)}" for name in FORMS]
    return [text(form)]


def _emitted(pair: Pair, form: str) -> Emitted:
    from .. import pipeline
    from ..emit.call import emit_call

    return emit_call(pair) if form == "call" else pipeline.emit(pair, form)


def _stage(pair: Pair, form: str, step: str) -> Emitted:
    from .. import pipeline
    from ..emit.pair import emit_pair

    stages = {stage.name: stage.pair for stage in pipeline.stages(pair, form)}
    return emit_pair(stages[step])


def _loaded_texts(source: Source, form: str) -> list[str]:
    """The texts of a function of a module that is imported for it."""
    from ..decorator import source as text_of

    function = _loaded(source)
    return _titled(form, lambda name: text_of(function, name))


# --- with torch -----------------------------------------------------------------------------


def _loaded(source: Source) -> Any:
    """The function that a source is, from its module, imported for it.

    Raises TransformError with why that is not possible.
    """
    from ..locate import Module

    span = source.span(source.function)
    hint = "leave out --with-torch: that reads the file, and needs no more"
    if source.user_text:
        what = f"{source.qualname} is made of a class: the module has no such function"
        raise TransformError([Diagnostic("error", span, what, hint)])
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
