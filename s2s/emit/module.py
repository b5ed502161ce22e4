"""All functions of a source file as one module that stands alone.

It holds one form of each function, and beside a class a function with the user's name and
signature that applies it. What they read of the file is copied, as far as it needs no s2s; the
rest is imported from there.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..ir import Emitted, Pair, Param, Source, replace
from ..names import reads, walk, writes
from ..source import Binding, bindings, decorated
from .call import put_back
from .eager import hidden
from .func import extra_outputs
from .layout import camel, import_lines

__all__ = ["applied", "distinct", "emit_module", "joined"]

Decorated = Callable[[str, str], bool]


def emit_module(
    pairs: Sequence[tuple[Pair, Pair, Emitted]], is_package: bool, elsewhere: Decorated
) -> str:
    """The module's text; ``pairs`` are of one file: each pair, what the form made of it, its text.

    ``elsewhere`` says whether a name of another module is a decorated function: these are taken
    from the generated module beside this one.
    """
    source = pairs[0][0].source
    imports: dict[str, None] = {}
    bodies: list[str] = []
    for pair, final, emitted in pairs:
        head, body = _split(emitted.text)
        imports.update(dict.fromkeys(head))
        bodies.append("\n\n\n".join([body, *_wrapper(pair, final, emitted)]))
    text = "\n\n\n".join(bodies)
    copied, more = _needed(source, text, _bound_by(imports))
    imports.update(dict.fromkeys(more))
    placed = [_placed(line, source, is_package, elsewhere) for line in imports]
    return _module(placed, [*([_stacked(copied)] if copied else []), text])


def joined(modules: Sequence[str]) -> str:
    """Modules that bind nothing apart as one, with its imports at the top."""
    parts = [_split(text) for text in modules]
    return _module([line for head, _ in parts for line in head], [body for _, body in parts])


def _module(imports: Sequence[str], parts: Sequence[str]) -> str:
    ordered = sorted(set(imports), key=lambda line: (line.startswith("from "), line))
    return "\n\n\n".join(["\n".join(import_lines(ordered)), *parts]).rstrip("\n") + "\n"


def distinct(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """One class name each: of two functions called ``scale`` the second becomes ``scale_1``."""
    taken: set[str] = set()
    for pair in pairs:
        name, number = pair.name, 0
        while camel(name) in taken:
            number += 1
            name = f"{pair.name}_{number}"
        taken.add(camel(name))
        yield replace(pair, name=name)


def _split(text: str) -> tuple[list[str], str]:
    """The import statements of a text, and what follows them."""
    tree = ast.parse(text)
    head = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    start = max((s.end_lineno or 0 for s in head), default=0)
    return [ast.unparse(s) for s in head], "\n".join(text.split("\n")[start:]).strip("\n")


# --- the function beside a class ------------------------------------------------------------------


def _wrapper(pair: Pair, final: Pair, emitted: Emitted) -> list[str]:
    """``def swish(x): return Swish.apply(x)``, where the form is a class."""
    if emitted.form not in ("eager", "func"):
        return []
    extra = hidden(final) if emitted.form == "eager" else extra_outputs(final)
    head = f"def {pair.name}({', '.join(_signature(pair))}):"
    return [f"{head}\n    return {applied(pair, emitted.names[0], len(extra))}"]


def applied(pair: Pair, name: str, extra: int) -> str:
    """The call of a class by position, without its ``extra`` outputs, as the user's function
    returns it."""
    given = [f"*{n}" if n == pair.listed else n for n in pair.arguments]
    call = f"{name}.apply({', '.join(given)})"
    if extra and pair.list_output:
        call += f"[:-{extra}]"
    elif extra:
        call += "[0]" if pair.single else f"[:{len(pair.outputs)}]"
    return put_back(pair, call)


def _signature(pair: Pair) -> Iterator[str]:
    """The user's parameters, and names of enclosing functions as keywords."""
    lifted = [c.name for c in pair.constants if c.lifted]
    star = False
    for param, after in zip(pair.params, [*pair.params[1:], None]):
        if param.kind == "keyword-only" and not star:
            yield "*"
        star = star or param.kind in ("keyword-only", "variadic")
        yield _parameter(param)
        if param.kind == "positional-only" and (not after or after.kind != "positional-only"):
            yield "/"
    if lifted and not star:
        yield "*"
    yield from lifted


