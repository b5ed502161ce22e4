"""One text for one program: whatever its comments, its layout and its names of variables."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..names import changed, walk, writes

__all__ = ["Row", "canonical", "changed_rows", "neutral", "rows", "same_program"]

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_LONG = 2000  # rows from which on the matcher may skip what occurs often
_CONTEXT = 3
_SMALL = 300  # nodes of an expression that is put in the place of a name


def canonical(node: ast.AST) -> str:
    """The text of a tree, the same on every version of Python that can read it.

    >>> canonical(ast.parse("y = ( x*2 )  # twice"))
    'y = (x * 2)'
    """
    import astunparse

    try:
        text: str = astunparse.unparse(node).strip()
        if ast.dump(ast.parse(text)) == ast.dump(ast.parse(ast.unparse(node))):
            return text
    except (AttributeError, SyntaxError):  # syntax that is newer than astunparse
        pass
    return ast.unparse(node)


def same_program(one: str, other: str) -> bool:
    """Do two texts differ in comments and layout alone? What is no Python is compared as it is."""
    if one == other:
        return True
    try:
        return canonical(ast.parse(one)) == canonical(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def neutral(
    trees: Iterable[ast.stmt],
    names: Mapping[str, str],
    local: Collection[str],
    pure: Callable[[ast.expr], bool] = lambda value: False,
) -> str:
    r"""The text of some statements that does not depend on how their variables are chosen.

    ``names`` stand for others; the names in ``local`` become ``v0``, ``v1``... in their order. A
    variable whose value is ``pure`` and bound once is put in the place of its name, so that it does
    not matter whether there is one.

    >>> body = ast.parse("t = x * 2; y = t + x").body
    >>> neutral(body, {"x": "in0"}, {"t", "y"})
    'v0 = (in0 * 2)\nv1 = (v0 + in0)'
    >>> one, other = ast.parse("t = x * 2; return t + x").body, ast.parse("return x * 2 + x").body
    >>> neutral(one, {}, {"t"}, lambda value: True) == neutral(other, {}, (), lambda value: True)
    True
    """
    body = list(trees)
    visitor = _Renamed(names, local)
    bound = [name for statement in body for name in writes(statement)]
    in_place = any(changed(statement) for statement in body)
    shown: list[str] = []
    for statement in body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        once = isinstance(target, ast.Name) and bound.count(target.id) == 1 and target.id in local
        if once and not in_place and isinstance(statement, ast.Assign) and pure(statement.value):
            value = visitor.visit(copy.deepcopy(statement.value))
            if len(walk(value)) <= _SMALL:
                assert isinstance(target, ast.Name)
                visitor.values[target.id] = value
                continue
        shown.append(canonical(visitor.visit(copy.deepcopy(statement))))
    return "\n".join(shown)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str], local: Collection[str]) -> None:
        self.names = dict(names)
        self.values: dict[str, ast.expr] = {}
        self.local = local
        self.count = 0

    def name(self, name: str) -> str:
        if name not in self.names and name in self.local:
            self.names[name] = f"v{self.count}"
            self.count += 1
        return self.names.get(name, name)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)  # before its targets, as Python does
        node.targets = [self.visit(target) for target in node.targets]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.values:
            return self.values[node.id]
        return ast.Name(self.name(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.name(node.arg), node.annotation)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.name(node.name)
        self.generic_visit(node)
        return node


# --- texts, statement by statement ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One statement, or the head of a compound one: what it is compared by, and its own lines."""

    key: str
    lines: tuple[str, ...]


def rows(text: str) -> tuple[Row, ...]:
    """A text as the sequence of its statements, in the order of the lines."""
    tree = ast.parse(text)
    found: list[Row] = []
    _block(tree.body, text.split("\n"), 0, found)
    return tuple(found)


