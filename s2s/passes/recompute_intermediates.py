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
from collections.abc import Collection, Iterator, Mapping, Sequence

import libcst as cst

from ..captures import is_data_global
from ..effects import carries_gradient, doing, slice_for, touched, without_grad
from ..infer import infer, is_plain, types_after
from ..ir import Constant, Pair, Saved, Stmt, replace
from ..names import changed, children, fresh, reads, same_scope, writes
from ..source import bindings
from ..syntax import code, from_node, handed_over, make, rename
from .lift_backward import keep_for

__all__ = ["recompute_always", "recompute_intermediates"]

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


def _recompute(pair: Pair, always: bool) -> Pair:
    wanted = _intermediates(pair, always)
    body = _structured(pair.forward)
    if body is None:
        return _refuse(pair, wanted, "it is computed next to a return in a loop")
    carrying = _carrying(pair, body)
    redone = {s.name for s in wanted if always or s.name in carrying}
    if not redone:
        return pair
    plan = _plan(pair, body, redone)
    again = {s.name for s in pair.saved} & _rebound(pair) & set(plan.starts)
    if again - redone:  # its first value is needed and its last one too: redo the last one
        redone |= again
        plan = _plan(pair, body, redone)
    if plan.dirty:
        return _refuse(pair, wanted, f"it depends on {plan.dirty}, which forward changes in place")
    pair = _with_kept(pair, body, plan, carrying)
    if not plan.statements:
        return pair
    pair = _with_starts(pair, plan.starts)
    return _with_block(pair, [body[i] for i in plan.statements], plan, always)


def _intermediates(pair: Pair, plain_too: bool) -> list[Saved]:
    """Saved values that forward computes and does not return."""
    bound = {n for s in pair.forward for n in writes(s.tree)}
    outputs = {o.name for o in pair.outputs}
    return [
        s
        for s in pair.saved
        if s.name in bound
        and s.name not in outputs
        and s.name != pair.branch
        and (plain_too or s.keep != "plain" or s.type == "object")  # an object may hold tensors
    ]


def _rebound(pair: Pair) -> set[str]:
    """Inputs that forward binds to something else."""
    bound = {n for s in pair.forward for n in writes(s.tree)}
    return {p.name for p in pair.params if p.name in bound}


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
    outputs = _stops(pair, trees)
    found = bindings(pair.source.tree)
    objects = {p.name for p in pair.params if p.type in ("object", "")}
    helpers: dict[str, ast.AST] = {}
    for t in trees:
        if isinstance(t, ast.FunctionDef):
            helpers[t.name] = t
        elif isinstance(t, ast.Assign) and isinstance(t.value, ast.Lambda):
            helpers.update(dict.fromkeys(writes(t), t.value))
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
        names |= touched(trees[last], found) - set(pair.arguments)
        why = ast.unparse(trees[last]).splitlines()[0]
        inputs = set(pair.arguments)  # bound once already
        once = {n for n in names - inputs if sum(n in writes(t) for t in trees) == 1}
        new = once - set(plan.kept)  # every round keeps something more, or ends here
        if names - once or not new:
            for name in redone:  # it would be kept under a name that is bound again later
                plan.kept.setdefault(name, why)
            plan.statements, plan.starts = [], []
            return plan
        plan.kept.update(dict.fromkeys(once, why))
    plan.statements = indices
    outside = [n for n in pair.arguments if n in needed]
    outside += [n for n in sorted(needed) if n not in outside and n in {*plan.kept, *outputs}]
    plan.starts = outside + [
        n for n in sorted(needed) if n not in local and is_data_global(pair.source, n)
    ]
    dirty = [n for n in outside if n in pair.dirty]
    plan.dirty = dirty[0] if dirty else None
    return plan


def _unstable(trees: tuple[ast.stmt, ...], helpers: Mapping[str, ast.AST]) -> set[str]:
    """Nested functions that read a name which is bound more than once: a later call of them is
    another function."""
    count: dict[str, int] = {}
    for tree in trees:
        for name in writes(tree):
            count[name] = count.get(name, 0) + 1
    return {h for h, tree in helpers.items() if any(count.get(n, 0) > 1 for n in reads(tree))}


def _stops(pair: Pair, trees: tuple[ast.stmt, ...]) -> set[str]:
    """Outputs that are saved: autograd reconnects these by itself, through the user's rule."""
    saved = {s.name for s in pair.saved}
    names = {o.name for o in pair.outputs if o.name in saved and o.name is not None}
    return {n for n in names if sum(n in writes(t) for t in trees) == 1 and n not in pair.arguments}


def _carrying(pair: Pair, body: Sequence[Stmt]) -> set[str]:
    """Names whose value has a derivative with respect to an input."""
    carrying = {p.name for p in pair.params if not is_plain(p.type) and not p.bound}
    for _ in range(2):  # once more for what a loop carries round
        for statement in body:
            for node in _with_grad(statement.tree):
                _carry(node, carrying)
            for node in same_scope(statement.tree):
                if without_grad(node):
                    carrying.update(_renamed_in(node, carrying))
    return carrying


def _renamed_in(block: ast.AST, carrying: Collection[str]) -> Iterator[str]:
    """Names that a ``with torch.no_grad():`` gives to values that were there: they keep theirs."""
    for node in same_scope(block):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            if any(name in carrying for name in _itself(node.value)):
                yield from writes(node)


def _itself(value: ast.expr) -> Iterator[str]:
    """The names whose very object an expression may be."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.IfExp):
        yield from (*_itself(value.body), *_itself(value.orelse))
    elif isinstance(value, (ast.Tuple, ast.List)):
        for element in value.elts:
            yield from _itself(element)


def _with_grad(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement outside ``with torch.no_grad():``."""
    if without_grad(node):
        return
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
        for child in children(node):
            yield from _with_grad(child)


