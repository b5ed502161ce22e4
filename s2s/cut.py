"""The cheapest set of values from which others can be computed: a minimum vertex cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping

__all__ = ["cheapest_cut"]

_Node = tuple[str, bool]  # a value, and whether its outgoing side


def cheapest_cut(
    costs: Mapping[str, float],
    made_from: Iterable[tuple[str, str]],
    given: Collection[str],
    wanted: Collection[str],
) -> frozenset[str] | None:
    """The values to keep so that all of ``wanted`` can be computed from them alone.

    ``costs`` says what keeping each value costs, ``made_from`` which is computed from which (source
    first). Those in ``given`` cannot be computed. Of two sets that cost the same, the one nearer to
    ``wanted``. None where it costs more than anything: ``math.inf``.

    >>> costs = {"x": 4, "m": 1, "y": 4}
    >>> sorted(cheapest_cut(costs, [("x", "m"), ("m", "y")], {"x"}, {"y"}))
    ['m']
    >>> sorted(cheapest_cut(costs, [("x", "m"), ("x", "y")], {"x"}, {"m", "y"}))
    ['x']
    """
    capacity: dict[_Node, dict[_Node, float]] = {}

    def join(start: _Node, end: _Node, most: float) -> None:
        capacity.setdefault(start, {})[end] = most
        capacity.setdefault(end, {}).setdefault(start, 0.0)

    source, sink = ("", False), ("", True)
    for name, cost in costs.items():
        join((name, False), (name, True), cost)
    for one, other in made_from:
        join((one, True), (other, False), math.inf)
    for name in given:
        join(source, (name, False), math.inf)
    for name in wanted:
        join((name, True), sink, math.inf)
    capacity.setdefault(source, {})
    while (path := _path(capacity, source, sink)) is not None:
        most = min(capacity[a][b] for a, b in path)
        if most == math.inf:
            return None
        for a, b in path:
            capacity[a][b] -= most
            capacity[b][a] += most
    far = _leading_to(capacity, sink)
    return frozenset(n for n in costs if (n, True) in far and (n, False) not in far)


def _path(
    capacity: Mapping[_Node, Mapping[_Node, float]], source: _Node, sink: _Node
) -> list[tuple[_Node, _Node]] | None:
    """A shortest way from source to sink along which something is left."""
    before: dict[_Node, _Node] = {source: source}
    todo = deque([source])
    while todo:
        node = todo.popleft()
        for following, left in capacity[node].items():
            if left > 0 and following not in before:
                before[following] = node
                todo.append(following)
    if sink not in before:
        return None
    steps = []
    while sink != source:
        steps.append((before[sink], sink))
        sink = before[sink]
    return steps[::-1]


def _leading_to(capacity: Mapping[_Node, Mapping[_Node, float]], sink: _Node) -> set[_Node]:
    """The nodes from which something can still reach the sink."""
    found = {sink}
    todo = deque([sink])
    while todo:
        node = todo.popleft()
        for previous in capacity[node]:
            if previous not in found and capacity[previous][node] > 0:
                found.add(previous)
                todo.append(previous)
    return found
