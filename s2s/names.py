"""Which names a statement reads, binds and changes in place, with Python's scoping.

symtable knows the scopes of a whole function; the passes ask about single statements, also
ones that they wrote themselves, and this module answers from ``ast``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = [
    "TENSOR_METHODS",
    "UPDATES",
    "changed",
    "children",
    "fresh",
    "is_name",
    "is_none",
    "mentioned",
    "of_kind",
    "outputs_in",
    "reads",
    "returns_in",
    "root",
    "same_scope",
    "walk",
    "writes",
]

Node = TypeVar("Node", bound=ast.AST)

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


# Trees are never changed once parsed, so what was found in a node stays true: every stage asks
# the same questions again, and `ast.walk` is the slowest part of a compilation.
_remembered = functools.lru_cache(maxsize=4096)
_EMPTY = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def is_none(node: ast.AST | None) -> bool:
    """Is it the constant ``None``?"""
    return isinstance(node, ast.Constant) and node.value is None


def is_name(node: ast.AST, name: str) -> bool:
    """Is it this name?"""
    return isinstance(node, ast.Name) and node.id == name


@functools.lru_cache(maxsize=16384)
def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes right under ``node``, without operators and contexts."""
    found: list[ast.AST] = []
    kind = node.__class__
    for field in _FIELDS.get(kind) or _fields_with_nodes(kind):
        value = getattr(node, field, None)
        if value.__class__ is list:
            found += [v for v in value if isinstance(v, ast.AST) and not isinstance(v, _EMPTY)]
        elif isinstance(value, ast.AST) and not isinstance(value, _EMPTY):
            found.append(value)
    return tuple(found)


# of each class of nodes, the fields that may hold nodes
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}
_NO_NODES = {"arg", "attr", "ctx", "id", "kind", "op", "ops", "type_comment"}


def _fields_with_nodes(kind: type[ast.AST]) -> tuple[str, ...]:
    found = () if kind is ast.Constant else tuple(f for f in kind._fields if f not in _NO_NODES)
    _FIELDS[kind] = found
    return found


@_remembered
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """``node`` and everything under it but operators and contexts, in the order of ``ast.walk``."""
    found = [node]
    for inner in found:
        found += children(inner)
    return tuple(found)


