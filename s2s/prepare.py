"""One function, compiled as far as text goes: from the cache folder where it is there already.

Reading a function and printing its forms takes a hundred times as long as finding the result, and
the libraries for it as long again to import. So nothing here reads before something is missing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from . import cache
from .ir import Constant, Diagnostic, Emitted, Interface, Output, Pair, Param, Rule, Span

__all__ = ["Prepared"]

_Written = Mapping[str, str]  # names to types, or to literals


class Prepared:
    """What does not depend on the values around a function: all products of a factory share it.

    ``read`` gives the rule, where it is needed; ``key`` says all that the rule depends on, and is
    empty where nothing is to be kept.
    """

    def __init__(self, read: Callable[[], Rule], key: str = "") -> None:
        self._read = read
        self.key = key
        self._texts: dict[str, Emitted] = {}
        self._finals: dict[str, Pair] = {}
        self._variants: dict[tuple[tuple[str, str], ...], Prepared] = {}
        self.interface = self._found() or self._made()

    @functools.cached_property
    def rule(self) -> Rule:
        """What the user wrote."""
        return self._read()

    @functools.cached_property
    def pair(self) -> Pair:
        """The lifted pair."""
        from . import pipeline

        return pipeline.lift(self.rule)

    def _found(self) -> Interface | None:
        """What every decoration needs, in one entry: the interface, and what callers call."""
        entry = cache.read(self.key)
        if entry is None:
            return None
        try:
            call, made = _emitted(entry["call"]), _interface(entry["interface"])
        except (KeyError, TypeError, ValueError):
            return None
        self._texts["call"] = call
        return made

    def _made(self) -> Interface:
        from .interface import interface

        made = interface(self.rule, self.pair)
        call = self._texts["call"] = self._printed("call", None, None)
        if self.rule.recompute:  # it may name what cannot be computed again
            self.text("eager")
        cache.write(self.key, {"interface": made, "call": call})
        return made

    def text(
        self, form: str, types: _Written | None = None, literals: _Written | None = None
    ) -> Emitted:
        """The text of a form. ``types`` and ``literals`` are for "torchscript"."""
        written = json.dumps([types, literals], sort_keys=True) if types or literals else ""
        name = f"{form} {written}".rstrip()
        if name not in self._texts:
            key = self.key and cache.digest(self.key, name)
            try:
                self._texts[name] = _emitted(cache.read(key) or {})
            except (KeyError, TypeError):
                made = self._texts[name] = self._printed(form, types, literals)
                cache.write(key, made)
        return self._texts[name]

    def _printed(self, form: str, types: _Written | None, literals: _Written | None) -> Emitted:
        from . import pipeline
        from .emit.call import emit_call, emit_scripted_call

        if form in ("call", "scripted call"):
            return (emit_call if form == "call" else emit_scripted_call)(self.pair)
        if form not in self._finals:
            self._finals[form] = pipeline.stages(self.pair, form)[-1].pair
        return pipeline.printed(self._finals[form], form, types, literals)

    def retyped(self, given: Mapping[str, str]) -> Prepared:
        """The same function with other types of some arguments."""
        kinds = tuple(given.items())
        if kinds not in self._variants:
            key = self.key and cache.digest(self.key, "retyped", json.dumps(kinds))
            self._variants[kinds] = Prepared(lambda: _retyped(self.rule, given), key)
        return self._variants[kinds]


def _retyped(rule: Rule, given: Mapping[str, str]) -> Rule:
    from .parse import retyped

    return retyped(rule, given)


# --- from JSON ----------------------------------------------------------------------------------


def _emitted(row: dict[str, Any]) -> Emitted:
    return Emitted(**row | {"names": tuple(row["names"]), "lines": tuple(row["lines"])})


def _interface(row: dict[str, Any]) -> Interface:
    again: dict[str, Any] = {
        "params": tuple(Param(**param) for param in row["params"]),
        "constants": tuple(Constant(**constant) for constant in row["constants"]),
        "outputs": tuple(Output(**output) for output in row["outputs"]),
        "unclear": tuple((name, attribute) for name, attribute in row["unclear"]),
        "watched": tuple((name, tuple(map(tuple, paths))) for name, paths in row["watched"]),
        "warnings": tuple(map(_diagnostic, row["warnings"])),
    }
    names = ("dirty", "saved", "positional", "by_name", "unbound")
    return Interface(**row | again | {name: tuple(row[name]) for name in names})


def _diagnostic(row: dict[str, Any]) -> Diagnostic:
    return Diagnostic(**row | {"span": Span(**row["span"]), "notes": tuple(row["notes"])})