def _carry(node: ast.AST, carrying: set[str]) -> None:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
        if node.value is not None and carries_gradient(node.value, carrying):
            carrying.update(writes(node))
            carrying.update(changed(node))
    elif isinstance(node, ast.For) and carries_gradient(node.iter, carrying):
        carrying.update(writes(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        carrying.update(writes(node.optional_vars))
    elif isinstance(node, ast.Call):
        parts = [*node.args, *(k.value for k in node.keywords)]
        if any(carries_gradient(p, carrying) for p in parts):
            carrying.update(changed(ast.Expr(node)))
    elif isinstance(node, ast.FunctionDef):
        if any(name in carrying for name in reads(node)):
            carrying.add(node.name)
    elif isinstance(node, ast.Match) and carries_gradient(node.subject, carrying):
        carrying.update(n for case in node.cases for n in writes(case.pattern))


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
    types = _forward_types(pair)
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
    return _with_saved(pair, tuple(done))


def _forward_types(pair: Pair) -> dict[str, str]:
    start = {p.name: p.type for p in pair.params}
    start |= {c.name: c.type for c in pair.constants}
    return types_after([s.tree for s in pair.forward], start, bindings(pair.source.tree))


def _with_starts(pair: Pair, starts: list[str]) -> Pair:
    """Save what the redone statements start from, if it is not saved already."""
    present = {s.name for s in pair.saved}
    found = bindings(pair.source.tree)
    types = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
    extra: list[Saved] = []
    constants = list(pair.constants)
    for name in starts:
        if name in present or name in _rebound(pair):
            continue
        if name not in types:  # a global
            types[name] = infer(ast.Name(name, ast.Load()), {}, found)
            constants.append(Constant(name, types[name], "the module", False))
        extra.append(Saved(name, keep_for(types[name]), types[name]))
    if not extra:
        return pair
    order = {name: index for index, name in enumerate(pair.arguments)}
    inputs = sorted(
        (s for s in (*pair.saved, *extra) if s.name in order), key=lambda s: order[s.name]
    )
    others = [s for s in (*pair.saved, *extra) if s.name not in order]
    first = [s for s in others if s.name == "branch" and s.type == "int"]
    others = [s for s in others if s not in first]
    saved = (*first, *inputs, *others)
    return _with_saved(replace(pair, constants=tuple(constants)), saved)


def _with_saved(pair: Pair, saved: tuple[Saved, ...]) -> Pair:
    """The pair with another list of saved values, in forward's returns too."""
    before = [s.name for s in pair.saved]
    forward = handed_over(pair.forward, before, [s.name for s in saved])
    return replace(pair, saved=saved, forward=forward)


def _with_block(pair: Pair, redo: Sequence[Stmt], plan: _Plan, always: bool) -> Pair:
    """``if torch.is_grad_enabled():`` and the statements, in front of backward."""
    pair, first = _originals(pair, plan)
    names = {n for s in redo for n in (*writes(s.tree), *reads(s.tree))} | set(plan.starts)
    pair = _rename_locals(pair, names)
    redo = [*first, *redo]
    helpers = [s for s in pair.backward if isinstance(s.tree, ast.FunctionDef)]
    rest = [s for s in pair.backward if s not in helpers]
    if always:
        again = [
            replace(s, node=_plain(s)) for s in redo if s.tree not in [h.tree for h in helpers]
        ]
        return replace(pair, backward=(*helpers, *again, *rest))
    test = cst.parse_expression(f"{pair.torch}.is_grad_enabled()")
    header = cst.TrailingWhitespace(
        whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(COMMENT)
    )
    nodes = [_plain(s) for s in redo]
    statement = from_node(cst.If(test, cst.IndentedBlock(nodes, header=header)), 0)
    return replace(pair, backward=(*helpers, statement, *rest))


def _plain(statement: Stmt) -> cst.BaseStatement:
    """Without the comments and blank lines around it: they are in forward already."""
    node = statement.node
    if isinstance(node, cst.SimpleStatementLine):
        return node.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())
    return node.with_changes(leading_lines=[])


def _originals(pair: Pair, plan: _Plan) -> tuple[Pair, list[Stmt]]:
    """Inputs that forward binds again: keep the first value too, under another name."""
    first: list[Stmt] = []
    rebound = _rebound(pair)
    for param in pair.params:
        if param.name not in rebound or param.name not in plan.starts:
            continue
        alias = fresh(f"{param.name}_in", pair.taken)
        given = Saved(alias, keep_for(param.type), param.type)
        forward = (make(f"{alias} = {param.name}"), *pair.forward)
        pair = replace(pair, forward=forward, taken=pair.taken | {alias})
        pair = _with_saved(pair, (*pair.saved, given))
        first.append(make(f"{param.name} = {alias}"))
    return pair, first


def _rename_locals(pair: Pair, names: Collection[str]) -> Pair:
    """Backward's own names that the redone statements would overwrite get others."""
    own = {n for s in pair.backward for n in writes(s.tree)} | set(pair.grads)
    saved = {s.name for s in pair.saved}
    clash = sorted(n for n in own if n in names and n not in saved) + sorted(
        n for n in pair.grads if n in saved
    )
    if not clash:
        return pair
    taken = set(pair.taken)
    new: dict[str, str] = {}
    for name in clash:
        new[name] = fresh(name, taken)
        taken.add(new[name])
    return replace(
        pair,
        grads=tuple(new.get(g, g) for g in pair.grads),
        backward=tuple(rename(s, new) for s in pair.backward),
        taken=frozenset(taken),
    )


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
