"""Text to callables. The only place that compiles and runs generated text."""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import importlib
import linecache
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any, TypeGuard

from .ir import Emitted, replace
from .tracebacks import guarded, marked, pointing

__all__ = ["forget", "forget_with", "inner", "load", "naming_lines", "register"]

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


@contextlib.contextmanager
def naming_lines(emitted: Emitted) -> Iterator[None]:
    """Meanwhile linecache holds the text with the user's places in comments, for TorchScript."""
    before = linecache.cache.get(emitted.file)
    text = emitted.text
    if "# type:" not in text and "type:" not in emitted.source:  # TorchScript reads such comments
        text = marked(emitted, emitted.source)
    lines = text.splitlines(keepends=True)
    linecache.cache[emitted.file] = (len(text), None, lines, emitted.file)
    try:
        yield
    finally:
        linecache.cache.pop(emitted.file, None)
        if before is not None:
            linecache.cache[emitted.file] = before


def load(
    emitted: Emitted, scope: dict[str, Any], torch: str = "torch", lazy: bool = False
) -> dict[str, Any]:
    """Run a text; what it defines comes back as a dict.

    The functions in it read their globals from ``scope``, the globals of the user's module, so
    that a name rebound there is seen as Python would see it. The module keeps its own names: what
    the text defines stays apart, and only a missing ``torch`` is added.
    """
    flags = _LAZY if lazy else 0
    program = _program(emitted) if emitted.form in _GUARDED else emitted.text
    code = compile(program, emitted.file, "exec", flags=flags, dont_inherit=True)
    scope.setdefault(torch, importlib.import_module("torch"))
    made: dict[str, Any] = {}
    exec(code, scope, made)
    if _AROUND in made:
        made.update(made.pop(_AROUND)(pointing(emitted)))
        for name in emitted.names:
            _name(made[name], name)
    return made


def inner(emitted: Emitted) -> tuple[str, types.CodeType]:
    """The function that a text of the call form returns: its name and its code.

    Compiled once for all functions with the same parameters, of which a library has many: nothing
    but the name tells their texts apart, and where the code stands in them is the same.
    """
    before, _, name = emitted.text.rstrip("\n").rpartition("    return ")
    code = _inner(before.replace(f"\n    def {name}(", "\n    def _(", 1) + "    return _\n")
    inside = (c.replace(co_filename=emitted.file) if _is_code(c) else c for c in code.co_consts)
    code = code.replace(co_name=name, co_filename=emitted.file, co_consts=tuple(inside))
    return name, code.replace(co_qualname=name) if sys.version_info >= (3, 11) else code


@functools.lru_cache(maxsize=512)
def _inner(text: str) -> types.CodeType:
    around = compile(text, "<call>", "exec", flags=_LAZY, dont_inherit=True)
    (maker,) = filter(_is_code, around.co_consts)
    (code,) = filter(_is_code, maker.co_consts)
    return code


def _is_code(value: object) -> TypeGuard[types.CodeType]:
    return isinstance(value, types.CodeType)


_GUARDED = ("eager", "torchscript", "func", "op")  # those with code of the user in them
_AROUND = "<functions>"  # no names that a text can define
_POINT = "<point>"


def _program(emitted: Emitted) -> ast.Module:
    """The text, its functions and classes inside of a function.

    The globals are the user's, which must not get what stands beside the functions that are asked
    for: helpers of TorchScript's form, and the handler of errors. A call finds them in its closure,
    and so does TorchScript.
    """
    tree = guarded(ast.parse(emitted.text), _POINT)
    inside = [s for s in tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    arguments = ast.arguments([], [ast.arg(_POINT)], None, [], [], None, [])
    names = ast.Return(ast.Call(ast.Name("locals", ast.Load()), [], []))
    around = ast.FunctionDef(_AROUND, arguments, [*inside, names], [])
    for node in (around, arguments.args[0], *ast.walk(names)):
        node.lineno, node.col_offset = 1, 0  # type: ignore[attr-defined]
    if sys.version_info >= (3, 12):
        around.type_params = []
    tree.body = [*(s for s in tree.body if s not in inside), around]
    return tree


def _name(value: Any, name: str) -> None:
    """The qualified name that a function or class, and what is in it, would have at the top."""
    value.__qualname__ = name
    for inner in vars(value).values() if isinstance(value, type) else ():
        if isinstance(inner, staticmethod):
            inner.__func__.__qualname__ = f"{name}.{inner.__name__}"
