"""Which function of one version is which of another: by name, else by what it does."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from .versions import Version

__all__ = ["matched"]

_ALIKE = 0.75  # of the text of two functions, from which on one is the other under a new name

Matched = tuple[Version | None, Version | None]


def matched(old: Sequence[Version], new: Sequence[Version]) -> tuple[Matched, ...]:
    """Every function once: as it was and as it is, None where it is new or gone.

    In the order of ``new``; what is gone comes last.
    """
    left = list(old)
    found: dict[int, Version] = {}
    for alike in (_same_file, _same_name):
        for index, one in enumerate(new):
            if index not in found:
                other = next((o for o in left if alike(o, one)), None)
                if other is not None:
                    found[index] = other
                    left.remove(other)
    for index, one in enumerate(new):
        if index not in found:
            best = max(left, key=lambda o: _likeness(o, one), default=None)
            if best is not None and _likeness(best, one) >= _ALIKE:
                found[index] = best
                left.remove(best)
    pairs: list[Matched] = [(found.get(i), one) for i, one in enumerate(new)]
    return (*pairs, *((one, None) for one in left))


def _same_file(old: Version, new: Version) -> bool:
    return old.name == new.name and old.source.module == new.source.module


def _same_name(old: Version, new: Version) -> bool:
    return old.name == new.name


def _likeness(old: Version, new: Version) -> float:
    """How much of two functions is the same, from 0 to 1; of two that compile."""
    if old.facts is None or new.facts is None:
        return 0.0
    if old.formulas and [f for _, f in old.formulas] == [f for _, f in new.formulas]:
        return 1.0 if dict(old.forwards)[""] == dict(new.forwards)[""] else 0.9
    one, other = (
        [t for pair in (*v.backwards, *v.forwards) for t in pair[1].split("\n")] for v in (old, new)
    )
    return SequenceMatcher(None, one, other).ratio()
