"""What only some gradients need is kept, and computed, only where one of these is asked for.

    def f_forward(x, w):                   def f_forward(x, w, *, needs_input_grad):
        return x @ w, (x, w)                   return x @ w, (
                                     -->           x if needs_input_grad[1] else None,
                                                   w if needs_input_grad[0] else None,
                                               )

So a layer whose weights are frozen keeps no activations for them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

import libcst as cst

from ..asked import NEEDS
from ..effects import aliases, closed_over
from ..ir import Pair, Saved, Stmt, replace
from ..names import is_none, reads, writes
from ..syntax import expression, from_node, handed_over, under, without_blank_lines
from .redoable import values

__all__ = ["asked_for", "save_if_needed"]

_Slots = frozenset[int]


def save_if_needed(pair: Pair) -> Pair:
    """Hand over ``None`` in place of what no gradient that is asked for needs.

    ``pair`` comes from ``guard_gradients``: the work of each gradient stands under its own ``if``.

    >>> from s2s.passes.example import after
    >>> from s2s.passes.guard_gradients import guard_gradients
    >>> print(after('''
    ... def f(x, w):
    ...     def backward(g):
    ...         return g * w, g * x
    ...     return x * w, backward
    ... ''', guard_gradients, save_if_needed))
    def f_forward(x, w, *, needs_input_grad):
        return x * w, (x if needs_input_grad[1] else None, w if needs_input_grad[0] else None)
    <BLANKLINE>
    def f_backward(g, x, w, needs_input_grad):
        grad_x = grad_w = None
        if needs_input_grad[0]:
            grad_x = g * w
        if needs_input_grad[1]:
            grad_w = g * x
        return grad_x, grad_w
    """
    if pair.asks:  # the user decides what is saved
        return pair
    active = _active(pair)
    if active is None or not any(_guard(s) is not None for s in pair.backward):
        return pair
    needs, redone = _needs(pair, active)
    shared = aliases(s.tree for s in pair.forward)
    outputs = {o.name for o in pair.outputs if o.name}
    some = {
        s.name: needs[s.name]
        for s in pair.saved
        if s.keep == "tensor"
        and s.again != "refused"
        and s.value is None
        and needs.get(s.name, active) < active
        and not (s.name not in outputs and outputs & shared.get(s.name, frozenset()))
    }
    if not some:
        return pair
    saved = tuple(
        replace(s, value=f"{s.name} if {_test(some[s.name])} else None") if s.name in some else s
        for s in pair.saved
    )
    names = [s.name for s in saved]
    texts = {s.name: s.value for s in saved if s.name in some and s.value}
    forward = handed_over(_under_conditions(pair, some), names, names, texts)
    backward: list[Stmt] = []
    missing = set(some)  # what may not be there
    for statement in pair.backward:
        wanted = redone.get(statement.tree)
        if wanted and _read_first(statement) & missing:
            missing |= set(writes(statement.tree))
            statement = _redone_if(pair, statement, wanted)
        backward.append(statement)
    return replace(pair, saved=saved, forward=forward, backward=tuple(backward))


def asked_for(saved: Saved) -> tuple[int, ...]:
    """The positions of the inputs of which one has to ask for a gradient for it to be kept."""
    if saved.value is None or NEEDS not in saved.value:
        return ()
    tree = ast.parse(saved.value, mode="eval")
    return tuple(sorted(i for n in ast.walk(tree) if (i := _slot(n)) is not None))


def _test(slots: Iterable[int]) -> str:
    return " or ".join(f"{NEEDS}[{i}]" for i in sorted(slots))


def _slot(node: ast.AST) -> int | None:
    """``i`` of ``needs_input_grad[i]``."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if node.value.id == NEEDS and isinstance(node.slice, ast.Constant):
            return int(node.slice.value)  # type: ignore[arg-type]
    return None


def _guard(statement: Stmt) -> int | None:
    """The position of the input whose gradient is computed there."""
    tree = statement.tree
    return _slot(tree.test) if isinstance(tree, ast.If) and not tree.orelse else None


def _active(pair: Pair) -> _Slots | None:
    """The positions of the inputs that get gradients."""
    last = pair.backward[-1].tree if pair.backward else None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        return None
    own = [pair.arguments.index(p.name) for p in pair.params if not p.bound]
    if len(own) != len(last.value.elts):
        return None
    return frozenset(i for i, value in zip(own, last.value.elts) if not is_none(value))


