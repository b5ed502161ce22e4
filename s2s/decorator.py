"""``@autograd_script``: compile a function that returns its outputs and a nested backward."""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from . import cache
from .casting import DEVICES
from .errors import GradientWarning, TransformError, diagnostic, render_one
from .ir import Rule, Save, Source, Span
from .options import SAVES
from .prepare import Prepared
from .runtime import Compiled
from .source import fingerprint, from_code, module_name, text_of

if TYPE_CHECKING:
    from .parse_function import Closure

__all__ = ["autograd_script", "from_function", "source"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def autograd_script(
    fn: F,
    *,
    save: Save = "all",
    recompute: Sequence[str] = (),
    compile: bool = False,
    cast_inputs: torch.dtype | None = None,
) -> F: ...
@overload
def autograd_script(
    *,
    save: Save = "all",
    recompute: Sequence[str] = (),
    compile: bool = False,
    cast_inputs: torch.dtype | None = None,
) -> Callable[[F], F]: ...


def autograd_script(
    fn: Any = None,
    *,
    save: Save = "all",
    recompute: Sequence[str] = (),
    compile: bool = False,
    cast_inputs: torch.dtype | None = None,
) -> Any:
    """Compile ``fn`` so that the gradient it defines holds in every way PyTorch can run it.

    ``fn`` takes tensors and plain values and returns ``outputs, backward``: one tensor or a tuple
    of tensors, and a nested function that takes one gradient per output and returns one gradient
    per input, in order, ``None`` where there is none.

    The result is a plain function with the name, signature and docstring of ``fn``. It has
    ``forward`` and ``backward`` (the lifted pair), ``scripted`` (the pair as ScriptFunctions),
    ``Function`` (the eager ``torch.autograd.Function``) and ``op`` (the operator, or None).

    ``save`` says how much is kept for backward. "all" keeps what backward reads; "auto" computes
    again what works element by element, where fewer bytes are kept for it; "least" all that it can,
    matrix products too. ``recompute`` holds names that are computed again in any
    case.

    ``compile=True`` runs forward and backward each through ``torch.compile``, with the same rule
    and the same saved tensors: large inputs gain, small ones lose, and random draws are others
    than those of eager code. Second derivatives, scripted code and transforms are as without it.
    Where PyTorch cannot compile a function, it runs as it is, and a RuntimeWarning says so once.

    ``cast_inputs`` is a dtype that floating-point inputs are cast to under autocast, which is then
    off in forward and backward, as ``torch.amp.custom_fwd`` has it.

    Raises TransformError, a SyntaxError, with every problem of the function at once, and gives a
    GradientWarning for what may be a mistake.
    With ``S2S_REFERENCE=1`` in the environment it is ``autograd_function`` instead.
    """
    if save not in SAVES:
        raise ValueError(f"save is one of {', '.join(SAVES)}, not {save!r}")
    again = (recompute,) if isinstance(recompute, str) else tuple(recompute)
    if fn is None:
        return functools.partial(
            autograd_script, save=save, recompute=again, compile=compile, cast_inputs=cast_inputs
        )
    for kind in (staticmethod, classmethod):
        if isinstance(fn, kind):
            return kind(
                autograd_script(
                    fn.__func__,
                    save=save,
                    recompute=again,
                    compile=compile,
                    cast_inputs=cast_inputs,
                )
            )
    if os.environ.get("S2S_REFERENCE", "") not in ("", "0"):
        from .reference import autograd_function

        made = autograd_function(fn)
        return _casting(made, cast_inputs, DEVICES) if cast_inputs else made
    _refuse_wrapped(fn)
    compiled = Compiled(
        _prepared(fn, save, again),
        scope=fn.__globals__,
        cells=dict(zip(fn.__code__.co_freevars, fn.__closure__ or ())),
        defaults=(fn.__defaults__, fn.__kwdefaults__),
        compile=compile,
        cast=(cast_inputs, DEVICES) if cast_inputs else None,
    )
    return _finished(compiled, fn)


def from_function(cls: type[torch.autograd.Function], name: str = "") -> Any:
    """The same object as ``autograd_script`` makes, from an existing ``autograd.Function`` class.

    ``ctx`` is eliminated: what forward saves and sets on it becomes a variable that the nested
    backward of a closure captures, ``s2s.source(f, "closure")``; that is compiled like one that a
    user wrote. Arguments are those of ``cls.apply``. ``cls`` is left as it is, and need not be in
    use any more: second derivatives, which a class that saves intermediates gets wrong, are right.

    ``name`` is the function's, by default the class's in lower case. It pickles if it is bound to
    that name in the module that calls this. A ``jvp`` or ``vmap`` of the class is not read: both
    are derived from backward.

    Raises TransformError, a SyntaxError, with every use of ctx that has no closure form.
    """
    if not (isinstance(cls, type) and issubclass(cls, torch.autograd.Function)):
        raise TypeError(f"from_function takes a torch.autograd.Function class, not {cls!r}")
    from .classes.find import function_of

    read = _ClassText(cls, name)
    about, prepared = read.about, read.prepared
    module = sys._getframe(1).f_globals.get("__name__", cls.__module__)
    forward = function_of(cls.forward)
    cells: dict[str, types.CellType] = {}
    for key in ("forward", "setup_context", "backward"):
        method = function_of(getattr(cls, key, None))
        if isinstance(method, types.FunctionType):
            cells |= dict(zip(method.__code__.co_freevars, method.__closure__ or ()))
    defaults = (forward.__defaults__, forward.__kwdefaults__)
    cast = None
    if about["cast"]:
        cast = (_value(about["cast"], forward.__globals__, cells), (about["device"],))
    compiled = Compiled(prepared, forward.__globals__, cells, defaults, cast=cast)
    looks = _Looks(about["name"], about["qualname"], module, cls, forward)
    function = _finished(compiled, looks)
    function.__dict__["__s2s_closure__"] = read.closure_text
    return function


class _ClassText:
    """What the text of a class says, out of the cache or out of its file."""

    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls = cls
        self._name = name
        key = self._key()
        found = cache.read(key) or {}
        if found.keys() != {"name", "qualname", "cast", "device"}:
            found = self._about()
            cache.write(key, found)
        self.about: dict[str, str] = found
        self.prepared = Prepared(self._rule, key and cache.digest(key, "rule"))

    def _key(self) -> str:
        """All that it depends on: the file, and the code of every method."""
        from .classes.find import methods_of

        cls, methods = self._cls, methods_of(self._cls)
        if "forward" not in methods:
            return ""
        place = [cls.__module__, *(base.__qualname__ for base in cls.__mro__), self._name]
        for name, function in methods.items():
            code = function.__code__
            place += [name, function.__module__, code.co_filename, fingerprint(code)]
        versions = (cache.versions(), str(torch.__version__))
        return cache.digest("class", *versions, _digest(text_of(methods["forward"])), *place)

    @functools.cached_property
    def _made(self) -> Closure:
        from .classes.find import from_class
        from .parse_function import closure

        return closure(from_class(self._cls), self._name)

    @functools.cached_property
    def _source(self) -> Source:
        from .parse_function import spliced

        return spliced(self._made.cls, self._made)

    def _about(self) -> dict[str, str]:
        made = self._made
        looks = {"name": made.name, "qualname": self._source.qualname}
        return {**looks, "cast": made.cast, "device": made.device}

    def _rule(self) -> Rule:
        from . import pipeline

        return pipeline.read(self._source)

    def closure_text(self) -> str:
        """The closure form of the class, where it is the same function."""
        from .parse_function import marked_right

        problems = marked_right(self.prepared.rule, self._made)
        if problems:
            raise TransformError(problems)
        return textwrap.dedent(self._made.text) + "\n"


def _value(path: str, scope: dict[str, Any], cells: dict[str, types.CellType]) -> Any:
    """What a dotted name of the class's file is: ``torch.float32``."""
    first, *rest = path.split(".")
    value = cells[first].cell_contents if first in cells else scope.get(first)
    for name in rest:
        value = getattr(value, name, None)
    if not isinstance(value, torch.dtype):
        raise TypeError(f"cast_inputs={path} is not the name of a dtype")
    return value


class _Looks:
    """The name, docstring and annotations of a function made from a class."""

    def __init__(
        self, name: str, qualname: str, module: str, cls: type[Any], forward: types.FunctionType
    ) -> None:
        self.__name__ = name
        self.__qualname__ = qualname
        self.__module__ = module
        self.__doc__ = cls.__doc__
        names = forward.__code__.co_varnames[: forward.__code__.co_argcount]
        self.__annotations__ = {
            key: value for key, value in forward.__annotations__.items() if key in names
        }


# the last functions read, with the lines of the file that they were read from
_PREPARED: dict[tuple[Any, ...], tuple[list[str], Prepared]] = {}


def _prepared(fn: types.FunctionType, save: Save, recompute: tuple[str, ...]) -> Prepared:
    """Read once what stands once in the text: a factory's second product costs a tenth."""
    code = fn.__code__
    key = (code, code.co_filename, fn.__module__, fn.__qualname__, save, recompute)
    lines = text_of(fn)
    known = _PREPARED.get(key)
    if known is None or known[0] is not lines:
        while len(_PREPARED) >= 256:
            del _PREPARED[next(iter(_PREPARED))]
        name = (module_name(fn.__module__ or ""), fn.__qualname__)
        prepared = _read(code, lines, name, save, recompute)
        _warn(prepared, fn)
        known = _PREPARED[key] = (lines, prepared)
    return known[1]


def _read(
    code: types.CodeType,
    lines: list[str],
    name: tuple[str, str],
    save: Save,
    recompute: tuple[str, ...],
) -> Prepared:
    """The function, out of the cache or out of its file: everything that it depends on is here."""

    def read() -> Rule:
        from . import pipeline

        return pipeline.read(from_code(code, "".join(lines), *name), save, recompute)

    versions = (cache.versions(), str(torch.__version__))
    place = (code.co_filename, *name, fingerprint(code))
    return Prepared(read, cache.digest(*versions, _digest(lines), *place, save, *recompute))


# the file read last: the functions in it ask one after the other
_DIGEST: list[tuple[list[str], str]] = []


def _digest(lines: list[str]) -> str:
    if not _DIGEST or _DIGEST[0][0] is not lines:
        _DIGEST[:] = [(lines, cache.digest(*lines))]
    return _DIGEST[0][1]


def _warn(prepared: Prepared, fn: types.FunctionType) -> None:
    """At the user's line, as if it stood there; shown once, as the filters say."""
    scope = fn.__globals__
    found = prepared.interface.warnings
    unbound = [n for n in prepared.interface.unbound if n not in scope]
    if not all(hasattr(builtins, name) for name in unbound):
        from .warn import warnings_for

        found = warnings_for(prepared.rule, scope)
    registry = scope.setdefault("__warningregistry__", {}) if found else {}
    for problem in found:
        text, place = render_one(problem), (problem.span.file, problem.span.line)
        module = module_name(fn.__module__ or "")
        warnings.warn_explicit(text, GradientWarning, *place, module, registry)


def source(f: Callable[..., Any], form: str = "eager") -> str:
    """The generated text of one form of a decorated function.

    ``form`` is "eager", "torchscript", "func", "op", or "call" for the function that chooses
    among them; "closure" for what ``from_function`` makes of a class. The eager, func, op and call
    texts are what runs, to the letter.
    """
    compiled = getattr(f, "__s2s__", None)
    if not isinstance(compiled, Compiled):
        raise TypeError(f"{f!r} is not decorated with autograd_script")
    forms = ("eager", "torchscript", "func", "op", "call")
    closure_of = f.__dict__.get("__s2s_closure__")
    if form == "closure" and closure_of is not None:
        return str(closure_of())
    if form not in forms:
        raise ValueError(f"form is one of {', '.join(forms)}, not {form!r}")
    return compiled.text(form).text


def _refuse_wrapped(fn: Any) -> None:
    if isinstance(fn, types.FunctionType) and not hasattr(fn, "__wrapped__"):
        return
    name = getattr(fn, "__name__", repr(fn))
    code = getattr(fn, "__code__", None)
    problem = diagnostic(
        "S2S212",
        Span(getattr(code, "co_filename", "<unknown>"), getattr(code, "co_firstlineno", 1)),
        f"{name} is changed by a decorator below @autograd_script, which would be skipped",
        hint="put @autograd_script directly above the def, and other decorators above it",
    )
    raise TransformError([problem])


def _finished(compiled: Compiled, fn: types.FunctionType | _Looks) -> types.FunctionType:
    """The function that users get, with the looks of theirs."""
    function = compiled.function
    if compiled.cast is not None:
        function = _casting(function, *compiled.cast)
        function.__dict__["__prepare_scriptable__"] = compiled.scriptable
    function.__name__ = fn.__name__
    function.__qualname__ = fn.__qualname__
    function.__module__ = fn.__module__
    function.__doc__ = fn.__doc__
    function.__annotations__ = _annotations(fn)
    forward, backward = _lazy_pair(compiled)
    attributes: dict[str, Any] = {
        "__s2s__": compiled,
        "__s2s_outside__": compiled.read_outside,
        "forward": forward,
        "backward": backward,
        "scripted": compiled.scripted,
        "Function": compiled.Function,
        "op": compiled.op,
    }
    function.__dict__.update(attributes)
    return function


def _casting(call: Any, dtype: torch.dtype, devices: tuple[str, ...]) -> Any:
    """A function behind a cast of its inputs, with its own looks."""
    from .casting import casting

    made: Any = casting(call, dtype, devices)
    functools.update_wrapper(made, call)
    del made.__wrapped__  # TorchScript would follow it
    made.__signature__ = inspect.signature(call)
    return made


def _annotations(fn: types.FunctionType | _Looks) -> dict[str, Any]:
    """The user's, but for what it says of the returned backward, which callers never see."""
    return {key: value for key, value in fn.__annotations__.items() if key != "return"}


def _lazy_pair(compiled: Compiled) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The lifted pair; its text is made at the first call."""

    position = next(
        (i for i, p in enumerate(compiled.interface.params) if p.kind == "variadic"), None
    )

    def forward(*args: Any, **keywords: Any) -> Any:
        if position is not None:  # the text takes *tensors as a list
            args = (*args[:position], list(args[position:]))
        return compiled.pair_functions[0](*args, **keywords)

    def backward(*args: Any, **keywords: Any) -> Any:
        return compiled.pair_functions[1](*args, **keywords)

    forward.__name__ = forward.__qualname__ = f"{compiled.name}_forward"
    backward.__name__ = backward.__qualname__ = f"{compiled.name}_backward"
    forward.__doc__ = "The lifted forward: `inputs -> (outputs, saved)`."
    backward.__doc__ = "The lifted backward: `(grad_outputs, *saved) -> gradients`."
    return forward, backward
