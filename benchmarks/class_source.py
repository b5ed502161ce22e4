"""Which ``autograd.Function`` classes a package has, and what they use; nothing is imported."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Found", "classes_in"]

_BASES = ("Function", "InplaceFunction", "NestedIOFunction")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED = ("build", "test", "tests", "testing", "unit_tests")
# operators that come with torch; other namespaces of torch.ops are a package's own kernels
_OPS = (
    "aten",
    "prim",
    "prims",
    "higher_order",
    "quantized",
    "profiler",
    "c10d",
    "quantized_decomposed",
)


@dataclass(frozen=True)
class Found:
    """One class that inherits, maybe through others, from ``torch.autograd.Function``.

    ``module`` is the dotted name to import; ``foreign`` names what forward or backward, or a
    function of the same package that they call, uses beside torch and the standard library.
    """

    module: str
    path: str  # from the folder that holds the packages
    line: int
    qualname: str
    has_rule: bool  # forward and backward, its own or inherited
    foreign: tuple[str, ...]

    @property
    def only_torch(self) -> bool:
        return self.has_rule and not self.foreign


@dataclass(frozen=True)
class _Class:
    module: _Module
    node: ast.ClassDef
    qualname: str

    def methods(self) -> dict[str, ast.stmt]:
        return {s.name: s for s in self.node.body if isinstance(s, _FUNCTIONS)}

    def static(self) -> dict[str, ast.stmt]:
        """What is assigned in the body: ``forward = staticmethod(f)``."""
        made: dict[str, ast.stmt] = {}
        for statement in self.node.body:
            for name, bound in _bound(statement).items():
                made[name] = bound
        return made


class _Module:
    """A file: what its names are bound to, wherever they are bound outside functions."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name, self.path, self.tree = name, path, tree
        self.is_package = path.name == "__init__.py"
        self.names: dict[str, list[ast.stmt]] = {}
        for statement in _outside_functions(tree.body):
            for bound, by in _bound(statement).items():
                self.names.setdefault(bound, []).append(by)

    def origin(self, name: str) -> str:
        """The dotted name that the first import binds ``name`` to, or nothing."""
        return next(filter(None, (self.imported(name, s) for s in self.names.get(name, ()))), "")

    def imported(self, name: str, statement: ast.stmt) -> str:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname == name:
                    return alias.name
                if alias.asname is None and alias.name.split(".")[0] == name:
                    return name
        if isinstance(statement, ast.ImportFrom):
            base = self.absolute(statement)
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return f"{base}.{alias.name}"
        return ""

    def absolute(self, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        parts = self.name.split(".")
        up = statement.level - self.is_package
        parts = parts[: len(parts) - up] if up else parts
        return ".".join([*parts, *filter(None, [statement.module])])


def _outside_functions(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody", "handlers"):
                inner = getattr(statement, part, [])
                for one in inner:
                    yield from _outside_functions(one.body if part == "handlers" else [one])


def _bound(statement: ast.stmt) -> dict[str, ast.stmt]:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return {statement.name: statement}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {a.asname or a.name.split(".")[0]: statement for a in statement.names}
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        parts = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        return {t.id: statement for t in parts if isinstance(t, ast.Name)}
    return {}


def classes_in(folder: Path) -> list[Found]:
    """Every Function class of the packages in a folder, those of their tests left out.

    Of several classes with the same text one is kept.
    """
    modules = {m.name: m for m in _modules(folder)}
    every = [c for m in modules.values() for c in _classes(m, m.tree, ())]
    by_name: dict[str, list[_Class]] = {}
    for one in every:
        by_name.setdefault(one.node.name, []).append(one)
    reader = _Reader(modules, by_name)
    found, seen = [], set()
    for one in every:
        text = ast.dump(one.node)
        if not reader.is_function(one) or text in seen:
            continue
        seen.add(text)
        parts = [reader.method(one, name) for name in ("forward", "backward")]
        foreign: set[str] = set()
        for owner, method in filter(None, parts):
            foreign |= reader.foreign(owner.module, method)
        path = str(one.module.path.relative_to(folder))
        place = (one.module.name, path, one.node.lineno, one.qualname)
        found.append(Found(*place, all(parts), tuple(sorted(foreign))))
    return found


def _modules(folder: Path) -> Iterator[_Module]:
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder).with_suffix("").parts
        if set(inner) & set(_SKIPPED) or any(p.startswith("test_") for p in inner):
            continue
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError):
            continue
        yield _Module(".".join(p for p in inner if p != "__init__"), path, tree)


def _classes(module: _Module, node: ast.AST, outer: tuple[str, ...]) -> Iterator[_Class]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield _Class(module, child, ".".join((*outer, child.name)))
            yield from _classes(module, child, (*outer, child.name))
        elif isinstance(child, _FUNCTIONS):
            yield from _classes(module, child, (*outer, child.name, "<locals>"))
        else:
            yield from _classes(module, child, outer)


