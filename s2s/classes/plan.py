"""Which variable each value on ``ctx`` becomes.

Read off the two methods: what forward saves and sets, what backward takes. A variable of forward
that is kept as it stands needs no second name; what backward calls otherwise is renamed there.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..names import (
    fresh,
    is_name,
    is_none,
    mentioned,
    reads,
    returns_in,
    same_scope,
    walk,
    writes,
)
from .methods import Part

__all__ = ["SAVED", "Plan", "Problem", "attribute_of", "ctx_call", "is_saved_tensors", "plan"]

SAVED = ("saved_tensors", "saved_variables")
_MARKS = ("mark_non_differentiable", "mark_dirty", "set_materialize_grads", "save_for_forward")
_METHODS = ("save_for_backward", *_MARKS)
_RENAMED = {"backward", "needs_input_grad"}  # variables of forward that would mean another thing


@dataclass(frozen=True, slots=True)
class Problem:
    """A use of ctx without a closure form: where, in which method, and what to write instead."""

    node: ast.AST
    method: str
    code: str
    what: str
    hint: str


@dataclass
class Plan:
    """Variables for what is on ``ctx``."""

    attributes: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)  # for hasattr, where not every path sets it
    always: set[str] = field(default_factory=set)  # attributes that every path sets
    slots: tuple[str, ...] | None = None  # of saved tensors; None: they are one list
    starred: bool = False  # the last slot holds any number of tensors
    listed: str = ""  # the variable of that list
    sure: bool = False  # forward surely sets it
    forward_names: dict[str, str] = field(default_factory=dict)
    backward_names: dict[str, str] = field(default_factory=dict)
    materialize: bool = True
    flat: tuple[str, ...] = ()  # returned names that are marked non-differentiable
    dirty: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)


def attribute_of(node: ast.AST, ctx: str) -> str | None:
    """``attr`` of ``ctx.attr``."""
    if isinstance(node, ast.Attribute) and is_name(node.value, ctx):
        return node.attr
    return None


def ctx_call(node: ast.AST, ctx: str) -> str | None:
    """``save_for_backward`` of a call ``ctx.save_for_backward(...)``."""
    return attribute_of(node.func, ctx) if isinstance(node, ast.Call) else None


def is_saved_tensors(node: ast.AST, ctx: str) -> bool:
    return attribute_of(node, ctx) in SAVED


def plan(forward: Part, backward: Part, taken: set[str]) -> Plan:
    """The variables of a class with these methods. ``taken`` are names of the module."""
    made = Plan()
    _refuse_odd_uses(made, forward, writable=True)
    _refuse_odd_uses(made, backward, writable=False)
    _marks(made, forward)
    names = _Names(forward, backward, taken)
    _slots(made, names)
    _attributes(made, names)
    _clashes(made, names)
    return made


class _Names:
    """What is bound and read in the two methods."""

    def __init__(self, forward: Part, backward: Part, taken: set[str]) -> None:
        self.forward = forward
        self.backward = backward
        self.f, self.b = forward.tree, backward.tree
        self.in_forward = _every_name(self.f)
        self.in_backward = _every_name(self.b)
        self.module = taken
        self.stored = _stores(self.b)  # how often backward binds a name
        self.used: set[str] = set()

    def fresh(self, name: str) -> str:
        """A variable of forward that nothing else is called."""
        made = fresh(name, self.in_forward | self.in_backward | self.module | self.used)
        self.used.add(made)
        return made

    def is_stable(self, name: str, at: ast.stmt) -> bool:
        """Has the variable of forward, when forward returns, the value that it has at ``at``?"""
        if name not in self.in_forward or name in _RENAMED:
            return False
        params = set(self.forward.params)
        stores = [n for n in walk(self.f) if is_name(n, name) and not _loads(n)]
        if not stores and name not in params:
            return False
        if any(n.lineno >= at.lineno for n in stores):  # type: ignore[attr-defined]
            return False
        for loop in walk(self.f):
            if isinstance(loop, (ast.For, ast.While)) and any(n is at for n in walk(loop)):
                if any(n in stores for n in walk(loop)):
                    return False
        return True

    def is_free_in_backward(self, name: str, instead_of: str = "") -> bool:
        """May backward read a variable of forward by this name?"""
        if name == instead_of:
            return True
        return name not in self.in_backward


def _loads(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _every_name(tree: ast.FunctionDef) -> set[str]:
    names = set(mentioned(tree))
    return names | {name for s in tree.body for name in writes(s)}


def _stores(tree: ast.FunctionDef) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in walk(tree):
        if isinstance(node, ast.Name) and not _loads(node):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not tree:
            found[node.name] += 1
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found[node.name] += 1
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(a.asname or a.name.split(".")[0] for a in node.names)
    return found


# --- saved tensors --------------------------------------------------------------------------


def _saves(tree: ast.FunctionDef, ctx: str) -> list[tuple[ast.stmt, ast.Call]]:
    found: list[tuple[ast.stmt, ast.Call]] = []
    for statement in tree.body:
        for node in same_scope(statement):
            if isinstance(node, ast.Expr) and ctx_call(node.value, ctx) == "save_for_backward":
                assert isinstance(node.value, ast.Call)
                found.append((node, node.value))
    return found


def _unpacks(tree: ast.FunctionDef, ctx: str) -> list[ast.Assign]:
    """Statements of backward's top level that take ``ctx.saved_tensors`` apart."""
    return [
        s
        for s in tree.body
        if isinstance(s, ast.Assign) and len(s.targets) == 1 and is_saved_tensors(s.value, ctx)
        if isinstance(s.targets[0], (ast.Tuple, ast.List))
    ]


