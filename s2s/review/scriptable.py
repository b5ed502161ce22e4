"""What keeps TorchScript from compiling a function, as far as the text alone says.

Whether ``f.scripted`` exists is known for sure once TorchScript has tried. What can be read
beforehand: constructs that its front end does not know, values that it has no type for, and names
that would change their type. Nothing is reported here that TorchScript compiles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .. import pipeline
from ..captures import is_data_global
from ..infer import Bindings, infer, is_tensor_tuple, origin, types_after
from ..ir import Pair
from ..names import walk, writes
from ..source import bindings

__all__ = ["Obstacle", "obstacles"]

_NOT_KNOWN: Mapping[type[ast.AST], str] = {
    ast.Lambda: "a lambda",
    ast.FunctionDef: "a nested function",
    ast.AsyncFunctionDef: "an async function",
    ast.ClassDef: "a nested class",
    ast.Try: "try",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Import: "an import inside a function",
    ast.ImportFrom: "an import inside a function",
    ast.SetComp: "a set comprehension",
    ast.Set: "a set",
    ast.NamedExpr: "an assignment inside an expression",
    ast.Match: "match on what is no constant",
}
_BUILTINS = frozenset(
    """
    bytes bytearray callable classmethod compile delattr dir filter frozenset globals input
    issubclass iter map memoryview next object open property repr set setattr slice type
    """.split()
)
_NUMBERS = ("int", "float", "bool", "str")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that TorchScript does not take: the user's line, and what it is."""

    line: int
    what: str


def obstacles(pair: Pair) -> tuple[Obstacle, ...]:
    """All of them, in the order of the lines; empty where nothing speaks against TorchScript."""
    emitted = pipeline.emit(pair, "torchscript")
    tree = ast.parse(emitted.text)
    found: dict[Obstacle, None] = {}
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            for node, what in _in_function(pair, function):
                line = emitted.users_line(node.lineno) or pair.source.line(pair.source.function)
                found[Obstacle(line, what)] = None
    return tuple(sorted(found, key=lambda o: o.line))


_Found = Iterator[tuple[ast.expr | ast.stmt, str]]


def _in_function(pair: Pair, function: ast.FunctionDef) -> _Found:
    where: ast.expr | ast.stmt = function
    for node in walk(function):
        if isinstance(node, (ast.expr, ast.stmt)):
            where = node
        if node is not function:
            what = _construct(node)
            if what:
                yield where, f"TorchScript does not know {what}"
    yield from _values(pair, function)


def _construct(node: ast.AST) -> str:
    """The name of a construct that TorchScript's front end does not read."""
    if type(node) in _NOT_KNOWN:
        return _NOT_KNOWN[type(node)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        return "a unary plus"
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        return "else after a loop"
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return "an annotation without a value"
    if isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
        if len(node.generators) > 1 or node.generators[0].ifs:
            return "a comprehension with a condition or two loops"
    if isinstance(node, ast.FormattedValue) and (node.conversion != -1 or node.format_spec):
        return "a format in an f-string"
    if isinstance(node, ast.Call) and any(k.arg is None for k in node.keywords):
        return "** in a call"
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return "bytes"
    return ""


def _values(pair: Pair, function: ast.FunctionDef) -> _Found:
    """Values that TorchScript has no type for."""
    found = bindings(pair.source.tree)
    params = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
    local = params | {n for s in function.body for n in writes(s)}
    owners = {p.name for p in pair.params if p.bound} & params
    types = _types(pair, function)
    for node in walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in owners:
                yield node, f"{owner}.{node.attr}: TorchScript cannot see what {owner} is"
            elif is_tensor_tuple(types.get(owner, "")):
                yield node, f"{owner}.{node.attr}: a named tuple has no names in TorchScript"
        elif isinstance(node, ast.Call):
            path = origin(node.func, found, local)
            if isinstance(node.func, ast.Name) and node.func.id in params:
                yield node, f"{node.func.id}(...): TorchScript cannot call a parameter"
            elif path is not None and path.startswith("numpy."):
                yield node, f"{ast.unparse(node.func)}: TorchScript does not know numpy"
            elif path is not None and path.startswith("builtins.") and path[9:] in _BUILTINS:
                yield node, f"TorchScript does not know {path[9:]}()"
        elif isinstance(node, ast.IfExp):
            arms = [_script_type(arm, types, found) for arm in (node.body, node.orelse)]
            if arms[0] != arms[1] and set(arms) <= set(_NUMBERS):
                both = " in one case and ".join(arms)
                yield node, f"`{ast.unparse(node)}` is {both} in the other"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id not in local and is_data_global(pair.source, node.id):
                type_ = infer(node, {}, found)
                if type_ in ("Tensor", "IntTensor", "object") and not _called(function, node):
                    yield node, f"{node.id}: TorchScript reads no tensors from outside"
    yield from _retyped(pair, function, types)


def _script_type(node: ast.expr, types: Mapping[str, str], found: Bindings) -> str:
    """The type of an expression to TorchScript, where a power of ints is a float."""
    type_ = infer(node, types, found)
    powers = [n for n in walk(node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    return "float" if type_ in ("int", "number") and powers else type_


def _types(pair: Pair, function: ast.FunctionDef) -> dict[str, str]:
    """The types of the names of a generated function."""
    start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
    forward = types_after([s.tree for s in pair.forward], start, bindings(pair.source.tree))
    known = start | forward | {s.name: s.type for s in pair.saved if s.type}
    known |= dict.fromkeys(pair.grads, "Tensor")
    return types_after(function.body, known, bindings(pair.source.tree))


def _called(function: ast.FunctionDef, name: ast.Name) -> bool:
    return any(isinstance(n, ast.Call) and n.func is name for n in walk(function))


def _retyped(pair: Pair, function: ast.FunctionDef, types: Mapping[str, str]) -> _Found:
    """A comprehension's variable that has the name of a tensor: TorchScript has one scope."""
    found = bindings(pair.source.tree)
    tensors = {n for n, t in types.items() if t in ("Tensor", "IntTensor")}
    own = {a.arg for a in function.args.args} | {n for s in function.body for n in writes(s)}
    for node in walk(function):
        if isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            generator = node.generators[0]
            first = _first_element(generator.iter)
            if isinstance(generator.target, ast.Name) and first is not None:
                name, type_ = generator.target.id, infer(first, types, found)
                if name in own & tensors and type_ in _NUMBERS:
                    yield node, f"{name} is a tensor, and {type_} in the comprehension"


def _first_element(node: ast.expr) -> ast.expr | None:
    return node.elts[0] if isinstance(node, (ast.Tuple, ast.List)) and node.elts else None
