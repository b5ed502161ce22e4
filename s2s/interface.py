"""What it takes to call a function, read off its pair: the value that the torch side works with."""

from __future__ import annotations

from .cache import digest
from .check import surely_fresh
from .emit.call import watched
from .emit.eager import attribute
from .emit.layout import class_name
from .emit.op import operator_name, schema, schema_order
from .ir import Interface, Pair, Rule, lines_of
from .warn import unbound_names, warnings_for

__all__ = ["interface"]


def interface(rule: Rule, pair: Pair) -> Interface:
    """The interface of a lifted pair.

    Its warnings are those that the file alone gives: whether ``unbound`` names exist is known
    where the function is decorated.
    """
    paths: dict[str, list[tuple[str, ...]]] = {}
    for value in watched(pair):
        paths.setdefault(value.name, []).append(value.path)
    unclear = [s for s in pair.saved if s.keep == "either" and s.name not in pair.arguments]
    positional, by_name = schema_order(pair)
    unbound = unbound_names(rule.source)
    return Interface(
        name=pair.name,
        torch=pair.torch,
        params=pair.params,
        constants=pair.constants,
        outputs=pair.outputs,
        single=pair.single,
        dirty=pair.changed,
        saved=tuple(s.name for s in pair.saved),
        unclear=tuple((s.name, attribute(s)) for s in unclear),
        watched=tuple((name, tuple(found)) for name, found in paths.items()),
        cls=class_name(pair),
        operator=operator_name(pair),
        written=_written(pair),
        schema=schema(pair),
        positional=tuple(positional),
        by_name=tuple(by_name),
        fresh=surely_fresh(rule),
        warnings=warnings_for(rule, unbound),
        unbound=unbound,
    )


def _written(pair: Pair) -> str:
    """One text for one function with its options, wherever its file has it."""
    lines = lines_of(pair.source.text)[
        pair.source.function.lineno - 1 : pair.source.function.end_lineno
    ]
    return digest(*lines, pair.save, *pair.recompute)
