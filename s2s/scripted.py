"""The TorchScript form at run time: types that TorchScript infers, errors at the user's line."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import load
from .errors import TransformError, diagnostic
from .ir import Emitted

if TYPE_CHECKING:
    from .runtime import Compiled

__all__ = ["Scripted", "typed"]

ScriptFunction = Any  # torch.jit.ScriptFunction, whose stubs do not know its schema


class Scripted:
    """``f.scripted``: the pair as ``torch.jit.ScriptFunction``s, compiled when asked for.

    Raises TransformError (S2S301) at the user's line where TorchScript cannot compile it.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    @functools.cached_property
    def _pair(self) -> tuple[ScriptFunction, ScriptFunction]:
        emitted = self._compiled.text("torchscript")
        load.register(emitted)
        if self._compiled.script_error is not None:
            raise self._compiled.script_error
        forward, backward = self._compiled.pair_functions
        return script(self._compiled, emitted, forward), script(self._compiled, emitted, backward)

    @property
    def forward(self) -> ScriptFunction:
        """``inputs -> (outputs, saved)``."""
        return self._pair[0]

    @property
    def backward(self) -> ScriptFunction:
        """``(grad_outputs, *saved) -> gradients``."""
        return self._pair[1]


def typed(compiled: Compiled) -> Emitted:
    """The TorchScript text with the types that TorchScript finds in it; where it cannot compile
    the function, the text with the types that the source tells."""
    literals = _literals(compiled)
    types: dict[str, str] | None = None
    try:
        types = _found(compiled, literals)
    except TransformError as error:
        compiled.script_error = error
    return compiled.prepared.text("torchscript", types, literals)


def _found(compiled: Compiled, literals: dict[str, str]) -> dict[str, str]:
    """Compile forward without annotations of what it returns, then backward with what that gave."""
    none = {"forward ->": "-", "backward ->": "-"}
    found: dict[str, str] = {}
    for index, which in enumerate(("forward ->", "backward ->")):
        emitted = load.register(compiled.prepared.text("torchscript", none | found, literals))
        made = load.load(emitted, compiled.scope, compiled.interface.torch, lazy=True)
        function = made[emitted.names[index]]
        kind = script(compiled, emitted, function).schema.returns[0].type
        load.forget(emitted)
        found[which] = _spelled(kind)
        if which == "forward ->":
            kept = compiled.interface.handed_over(literals)
            found |= {n: _spelled(t) for n, t in zip(kept, kind.elements()[1].elements())}
    return found


def _spelled(kind: Any) -> str:
    """A TorchScript type as an annotation."""
    text = str(kind.annotation_str)
    text = re.sub(r"\bDevice\b", "torch.device", text)
    text = re.sub(r"\bNoneType\b", "None", text)
    return text.replace("number", "float") if text == "number" else text


def _literals(compiled: Compiled) -> dict[str, str]:
    """Outside names whose values can be written down."""
    found = {}
    for constant in compiled.interface.constants:
        try:
            text = _literal(compiled.constant(constant.name))
        except (NameError, ValueError):
            continue
        if text is not None:
            found[constant.name] = text
    return found


def _literal(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (bool, int, float, str, type(None), torch.dtype)):
        return repr(value)
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, (list, tuple)) and value and all(type(v) in (int, float) for v in value):
        return repr(value)
    return None


def script(compiled: Compiled, emitted: Emitted, function: Callable[..., Any]) -> ScriptFunction:
    """``torch.jit.script``, with its errors moved to the line that the user wrote."""
    try:
        with warnings.catch_warnings(), load.naming_lines(emitted):
            warnings.simplefilter("ignore", DeprecationWarning)
            made: ScriptFunction = torch.jit.script(function)
            return made
    except Exception as error:  # TorchScript raises RuntimeError, NotSupportedError, TypeError...
        raise _moved(compiled, emitted, error) from error


def _moved(compiled: Compiled, emitted: Emitted, error: Exception) -> TransformError:
    source = compiled.rule.source
    message = str(error)
    found = re.findall(rf'File "{re.escape(emitted.file)}", line (\d+)', message)
    number = emitted.users_line(int(found[-1])) if found else 0
    span = source.line_span(number or source.line(source.function))
    first = next((row.strip() for row in message.splitlines() if row.strip(" :")), "")
    problem = diagnostic(
        "S2S301",
        span,
        f"TorchScript cannot compile {compiled.name}: {first}",
        hint="write what TorchScript knows, or call the function from scripted code as it is: "
        "there its operator runs the Python code",
    )
    return TransformError([problem])