def _block(body: Sequence[ast.AST], lines: Sequence[str], depth: int, found: list[Row]) -> None:
    for node in body:
        first, last = _first(node), getattr(node, "end_lineno", 0)
        inner = [part for name in _BLOCKS if (part := getattr(node, name, None))]
        if not inner or _first(inner[0][0]) == getattr(node, "lineno", 0):
            found.append(Row(f"{depth} {canonical(node)}", _shown(lines, first, last)))
            continue
        head = _first(inner[0][0]) - 1
        found.append(Row(f"{depth} {_head(node)}", _shown(lines, first, head)))
        for name in _BLOCKS:
            part = getattr(node, name, None)
            if not part:
                continue
            if name in ("orelse", "finalbody") and not _is_elif(node, part, lines):
                word = "else:" if name == "orelse" else "finally:"
                space = " " * getattr(node, "col_offset", 0)
                found.append(Row(f"{depth} {word}", (space + word,)))
            deeper = 0 if name in ("handlers",) or _is_elif(node, part, lines) else 1
            _block(part, lines, depth + deeper, found)


def _is_elif(node: ast.AST, part: Sequence[ast.AST], lines: Sequence[str]) -> bool:
    one = part[0]
    if not isinstance(node, ast.If) or len(part) != 1 or not isinstance(one, ast.If):
        return False
    return lines[one.lineno - 1].lstrip().startswith("elif")


def _first(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    lines: list[int] = [getattr(node, "lineno", 1)]
    lines += [d.lineno for d in getattr(node, "decorator_list", [])]
    return min(lines)


def _head(node: ast.AST) -> str:
    """A compound statement without what is in it."""
    bare = copy.copy(node)
    for name in _BLOCKS:
        if getattr(node, name, None) and name in ("body",):
            setattr(bare, name, [ast.Pass()])
        elif hasattr(node, name):
            setattr(bare, name, [])
    if isinstance(bare, ast.Try):
        return "try:"
    return ast.unparse(bare) if isinstance(bare, ast.match_case) else canonical(bare)


def _shown(lines: Sequence[str], first: int, last: int) -> tuple[str, ...]:
    """Lines without the comments and empty lines at their end."""
    shown = list(lines[first - 1 : max(first, last)])
    while len(shown) > 1 and (not shown[-1].strip() or shown[-1].lstrip().startswith("#")):
        shown.pop()
    return tuple(shown)


def changed_rows(old: str, new: str) -> tuple[str, ...]:
    """The difference of two texts by statements, each line after ``-``, ``+`` or a space.

    What differs in comments or layout alone is shown as it is in ``new``, as unchanged. ``@@`` says
    which function the lines below are in, where that is not among them.

    >>> changed_rows("a = 1\\nb = 2", "a = (1)  # one\\nb = 3")
    (' a = (1)  # one', '-b = 2', '+b = 3')
    """
    before, after = rows(old), rows(new)
    keys = [r.key for r in before], [r.key for r in after]
    matcher = SequenceMatcher(None, *keys, autojunk=max(map(len, keys)) > _LONG)
    shown: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        shown += _inside(after, group[0][3])
        for tag, a, b, c, d in group:
            if tag == "equal":
                shown += _marked(" ", after[c:d])
            else:
                shown += [*_marked("-", before[a:b]), *_marked("+", after[c:d])]
    return tuple(shown)


def _inside(some: Sequence[Row], start: int) -> list[str]:
    """The head of the function that a row is in."""
    depth = _depth(some[start]) if start < len(some) else 0
    for row in reversed(some[:start]):
        if _depth(row) < depth:
            depth = _depth(row)
            if row.lines[-1].lstrip().startswith("def "):
                return [f"@@ {row.lines[-1].strip()}"]
    return []


def _depth(row: Row) -> int:
    return int(row.key.split(" ", 1)[0])


def _marked(mark: str, some: Sequence[Row]) -> list[str]:
    return [f"{mark}{line}" for row in some for line in row.lines]
