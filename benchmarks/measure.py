"""Timing side by side, on machines where nothing holds still.

Every contender runs one short block in every round, in another order each time, so that what slows
the machine down, and what the one before leaves in caches, meets all of them alike. Counted is the
time that the processor worked for this process, not what it gave to others. What matters is the
ratio to a named baseline.
"""

from __future__ import annotations

import ctypes
import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

__all__ = ["Call", "Effort", "Row", "Timing", "interleaved", "steady_memory", "timed_rows"]

# a function and its arguments: a lambda around them would cost as much as what is measured
Call = tuple[Callable[..., object], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many rounds, and how many seconds a block lasts (one call at least)."""

    rounds: int
    block: float = 1e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the median over rounds, and how it compares with the baseline.

    ``ratio`` is that of the two medians, ``paired`` the median of the ratios within one round.
    """

    name: str
    seconds: float
    ratio: float
    paired: float


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the report. ``ratio`` and ``paired`` are None where nothing is compared.

    A benchmark has a table per subject, with a column per case and a line per contender.
    """

    benchmark: str
    subject: str
    case: str
    contender: str
    value: float
    unit: str
    baseline: str = ""
    ratio: float | None = None
    paired: float | None = None


def interleaved(
    contenders: Mapping[str, Call], baseline: str, effort: Effort
) -> tuple[Timing, ...]:
    """Time the contenders against ``baseline``, which is one of them."""
    counts = {name: _calls_in(call, effort.block) for name, call in contenders.items()}
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    orders = random.Random(0)
    for _ in range(effort.rounds):
        for name in orders.sample(names, len(names)):
            seconds[name].append(_block(contenders[name], counts[name]))
    base = seconds[baseline]
    return tuple(
        Timing(
            name,
            statistics.median(found),
            statistics.median(found) / statistics.median(base),
            statistics.median(one / other for one, other in zip(found, base)),
        )
        for name, found in seconds.items()
    )


def timed_rows(
    place: tuple[str, str, str],
    contenders: Mapping[str, Call],
    baseline: str,
    effort: Effort,
) -> list[Row]:
    """``interleaved`` as rows, in microseconds. ``place`` is benchmark, subject and case."""
    return [
        Row(*place, t.name, t.seconds * 1e6, "us", baseline, t.ratio, t.paired)
        for t in interleaved(contenders, baseline, effort)
    ]


def steady_memory() -> None:
    """Let glibc keep freed memory, where there is glibc.

    By default it gives large blocks back to the system now and then, and page faults decide which
    contender looks slow.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 1 << 30)
        libc.mallopt(mmap_threshold, 1 << 30)


def _calls_in(call: Call, seconds: float) -> int:
    """How many calls fill a block; the first ones warm up."""
    count = 1
    _block(call, count)
    while True:
        taken = _block(call, count) * count
        if taken >= seconds / 4:
            return max(1, round(count * seconds / taken))
        count *= 4


def _block(call: Call, count: int) -> float:
    """Seconds of one call, over ``count`` of them, without garbage collection in between."""
    function, args = call
    was_on = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        for _ in repeat(None, count):
            function(*args)
        return (time.process_time() - start) / count
    finally:
        if was_on:
            gc.enable()
