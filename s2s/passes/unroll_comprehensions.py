"""A list that is filled under a condition, or by two loops, is filled in a loop.

    kept = [2 * t for t in xs if t.dim()]    -->   kept: List[Tensor] = []
                                                   for t in xs:
                                                       if t.dim():
                                                           kept.append(2 * t)

TorchScript's comprehensions have one loop and no condition. The loop gets a fresh name where the
function has another use for its own. Only where the list is bound to a name.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..infer import types_after, written_type
from ..ir import Pair
from ..names import fresh, reads, walk, writes
from ..source import bindings
from ..syntax import code, from_node, make, rename, standalone
from .rewriting import rewritten

__all__ = ["unroll_comprehensions"]


def unroll_comprehensions(pair: Pair) -> Pair:
    """``name = [... for ... if ...]`` as a loop with ``name.append``."""
    taken = set(pair.taken)
    return rewritten(pair, _is_wanted, _Comprehensions(pair, taken), taken)


def _is_wanted(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.ListComp):
        return False
    if len(node.targets) > 1 or not isinstance(node.targets[0], ast.Name):
        return False
    generators = node.value.generators
    nested = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    inner = [n for n in walk(node.value) if n is not node.value]
    if any(isinstance(n, (*nested, ast.NamedExpr, ast.Await)) for n in inner):
        return False  # with scopes or bindings of their own
    several = len(generators) > 1 or any(g.ifs for g in generators)
    return several and node.targets[0].id not in reads(node.value)


class _Comprehensions(cst.CSTTransformer):
    def __init__(self, pair: Pair, taken: set[str]) -> None:
        found = bindings(pair.source.tree)
        start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
        self.types = types_after([s.tree for s in pair.forward], start, found)
        self.types |= dict.fromkeys(pair.grads, "Tensor")
        self.types = types_after([s.tree for s in pair.backward], self.types, found)
        self.once = [n for s in (*pair.forward, *pair.backward) for n in writes(s.tree)]
        self.seen = {*self.types, *found}  # names that a loop must not bind
        self.taken = taken

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        text = code(updated_node)
        (tree,) = ast.parse(text).body
        if not _is_wanted(tree):
            return updated_node
        assert isinstance(tree, ast.Assign) and isinstance(tree.value, ast.ListComp)
        (name,) = writes(tree)
        renamed = self._with_own_names(updated_node, tree.value)
        value = cst.ensure_type(cst.ensure_type(renamed.body[0], cst.Assign).value, cst.ListComp)
        written = written_type(self.types.get(name, ""))
        typed = written.startswith("List[") and self.once.count(name) == 1
        first = make(f"{name}: {written} = []" if typed else f"{name} = []").node
        first = first.with_changes(
            leading_lines=updated_node.leading_lines,
            trailing_whitespace=updated_node.trailing_whitespace,
        )
        loop = _loop(value.for_in, name, value.elt)
        return cst.FlattenSentinel([first, loop])

    def _with_own_names(
        self, line: cst.SimpleStatementLine, value: ast.ListComp
    ) -> cst.SimpleStatementLine:
        bound = {n.id for g in value.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        names = {}
        for name in sorted(bound):
            if name in self.seen:
                names[name] = fresh(name, self.taken)
                self.taken.add(names[name])
            self.seen.add(name)
        return cst.ensure_type(rename(from_node(line, 0), names).node, cst.SimpleStatementLine)


def _loop(level: cst.CompFor, name: str, element: cst.BaseExpression) -> cst.For:
    """The loops of a comprehension, the tests in them, and innermost ``name.append``."""
    if level.inner_for_in is not None:
        inner: cst.BaseStatement = _loop(level.inner_for_in, name, element)
    else:
        call = cst.Call(cst.parse_expression(f"{name}.append"), [cst.Arg(element)])
        inner = cst.SimpleStatementLine([cst.Expr(call)])
    for test in reversed(level.ifs):
        inner = cst.If(standalone(test.test), cst.IndentedBlock([inner]))
    return cst.For(level.target, standalone(level.iter), cst.IndentedBlock([inner]))
