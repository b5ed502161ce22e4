"""An error in generated code names the user's line: one more entry in its traceback.

Generated code runs from text that has a name of its own, so Python would name a line of that. What
is raised in it goes on with an entry more, right behind the generated one: the user's file and
line, as if the function had run there, with the variables that it had. Everything that shows
tracebacks shows it, TorchScript's interpreter too, which makes text of them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import sys
import tokenize
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any

from .ir import Emitted

__all__ = ["guarded", "marked", "pointing"]


_Raised = tuple[Any, BaseException | None, TracebackType | None]  # of sys.exc_info


def guarded(tree: ast.Module, handler: str) -> ast.Module:
    """The tree with the body of each function inside ``try: ... except: handler(); raise``.

    No line moves, and to enter ``try`` costs nothing: Python looks for a handler only once
    something is raised. Functions inside of functions are left as they are.

    >>> print(ast.unparse(guarded(ast.parse("def f(x):\\n    return x + 1"), "handler")))
    def f(x):
        try:
            return x + 1
        except:
            handler()
            raise
    """
    for node in tree.body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef):
                here = {"lineno": function.lineno, "col_offset": function.col_offset}
                call = ast.Call(ast.Name(handler, ast.Load(), **here), [], [], **here)
                again = [ast.Expr(call, **here), ast.Raise(None, None, **here)]
                caught = ast.ExceptHandler(None, None, again, **here)
                function.body = [ast.Try(function.body, [caught], [], [], **here)]
    return tree


def pointing(emitted: Emitted) -> Callable[[], None]:
    """The handler of a text: it enters the user's line in the traceback of what was raised."""
    name = emitted.file.rpartition(".")[2].rstrip(">")
    heads = ("forward", "setup_context", name, f"{name}_forward")
    names = dict.fromkeys(heads, name)
    names |= dict.fromkeys(("jvp", "pullback", "linear", f"{name}_backward"), "backward")

    def point() -> None:
        entries = _entries(sys.exc_info())
        with contextlib.suppress(Exception):  # the error itself is what has to arrive
            at = [e for e in entries if e.tb_frame.f_code.co_filename == emitted.file][-1]
            line = emitted.users_line(at.tb_lineno)
            inner = at.tb_frame
            code = _failing(emitted.source, line, names.get(inner.f_code.co_name), inner)
            seen = {k: v for k, v in inner.f_locals.items() if k.isidentifier()}
            try:
                exec(code, {"__name__": inner.f_globals.get("__name__")}, seen)
            except NameError as failed:
                entry = failed.__traceback__ and failed.__traceback__.tb_next
                assert entry is not None
                entry.tb_next, at.tb_next = at.tb_next, entry
            # the frame of the new entry was called from here: this one goes on to exist
            del at, entry, inner, seen
        del entries

    return point


def _entries(raised: _Raised) -> list[TracebackType]:
    """The entries of an error's traceback; none where somebody wants to leave."""
    _, error, trace = raised
    found = []
    while trace is not None and isinstance(error, Exception):
        found.append(trace)
        trace = trace.tb_next
    return found


def _failing(file: str, line: int, name: str | None, frame: FrameType) -> CodeType:
    """Code that stands on a line of a file, all of it, and fails: the only way to an entry.

    It reads a name that cannot be spelt, so that nothing is found under it.
    """
    assert line
    text = linecache.getline(file, line, frame.f_globals).rstrip("\n").encode()
    failing = ast.Expr(ast.Name("<the user's line>", ast.Load()))
    for node in (failing, failing.value):
        node.lineno = node.end_lineno = line
        node.col_offset = len(text) - len(text.lstrip())
        node.end_col_offset = max(len(text), node.col_offset)
    code = compile(ast.Module([failing], []), file, "exec", dont_inherit=True)
    return code.replace(co_name=name or frame.f_code.co_name)


def marked(emitted: Emitted, file: str) -> str:
    """The text with the user's line behind each line that comes from one: ``# swish.py:12``.

    Lines that start or end inside a string stay as they are, and so do comments.
    """
    inside = {
        line
        for token in tokenize.generate_tokens(io.StringIO(emitted.text).readline)
        if token.start[0] != token.end[0] and token.type not in _NO_TEXT
        for line in range(token.start[0], token.end[0])
    }
    rows = emitted.text.split("\n")
    for index, (row, line) in enumerate(zip(rows, emitted.lines)):
        quiet = not row.strip() or row.lstrip().startswith("#") or row.endswith("\\")
        if line and not quiet and index + 1 not in inside:
            rows[index] = f"{row}  # {file}:{line}"
    return "\n".join(rows)


_NO_TEXT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