def _slots(made: Plan, names: _Names) -> None:
    saves = _saves(names.f, names.forward.ctx)
    if not saves:
        made.slots = ()
        return
    rows = [call.args for _, call in saves]
    shapes = {(len(row), tuple(isinstance(e, ast.Starred) for e in row)) for row in rows}
    count, stars = shapes.pop()
    plain = not any(stars[:-1])
    unpacks = _unpacks(names.b, names.backward.ctx)
    targets = [u.targets[0].elts for u in unpacks]  # type: ignore[attr-defined]
    starred = bool(stars) and stars[-1]
    others = sum(is_saved_tensors(n, names.backward.ctx) for n in walk(names.b)) - len(unpacks)
    if shapes or not plain or (starred and not _same_stars(targets, count, others)):
        made.listed = names.fresh("saved")
        made.sure = any(statement in names.f.body for statement, _ in saves)
        return
    made.starred = starred
    wanted = targets[0] if len(targets) == 1 and len(targets[0]) == count else []
    chosen = [_slot(made, names, saves, index, wanted) for index in range(count)]
    made.slots = tuple(chosen)


def _same_stars(targets: Sequence[Sequence[ast.expr]], count: int, others: int) -> bool:
    """Does backward take the last ones with a star where forward saves them with one?"""
    if others or len(targets) != 1 or len(targets[0]) != count:
        return False
    stars = [isinstance(t, ast.Starred) for t in targets[0]]
    return stars[-1] and not any(stars[:-1])


def _slot(
    made: Plan,
    names: _Names,
    saves: Sequence[tuple[ast.stmt, ast.Call]],
    index: int,
    targets: Sequence[ast.expr],
) -> str:
    """The variable of one saved tensor; what backward calls it is renamed to that."""
    target = targets[index] if targets else None
    target = target.value if isinstance(target, ast.Starred) else target
    theirs = target.id if isinstance(target, ast.Name) else ""
    values = [call.args[index] for _, call in saves]
    values = [v.value if isinstance(v, ast.Starred) else v for v in values]
    first = values[0]
    ours = first.id if isinstance(first, ast.Name) else ""
    stable = len(saves) == 1 and bool(ours) and names.is_stable(ours, saves[0][0])
    base = theirs if theirs.strip("_") else ours or f"saved_{index}"
    return _choose(made, names, ours if stable else "", theirs, base)


