"""What backward can compute again from what is kept anyway is not kept.

    def f_forward(x):                      def f_forward(x):
        s = torch.sigmoid(x)                   s = torch.sigmoid(x)
        return x * s, (x, s)                   return x * s, (x,)
                                     -->
    def f_backward(grad_out, x, s):        def f_backward(grad_out, x):
        return grad_out * s * x                s = torch.sigmoid(x)
                                               return grad_out * s * x

Which values are kept is a cheapest cut through the assignments of forward, with bytes for costs.
``save="auto"`` computes again what works element by element where fewer bytes are kept for it;
"least" computes again all that it can; "all", the default, keeps what backward reads.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..captures import is_data_global
from ..cut import cheapest_cut
from ..errors import TransformError, diagnostic
from ..ir import Diagnostic, Pair, Saved, Stmt, replace
from ..names import reads, writes
from ..options import decorator_span
from ..sizes import given, sizes
from .lift_backward import keep_for
from .recompute_intermediates import second_derivative_starts
from .redoable import Value, values
from .redoing import differentiable, perhaps_outputs, rename_locals, stops, with_saved, with_starts

__all__ = ["bytes_kept", "save_less"]

_NOTHING = 1e-6  # a number, or a shape


def save_less(pair: Pair) -> Pair:
    """Take out of ``saved`` what backward computes again, and put that in front of backward.

    Raises TransformError (S2S220) where a name of ``recompute`` cannot be computed again.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x)
    ...     def backward(g):
    ...         return g * s * x
    ...     return x * s, backward
    ... ''', save_less, save="auto"))
    def f_forward(x):
        s = torch.sigmoid(x)
        return x * s, (x,)
    <BLANKLINE>
    def f_backward(g, x):
        s = torch.sigmoid(x)
        return g * s * x
    """
    if pair.save == "all" and not pair.recompute:
        return pair
    found = values(pair)
    cut = _cut(pair, found)
    _refuse_others(pair, found, cut.targets)
    if cut.kept is None and pair.recompute:
        raise TransformError([_problem(pair, ", ".join(pair.recompute), _UNKEPT)])
    if cut.kept is None:
        return pair
    again = _between(found, cut.targets, cut.kept)
    return _rewritten(pair, found, again, cut.kept) if again else pair


def bytes_kept(pair: Pair) -> float:
    """What is kept by ``save_less`` and for second derivatives, of inputs of one float each."""
    found = values(pair)
    cut = _cut(pair, found)
    chosen = cut.kept if cut.kept is not None else frozenset(cut.targets)
    each = _bytes(pair, found)
    return math.fsum(each[name] for name in found if name in {*chosen, *cut.paid})


class _Cut(NamedTuple):
    """``targets`` are what backward reads and may compute again, ``kept`` what is kept for them,
    None where that is too much; ``paid`` is kept in any case."""

    targets: tuple[str, ...]
    kept: frozenset[str] | None
    paid: Collection[str]


def _cut(pair: Pair, found: Mapping[str, Value]) -> _Cut:
    captured = {s.name for s in pair.saved}
    tensors = [s.name for s in pair.saved if s.name in found and s.keep != "plain"]
    fixed = stops(pair, tuple(s.tree for s in pair.forward)) | perhaps_outputs(pair)
    redoable = _redoable(pair, found, fixed)
    targets = tuple(name for name in tensors if name in redoable)
    clean = _clean(found, redoable, differentiable(pair, pair.forward))
    starts = second_derivative_starts(pair, None if pair.save == "auto" else captured - clean)
    paid = captured - set(targets) | starts
    if not targets:
        return _Cut((), frozenset(), paid)
    asked = _asked(pair, found)
    may = {name for name, value in found.items() if _may_keep(pair, value, clean, asked)}
    each = _bytes(pair, found)
    costs = {n: 0.0 if n in paid else each[n] if n in may else math.inf for n in found}
    edges = [(o, n) for n in redoable for o in found[n].operands]
    return _Cut(targets, cheapest_cut(costs, edges, set(costs) - redoable, targets), paid)


def _asked(pair: Pair, found: Mapping[str, Value]) -> set[str]:
    """The names of ``recompute`` and all that they are made from."""
    asked = set(pair.recompute)
    for name in reversed(list(found)):
        if name in asked:
            asked |= set(found[name].operands)
    return asked


def _redoable(pair: Pair, found: Mapping[str, Value], fixed: Collection[str]) -> set[str]:
    """The values that backward may compute again, given how much is to be kept."""
    asked = _asked(pair, found)
    allowed: set[str] = set()
    for name, value in found.items():
        eager = pair.save == "least" or (pair.save == "auto" and value.cheap)
        if not value.refused and name not in fixed and (eager or name in asked):
            allowed.add(name)
    return allowed


def _refuse_others(pair: Pair, found: Mapping[str, Value], targets: Sequence[str]) -> None:
    """An error for the names of ``recompute`` that cannot be computed again."""
    problems = []
    for name in pair.recompute:
        if name in targets:
            continue
        value = found.get(name)
        why = value.refused if value is not None else "it is bound more than once, or in a branch"
        problems.append(_problem(pair, name, why))
    if problems:
        raise TransformError(problems)


_UNKEPT = "what it is made from cannot be kept"


def _problem(pair: Pair, name: str, why: str) -> Diagnostic:
    return diagnostic(
        "S2S220",
        decorator_span(pair.source),
        f"backward of {pair.name} cannot compute {name} again: {why}",
        hint=f"leave {name} out of recompute",
    )


# --- what it costs ----------------------------------------------------------------------------


def _may_keep(pair: Pair, value: Value, clean: Collection[str], asked: Collection[str]) -> bool:
    """May a value be kept in place of what is computed from it?

    An output that backward does not read may not: autograd would take it for the user's rule, and
    callers may change it.
    """
    given = value.name in pair.arguments
    nothing_won = pair.save == "least" and value.name in clean and not given
    if nothing_won or value.name in pair.recompute:
        return False
    if any(s.name == value.name for s in pair.saved):
        return True
    if given and not value.plain:
        return pair.save == "least" or value.name in asked
    return value.keepable and (value.plain or value.own)


def _bytes(pair: Pair, found: Mapping[str, Value]) -> dict[str, float]:
    """How large each value is, by rules of thumb."""
    tensors = [p.name for p in pair.params if p.name in found and not found[p.name].plain]
    inputs = {name: given(name) for name in tensors}
    known = sizes([s.tree for s in pair.forward], inputs)
    alive = {*pair.arguments, *(o.name for o in pair.outputs)}  # these probably live on anyway
    return {
        name: _NOTHING
        if value.plain
        else known.get(name, given(name)).bytes * (1.0 if name in alive else 1.001)
        for name, value in found.items()
    }


def _clean(found: Mapping[str, Value], redoable: set[str], carrying: set[str]) -> set[str]:
    """Values with a gradient that can be computed again all the way from inputs and constants.

    For a second derivative they are, so that nothing is won by keeping them.
    """
    clean: set[str] = set()
    for name, value in found.items():  # in the order of forward
        if name not in carrying:
            continue
        start = value.statement is None
        sure = all(o in clean or o not in carrying for o in value.operands)
        if start or (name in redoable and sure):
            clean.add(name)
    return clean


# --- rewriting --------------------------------------------------------------------------------


def _between(
    found: Mapping[str, Value], targets: Sequence[str], kept: Collection[str]
) -> list[Value]:
    """What is computed again: all from the kept values to the targets, in forward's order."""
    again: set[str] = set()
    todo = [n for n in targets if n not in kept]
    while todo:
        name = todo.pop()
        if name not in again:
            again.add(name)
            todo += [o for o in found[name].operands if o not in kept]
    return [value for name, value in found.items() if name in again]


def _rewritten(
    pair: Pair, found: Mapping[str, Value], again: Sequence[Value], kept: Collection[str]
) -> Pair:
    gone = {value.name for value in again}
    needed = {o for value in again for o in (*value.operands, *value.facts)} - gone
    statements = [v.statement for v in again if v.statement is not None]
    read = {n for s in statements for n in reads(s.tree)}
    outside = {n for n in read if n not in found and is_data_global(pair.source, n)}
    pair = with_saved(pair, tuple(s for s in pair.saved if s.name not in gone))
    inputs = [n for n in pair.arguments if n in needed]
    pair = with_starts(pair, [*inputs, *sorted(outside)])
    present = {s.name for s in pair.saved}
    extra = [found[n] for n in found if n in needed - present]
    made = tuple(Saved(v.name, keep_for(v.type), v.type) for v in extra)
    pair = with_saved(pair, (*pair.saved, *made))
    names = {n for s in statements for n in (*writes(s.tree), *reads(s.tree))}
    pair = rename_locals(pair, names)
    return replace(pair, backward=_in_front(pair, statements))


def _in_front(pair: Pair, statements: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Backward with statements in front of its own, behind the helpers that it calls."""
    trees = {s.tree for s in pair.forward}
    helpers = [s for s in pair.backward if s.tree in trees]
    rest = [s for s in pair.backward if s.tree not in trees]
    return (*helpers, *statements, *rest)
