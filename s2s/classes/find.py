"""A ``torch.autograd.Function`` class, found in a file or behind a class object, as text and trees.

Nothing here imports torch or runs the user's text.
"""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TransformError, diagnostic
from ..infer import origin
from ..ir import Diagnostic, Source, Span
from ..source import bindings, parse_text, same_code

__all__ = [
    "METHODS",
    "FunctionClass",
    "Method",
    "classes_in",
    "from_class",
    "function_of",
    "lookup",
    "methods_of",
]

METHODS = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")
_BASES = {"torch.autograd.Function", "torch.autograd.function.Function"}
_BASES |= {"torch.autograd.function.InplaceFunction", "torch.autograd.function.NestedIOFunction"}


@dataclass(frozen=True, slots=True)
class Method:
    """One method, and the class of the file that defines it."""

    function: ast.FunctionDef
    owner: ast.ClassDef

    @property
    def decorators(self) -> tuple[ast.expr, ...]:
        return tuple(self.function.decorator_list)


@dataclass(frozen=True, slots=True)
class FunctionClass:
    """A class of a file whose bases lead to ``torch.autograd.Function``."""

    text: str
    file: str
    module: str
    qualname: str
    tree: ast.Module
    node: ast.ClassDef
    enclosing: tuple[ast.stmt, ...]
    order: tuple[ast.ClassDef, ...]  # itself and its bases in this file, as Python looks them up

    @property
    def name(self) -> str:
        return self.node.name

    def source(self, method: Method) -> Source:
        """A method as the source of a function, for places and for scoping."""
        enclosing = self.enclosing
        if method.owner is not self.node:
            enclosing = enclosing_of(self.tree, method.owner)
        enclosing = (*enclosing, method.owner)
        name = f"{self.qualname}.{method.function.name}"
        return Source(
            self.text, self.file, self.module, name, self.tree, method.function, enclosing
        )

    def span(self, node: ast.AST) -> Span:
        """The place of a node of the file."""
        return self._whole.span(node)

    def line_span(self, line: int) -> Span:
        """The place of a line of the file."""
        return self._whole.line_span(line)

    @property
    def _whole(self) -> Source:
        """The file, for places in it."""
        stub = ast.parse("def _(): pass").body[0]
        assert isinstance(stub, ast.FunctionDef)
        return Source(self.text, self.file, self.module, self.qualname, self.tree, stub, ())


def lookup(order: tuple[ast.ClassDef, ...], name: str) -> Method | None:
    """The method that an attribute of the class is, looked up as Python does."""
    for owner in order:
        for statement in owner.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return Method(statement, owner)
    return None


def classes_in(text: str, file: str, module: str, tree: ast.Module) -> tuple[FunctionClass, ...]:
    """The Function classes of a file that have a backward, in the order of the text."""
    found = []
    for node, enclosing in _every(tree):
        order, is_function = _resolution(tree, node)
        if not is_function or lookup(order, "backward") is None or lookup(order, "forward") is None:
            continue
        name = _qualname(node, enclosing)
        found.append(FunctionClass(text, file, module, name, tree, node, enclosing, order))
    return tuple(found)


def enclosing_of(tree: ast.Module, wanted: ast.ClassDef) -> tuple[ast.stmt, ...]:
    """What stands around a class of the file."""
    return next(enclosing for node, enclosing in _every(tree) if node is wanted)


@functools.lru_cache(maxsize=16)  # each class of a file asks for all of them
def _every(tree: ast.Module) -> tuple[tuple[ast.ClassDef, tuple[ast.stmt, ...]], ...]:
    return tuple(_classes(tree, ()))


def _classes(
    node: ast.AST, enclosing: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.ClassDef, tuple[ast.stmt, ...]]]:
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        inside = getattr(node, part, [])
        for child in inside if isinstance(inside, list) else ():
            inner = enclosing
            if isinstance(child, ast.ClassDef):
                yield child, enclosing
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = (*enclosing, child)
            yield from _classes(child, inner)


def _qualname(node: ast.ClassDef, enclosing: tuple[ast.stmt, ...]) -> str:
    parts: list[str] = []
    for outer in enclosing:
        assert isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        parts += [outer.name] if isinstance(outer, ast.ClassDef) else [outer.name, "<locals>"]
    return ".".join([*parts, node.name])


def _resolution(tree: ast.Module, node: ast.ClassDef) -> tuple[tuple[ast.ClassDef, ...], bool]:
    """The class and its bases in the file, depth first, and whether they end in a Function."""
    known = {c.name: c for c, _ in _every(tree)}
    found = bindings(tree)
    order: list[ast.ClassDef] = []
    is_function = False

    def visit(one: ast.ClassDef) -> None:
        nonlocal is_function
        if one in order:
            return
        order.append(one)
        for base in one.bases:
            if isinstance(base, ast.Name) and base.id in known:
                visit(known[base.id])
            elif origin(base, found) in _BASES:
                is_function = True

    visit(node)
    return tuple(order), is_function


