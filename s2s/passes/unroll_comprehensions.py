"""A list that is filled under a condition, or by two loops, is filled in a loop.

    kept = [t * 2 for t in xs if t.dim() > 0]      -->   kept = []
                                                         for t_1 in xs:
                                                             if t_1.dim() > 0:
                                                                 kept.append(t_1 * 2)

TorchScript's comprehensions have one loop and no condition. The loop's names are fresh ones, as
those of a comprehension are seen by it alone. Only where the list is bound to a name.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import libcst as cst

from ..infer import infer, types_after, written_type
from ..ir import Pair
from ..names import fresh, reads, walk
from ..source import bindings
from ..syntax import code, make, rename
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
        self.bindings = bindings(pair.source.tree)
        start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
        start = types_after([s.tree for s in pair.forward], start, self.bindings)
        start |= dict.fromkeys(pair.grads, "Tensor")
        self.types = types_after([s.tree for s in pair.backward], start, self.bindings)
        self.taken = taken

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        (tree,) = ast.parse(code(updated_node)).body
        if not _is_wanted(tree):
            return updated_node
        assert isinstance(tree, ast.Assign) and isinstance(tree.value, ast.ListComp)
        name = ast.unparse(tree.targets[0])
        names = self._names(tree.value)
        written = written_type(self.types.get(name, ""))
        typed = written.startswith("List[") and written != "List[Tensor]"
        first = make(f"{name}: {written} = []" if typed and self._once(name) else f"{name} = []")
        loops = self._loops(tree.value, name, names)
        start = first.node.with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([start, loops])
