"""Second derivatives: backward makes its saved intermediates functions of the inputs again.

    def f_backward(grad_out, x, s):        def f_backward(grad_out, x, s):
        return grad_out * s          -->       if torch.is_grad_enabled():
                                                   s = torch.sigmoid(x)
                                               return grad_out * s

A saved intermediate is a constant to autograd. What may not run twice (random draws, calls that
cannot be seen into) is kept as it is; where it carries a gradient, the second derivative raises.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from ..captures import is_data_global
from ..effects import aliases, doing, nested_functions, slice_for, touched, without_grad
from ..infer import Bindings
from ..ir import Pair, Saved, Stmt, replace
from ..names import fresh, is_none, reads, same_scope, writes
from ..source import bindings
from ..syntax import code, from_node, make, under
from .lift_backward import keep_for
from .redoing import (
    OUTPUT,
    bare,
    differentiable,
    forward_types,
    perhaps_outputs,
    rebound,
    redone_already,
    rename_locals,
    stops,
    with_saved,
    with_starts,
)
from .save_sizes import may_be_none

__all__ = [
    "inputs_or_none",
    "recompute_always",
    "recompute_intermediates",
    "second_derivative_starts",
]

COMMENT = "# a second derivative: make these functions of the inputs again"


def recompute_intermediates(pair: Pair) -> Pair:
    """Put the statements that redo saved intermediates in front of backward's own.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x)
    ...     def backward(g):
    ...         return g * s
    ...     return torch.log(s), backward
    ... ''', recompute_intermediates))
    def f_forward(x):
        s = torch.sigmoid(x)
        return torch.log(s), (x, s)
    <BLANKLINE>
    def f_backward(g, x, s):
        if torch.is_grad_enabled():  # a second derivative: make these functions of the inputs again
            s = torch.sigmoid(x)
        return g * s
    """
    return _recompute(pair, always=False)


def recompute_always(pair: Pair) -> Pair:
    """The same without a condition, and for values that carry no gradient too.

    For function transforms: there backward may be differentiated in forward mode, while grad mode
    is off, and a value that is computed again need not be an extra output.
    """
    return _recompute(pair, always=True)


def second_derivative_starts(pair: Pair, names: Collection[str] | None = None) -> frozenset[str]:
    """What second derivatives make saved intermediates from, of all of them or of ``names``: this
    is kept in any case."""
    body = _structured(pair.forward)
    if body is None or pair.once:
        return frozenset()
    carrying = differentiable(pair, body)
    wanted = {s.name for s in _intermediates(pair, False) if s.name in carrying}
    plan = _plan(pair, body, wanted if names is None else wanted & set(names))
    return frozenset() if plan.dirty else frozenset(plan.starts)


def _recompute(pair: Pair, always: bool) -> Pair:
    wanted = _intermediates(pair, always)
    body = _structured(pair.forward)
    if body is None:
        return _refuse(pair, wanted, "it is computed next to a return in a loop")
    carrying = differentiable(pair, body)
    redone = {s.name for s in wanted if always or s.name in carrying}
    if not redone:
        return pair
    if pair.once and not always:  # nobody may differentiate them: that is to be an error
        held = [s for s in wanted if s.name in redone]
        return _refuse(pair, held, "backward is marked once_differentiable")
    plan = _plan(pair, body, redone)
    again = {s.name for s in pair.saved} & rebound(pair) & set(plan.starts)
    if again - redone:  # its first value is needed and its last one too: redo the last one
        redone |= again
        plan = _plan(pair, body, redone)
    if plan.dirty:
        return _refuse(pair, wanted, f"it depends on {plan.dirty}, which forward changes in place")
    pair = _with_kept(pair, body, plan, carrying)
    if not plan.statements:
        return pair
    pair = with_starts(pair, plan.starts)
    return _with_block(pair, [body[i] for i in plan.statements], plan, always)


def _intermediates(pair: Pair, plain_too: bool) -> list[Saved]:
    """Saved values that forward computes and does not return."""
    bound = {n for s in pair.forward for n in writes(s.tree)}
    outputs = {o.name for o in pair.outputs}
    given = set() if plain_too else inputs_or_none(pair)
    return [
        s
        for s in pair.saved
        if s.name in bound
        and s.name not in outputs
        and s.name not in given
        and s.name != pair.branch
        and s.again == "as is"
        and (plain_too or s.keep != "plain" or s.type == "object")  # an object may hold tensors
    ]


def inputs_or_none(pair: Pair) -> set[str]:
    """``kept = x if c else None``: the input itself, which autograd reconnects."""
    inputs = set(pair.arguments) - rebound(pair)
    found: dict[str, list[ast.stmt]] = {}
    for statement in pair.forward:
        for name in writes(statement.tree):
            found.setdefault(name, []).append(statement.tree)
    return {name for name, trees in found.items() if _gives_input(trees, inputs)}


def _gives_input(trees: Sequence[ast.stmt], inputs: set[str]) -> bool:
    tree, *others = trees
    if others or not isinstance(tree, ast.Assign) or not isinstance(tree.targets[0], ast.Name):
        return False
    value = tree.value
    ends = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return all(is_none(e) or isinstance(e, ast.Name) and e.id in inputs for e in ends)


class _Plan:
    """Which statements to redo, what they start from, and what is kept instead."""

    def __init__(self) -> None:
        self.statements: list[int] = []
        self.starts: list[str] = []
        self.kept: dict[str, str] = {}
        self.dirty: str | None = None


def _plan(pair: Pair, body: Sequence[Stmt], redone: set[str]) -> _Plan:
    plan = _Plan()
    trees = tuple(s.tree for s in body)
    local = {n for t in trees for n in writes(t)} | set(pair.arguments)
    outputs = stops(pair, trees) | _redone_before(pair, trees)
    outputs |= {s.name for s in pair.saved if s.again == "refused"}
    found = bindings(pair.source.tree)
    objects = {p.name for p in pair.params if p.type in ("object", "")}
    helpers = nested_functions(trees)
    unstable = _unstable(trees, helpers)
    while True:
        stop = {*outputs, *plan.kept}
        indices, needed = slice_for(redone - set(plan.kept), trees, stop, found)
        opaque = [
            i
            for i in indices
            if doing(trees[i], found, local, objects, helpers) != "pure"
            or any(without_grad(n) for n in same_scope(trees[i]))
            or any(name in unstable for name in reads(trees[i]))
        ]
        if not opaque:
            break
        last = opaque[-1]
        names = set(writes(trees[last]))
        names |= touched(trees[last], found, nested=helpers) - set(pair.arguments)
        why = ast.unparse(trees[last]).splitlines()[0]
        inputs = set(pair.arguments)  # bound once already
        once = {n for n in names - inputs if sum(n in writes(t) for t in trees) == 1}
        new = once - set(plan.kept)  # every round keeps something more, or ends here
        if names - once or not new or names & _changed_after(trees, last, found):
            for name in redone:  # it would be kept under a name that means something else later
                plan.kept.setdefault(name, why)
            plan.statements, plan.starts = [], []
            return plan
        plan.kept.update(dict.fromkeys(once, why))
    plan.statements = indices
    outside = [n for n in pair.arguments if n in needed]
    handed = {s.name for s in pair.saved}
    kept = set(plan.kept) | (outputs & handed)
    outside += [n for n in sorted(needed) if n not in outside and n in kept]
    plan.starts = outside + [
        n for n in sorted(needed) if n not in local and is_data_global(pair.source, n)
    ]
    dirty = [n for n in outside if n in pair.changed]
    plan.dirty = dirty[0] if dirty else None
    return plan


def _changed_after(trees: Sequence[ast.stmt], index: int, found: Bindings) -> set[str]:
    """Names that share memory with what a later statement changes in place."""
    shared, nested = aliases(trees), nested_functions(trees)
    names = {n for t in trees[index + 1 :] for n in touched(t, found, nested=nested)}
    return {other for name in names for other in shared.get(name, {name})}


def _redone_before(pair: Pair, trees: Sequence[ast.stmt]) -> set[str]:
    """Names that backward computes again in any case. Where forward's returns were taken out of
    its branches the statements are others: there the whole slice runs first."""
    done = redone_already(pair)
    if not all(s.tree in trees for s in done):
        return set()
    return {n for s in done for n in writes(s.tree)}


def _unstable(trees: tuple[ast.stmt, ...], helpers: Mapping[str, ast.AST]) -> set[str]:
    """Nested functions that read a name which is bound more than once: a later call of them is
    another function."""
    count: dict[str, int] = {}
    for tree in trees:
        for name in writes(tree):
            count[name] = count.get(name, 0) + 1
    return {h for h, tree in helpers.items() if any(count.get(n, 0) > 1 for n in reads(tree))}


def _refuse(pair: Pair, wanted: Collection[Saved], why: str) -> Pair:
    names = {s.name for s in wanted}
    saved = tuple(
        replace(s, again="refused", why=why) if s.name in names else s for s in pair.saved
    )
    return replace(pair, saved=saved)


def _with_kept(pair: Pair, body: Sequence[Stmt], plan: _Plan, carrying: set[str]) -> Pair:
    """Mark and add the values that are kept because they cannot be computed again."""
    saved = []
    needed = {*plan.starts}
    present = {s.name for s in pair.saved}
    types = forward_types(pair)
    for s in pair.saved:
        if s.name in plan.kept:
            again = "refused" if s.name in carrying else "constant"
            s = replace(s, again=again, why=plan.kept[s.name])  # type: ignore[arg-type]
        saved.append(s)
    for name, why in plan.kept.items():
        if name in needed and name not in present:
            type_ = types.get(name, "")
            again = "refused" if name in carrying else "constant"
            saved.append(Saved(name, keep_for(type_), type_, again, why))  # type: ignore[arg-type]
    redone = {n for i in plan.statements for n in writes(body[i].tree)}
    done = [
        replace(s, again="recomputed") if s.name in redone and s.again == "as is" else s
        for s in saved
    ]
    return with_saved(pair, tuple(done))


def _with_block(pair: Pair, redo: Sequence[Stmt], plan: _Plan, always: bool) -> Pair:
    """``if torch.is_grad_enabled():`` and the statements, in front of backward."""
    pair, first = _originals(pair, plan)
    pair, before, last = (pair, [], []) if always else _outputs_back(pair, redo)
    names = {n for s in redo for n in (*writes(s.tree), *reads(s.tree))} | set(plan.starts)
    pair = rename_locals(pair, names)
    redo = [*first, *before, *redo]
    helpers = [s for s in pair.backward if isinstance(s.tree, ast.FunctionDef)]
    rest = [s for s in pair.backward if s not in helpers]
    done = redone_already(pair)
    rest = [s for s in rest if s not in done]
    if always:
        again = [replace(s, node=bare(s)) for s in redo if s.tree not in [h.tree for h in helpers]]
        return replace(pair, backward=(*helpers, *again, *rest))
    mixed = _in_order(pair, redo, done, last)
    return replace(pair, backward=(*helpers, *mixed, *rest))


def _outputs_back(pair: Pair, redo: Sequence[Stmt]) -> tuple[Pair, list[Stmt], list[Stmt]]:
    """What may be an output is looked at before and after: autograd knows one again when it is
    unpacked, and differentiates it through the rule of this function."""
    before: list[Stmt] = []
    last: list[Stmt] = []
    redone = {n for s in redo for n in writes(s.tree)}
    perhaps = perhaps_outputs(pair) & redone
    for saved in (s for s in pair.saved if s.name in perhaps):
        name, kept = saved.name, fresh(f"{saved.name}_out", pair.taken)
        test = f"{kept}.requires_grad"
        if saved.keep == "either":
            test = f'getattr({kept}, "requires_grad", False)'
        elif may_be_none(pair, saved):
            test = f"{kept} is not None and {test}"
        before.append(make(f"{kept} = {name}"))
        last.append(make(f"if {test}:  {OUTPUT}\n    {name} = {kept}"))
        pair = replace(pair, taken=pair.taken | {kept})
    return pair, before, last


def _in_order(
    pair: Pair, redo: Sequence[Stmt], done: Sequence[Stmt], last: Sequence[Stmt]
) -> list[Stmt]:
    """Statements for second derivatives alone, among those that run in any case, as in forward."""
    places = {s.tree: i for i, s in enumerate(pair.forward)}
    placed = [(places.get(s.tree, -1), s) for s in redo]
    mixed: list[Stmt] = []
    for statement in done:
        place = places[statement.tree]
        mixed += _when_grad(pair, [s for i, s in placed if i < place])
        placed = [(i, s) for i, s in placed if i > place]
        mixed.append(statement)
    return mixed + _when_grad(pair, [*(s for _, s in placed), *last])


def _when_grad(pair: Pair, body: Sequence[Stmt]) -> list[Stmt]:
    """``if torch.is_grad_enabled():`` around statements."""
    if not body:
        return []
    header = cst.TrailingWhitespace(
        whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(COMMENT)
    )
    inner = [replace(s, node=bare(s)) for s in body]
    return [under(f"{pair.torch}.is_grad_enabled()", inner, header=header)]


def _originals(pair: Pair, plan: _Plan) -> tuple[Pair, list[Stmt]]:
    """Inputs that forward binds again: keep the first value too, under another name."""
    first: list[Stmt] = []
    again = rebound(pair)
    for param in pair.params:
        if param.name not in again or param.name not in plan.starts:
            continue
        alias = fresh(f"{param.name}_in", pair.taken)
        given = Saved(alias, keep_for(param.type), param.type)
        forward = (make(f"{alias} = {param.name}"), *pair.forward)
        pair = replace(pair, forward=forward, taken=pair.taken | {alias})
        pair = with_saved(pair, (*pair.saved, given))
        first.append(make(f"{param.name} = {alias}"))
    return pair, first


# --- returns in the middle --------------------------------------------------------------------


def _structured(body: Sequence[Stmt]) -> tuple[Stmt, ...] | None:
    """The body without its returns: what follows a returning ``if`` moves into its ``else``.

    None where a return stands in a loop, ``with`` or ``try``.
    """
    nested = [
        s
        for s in body
        if not isinstance(s.tree, ast.Return)
        and any(isinstance(n, ast.Return) for n in same_scope(s.tree))
    ]
    if not nested:
        return tuple(s for s in body if not isinstance(s.tree, ast.Return))
    nodes = _without_returns([s.node for s in body])
    if nodes is None:
        return None
    return tuple(from_node(node, 0) for node in nodes)


def _without_returns(nodes: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement] | None:
    done: list[cst.BaseStatement] = []
    for index, node in enumerate(nodes):
        if _is_return(node):
            return done
        if not _holds_return(node):
            done.append(node)
            continue
        if not isinstance(node, cst.If):
            return None
        rest = list(nodes[index + 1 :])
        arms = _arms(node)
        filled: list[list[cst.BaseStatement]] = []
        for arm in arms:
            leaves = any(_is_return(s) for s in arm) or (bool(arm) and _always_returns(arm[-1]))
            inner = _without_returns(arm if leaves else [*arm, *rest])
            if inner is None:
                return None
            filled.append(inner or [make("pass").node])
        body, otherwise = filled
        done.append(
            cst.If(
                node.test, cst.IndentedBlock(body), orelse=cst.Else(cst.IndentedBlock(otherwise))
            )
        )
        return done
    return done


def _arms(node: cst.If) -> list[list[cst.BaseStatement]]:
    first = _statements(node.body)
    if node.orelse is None:
        return [first, []]
    if isinstance(node.orelse, cst.If):
        return [first, [node.orelse]]
    return [first, _statements(node.orelse.body)]


def _statements(suite: cst.BaseSuite) -> list[cst.BaseStatement]:
    if isinstance(suite, cst.IndentedBlock):
        return [s for s in suite.body if isinstance(s, cst.BaseStatement)]
    assert isinstance(suite, cst.SimpleStatementSuite)
    return [cst.SimpleStatementLine(suite.body)]


def _is_return(node: cst.BaseStatement) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[-1], cst.Return)


def _holds_return(node: cst.BaseStatement) -> bool:
    tree = ast.parse(code(node)).body[0]
    return any(isinstance(n, ast.Return) for n in same_scope(tree))


def _always_returns(node: cst.BaseStatement) -> bool:
    if _is_return(node):
        return True
    if isinstance(node, cst.SimpleStatementLine):
        return isinstance(node.body[-1], cst.Raise)
    if isinstance(node, cst.If) and node.orelse is not None:
        return all(bool(arm) and _always_returns(arm[-1]) for arm in _arms(node))
    return False
