"""The list of ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..judge import Case

Run = Callable[[Case], None]


@dataclass(frozen=True)
class Way:
    """One way to run a function. ``cost`` is 0 for milliseconds, 1 for tenths of a second, 2 for
    seconds: a short run takes fewer functions of the costly ones."""

    name: str
    group: str
    cost: int
    run: Run


WAYS: list[Way] = []


def way(name: str, cost: int = 0) -> Callable[[Run], Run]:
    """Enter a function in the list."""

    def enter(run: Run) -> Run:
        assert name not in {w.name for w in WAYS}, name
        WAYS.append(Way(name, run.__module__.rsplit(".", 1)[-1], cost, run))
        return run

    return enter
