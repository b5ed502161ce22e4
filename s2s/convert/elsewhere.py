"""Uses of a class in the other files of its project: a name that goes must not be missed there."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..locate import Module, module_of, python_files
from ..names import walk

__all__ = ["Elsewhere", "elsewhere"]

_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """One use in another file. ``calls`` where a name with an ``apply`` is all that it needs."""

    file: str
    line: int
    what: str
    calls: bool


def elsewhere(module: Module, name: str) -> tuple[Elsewhere, ...]:
    """Where other files import the class of that name, or reach it as an attribute.

    Looked through are the project (the nearest folder with a pyproject.toml, setup.py, setup.cfg
    or .git), or else the package, or the folder of the file. Files are parsed, and not run.
    """
    own = os.path.realpath(module.path)
    found: list[Elsewhere] = []
    for path in _files(module):
        if os.path.realpath(path) == own:
            continue
        try:
            content = path.read_bytes()
            if name.encode() not in content:
                continue
            tree = _parsed(content)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        found += _uses(tree, module, module_of(path), name)
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _parsed(content: bytes) -> ast.Module:
    """Kept for the next class of the same project."""
    return ast.parse(content)


@functools.lru_cache(maxsize=256)
def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in walk(tree) for child in ast.iter_child_nodes(node)}


def _files(module: Module) -> Iterator[Path]:
    folder = module.root
    project = folder
    while not any((project / marker).exists() for marker in _MARKERS):
        if project.parent == project or project == Path.home():
            break
        project = project.parent
    if any((project / marker).exists() for marker in _MARKERS):
        yield from python_files(project, lambda error: None)
    elif "." in module.name or module.is_package:
        yield from python_files(folder / module.name.split(".")[0], lambda error: None)
    else:
        yield from sorted(folder.glob("*.py"))


def _uses(tree: ast.Module, module: Module, user: Module, name: str) -> Iterator[Elsewhere]:
    own = any(isinstance(n, ast.ClassDef) and n.name == name for n in walk(tree))
    names: set[str] = set()  # that mean the class here
    reaches = False  # whether the module of the class is at hand
    for node in walk(tree):
        if isinstance(node, ast.Import):
            reaches |= any(_meets(a.name, module.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _resolved(node, user)
            if not _meets(source, module.name):
                continue
            reaches = True
            for alias in node.names:
                if alias.name == name or (alias.name == "*" and not own):
                    names.add(alias.asname or name)
                if alias.name == name:
                    what = f"imports {name}"
                    yield Elsewhere(str(user.path), node.lineno, what, True)
    parents = _parents(tree)
    for node in walk(tree):
        is_name = isinstance(node, ast.Name) and node.id in names
        is_attribute = isinstance(node, ast.Attribute) and node.attr == name and reaches
        if is_name or is_attribute:
            above = parents[node]
            calls = isinstance(above, ast.Attribute) and above.attr == "apply"
            shown = above if isinstance(above, ast.expr) else node
            what = f"has {' '.join(ast.unparse(shown).split())[:60]}"
            yield Elsewhere(str(user.path), getattr(node, "lineno", 1), what, calls)


def _resolved(node: ast.ImportFrom, user: Module) -> str:
    package = user.name if user.is_package else user.name.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return node.module or ""


def _meets(imported: str, module: str) -> bool:
    """The module itself, a package that may hand its names on, or the same by a shorter name."""
    whole, own = f".{imported}", f".{module}"
    return (
        whole == own
        or own.startswith(f"{whole}.")
        or whole.endswith(own)
        or ("." not in module and imported.rpartition(".")[2] == module)
    )
