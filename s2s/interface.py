"""What it takes to call a function, read off its pair: the value that the torch side works with."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Collection, Iterable, Mapping

from .cache import digest
from .check import surely_fresh
from .effects import may_share
from .emit.call import watched
from .emit.eager import attribute
from .emit.layout import class_name
from .emit.op import operator_name, schema, schema_order
from .identity import linked, same_tensor
from .ir import Interface, Pair, Rule, lines_of
from .names import outputs_in, returns_in, same_scope, writes
from .warn import unbound_names, warnings_for

__all__ = ["interface"]


def interface(rule: Rule, pair: Pair) -> Interface:
    """The interface of a lifted pair.

    Its warnings are those that the file alone gives: whether ``unbound`` names exist is known
    where the function is decorated.
    """
    paths: dict[str, list[tuple[str, ...]]] = {}
    for value in watched(pair):
        paths.setdefault(value.name, []).append(value.path)
    unclear = [s for s in pair.saved if s.keep == "either" and s.name not in pair.arguments]
    positional, by_name = schema_order(pair)
    unbound = unbound_names(rule.source)
    return Interface(
        name=pair.name,
        torch=pair.torch,
        params=pair.params,
        constants=pair.constants,
        outputs=pair.outputs,
        single=pair.single,
        dirty=pair.changed,
        saved=tuple(s.name for s in pair.saved),
        unclear=tuple((s.name, attribute(s)) for s in unclear),
        watched=tuple((name, tuple(found)) for name, found in paths.items()),
        cls=class_name(pair),
        operator=operator_name(pair),
        written=_written(pair),
        schema=schema(pair),
        positional=tuple(positional),
        by_name=tuple(by_name),
        fresh=surely_fresh(rule),
        overlap=_overlap(pair),
        warnings=warnings_for(rule, unbound),
        unbound=unbound,
    )


def _overlap(pair: Pair) -> bool:
    """May one output be another one, or a view of it? Not of two views of a third tensor. Copies
    count as the tensor itself: compilers take them out."""
    if len(pair.outputs) < 2:
        return False
    trees = [_WithoutCopies().visit(copy.deepcopy(s.tree)) for s in pair.forward]
    nodes = [n for t in trees for n in same_scope(t)]
    same = linked(trees, {})
    memory = _memory(nodes)
    for node in returns_in(trees):
        values = outputs_in(node)
        # one tensor cannot be an output of two dtypes
        outputs = [v for v, o in zip(values, pair.outputs) if o.differentiable or o.marked]
        for one, other in itertools.permutations(outputs, 2):
            whole = {o for n in same_tensor(one) for o in same.get(n, (n,))} - set(pair.arguments)
            if whole & _reached(may_share(other), memory):
                return True
    return False


def _memory(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """For each name, the names whose memory its value may be: of a view, the tensor."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For)):
            value = node.iter if isinstance(node, ast.For) else node.value
            names = set(writes(node))
            shared = set() if value is None else may_share(value)
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                shared |= names  # what it returns may be anything
            if isinstance(value, ast.Name) or len(getattr(node, "targets", ())) > 1:
                shared |= names
            for name in names:
                found.setdefault(name, set()).update(shared)
    return found


def _reached(names: Collection[str], steps: Mapping[str, Collection[str]]) -> set[str]:
    found, new = set[str](), set(names)
    while new:
        found |= new
        new = {other for name in new for other in steps.get(name, ())} - found
    return found


class _WithoutCopies(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("clone", "detach"):
            return node.args[0] if node.args else node.func.value
        return node


def _written(pair: Pair) -> str:
    """One text for one function with its options, wherever its file has it."""
    lines = lines_of(pair.source.text)[
        pair.source.function.lineno - 1 : pair.source.function.end_lineno
    ]
    return digest(*lines, pair.save, *pair.recompute)
