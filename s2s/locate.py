"""What a user names on the command line, to files and functions. Nothing is imported or run."""

from __future__ import annotations

import ast
import difflib
import importlib.machinery
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from .ir import Source
from .source import bindings, decorated, from_file, parse_text, text_in

__all__ = [
    "LocateError",
    "Module",
    "Target",
    "functions",
    "is_compiled",
    "is_decorated_in",
    "module_of",
    "modules",
    "named",
    "offers",
    "origins",
    "python_files",
    "target",
]

_SKIPPED = {"__pycache__", "node_modules"}
_DEEPEST = 10  # two modules may import a name from each other


class _Named(Protocol):
    @property
    def qualname(self) -> str: ...


T = TypeVar("T", bound=_Named)


class LocateError(Exception):
    """What was named does not exist. The message is one line."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file and the name that it has when it is imported."""

    path: Path
    name: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def root(self) -> Path:
        """The folder that has to be on ``sys.path`` to import it."""
        parts = self.name.count(".") + self.is_package
        return Path(os.path.abspath(self.path)).parents[parts]


@dataclass(frozen=True, slots=True)
class Target:
    """A module, and the name of one function or class in it, or "" for all of them."""

    module: Module
    name: str = ""


def target(text: str) -> Target:
    """``PATH``, ``PATH:NAME``, ``MODULE`` or ``MODULE:NAME``, whatever stands there.

    Raises LocateError where there is no such file or module.
    """
    place, name = _split(text)
    path = Path(place)
    if path.is_file():
        return Target(module_of(path), name)
    if all(part.isidentifier() for part in place.split(".")) and not place.endswith(".py"):
        return Target(_find(place, [Path()]), name)
    if path.is_dir():
        raise LocateError(f"{place} is a folder: name a file in it, or a module")
    if path.exists():
        raise LocateError(f"{place} is not a regular file")
    raise LocateError(f"no such file: {place}")


def _split(text: str) -> tuple[str, str]:
    place, colon, name = text.rpartition(":")
    if not colon or not place or "/" in name or os.sep in name or Path(text).is_file():
        return text, ""
    return place, name


def module_of(path: Path) -> Module:
    """A file with the name that its functions have as ``__module__`` once it is imported."""
    whole = Path(os.path.abspath(path))
    parts = [] if whole.name == "__init__.py" else [whole.stem]
    folder = whole.parent
    while (folder / "__init__.py").is_file() and folder.name:
        parts.insert(0, folder.name)
        folder = folder.parent
    return Module(path, ".".join(parts))


# --- modules --------------------------------------------------------------------------------


def _find(name: str, first: Sequence[Path]) -> Module:
    """The file of a module, looked for in ``first`` and then where Python would.

    ``importlib.util.find_spec`` imports the packages that a dotted name goes through; here their
    folders are walked.
    """
    parts = name.split(".")
    path = _walk(first, parts)
    if path is not None:
        return Module(path, name)
    spec = _top_level(parts[0])
    if spec is None and _walk(first, parts[:1]) is None:
        raise LocateError(f"no module named {parts[0]}; a file is named by its path, {name}.py")
    if len(parts) > 1:
        folders = spec.submodule_search_locations if spec else None
        path = _walk([Path(folder) for folder in folders or ()], parts[1:])
    elif spec is not None:
        path = Path(spec.origin) if spec.origin and spec.has_location else None
        if path is None or path.suffix != ".py":
            raise LocateError(f"{name} has no Python file to read ({spec.origin or 'a folder'})")
    if path is None:
        raise LocateError(f"no module named {name}")
    return Module(path, name)