class _Reader:
    """Questions that go from one file of a package to another."""

    def __init__(self, modules: dict[str, _Module], classes: dict[str, list[_Class]]) -> None:
        self.modules, self.classes = modules, classes
        self._function: dict[int, bool] = {}
        self._foreign: dict[int, frozenset[str]] = {}

    def is_function(self, one: _Class) -> bool:
        known = self._function.get(id(one.node))
        if known is None:
            self._function[id(one.node)] = False  # a class that is its own base
            known = any(self._is_base(one, base) for base in one.node.bases)
            self._function[id(one.node)] = known
        return known

    def _is_base(self, one: _Class, base: ast.expr) -> bool:
        dotted = _dotted(base.value if isinstance(base, ast.Subscript) else base)
        if not dotted:
            return False
        first, _, rest = dotted.partition(".")
        origin = one.module.origin(first) or first
        full = f"{origin}.{rest}" if rest else origin
        if full.startswith("torch.") and full.rpartition(".")[2] in _BASES:
            return True
        if full.endswith("autograd.Function"):
            return True
        return any(self.is_function(c) for c in self._bases(one, base))

    def _bases(self, one: _Class, base: ast.expr) -> list[_Class]:
        name = _dotted(base).rpartition(".")[2]
        named = self.classes.get(name, [])
        return [c for c in named if c.module is one.module and c is not one] or named[:1]

    def method(self, one: _Class, name: str) -> tuple[_Class, ast.stmt] | None:
        """The forward or backward of a class, its own or that of a base in the same package."""
        own = one.methods().get(name) or one.static().get(name)
        if own is not None:
            return one, own
        for base in one.node.bases:
            for other in self._bases(one, base):
                found = self.method(other, name) if self.is_function(other) else None
                if found:
                    return found
        return None

    def foreign(self, module: _Module, node: ast.AST) -> frozenset[str]:
        """Names of what is neither torch's, nor Python's, nor this package's own torch code."""
        known = self._foreign.get(id(node))
        if known is None:
            self._foreign[id(node)] = frozenset()  # functions that call each other
            known = frozenset(self._find_foreign(module, node))
            self._foreign[id(node)] = known
        return known

    def _find_foreign(self, module: _Module, node: ast.AST) -> Iterator[str]:
        imported = _local_imports(node)
        for dotted in _read(node):
            first = dotted.split(".")[0]
            if first in imported:
                inner = _Module(module.name, module.path, ast.Module(imported[first], []))
                inner.is_package = module.is_package
                module_of = inner
            else:
                module_of = module
            # none: a builtin, a parameter, or a name of an enclosing function
            for bound in module_of.names.get(first, ()):
                yield from self._of(module_of, dotted, bound)

    def _of(self, module: _Module, dotted: str, bound: ast.stmt) -> Iterator[str]:
        first, _, rest = dotted.partition(".")
        origin = module.imported(first, bound)
        if origin:
            yield from self._imported(module, f"{origin}.{rest}" if rest else origin)
        elif isinstance(bound, (ast.Assign, ast.AnnAssign)):
            yield from _loaded(bound.value)
            yield from self.foreign(module, bound.value) if bound.value else ()
        else:
            if any("jit" in d for d in _decorators(bound)) and "triton" in str(module.names):
                yield "triton"
            yield from self.foreign(module, bound)

    def _imported(self, module: _Module, full: str) -> Iterator[str]:
        root = full.split(".")[0]
        if root == "torch":
            parts = full.split(".")
            if parts[1:2] == ["ops"] and len(parts) > 2 and parts[2] not in _OPS:
                yield f"torch.ops.{parts[2]}"
            if "cpp_extension" in parts:
                yield "compiled code"
            return
        if root in ("importlib", "ctypes"):
            yield "compiled code"
            return
        if root in sys.stdlib_module_names or root == "typing_extensions":
            return
        if root != module.name.split(".")[0]:
            yield root
            return
        parts = full.split(".")
        for cut in range(len(parts), 0, -1):  # the longest part that is a module
            other = self.modules.get(".".join(parts[:cut]))
            if other is not None:
                if cut < len(parts):
                    name = ".".join(parts[cut:])
                    if parts[cut] not in other.names:
                        yield full  # nothing to read: a compiled extension, or made at run time
                    for bound in other.names.get(parts[cut], ()):
                        yield from self._of(other, name, bound)
                return
        yield full


def _loaded(value: ast.expr | None) -> Iterator[str]:
    """The module that is loaded by name: ``_C, _ = optional_import("package._C")``."""
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Constant):
        called, name = _dotted(value.func).rpartition(".")[2], value.args[0].value
        if isinstance(name, str) and ("import" in called or "load" in called):
            if name.split(".")[0] not in ("torch", "math"):
                yield name


def _decorators(node: ast.stmt) -> list[str]:
    return [ast.unparse(d) for d in getattr(node, "decorator_list", [])]


def _local_imports(node: ast.AST) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            for name in _bound(inner):
                found[name] = [inner]
    return found


def _read(node: ast.AST) -> set[str]:
    """The dotted names that code reads, but for those in annotations and those that it binds."""
    annotations: set[ast.AST] = set()
    for inner in ast.walk(node):
        if isinstance(inner, _FUNCTIONS) and inner.returns:
            annotations |= set(ast.walk(inner.returns))
        if isinstance(inner, (ast.arg, ast.AnnAssign)) and inner.annotation:
            annotations |= set(ast.walk(inner.annotation))
    bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not _loads(n)}
    bound |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    found: set[str] = set()
    inside: set[ast.AST] = set()
    for inner in ast.walk(node):
        if inner in annotations or inner in inside:
            continue
        dotted = _dotted(inner)
        if dotted and dotted.split(".")[0] not in bound and not hasattr(builtins, dotted):
            found.add(dotted)
            inside |= set(ast.walk(inner))
    return found


def _loads(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""