def _choose(made: Plan, names: _Names, ours: str, theirs: str, base: str) -> str:
    """One variable for both methods.

    ``ours`` is the variable of forward that holds the value when forward returns, ``theirs`` what
    backward binds it to, "" where there is none.
    """
    renamable = bool(theirs) and names.stored[theirs] == 1 and theirs not in made.backward_names
    if ours and names.is_free_in_backward(ours, theirs if renamable else ""):
        if renamable and theirs != ours:
            made.backward_names[theirs] = ours
        return ours
    if ours and ours in made.backward_names.values() and names.stored[ours] == 0:
        if renamable:
            made.backward_names[theirs] = ours
        return ours
    free = theirs not in names.in_forward | names.used | names.module
    if renamable and base == theirs and free:
        names.used.add(theirs)
        return theirs
    name = names.fresh(base)
    if renamable:
        made.backward_names[theirs] = name
    return name


# --- attributes -----------------------------------------------------------------------------


def _sets(tree: ast.FunctionDef, ctx: str) -> dict[str, list[ast.Attribute]]:
    found: dict[str, list[ast.Attribute]] = {}
    for node in walk(tree):
        name = attribute_of(node, ctx)
        if name is not None and isinstance(getattr(node, "ctx", None), ast.Store):
            assert isinstance(node, ast.Attribute)
            found.setdefault(name, []).append(node)
    return found


def _attributes(made: Plan, names: _Names) -> None:
    f_ctx, b_ctx = names.forward.ctx, names.backward.ctx
    in_forward, in_backward = _sets(names.f, f_ctx), _sets(names.b, b_ctx)
    read = {attribute_of(n, b_ctx) for n in walk(names.b)} | {
        attribute_of(n, f_ctx) for n in walk(names.f)
    }
    for name, places in in_forward.items():
        if name in in_backward:
            made.problems.append(
                Problem(
                    in_backward[name][0],
                    "backward",
                    "S2S223",
                    f"backward sets ctx.{name}, which forward has set",
                    "backward may run twice, and each time it needs what forward left: give the "
                    "new value a name of its own",
                )
            )
        made.attributes[name] = _variable(made, names, name, places)
        if _every_path(names.f.body, lambda s, name=name: _binds(s, f_ctx, name)):  # type: ignore[misc]
            made.always.add(name)
    for name in in_backward:
        if name not in in_forward:
            made.attributes[name] = names.fresh(name)
    asked = _asked(names.b, b_ctx)
    for name in sorted(n for n in read if n and n not in made.attributes):
        if name in (*SAVED, *_METHODS, "needs_input_grad") or name in asked:
            continue
        node = next(n for t in (names.b, names.f) for n in walk(t) if _reads_attribute(n, name))
        made.problems.append(
            Problem(
                node,
                "backward",
                "S2S223",
                f"ctx.{name} is read, and forward never sets it",
                "set it, or mend the name",
            )
        )
    for name in asked:
        if name in in_forward and name not in made.always:
            made.flags[name] = names.fresh(f"has_{name}")


def _reads_attribute(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)
    )


def _asked(tree: ast.FunctionDef, ctx: str) -> set[str]:
    """Attributes that hasattr or getattr ask for."""
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("hasattr", "getattr") and len(node.args) > 1:
                key = node.args[1]
                if is_name(node.args[0], ctx) and isinstance(key, ast.Constant):
                    found.add(str(key.value))
    return found


def _binds(statement: ast.stmt, ctx: str, name: str) -> bool:
    """``ctx.name = ...``"""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    return any(attribute_of(n, ctx) == name and not _loads(n) for n in walk(statement))


def _every_path(body: Sequence[ast.stmt], does: Callable[[ast.stmt], bool]) -> bool:
    """Does every path through these statements that ends well come by one that does it?"""
    ends, before = _paths(body, does)
    return ends and before