def _needs(pair: Pair, active: _Slots) -> tuple[dict[str, _Slots], dict[ast.stmt, _Slots]]:
    """The gradients for which backward reads each name, and those for which it makes values again
    for second derivatives."""
    needs = dict.fromkeys(closed_over(s.tree for s in pair.backward), active)
    redone: dict[ast.stmt, _Slots] = {}
    for statement in reversed(pair.backward):
        tree = statement.tree
        slot = _guard(statement)
        if slot is not None:
            wanted: _Slots = frozenset({slot})
        elif _is_redone(pair, statement):
            wanted = frozenset().union(*(needs.get(n, frozenset()) for n in writes(tree)))
            redone[tree] = wanted
        else:
            wanted = active
        for name in _read_first(statement):
            needs[name] = needs.get(name, frozenset()) | wanted
    return needs, redone


def _read_first(statement: Stmt) -> set[str]:
    """What a statement reads that it has not bound itself before."""
    tree = statement.tree
    if not isinstance(tree, ast.If):
        return set(reads(tree))
    found, bound = set(reads(tree.test)), set(writes(tree.test))
    for inner in tree.body:
        found |= set(reads(inner)) - bound
        bound |= set(writes(inner)) if isinstance(inner, ast.Assign) else set()
    return found.union(*(set(reads(inner)) for inner in tree.orelse))


def _is_redone(pair: Pair, statement: Stmt) -> bool:
    """``if torch.is_grad_enabled():``, written for second derivatives."""
    tree = statement.tree
    test = f"{pair.torch}.is_grad_enabled()"
    return not statement.line and isinstance(tree, ast.If) and ast.unparse(tree.test) == test


def _redone_if(pair: Pair, statement: Stmt, wanted: _Slots) -> Stmt:
    """What second derivatives make again, only where that has been kept which it starts from."""
    node = statement.node
    assert isinstance(node, cst.If)
    test = _test(wanted)
    test = f"({test})" if len(wanted) > 1 else test
    test = f"{pair.torch}.is_grad_enabled() and {test}"
    assert isinstance(node.body, cst.IndentedBlock)
    about = cst.EmptyLine(comment=node.body.header.comment)  # the line is long enough
    suite = node.body.with_changes(header=cst.TrailingWhitespace())
    made = node.with_changes(test=expression(test), body=suite, leading_lines=[about])
    return from_node(made, 0)


# --- forward ------------------------------------------------------------------------------------


def _under_conditions(pair: Pair, some: Mapping[str, _Slots]) -> tuple[Stmt, ...]:
    """Forward with ``if needs_input_grad[i]:`` around what only such values are made from."""
    last = pair.forward[-1].tree
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        return pair.forward
    found = values(pair)
    needs: dict[str, _Slots | None] = dict(some)  # None: read in any case
    needs |= dict.fromkeys((s.name for s in pair.saved if s.name not in some), None)
    needs |= dict.fromkeys(reads(last.value.elts[0]), None)
    needs |= dict.fromkeys(closed_over(s.tree for s in pair.forward), None)
    conditions: dict[ast.stmt, _Slots] = {}
    for statement in reversed(pair.forward[:-1]):
        names = writes(statement.tree)
        alone = len(names) == 1 and names[0] in found and not found[names[0]].refused
        wanted = needs.get(names[0]) if alone else None
        if wanted:
            conditions[statement.tree] = wanted
        for name in reads(statement.tree):
            before = needs.get(name, frozenset())
            needs[name] = before | wanted if wanted and before is not None else None
    return _wrapped(pair.forward, conditions)


def _wrapped(body: Sequence[Stmt], conditions: Mapping[ast.stmt, _Slots]) -> tuple[Stmt, ...]:
    """The statements, neighbours of one condition under one ``if``."""
    done: list[Stmt] = []
    group: list[Stmt] = []
    current: _Slots | None = None
    for statement in (*body, None):
        wanted = conditions.get(statement.tree) if statement is not None else None
        if group and wanted != current and current is not None:
            inner = [replace(s, node=without_blank_lines(s.node)) for s in group]
            done.append(under(_test(current), inner, group[0].line))
            group = []
        current = wanted
        if statement is not None and wanted is not None:
            group.append(statement)
        elif statement is not None:
            done.append(statement)
    return tuple(done)