@_remembered
def _by_class(node: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for inner in walk(node):
        found.setdefault(inner.__class__, []).append(inner)
    return found


def of_kind(node: ast.AST, kind: type[Node]) -> Sequence[Node]:
    """``node`` and everything under it that is of exactly this class, in the order of ``walk``.

    >>> [name.id for name in of_kind(ast.parse("f(x)[y]"), ast.Name)]
    ['y', 'f', 'x']
    """
    return _by_class(node).get(kind, ())  # type: ignore[return-value]


@_remembered
def mentioned(node: ast.AST) -> frozenset[str]:
    """Every name in ``node``, read or bound, and every parameter, in whatever scope.

    >>> sorted(mentioned(ast.parse("def f(x): return [y for z in x]")))
    ['x', 'y', 'z']
    """
    names = {name.id for name in of_kind(node, ast.Name)}
    return frozenset(names.union(argument.arg for argument in of_kind(node, ast.arg)))


@_remembered
def reads(node: ast.AST) -> tuple[str, ...]:
    """Names read by ``node``, in order, without those that its inner scopes bind themselves.

    >>> reads(ast.parse("y = [v * w for v in xs] + f(lambda t: t + u)"))
    ('xs', 'w', 'f', 'u')
    """
    return tuple(dict.fromkeys(_reads(node)))


def _reads(node: ast.AST) -> Iterator[str]:
    special = _READING.get(node.__class__)
    if special is not None:
        yield from special(node)
        return
    for child in children(node):
        yield from _reads(child)


def _name_reads(node: ast.Name) -> Iterator[str]:
    if isinstance(node.ctx, ast.Load):
        yield node.id


def _augmented_reads(node: ast.AugAssign) -> Iterator[str]:
    if isinstance(node.target, ast.Name):
        yield node.target.id
    yield from _reads(node.target)
    yield from _reads(node.value)


def _annotated_reads(node: ast.AnnAssign) -> Iterator[str]:
    yield from _reads(node.target)  # the annotation of a local is never evaluated
    if node.value is not None:
        yield from _reads(node.value)


def _comprehension_reads(node: ast.AST) -> Iterator[str]:
    generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
    bound = {name for g in generators for name in _targets(g.target)}
    yield from _reads(generators[0].iter)
    inner: list[ast.AST] = [g.iter for g in generators[1:]]
    inner += [test for g in generators for test in g.ifs]
    inner += [getattr(node, key) for key in ("elt", "key", "value") if hasattr(node, key)]
    for part in inner:
        yield from (name for name in _reads(part) if name not in bound)


def _scope_reads(node: ast.AST) -> Iterator[str]:
    for decorator in getattr(node, "decorator_list", []):
        yield from _reads(decorator)
    arguments: ast.arguments | None = getattr(node, "args", None)
    if isinstance(arguments, ast.arguments):
        for default in [*arguments.defaults, *[d for d in arguments.kw_defaults if d]]:
            yield from _reads(default)
    body = [node.body] if isinstance(node, ast.Lambda) else node.body  # type: ignore[attr-defined]
    own: set[str] = set()
    if isinstance(arguments, ast.arguments):
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [a for a in (arguments.vararg, arguments.kwarg) if a]
        own = {a.arg for a in every}
        for argument in every:
            if argument.annotation is not None:
                yield from _reads(argument.annotation)
    outside: set[str] = set()
    for part in body:
        own.update(writes(part))
        for inner in same_scope(part):
            if isinstance(inner, (ast.Nonlocal, ast.Global)):
                outside.update(inner.names)
    own -= outside
    for part in body:
        yield from (name for name in _reads(part) if name not in own)


# the nodes that read something else than what is in their parts
_READING: dict[type[ast.AST], Callable[..., Iterator[str]]] = {
    ast.Name: _name_reads,
    ast.AugAssign: _augmented_reads,
    ast.AnnAssign: _annotated_reads,
    **dict.fromkeys(_COMPREHENSIONS, _comprehension_reads),
    **dict.fromkeys(_SCOPES, _scope_reads),
}


@_remembered
def writes(node: ast.AST) -> tuple[str, ...]:
    """Names that ``node`` binds or unbinds in its own scope, in order.

    >>> writes(ast.parse("for i in xs:\\n    a, *b = (c := i)\\n    d[0] = 1\\n    del e"))
    ('i', 'c', 'a', 'b', 'e')
    """
    return tuple(dict.fromkeys(_writes(node)))


def _writes(node: ast.AST) -> Iterator[str]:
    for inner in same_scope(node, into_comprehensions=True):
        kind = inner.__class__
        if kind is ast.Name:
            if inner.ctx.__class__ is not ast.Load:  # type: ignore[attr-defined]
                yield inner.id  # type: ignore[attr-defined]
        elif kind not in _BINDING:
            pass
        elif isinstance(inner, (ast.Import, ast.ImportFrom)):
            yield from ((a.asname or a.name.split(".")[0]) for a in inner.names)
        elif isinstance(inner, ast.MatchMapping):
            if inner.rest:
                yield inner.rest
        elif inner.name:  # type: ignore[attr-defined]
            yield inner.name  # type: ignore[attr-defined]


_BINDING = {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom}
_BINDING |= {ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping}


@_remembered
def same_scope(node: ast.AST, into_comprehensions: bool = False) -> tuple[ast.AST, ...]:
    """``node`` and what lies in it, without the bodies of nested functions and classes.

    Inside a comprehension only walrus targets belong to the scope around it.
    """
    found: list[ast.AST] = []
    todo = [node]
    while todo:
        inner = todo.pop()
        found.append(inner)
        kind = inner.__class__
        if kind is ast.Assign:  # the value is evaluated before the targets are bound
            todo += (*inner.targets[::-1], inner.value)  # type: ignore[attr-defined]
        elif into_comprehensions and kind in _COMPREHENSIONS:
            found += (n.target for n in of_kind(inner, ast.NamedExpr))
        elif kind not in _SCOPES:
            todo += children(inner)[::-1]
    return tuple(found)


def _targets(node: ast.AST) -> Iterator[str]:
    return (n.id for n in of_kind(node, ast.Name))


def root(node: ast.AST) -> str | None:
    """The name that an attribute, subscript or call chain starts from.

    >>> root(ast.parse("a.b[0].c()", mode="eval").body)
    'a'
    """
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


UPDATES = {"append", "extend", "insert", "pop", "remove", "clear", "update", "sort", "add"}
TENSOR_METHODS = {"sort", "add"}  # whose result is used, where a list's or a set's is None


def changed(
    node: ast.AST, is_module: Callable[[str], bool] = lambda name: False
) -> tuple[str, ...]:
    """Names whose value ``node`` changes in place: ``x.add_()``, ``x[0] = ...``, ``x += ...``,
    ``out=x``, ``torch.relu_(x)``, ``list.append``. ``is_module`` tells modules from values.

    >>> changed(ast.parse("x.mul_(2); y[0] = 1; z += 1; f(a, out=b)"))
    ('x', 'y', 'z', 'b')
    >>> changed(ast.parse("names.add('x'); y = x.add(1)"))
    ('names',)
    """
    found: list[str | None] = []
    alone: list[ast.AST] = [node]
    for inner in _changing(node):
        if isinstance(inner, ast.AugAssign):
            found.append(root(inner.target))
        elif isinstance(inner, ast.Expr):
            alone.append(inner.value)
        elif isinstance(inner, ast.Call):
            found.extend(_changed_by_call(inner, is_module, inner in alone))
        else:
            found.append(root(inner))
    return tuple(dict.fromkeys(n for n in found if n))


@_remembered
def _changing(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes that may change something in place."""
    return tuple(
        inner
        for inner in same_scope(node)
        if isinstance(inner, (ast.AugAssign, ast.Call, ast.Expr))
        or (
            isinstance(inner, (ast.Subscript, ast.Attribute))
            and not isinstance(inner.ctx, ast.Load)
        )
    )


def _changed_by_call(
    call: ast.Call, is_module: Callable[[str], bool], alone: bool
) -> Iterator[str | None]:
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield root(keyword.value)
        if keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant):
            if keyword.value.value is True and call.args:
                yield root(call.args[0])
    name = call.func.attr if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Name):
        name = call.func.id
    inplace = name and name.endswith("_") and not name.endswith("__")
    if isinstance(call.func, ast.Attribute):
        owner = root(call.func)
        if owner and not is_module(owner):
            update = name in UPDATES and (alone or name not in TENSOR_METHODS)
            if (inplace and name != "requires_grad_") or update:
                yield owner
            return
    if inplace and call.args:
        yield root(call.args[0])


def returns_in(body: Iterable[ast.stmt]) -> list[ast.Return]:
    """Every return statement of a function body, not those of nested functions."""
    return [r for s in body for r in _returns(s)]


def outputs_in(node: ast.Return) -> list[ast.expr]:
    """The outputs of a lifted forward's ``return outputs, (saved...)``, one by one."""
    assert isinstance(node.value, ast.Tuple)
    first = node.value.elts[0]
    return first.elts if isinstance(first, ast.Tuple) else [first]


@_remembered
def _returns(statement: ast.stmt) -> tuple[ast.Return, ...]:
    return tuple(n for n in same_scope(statement) if isinstance(n, ast.Return))


def fresh(name: str, taken: frozenset[str] | set[str]) -> str:
    """``name``, or the first of ``name_1``, ``name_2``... that is free.

    >>> fresh("grad_x", {"grad_x", "grad_x_1"})
    'grad_x_2'
    """
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