def _paths(body: Sequence[ast.stmt], does: Callable[[ast.stmt], bool]) -> tuple[bool, bool]:
    """Has it been done wherever these statements return, and where they go on?"""
    for statement in body:
        if does(statement):
            return True, True
        if isinstance(statement, (ast.Return, ast.Raise)):
            return isinstance(statement, ast.Raise), True
        arms: list[list[ast.stmt]] = []
        if isinstance(statement, ast.If):
            arms = [statement.body, statement.orelse]
        elif isinstance(statement, ast.With):
            arms = [statement.body]
        elif returns_in([statement]):
            return False, False
        inner = [_paths(arm, does) for arm in arms]
        if not all(ends for ends, _ in inner):
            return False, False
        if inner and all(before for _, before in inner):
            return True, True
    return True, False


def _variable(made: Plan, names: _Names, name: str, places: Sequence[ast.Attribute]) -> str:
    """``ctx.a = a`` keeps ``a`` itself where that stays what it is."""
    ours = ""
    if len(places) == 1:
        statement = _statement_of(names.f, places[0])
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            value = _value_for(statement, places[0])
            if isinstance(value, ast.Name) and names.is_stable(value.id, statement):
                ours = value.id
    return _choose(made, names, ours, _taken_as(names, name), name)


def _taken_as(names: _Names, attribute: str) -> str:
    """``a`` of ``a = ctx.attribute``, where that is the one use of it in backward."""
    ctx = names.backward.ctx
    uses = sum(attribute_of(n, ctx) == attribute for n in walk(names.b))
    for statement in names.b.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if attribute_of(statement.value, ctx) == attribute and isinstance(target, ast.Name):
                return target.id if uses == 1 else ""
    return ""


def _value_for(statement: ast.Assign, place: ast.Attribute) -> ast.expr | None:
    """What is assigned to one target: also in ``ctx.a, ctx.b = a, b``."""
    target = statement.targets[0]
    if target is place:
        return statement.value
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
        if len(target.elts) == len(statement.value.elts):
            for one, value in zip(target.elts, statement.value.elts):
                if one is place:
                    return value
    return None


def _statement_of(tree: ast.FunctionDef, node: ast.AST) -> ast.stmt | None:
    for statement in walk(tree):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if any(n is node for n in walk(statement)):
                return statement
    return None


# --- names that would mean another thing ----------------------------------------------------


def _clashes(made: Plan, names: _Names) -> None:
    """A name that backward reads from the module must not meet a variable of forward."""
    kept = {*made.attributes.values(), *(made.slots or ()), made.listed, *made.flags.values()}
    own = {name for name, count in names.stored.items() if count}
    outside = set(reads(names.b)) - own - set(made.backward_names)
    local = {n for s in names.f.body for n in writes(s)} | set(names.forward.params)
    for name in sorted(outside & local - kept):
        made.forward_names[name] = names.fresh(name)
    if names.stored["needs_input_grad"]:
        made.backward_names["needs_input_grad"] = names.fresh("needed")
    for name in sorted(local & _RENAMED):
        made.forward_names[name] = names.fresh(name)


# --- marks, and what is refused -------------------------------------------------------------


def _marks(made: Plan, forward: Part) -> None:
    ctx = forward.ctx
    for node in walk(forward.tree):
        if not isinstance(node, ast.Expr):
            continue
        name = ctx_call(node.value, ctx)
        if name not in _MARKS:
            continue
        assert isinstance(node.value, ast.Call)
        arguments = node.value.args
        if name == "set_materialize_grads":
            value = arguments[0] if arguments else None
            if not isinstance(value, ast.Constant):
                _odd(made, node, "forward", "set_materialize_grads takes True or False here")
            elif not value.value and not _every_path(
                forward.tree.body, lambda s: _unmaterialises(s, ctx)
            ):
                _odd(made, node, "forward", "set_materialize_grads(False) stands in a branch")
            else:
                made.materialize = bool(value.value)
        elif name in ("mark_non_differentiable", "mark_dirty"):
            given = tuple(a.id for a in arguments if isinstance(a, ast.Name))
            if len(given) != len(arguments):
                _odd(made, node, "forward", f"{name} is given something else than names")
            if name == "mark_dirty":
                made.dirty += given
            else:
                made.flat += given


