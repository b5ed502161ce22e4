"""Text to callables. The only place that compiles and runs generated text."""

from __future__ import annotations
import __future__

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
    while True:
        entry = linecache.cache.get(file)
        lines = emitted.text.splitlines(keepends=True)
        if entry is None or list(entry[2]) == lines:  # type: ignore[misc]
            break
        number += 1
        file = f"{emitted.file[:-1]}_{number}>"
    linecache.cache[file] = (len(emitted.text), None, lines, file)
    return replace(emitted, file=file)


def forget_with(owner: object, emitted: Emitted) -> None:
    """When ``owner`` is gone, drop the text it ran, if the name still stands for that text."""
    weakref.finalize(owner, forget, emitted)


def forget(emitted: Emitted) -> None:
    """Drop a text from linecache, if its name still stands for it."""
    entry = linecache.cache.get(emitted.file)
    if entry is not None and "".join(entry[2]) == emitted.text:  # type: ignore[misc]
        del linecache.cache[emitted.file]


def load(
    emitted: Emitted, scope: dict[str, Any], torch: str = "torch", lazy: bool = False
) -> dict[str, Any]:
    """Run a text; what it defines comes back as a dict.

    The functions in it read their globals from ``scope``, the globals of the user's module, so
    that a name rebound there is seen as Python would see it. The module keeps its own names: what
    the text defines stays apart, and only a missing ``torch`` is added.
    """
    code = compile(
        emitted.text, emitted.file, "exec", flags=_LAZY if lazy else 0, dont_inherit=True
    )
    scope.setdefault(torch, importlib.import_module("torch"))
    made: dict[str, Any] = {}
    exec(code, scope, made)
    return made
