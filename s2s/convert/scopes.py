"""Where the names of a file are bound and used, by CPython's own scoping (``symtable``).

Comprehensions are scopes there up to Python 3.11 alone, and are looked at here.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Mention", "home_of", "mentions"]

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class _Targets:
    """A comprehension, as a scope: of the names that it binds."""

    node: ast.AST
    names: frozenset[str]


_Table = symtable.SymbolTable | _Targets


@dataclass(frozen=True, slots=True)
class Mention:
    """A name at one place: what binds or reads it, what is around that, and whose name it is."""

    name: str
    node: ast.AST
    parents: tuple[ast.AST, ...]  # the innermost last
    home: int  # the scope whose name it is, as `home_of` gives it
    binds: bool
    scope: ast.AST  # the function, class or module that it stands in


@functools.lru_cache(maxsize=16)
def mentions(text: str, tree: ast.Module) -> tuple[Mention, ...]:
    """Every mention of every name of a file, in the order of the tree.

    >>> found = mentions("a = 1\\nf = lambda a: a", ast.parse("a = 1\\nf = lambda a: a"))
    >>> [(m.name, m.binds, m.home == found[0].home) for m in found]
    [('a', True, True), ('f', True, True), ('a', True, False), ('a', False, False)]
    """
    table = symtable.symtable(text, "<file>", "exec")
    return tuple(_Walk().visit(tree, (tree,), (table,), tree))


def home_of(text: str, tree: ast.Module, statement: ast.AST) -> int:
    """The scope that a def or class statement binds its name in."""
    return next(m.home for m in mentions(text, tree) if m.binds and m.node is statement)


class _Walk:
    def __init__(self) -> None:
        self.inside: dict[int, list[symtable.SymbolTable]] = {}  # of each scope, what is left

    def visit(
        self,
        node: ast.AST,
        parents: tuple[ast.AST, ...],
        tables: tuple[_Table, ...],
        scope: ast.AST,
    ) -> Iterator[Mention]:
        """The mentions below ``node``, which has been dealt with itself."""
        for child in ast.iter_child_nodes(node):
            yield from self.one(child, parents, tables, scope)

    def one(
        self,
        node: ast.AST,
        parents: tuple[ast.AST, ...],
        tables: tuple[_Table, ...],
        scope: ast.AST,
    ) -> Iterator[Mention]:
        for name, binds in _named(node):
            yield Mention(name, node, parents, _owner(tables, name), binds, scope)
        inside = (*parents, node)
        if isinstance(node, _SCOPES):
            outer, inner = _apart(node)
            for child in outer:
                yield from self.one(child, inside, tables, scope)
            deeper = (*tables, self.table(tables, node))
            for child in inner:
                yield from self.one(child, inside, deeper, node)
        elif isinstance(node, _COMPREHENSIONS):
            first, *rest = node.generators
            yield from self.one(first.iter, inside, tables, scope)
            parts: list[ast.AST] = [first.target, *first.ifs, *rest]
            parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            for child in parts:
                yield from self.one(child, inside, (*tables, _targets(node)), scope)
        else:
            yield from self.visit(node, inside, tables, scope)

    def table(self, tables: tuple[_Table, ...], node: ast.AST) -> symtable.SymbolTable:
        """The scope of a node: those of one name on one line come in the order of the text."""
        table = next(s for s in reversed(tables) if not isinstance(s, _Targets))
        name = getattr(node, "name", "lambda")
        left = self.inside.get(table.get_id())
        if left is None:  # symtable makes them anew at every question
            left = self.inside[table.get_id()] = list(_inside(table))
        for index, child in enumerate(left):
            if child.get_name() == name and child.get_lineno() == getattr(node, "lineno", 0):
                return left.pop(index)
        raise LookupError(f"no scope of {name} in {table.get_name()}")


def _inside(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Inner tables, through those of comprehensions and of type parameters."""
    for child in table.get_children():
        if child.get_type() in ("function", "class"):
            yield child
        if child.get_type() not in ("function", "class") or child.get_name() in _NAMES:
            yield from _inside(child)


_NAMES = ("listcomp", "setcomp", "dictcomp", "genexpr")


def _targets(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> _Targets:
    bound = (n for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name))
    return _Targets(node, frozenset(n.id for n in bound if isinstance(n.ctx, ast.Store)))


def _apart(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """What of a def, class or lambda is evaluated outside its scope, and what inside."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords], list(node.body)
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    outer: list[ast.AST] = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    outer += [a.annotation for a in every if a.annotation is not None]
    names: list[ast.AST] = [ast.copy_location(ast.arg(a.arg), a) for a in every]
    if isinstance(node, ast.Lambda):
        return outer, [*names, node.body]
    outer += [*node.decorator_list, *([node.returns] if node.returns else [])]
    return outer, [*names, *node.body]


def _named(node: ast.AST) -> list[tuple[str, bool]]:
    """The names that a node itself mentions, and whether it binds them."""
    if isinstance(node, ast.Name):
        return [(node.id, not isinstance(node.ctx, ast.Load))]
    if isinstance(node, ast.arg):
        return [(node.arg, True)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [(node.name, True)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(a.asname or a.name.split(".")[0], True) for a in node.names]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return [(name, False) for name in node.names]
    name = getattr(node, "name", None) or getattr(node, "rest", None)
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
        return [(name, True)] if name else []
    return []


def _owner(tables: tuple[_Table, ...], name: str) -> int:
    """The scope that a name in the innermost of some tables belongs to."""
    module, *inner = tables
    assert isinstance(module, symtable.SymbolTable)
    for scope in reversed(inner):
        if isinstance(scope, _Targets):
            if name in scope.names:
                return id(scope.node)
            continue
        if scope.get_type() != "function" and scope is not tables[-1]:
            continue  # the names of a class are its own
        try:
            symbol = scope.lookup(name)
        except KeyError:  # a private name of a class, or one that Python added
            continue
        if symbol.is_local() and not symbol.is_free():
            return scope.get_id()
        if symbol.is_global():
            break
    return module.get_id()
