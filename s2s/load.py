"""Text to callables. The only place that compiles and runs generated text."""

from __future__ import annotations
import __future__

import ast
import importlib
import linecache
import weakref
from typing import Any

from .ir import Emitted, replace

__all__ = ["forget", "forget_with", "load", "register"]

_LAZY = __future__.annotations.compiler_flag


def register(emitted: Emitted) -> Emitted:
    """Enter a text in linecache, so that tracebacks, pdb and TorchScript find it.

    Another text that lives under the same name keeps it; this one becomes ``<... f_1>``.
    """
    number = 0
    file = emitted.file
    lines = emitted.text.splitlines(keepends=True)
    while True:
        entry = linecache.cache.get(file)
        if entry is None or list(entry[2]) == lines:  # type: ignore[misc]
            break
        number += 1
        file = f"{emitted.file[:-1]}_{number}>"
    linecache.cache[file] = (len(emitted.text), None, lines, file)
    return replace(emitted, file=file)


_OWNERS: dict[str, int] = {}  # how many living functions run the text of a name


def forget_with(owner: object, emitted: Emitted) -> None:
    """When the last ``owner`` of a text is gone, drop it from linecache."""
    _OWNERS[emitted.file] = _OWNERS.get(emitted.file, 0) + 1
    weakref.finalize(owner, _released, emitted)


def _released(emitted: Emitted) -> None:
    _OWNERS[emitted.file] -= 1
    if not _OWNERS[emitted.file]:
        del _OWNERS[emitted.file]
        forget(emitted)


def forget(emitted: Emitted) -> None:
    """Drop a text from linecache, unless a function runs it or the name stands for another."""
    entry = linecache.cache.get(emitted.file)
    if entry is None or emitted.file in _OWNERS:
        return
    if "".join(entry[2]) == emitted.text:  # type: ignore[misc]
        del linecache.cache[emitted.file]


def load(
    emitted: Emitted, scope: dict[str, Any], torch: str = "torch", lazy: bool = False
) -> dict[str, Any]:
    """Run a text; what it defines comes back as a dict.

    The functions in it read their globals from ``scope``, the globals of the user's module, so
    that a name rebound there is seen as Python would see it. The module keeps its own names: what
    the text defines stays apart, and only a missing ``torch`` is added.
    """
    program = _with_helpers(emitted)
    flags = _LAZY if lazy or isinstance(program, ast.Module) else 0
    code = compile(program, emitted.file, "exec", flags=flags, dont_inherit=True)
    scope.setdefault(torch, importlib.import_module("torch"))
    made: dict[str, Any] = {}
    exec(code, scope, made)
    if _AROUND in made:
        made.update(made.pop(_AROUND)())
        for name in emitted.names:
            made[name].__qualname__ = name
    return made


_AROUND = "<functions>"  # no name that a text can define


def _with_helpers(emitted: Emitted) -> str | ast.Module:
    """The text, its functions inside another one if they call helpers that stand beside them.

    The globals are the user's, which must not get the helpers: a call finds them in its closure,
    and so does TorchScript.
    """
    if emitted.form != "torchscript":
        return emitted.text
    tree = ast.parse(emitted.text)
    functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    if len(functions) == len(emitted.names):
        return emitted.text
    (around,) = ast.parse("def around():\n    return locals()").body
    assert isinstance(around, ast.FunctionDef)
    around.name = _AROUND
    around.body[:0] = functions
    tree.body = [*(s for s in tree.body if s not in functions), around]
    return tree