def _top_level(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return None


def _walk(folders: Sequence[Path], parts: Sequence[str]) -> Path | None:
    """The file of a module below some folders."""
    found: Path | None = None
    for part in parts:
        found, below = None, []
        for folder in folders:
            init, file = folder / part / "__init__.py", folder / f"{part}.py"
            if init.is_file() or file.is_file():
                found = init if init.is_file() else file
                below = [folder / part]
                break
            if (folder / part).is_dir():
                below.append(folder / part)
        folders = below
    return found


# --- functions ------------------------------------------------------------------------------


def functions(target: Target) -> tuple[Source, ...]:
    """The decorated functions that a target names.

    A function that the module imports is looked for where it comes from, and a package that
    decorates none itself stands for those that it imports from its own modules.

    Raises LocateError where there is none, and TransformError where the file cannot be read.
    """
    module = target.module
    own = from_file(module.path, module.name)
    if target.name:
        found = named(module, own, target.name) or _imported(module, target.name)
        if not found:
            raise _missing(module, own, target.name)
        return found
    found = tuple(s for s in own if is_compiled(s))
    found = found or (_offered(module) if module.is_package else ())
    if not found:
        raise LocateError(f"{module.path} has no function decorated with autograd_script")
    return found


def named(module: Module, sources: Sequence[T], name: str) -> tuple[T, ...]:
    """The functions or classes of that qualified name, or whose qualified name ends with it.

    Raises LocateError where it may be several.
    """
    exact = tuple(s for s in sources if s.qualname == name)
    if exact:
        return exact
    found = tuple(s for s in sources if f".{_plain(s.qualname)}".endswith(f".{_plain(name)}"))
    names = sorted({s.qualname for s in found})
    if len(names) > 1:
        raise LocateError(f"{name} is one of several in {module.path}: {', '.join(names)}")
    return found


def _plain(qualname: str) -> str:
    return qualname.replace("<locals>.", "")


def _missing(module: Module, sources: Sequence[Source], name: str) -> LocateError:
    last = name.rpartition(".")[2]
    for node in ast.walk(_tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == last:
            place = f"{module.path}:{node.lineno}"
            return LocateError(f"{name} ({place}) is not decorated with autograd_script")
        if isinstance(node, ast.ClassDef) and node.name == last:
            what = "is no autograd.Function class with a forward and a backward in its file"
            return LocateError(f"{name} ({module.path}:{node.lineno}) {what}")
    known = list(dict.fromkeys(s.qualname for s in sources))
    close = difflib.get_close_matches(name, known, n=10) or known[:10]
    listed = f"; it has {', '.join(close)}" if close else ""
    return LocateError(f"{module.path} has no function {name} with autograd_script{listed}")


def _tree(module: Module) -> ast.Module:
    return parse_text(text_in(module.path))


def _offered(package: Module) -> tuple[Source, ...]:
    """The functions that ``__init__.py`` imports from the modules of its package."""
    found: dict[tuple[str, int], Source] = {}
    for name in offers(package):
        found.update({(s.file, s.function.lineno): s for s in _imported(package, name)})
    return tuple(found.values())


def offers(package: Module) -> Iterator[str]:
    """The names that ``__init__.py`` imports from the modules of its package."""
    for name in bindings(_tree(package)):
        origin = _origin(package, name)
        if origin is not None and origin[0].split(".")[0] == package.name.split(".")[0]:
            yield name


def _origin(module: Module, name: str) -> tuple[str, str] | None:
    """Where ``from .activations import swish`` gets it: the module's full name, and its name."""
    binding = bindings(_tree(module)).get(name)
    statement = ast.parse(binding.statement).body[0] if binding and binding.statement else None
    if not isinstance(statement, ast.ImportFrom):
        return None
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    relative = "." * statement.level + (statement.module or "")
    try:
        return importlib.util.resolve_name(relative, package), statement.names[0].name
    except ImportError:  # more dots than packages
        return None


def origins(module: Module, name: str) -> Iterator[tuple[Module, str]]:
    """The modules that ``name`` is imported from, one through the other, and its name there."""
    for _ in range(_DEEPEST):
        try:
            origin = _origin(module, name)
            if origin is None:
                return
            module, name = _find(origin[0], [module.root]), origin[1]
        except (LocateError, SyntaxError, ValueError, OSError):
            return
        yield module, name


def _imported(module: Module, name: str) -> tuple[Source, ...]:
    """The function that a module has under ``name`` by importing it."""
    for home, there in origins(module, name):
        try:
            own = from_file(home.path, home.name)
        except SyntaxError:
            return ()
        exact = tuple(s for s in own if s.qualname == there)
        if exact:
            return exact
    return ()


def is_compiled(source: Source) -> bool:
    """Decorated with ``autograd_script``; ``autograd_function`` compiles nothing."""
    found = bindings(source.tree)
    for node in source.function.decorator_list:
        if decorated(node, source.tree):
            target = node.func if isinstance(node, ast.Call) else node
            name = ast.unparse(target)
            name = found[name].origin if name in found else name
            if name.endswith("autograd_script"):
                return True
    return False


def is_decorated_in(module: str, name: str, root: Path) -> bool:
    """Is ``name`` a function that a module, looked for below ``root``, compiles or imports?"""
    try:
        home = _find(module, [root])
        own = from_file(home.path, home.name)
    except (LocateError, SyntaxError, OSError):
        return False
    found = tuple(s for s in own if s.qualname == name) or _imported(home, name)
    return any(is_compiled(source) for source in found)


# --- folders --------------------------------------------------------------------------------


def python_files(folder: Path, unreadable: Callable[[OSError], None]) -> Iterator[Path]:
    """The ``.py`` files below a folder, sorted, without hidden folders, environments and caches."""
    for here, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(f for f in folders if not _is_skipped(Path(here, f)))
        for name in sorted(names):
            path = Path(here, name)
            if name.endswith(".py") and path.is_file():
                yield path


def modules(place: str, unreadable: Callable[[OSError], None]) -> Iterator[Module]:
    """The modules of a file, a folder, a module or a whole package.

    Raises LocateError where there is none.
    """
    path = Path(place)
    if path.is_dir():
        yield from map(module_of, python_files(path, unreadable))
        return
    found = target(place)
    if found.name:
        raise LocateError(f"{place} names one function: whole modules are written")
    yield found.module
    if found.module.is_package and not path.is_file():
        folder = found.module.path.parent
        for file in python_files(folder, unreadable):
            parts = file.relative_to(folder).with_suffix("").parts
            if file != found.module.path:
                names = [found.module.name, *(p for p in parts if p != "__init__")]
                yield Module(file, ".".join(names))


def _is_skipped(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in _SKIPPED
    return hidden or (folder / "pyvenv.cfg").is_file()
