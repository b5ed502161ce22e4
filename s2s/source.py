"""A function object, or a file and a name, to the text that it was written as.

Nothing here imports torch or runs the user's text: a file is read and parsed.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import io
import linecache
import sys
import tokenize
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import TransformError, diagnostic
from .ir import Diagnostic, Source, Span

__all__ = [
    "Binding",
    "bindings",
    "decorated",
    "fingerprint",
    "from_code",
    "from_file",
    "from_function",
    "functions_in",
    "module_name",
    "parse_text",
    "same_code",
    "text_in",
    "text_of",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef
_IMPORTS = (ast.Import, ast.ImportFrom)
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@dataclass(frozen=True, slots=True)
class Binding:
    """What a module-level name is: "import" (with its statement and origin), "def", "class",
    "data" (with the assigned expression), or "unknown" where several bindings disagree."""

    kind: str
    statement: str = ""
    origin: str = ""
    value: ast.expr | None = None
    function: ast.FunctionDef | None = None


def from_function(fn: types.FunctionType) -> Source:
    """The source of a function object, checked against the code that it runs."""
    text = "".join(text_of(fn))
    return from_code(fn.__code__, text, module_name(fn.__module__ or ""), fn.__qualname__)


def text_of(fn: types.FunctionType) -> list[str]:
    """The lines of the file that a function stands in, as they are now; none if there is none.

    The same list, as long as the file stays as it is.
    """
    file = fn.__code__.co_filename
    linecache.checkcache(file)
    return linecache.getlines(file, fn.__globals__)


def from_code(code: types.CodeType, text: str, module: str, qualname: str) -> Source:
    """The source of a function, from its code and the text of its file."""
    file, name = code.co_filename, qualname.rpartition(".")[2]
    start = Span(file, code.co_firstlineno)
    if not text:
        raise TransformError([_no_source(name, start)])
    try:
        tree = parse_text(text)
    except (SyntaxError, ValueError, RecursionError):
        raise TransformError([_stale(name, start)]) from None
    found = _functions_at(tree).get((code.co_name, code.co_firstlineno))
    if code.co_name == "<lambda>":
        raise TransformError([_lambda(start)])
    if not found:
        raise TransformError([_stale(name, start)])
    function, enclosing = found
    source = Source(text, file, module, qualname, tree, function, enclosing)
    if not same_code(source, code):
        raise TransformError([_stale(name, source.span(function))])
    return source


def fingerprint(code: types.CodeType) -> str:
    """What a function's code consists of, as text: the same in every process."""
    return repr(_content(code))


