"""Which cells a run takes, and what came out of them."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from typing import Any

import torch

from .judge import EMPTY, REFUSED, RIGHT, WRONG, Case, Cell, judge
from .peers import PARTS, STYLES, peers
from .subjects import UNTRUE, subjects
from .ways import WAYS, Way

__all__ = ["OURS", "cells", "run", "summary"]

OURS = "s2s"
_ERROR = re.compile(r"(\w*Error: )+")
LIMIT = 120  # seconds for one cell
# how many functions a short run takes in a way of each cost, the untrue ones first; a full run
# takes all
SHORT = (99, 3, 1, 1)
FULL = (99, 99, 99, 99)
TINY = (5, 1, 0, 0)


def cells(
    counts: Sequence[int],
    functions: Sequence[str] = (),
    ways: Sequence[str] = (),
    styles: Sequence[str] = (OURS, *STYLES),
) -> Iterator[tuple[str, Case, Way]]:
    """The cells of a run: a style, a function of it, a way. Names may hold ``*``."""
    for style in styles:
        known = subjects() if style == OURS else peers(style)
        chosen = [n for n in known if not functions or any(fnmatch(n, f) for f in functions)]
        for number, one in enumerate(WAYS):
            if ways and not any(fnmatch(one.name, w) or fnmatch(one.group, w) for w in ways):
                continue
            everything = bool(functions)
            count = len(chosen) if everything else counts[min(one.cost, 3)]
            for name in _sample(chosen, count, number):
                yield style, known[name], one


def _sample(names: list[str], count: int, turn: int) -> list[str]:
    """The untrue functions first, then others by turns; the same for every style."""
    if count >= len(names):
        return names
    first = [n for n in ("seven_saved", "seven_out", "seven") if n in names][: max(1, count - 1)]
    others = [n for n in names if n not in UNTRUE]
    both = [n for n in others if n in PARTS]
    pool = both if turn % 2 or not others else others
    wanted = count - len(first)
    picked = [pool[(turn * 3 + i) % len(pool)] for i in range(wanted)] if pool else []
    return list(dict.fromkeys([*first, *picked]))


def run(chosen: Iterator[tuple[str, Case, Way]]) -> Iterator[Cell]:
    """Judge every cell."""
    logging.disable(logging.CRITICAL)
    try:
        for style, case, way in chosen:
            torch.manual_seed(0)
            start = time.perf_counter()
            with warnings.catch_warnings(), _at_most(LIMIT):
                warnings.simplefilter("ignore")
                outcome, why = judge(way.run, case)
            seconds = time.perf_counter() - start
            yield Cell(style, case.name, way.name, outcome, _first_lines(why), seconds)
    finally:
        logging.disable(logging.NOTSET)
        torch._dynamo.reset()


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"{seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _first_lines(text: str) -> str:
    """The first lines of a message; of an error inside TorchScript, those of its cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("Traceback of TorchScript" in line for line in lines):
        causes = [i for i, line in enumerate(lines) if _ERROR.match(line)]
        lines = lines[causes[-1] :] if causes else lines
    return " ".join(lines[:3])[:400]


def summary(found: Sequence[Cell]) -> dict[str, Counter[str]]:
    """How many cells of each style came out how."""
    counts: dict[str, Counter[str]] = {}
    for cell in found:
        counts.setdefault(cell.style, Counter())[cell.outcome] += 1
    return counts


OUTCOMES = (RIGHT, REFUSED, WRONG, EMPTY)