def _parameter(param: Param) -> str:
    if param.kind == "variadic":
        return f"*{param.name}"
    return param.name if param.default is None else f"{param.name}={param.default}"


# --- what the text reads of its file --------------------------------------------------------------


def _bound_by(imports: Mapping[str, None]) -> set[str]:
    return {name for line in imports for name in writes(ast.parse(line))}


def _needed(source: Source, text: str, imported: set[str]) -> tuple[list[str], list[str]]:
    """The statements of the file to copy, and the imports for them and for the rest."""
    found = bindings(source.tree)
    tree = ast.parse(text)
    made = set(writes(tree))
    todo = _free(tree)
    statements: dict[ast.stmt, None] = {}
    imports: list[str] = []
    seen = made | imported
    while todo:
        name = todo.pop(0)
        if name in seen or (name not in found and hasattr(builtins, name)):
            continue
        seen.add(name)
        binding = found.get(name)
        if binding is None:
            continue
        if binding.kind == "import":
            imports.append(binding.statement)
        elif _stands_alone(source, name, found, made):
            for statement in _binding_statements(source.tree, name):
                statements[statement] = None
                todo += [n for n in _free(ast.Module([statement], [])) if n not in seen]
        else:
            imports.append(f"from {source.module} import {name}")
    ordered = sorted(statements, key=lambda s: s.lineno)
    return [_copied(source, s) for s in ordered], imports


def _stacked(copied: Sequence[str]) -> str:
    """Statements below each other, with two blank lines around functions and classes."""
    text = copied[0]
    for pair in itertools.pairwise(copied):
        block = any(one.startswith(("def ", "class ", "@", "async ")) for one in pair)
        text += ("\n\n\n" if block else "\n") + pair[1]
    return text


def _free(tree: ast.Module) -> list[str]:
    """Names that are read somewhere, and not bound in the scope that reads them."""
    return list(dict.fromkeys(name for statement in tree.body for name in reads(statement)))


def _stands_alone(source: Source, name: str, found: Mapping[str, Binding], made: set[str]) -> bool:
    """Can what binds a name be copied, with all it needs, and no use of s2s?"""
    todo, seen = [name], set[str]()
    while todo:
        one = todo.pop()
        if one in seen or one in made and one != name:
            continue
        seen.add(one)
        binding = found.get(one)
        if binding is None:
            continue
        if binding.kind == "import":
            if binding.origin.split(".")[0] == "s2s":
                return False
            continue
        for statement in _binding_statements(source.tree, one):
            if any(_is_decorated(node, source.tree) for node in walk(statement)):
                return False
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                if set(reads(statement)) & made:  # it would run before these are defined
                    return False
            todo += reads(statement)
    return True


def _is_decorated(node: ast.AST, tree: ast.Module) -> bool:
    found = getattr(node, "decorator_list", [])
    return any(decorated(decorator, tree) for decorator in found)


def _binding_statements(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of the file that bind a name, whole."""
    return [s for s in tree.body if name in writes(s)]


def _copied(source: Source, statement: ast.stmt) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    rows = source.text.split("\n")[first - 1 : statement.end_lineno]
    return "\n".join(rows)


# --- imports that still find what they name -------------------------------------------------------


def _placed(line: str, source: Source, is_package: bool, elsewhere: Decorated) -> str:
    """A relative import as an absolute one, unless it is of a generated module."""
    statement = ast.parse(line).body[0]
    if not isinstance(statement, ast.ImportFrom):
        return line
    package = source.module if is_package else source.module.rpartition(".")[0]
    relative = "." * statement.level + (statement.module or "")
    try:
        module = importlib.util.resolve_name(relative, package) if statement.level else relative
    except ImportError:  # more dots than packages
        return line
    names = ast.unparse(statement).partition(" import ")[2]
    if package and module.split(".")[0] == package.split(".")[0]:
        if elsewhere(module, statement.names[0].name):
            return f"from {_dotted(module, package)} import {names}"
    return f"from {module} import {names}"


def _dotted(module: str, package: str) -> str:
    """A module of the same tree, from a package of it: ``.activations``."""
    here, there = package.split("."), module.split(".")
    same = 0
    while same < min(len(here), len(there)) and here[same] == there[same]:
        same += 1
    return "." * (len(here) - same + 1) + ".".join(there[same:])