def _content(code: types.CodeType) -> tuple[object, ...]:
    constants = [
        _content(c)
        if isinstance(c, types.CodeType)
        else sorted(map(repr, c))
        if isinstance(c, frozenset)
        else (type(c).__name__, c)
        for c in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    place = (code.co_name, code.co_firstlineno, code.co_flags, code.co_argcount)
    return place, names, code.co_code.hex(), constants


def module_name(name: str) -> str:
    """The module's name; a script's is the one that it would be imported under."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)  # pdb runs a script in a module without one
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else ""


def from_file(
    path: Path, module: str, text: str | bytes | None = None, shown: str = ""
) -> tuple[Source, ...]:
    """Every function of a file that is decorated with ``autograd_script``; nothing is run.

    ``text`` is what the file holds, where that is not to be read from it, and ``shown`` the name of
    the file in what is said of it. Raises TransformError (S2S215) where the file cannot be read or
    parsed.
    """
    file = shown or str(path)
    text = text_in(path, text, shown)
    tree = parse_text(text)
    return tuple(
        Source(text, file, module, _qualname(function, enclosing), tree, function, enclosing)
        for function, enclosing in functions_in(tree)
        if any(decorated(d, tree) for d in function.decorator_list)
    )


def text_in(path: Path, text: str | bytes | None = None, shown: str = "") -> str:
    """The text of a file that can be parsed, with ``\\n`` at the end of each line.

    Raises TransformError (S2S215), as ``from_file``.
    """
    file = shown or str(path)
    try:
        text = path.read_bytes() if text is None else text
        text = _decoded(text) if isinstance(text, bytes) else text
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        parse_text(text)
    except SyntaxError as error:
        span = Span(file, error.lineno or 1, error.offset or 1, (error.text or "").rstrip("\n"))
        raise TransformError([_not_python(span, error.msg)]) from None
    except UnicodeDecodeError as error:
        why = f"not {error.encoding} ({error})"
        raise TransformError([_not_python(Span(file, 1), why)]) from None
    except (ValueError, RecursionError, MemoryError, OSError) as error:
        why = str(error) or f"too deeply nested ({type(error).__name__})"
        raise TransformError([_not_python(Span(file, 1), why)]) from None
    return text


def _decoded(content: bytes) -> str:
    """The text of a file in the encoding that it declares, UTF-8 where it declares none."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def decorated(decorator: ast.expr, tree: ast.Module) -> bool:
    """Is this decorator ``autograd_script``, under whatever name the file imports it?"""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    names = ("autograd_script", "autograd_function")
    if isinstance(target, ast.Attribute) and target.attr in names:
        root = target.value
        if isinstance(root, ast.Name):
            binding = bindings(tree).get(root.id)
            return root.id == "s2s" or (binding is not None and binding.origin == "s2s")
        return False
    if isinstance(target, ast.Name):
        binding = bindings(tree).get(target.id)
        if binding is None:
            return target.id in names
        return binding.origin.split(".")[-1] in names
    return False


@functools.lru_cache(maxsize=64)
def parse_text(text: str) -> ast.Module:
    """The tree of a whole file, kept for the next function of the same file."""
    return ast.parse(text)


@functools.lru_cache(maxsize=64)
def bindings(tree: ast.Module) -> dict[str, Binding]:
    """What the names of a module are bound to, read off its top-level statements."""
    found: dict[str, Binding] = {}
    for statement in _top_level(tree.body):
        for name, binding in _bound_by(statement):
            before = found.get(name)
            disagree = before is not None and before.kind != binding.kind
            found[name] = Binding("unknown") if disagree else binding
    return found


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            text = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
            origin = alias.name if alias.asname else alias.name.split(".")[0]
            yield alias.asname or origin, Binding("import", text, origin)
    elif isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            renamed = f" as {alias.asname}" if alias.asname else ""
            text = f"from {module} import {alias.name}{renamed}"
            yield alias.asname or alias.name, Binding("import", text, f"{module}.{alias.name}")
    elif isinstance(statement, ast.FunctionDef):
        yield statement.name, Binding("def", function=statement)
    elif isinstance(statement, (ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name, Binding("class")
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, Binding("data", value=statement.value)
            elif isinstance(target, (ast.Tuple, ast.List)):
                for element in target.elts:
                    if isinstance(element, ast.Name):
                        yield element.id, Binding("data")
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id, Binding("data", value=statement.value)
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id, Binding("data")


@functools.lru_cache(maxsize=64)
def functions_in(tree: ast.Module) -> tuple[tuple[Function, tuple[ast.stmt, ...]], ...]:
    """Every function of a file with what encloses it. Kept, as the next function of the file
    asks again."""
    return tuple(_nested_in(tree, ()))


@functools.lru_cache(maxsize=64)
def _functions_at(tree: ast.Module) -> dict[tuple[str, int], tuple[Function, tuple[ast.stmt, ...]]]:
    """The same by name and first line, where a function object says that it stands; of several
    there the first."""
    return {(f.name, _first_line(f)): (f, around) for f, around in reversed(functions_in(tree))}


def _nested_in(
    node: ast.AST, enclosing: tuple[ast.stmt, ...]
) -> Iterator[tuple[Function, tuple[ast.stmt, ...]]]:
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):  # statements hold functions
        inside = getattr(node, part, [])
        for child in inside if isinstance(inside, list) else ():
            inner = enclosing
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child, enclosing
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = (*enclosing, child)
            yield from _nested_in(child, inner)


def _qualname(function: Function, enclosing: tuple[ast.stmt, ...]) -> str:
    parts: list[str] = []
    for outer in enclosing:
        assert isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        parts.append(outer.name)
        if not isinstance(outer, ast.ClassDef):
            parts.append("<locals>")
    return ".".join([*parts, function.name])


def _first_line(function: Function) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def same_code(source: Source, code: types.CodeType) -> bool:
    """Does the text compile to the code that runs? Import hooks that rewrite a function on
    purpose (pytest's assertions) leave names that no source can hold: those are trusted."""
    if any(not name.isidentifier() for name in code.co_names if "." not in name):
        return True
    for with_imports in (True, False):  # a notebook compiles each statement of a cell by itself
        compiled = _compile_alone(source, code, with_imports)
        if compiled is None or _alike(compiled, code):
            return True
    return False


def _compile_alone(
    source: Source, code: types.CodeType, with_imports: bool
) -> types.CodeType | None:
    """The function's code, compiled inside stand-ins for the functions and classes around it."""
    function = source.function
    bare = copy.copy(function)
    bare.decorator_list = []
    tree: ast.stmt = bare
    for outer in reversed(source.enclosing):
        if isinstance(outer, ast.ClassDef):
            tree = ast.copy_location(ast.ClassDef(outer.name, [], [], [tree], []), function)
            if sys.version_info >= (3, 12):
                tree.type_params = []
    names = [name for name in code.co_freevars if name != "__class__"]
    if names:
        maker = ast.parse("def _(): pass").body[0]
        assert isinstance(maker, ast.FunctionDef)
        maker.args.args = [ast.copy_location(ast.arg(name), function) for name in names]
        maker.body = [tree]
        if isinstance(tree, ast.ClassDef) and tree.name not in names:  # no variable of the maker
            maker.body.insert(0, ast.copy_location(ast.Global([tree.name]), function))
        tree = maker
    # CPython compiles calls of imported names in its own way
    imports = [s for s in _top_level(source.tree.body) if isinstance(s, _IMPORTS)]
    module = ast.Module([*(imports if with_imports else ()), tree], [])
    try:
        flags = code.co_flags & _FUTURE
        outer_code = compile(module, source.file, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return _find_code(outer_code, code.co_name, function.lineno)


def _find_code(code: types.CodeType, name: str, line: int) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name and constant.co_firstlineno == line:
                return constant
            found = _find_code(constant, name, line)
            if found is not None:
                return found
    return None


def _alike(one: types.CodeType, other: types.CodeType) -> bool:
    """The same instructions and constants, wherever they stand."""
    if one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    if one.co_varnames != other.co_varnames or len(one.co_consts) != len(other.co_consts):
        return False
    before: object = None
    for a, b in zip(one.co_consts, other.co_consts):
        qualified = sys.version_info < (3, 11) and isinstance(before, types.CodeType)
        before = a
        if qualified:  # the name of a nested function, with those of the functions around it
            continue
        if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
            if not _alike(a, b):
                return False
        elif type(a) is not type(b) or repr(a) != repr(b):
            if not isinstance(a, frozenset):
                return False
    return True


def _no_source(name: str, span: Span) -> Diagnostic:
    return diagnostic(
        "S2S205",
        span,
        f"the source of {name} cannot be read: {span.file} is not a file and not in linecache",
        hint="put the function in a file, or register its text in linecache.cache before exec; "
        "@s2s.autograd_function runs without source, in eager code only",
    )


def _lambda(span: Span) -> Diagnostic:
    return diagnostic(
        "S2S205",
        span,
        "a lambda cannot be compiled: its text does not stand alone",
        hint="write a def that ends in `return outputs, backward`",
    )


def _stale(name: str, span: Span) -> Diagnostic:
    return diagnostic(
        "S2S206",
        span,
        f"the text of {name} in {span.file} is not the code that runs",
        hint="the file changed after it was imported, or something rewrote the function: "
        "reload the module, and put @autograd_script directly above the def",
    )


def _not_python(span: Span, why: str) -> Diagnostic:
    return diagnostic(
        "S2S215", span, f"the file is not valid Python: {why}", hint="mend the file, then try again"
    )
