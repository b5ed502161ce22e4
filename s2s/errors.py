"""The one exception that compiling raises, its warning, and the table of their codes."""

from __future__ import annotations

from collections.abc import Sequence

from .ir import Diagnostic, Span

__all__ = [
    "CODES",
    "WARNINGS",
    "GradientWarning",
    "TransformError",
    "diagnostic",
    "is_warning",
    "render",
    "render_one",
]

CODES = {
    "S2S201": "a path through the function does not end in `return outputs, backward`",
    "S2S202": "backward returns the wrong number of gradients",
    "S2S203": "backward takes the wrong number of output gradients",
    "S2S204": "backward rebinds a name of the function around it",
    "S2S205": "the source of the function cannot be read",
    "S2S206": "the source in the file is not what runs",
    "S2S207": "async functions and generators have no gradient",
    "S2S208": "a parameter of a kind that is not supported",
    "S2S209": "outputs in a list, dict or set",
    "S2S210": "backward changes a captured value or an output gradient in place",
    "S2S211": "an input is changed in place and not returned",
    "S2S212": "a decorator that changes the function",
    "S2S213": "the returned backward is not a nested function",
    "S2S214": "the return statements give different numbers of outputs",
    "S2S215": "the file is not valid Python",
    "S2S216": "a construct that a lifted function cannot have",
    "S2S217": "the name of a builtin that TorchScript puts its own function in place of",
    "S2S220": "what `save` or `recompute` asks for cannot be done",
    "S2S221": "a Function class that cannot be read as a function",
    "S2S222": "ctx is handed to something that cannot be written out in its place",
    "S2S223": "a use of ctx that has no closure form",
    "S2S224": "what mark_dirty names is not what forward changes in place",
    "S2S301": "TorchScript cannot compile the function",
    "S2S302": "the function has no operator",
}

# what may be a mistake, and is compiled all the same
WARNINGS = {
    "S2S101": "no gradient depends on an output gradient",
    "S2S102": "an input that forward computes with never gets a gradient",
    "S2S103": "a gradient that depends on no output gradient",
    "S2S104": "a name that nothing defines",
    "S2S105": "an input that neither forward nor backward reads",
    "S2S106": "a gradient for a parameter that is a number or a string",
    "S2S107": "a captured tensor is changed in place below backward",
    "S2S108": "a nested function that is neither returned nor called",
    "S2S109": "gradients named after the inputs, in another order than theirs",
    "S2S110": "a gradient that backward computes and does not use",
}


class GradientWarning(UserWarning):
    """A rule that compiles and may hold a mistake; the message starts with the code in brackets.

    ``# s2s: ignore[S2S102]`` at the end of the line says that it is meant.
    """


class TransformError(SyntaxError):
    """A function that s2s cannot compile.

    A ``SyntaxError``, so that the interpreter shows file, line and caret. All problems of the
    function are in ``diagnostics``; ``code``, ``hint`` and the ``SyntaxError`` fields
    (``filename``, ``lineno``, ``offset``, ``text``) are those of the first.
    """

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = diagnostics[0]
        super().__init__(
            render(diagnostics),
            (first.span.file, first.span.line, first.span.column, first.span.text),
        )
        self.diagnostics = tuple(diagnostics)
        self.code = first.code
        self.hint = first.hint

    def __reduce__(self) -> tuple[type[TransformError], tuple[tuple[Diagnostic, ...]]]:
        return TransformError, (self.diagnostics,)


def render(diagnostics: Sequence[Diagnostic]) -> str:
    """The message of the error: the first problem in full, then the others."""
    first, *others = diagnostics
    parts = [render_one(first)]
    for other in others:
        parts.append(f"also {other.span}: [{other.code}] {other.message}")
        parts.extend(other.notes)
        parts.append(f"hint: {other.hint}")
    return "\n  ".join(parts)


def render_one(problem: Diagnostic) -> str:
    """One problem with its notes and its hint."""
    parts = [f"[{problem.code}] {problem.message}", *problem.notes, f"hint: {problem.hint}"]
    return "\n  ".join(parts)


def is_warning(code: str) -> bool:
    """Does a code stand for what may be meant, and not for an error?"""
    return code in WARNINGS


def diagnostic(code: str, span: Span, message: str, *notes: str, hint: str) -> Diagnostic:
    """One problem. The hint is required: say what to write instead."""
    assert code in CODES or code in WARNINGS, code
    return Diagnostic(code, span, message, hint, tuple(notes))