# --- a class object -------------------------------------------------------------------------


def from_class(cls: type[Any]) -> FunctionClass:
    """The text of a class object, checked against the code that its methods run.

    Raises TransformError where it cannot be read, or where a method comes from another file.
    """
    methods = methods_of(cls)
    forward = methods.get("forward")
    if forward is None or "backward" not in methods:
        missing = "forward" if forward is None else "backward"
        given = next(iter(methods.values()), None)
        place = _start(given) if given else Span("<unknown>", 1)
        why = f"it has no {missing} of its own"
        if forward is not None and "vjp" in vars(cls):
            why += ", and PyTorch's other name for it, vjp, is not read"
        raise TransformError([_unreadable(cls.__name__, place, why)])
    for name, function in methods.items():
        if function.__module__ != cls.__module__:
            why = f"{name} is inherited from {function.__module__}, another file"
            raise TransformError([_unreadable(cls.__name__, _start(function), why)])
        if function.__name__ == "<lambda>":
            why = f"{name} is a lambda"
            raise TransformError([_unreadable(cls.__name__, _start(function), why)])
    start = _start(forward)
    file = start.file
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file, forward.__globals__))
    if not text:
        why = f"{file} is not a file and not in linecache"
        raise TransformError([_unreadable(cls.__name__, start, why)])
    try:
        tree = parse_text(text)
    except (SyntaxError, ValueError, RecursionError):
        raise TransformError([_stale(cls.__name__, start)]) from None
    found = _same_class(cls, methods, classes_in(text, file, forward.__module__ or "", tree))
    if found is None:
        raise TransformError([_stale(cls.__name__, start)])
    for name, function in methods.items():
        method = lookup(found.order, name)
        if method is None:
            raise TransformError([_stale(cls.__name__, start)])
        if not same_code(found.source(method), function.__code__):
            raise TransformError([_stale(cls.__name__, found.span(method.function))])
    return found


def _start(function: types.FunctionType) -> Span:
    """Where the code of a method begins."""
    return Span(function.__code__.co_filename, function.__code__.co_firstlineno)


def methods_of(cls: type[Any]) -> Mapping[str, types.FunctionType]:
    """The plain functions behind the static methods that the class or its bases define."""
    found: dict[str, types.FunctionType] = {}
    for name in METHODS:
        for owner in cls.__mro__:
            if owner.__module__.startswith("torch.autograd") or name not in owner.__dict__:
                continue
            found[name] = function_of(owner.__dict__[name])
            break
    return {name: f for name, f in found.items() if isinstance(f, types.FunctionType)}


def _unwrapped(function: Any) -> Any:
    """The function below ``custom_fwd``, ``once_differentiable`` and the like."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if isinstance(function, types.FunctionType) and function.__name__ in (
        "decorate_fwd",
        "wrapper",
    ):
        inner = [c.cell_contents for c in function.__closure__ or ()]
        functions = [f for f in inner if isinstance(f, types.FunctionType)]
        return _unwrapped(functions[0]) if len(functions) == 1 else function
    return function


def function_of(method: Any) -> Any:
    """The plain function behind a static or class method, without PyTorch's own decorators."""
    return _unwrapped(getattr(method, "__func__", method))


def _same_class(
    cls: type[Any],
    methods: Mapping[str, types.FunctionType],
    classes: tuple[FunctionClass, ...],
) -> FunctionClass | None:
    """The class of the file that this object was made of: the one at the place of its methods."""
    lines = {name: f.__code__.co_firstlineno for name, f in methods.items()}
    named = [c for c in classes if c.name == cls.__name__]
    for one in sorted(named, key=lambda c: c.qualname != cls.__qualname__):
        methods_here = {name: lookup(one.order, name) for name in lines}
        if all(
            m is None or min([m.function.lineno, *(d.lineno for d in m.decorators)]) == lines[name]
            for name, m in methods_here.items()
        ):
            return one
    return None


def _unreadable(name: str, span: Span, why: str) -> Diagnostic:
    return diagnostic(
        "S2S221",
        span,
        f"{name} cannot be read: {why}",
        hint="give the class a forward and a backward in one file, or write the closure form",
    )


def _stale(name: str, span: Span) -> Diagnostic:
    return diagnostic(
        "S2S206",
        span,
        f"the text of {name} in {span.file} is not the code that runs",
        hint="the file changed after it was imported, or something rewrote the class: reload it",
    )