def _unmaterialises(statement: ast.stmt, ctx: str) -> bool:
    """``ctx.set_materialize_grads(False)``"""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    given = [ast.unparse(a) for a in statement.value.args]
    return ctx_call(statement.value, ctx) == "set_materialize_grads" and given == ["False"]


def _odd(made: Plan, node: ast.AST, where: str, what: str) -> None:
    hint = "write the closure form by hand"
    made.problems.append(Problem(node, where, "S2S223", what, hint))


def _refuse_odd_uses(made: Plan, part: Part, writable: bool) -> None:
    """Everything that is done with ctx has a form, or is refused at its line."""
    ctx = part.ctx
    if not ctx:
        return
    known: set[int] = set()
    for node in walk(part.tree):
        if isinstance(node, ast.Attribute) and is_name(node.value, ctx):
            known.add(id(node.value))
            if isinstance(node.ctx, ast.Del) and (writable or node.attr in _asked(part.tree, ctx)):
                _odd(made, node, part.name, f"{part.name} deletes ctx.{node.attr}")
        if (
            isinstance(node, ast.Compare)
            and is_name(node.left, ctx)
            and is_none(node.comparators[0])
        ):
            known.add(id(node.left))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            constant = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
            asks = node.func.id in ("hasattr", "getattr") and not writable
            if asks and is_name(node.args[0], ctx) and constant:
                known.add(id(node.args[0]))
    statements = {id(n.value) for n in walk(part.tree) if isinstance(n, ast.Expr)}
    called = {id(n.func) for n in walk(part.tree) if isinstance(n, ast.Call)}
    for node in walk(part.tree):
        if attribute_of(node, ctx) in _METHODS and id(node) not in called:
            method = f"ctx.{attribute_of(node, ctx)}"
            what = f"{part.name} gives {method} another name"
            problem = Problem(node, part.name, "S2S223", what, f"call it: `{method}(...)`")
            made.problems.append(problem)
        if is_name(node, ctx) and id(node) not in known:
            if isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                made.problems.append(
                    Problem(
                        node,
                        part.name,
                        "S2S222",
                        f"{part.name} hands ctx to something else",
                        "ctx can go to a function of the same file that is called as a "
                        "statement, or as all that is assigned or returned",
                    )
                )
        name = ctx_call(node, ctx)
        if name is None:
            continue
        if name in _METHODS and writable:
            if id(node) not in statements:
                _odd(made, node, part.name, f"the call of ctx.{name} is no statement of its own")
        elif name in _OTHERS:
            _odd(made, node, part.name, f"ctx.{name} has no meaning in a closure")
    for node in walk(part.tree):
        name = attribute_of(node, ctx)
        if name in ("to_save", "non_differentiable", "dirty_tensors", "next_functions", "metadata"):
            _odd(made, node, part.name, f"ctx.{name} has no meaning in a closure")
        if name in SAVED and writable:
            _odd(made, node, part.name, "forward reads ctx.saved_tensors")
        nested = isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not part.tree
        if nested and writable and any(is_name(n, ctx) for n in walk(node)):
            inner = [n for n in walk(node) if attribute_of(n, ctx) and not _loads(n)]
            if inner or any(ctx_call(n, ctx) in _METHODS for n in walk(node)):
                _odd(made, node, part.name, "a nested function writes on ctx")


_OTHERS = (
    *("save_for_backward", "save_for_forward", "mark_dirty", "mark_non_differentiable"),
    *("mark_shared_storage", "set_materialize_grads", "register_hook", "register_prehook"),
    *("name", "maybe_clear_saved_tensors"),
)
