"""Decorated functions of a file as Function classes, each with a function that applies it."""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from .. import pipeline
from ..emit.call import watched
from ..emit.layout import camel, inside_strings
from ..emit.module import applied
from ..errors import TransformError
from ..ir import Diagnostic, Emitted, Pair, Source, replace
from ..names import walk
from ..parse import retyped
from ..source import bindings, decorated, parse_text
from ..warn import maybe_numbers
from .closures import Converted
from .comments import Rows, with_comments
from .imports import with_import, without_unused
from .scopes import Mention, home_of, mentions
from .text import FileText, with_rows

__all__ = ["to_functions"]

_Place = tuple[int, int, Rows]  # the rows to replace, the first and behind the last, and by what

_MARKERS = ("autograd_script", "needs_input_grad", "non_differentiable", "once_differentiable")


@dataclass(frozen=True, slots=True)
class _Made:
    """A class and its function, and the rows of the file that they replace."""

    source: Source
    cls: Rows
    function: Rows
    imports: tuple[ast.Import, ...]
    notes: tuple[str, ...]


def to_functions(file: FileText, sources: Sequence[Source]) -> Converted:
    """The file with each of some of its functions as a class, and a function that applies it."""
    before = file
    problems: list[Diagnostic] = []
    made: list[_Made] = []
    taken = {m.name for m in mentions(file.text, parse_text(file.text))} | set(dir(builtins))
    for source in sources:
        try:
            one, name = _made(source, taken)
        except TransformError as error:
            problems += error.diagnostics
        else:
            made.append(one)
            taken.add(name)
    places = [place for one in made for place in _places(file, one)]
    for first, last, rows in sorted(places, key=lambda p: p[0])[::-1]:
        file = with_rows(file, first, last, [r for r, _ in rows], [n for _, n in rows])
    for one in made:
        file = _with_imports(file, one.imports)
    if made:
        file = without_unused(file, before, _of_s2s(sources[0].tree))
        ast.parse(file.text)
    notes = tuple(note for one in made for note in one.notes)
    return Converted(file, len(made), tuple(problems), notes)


def _of_s2s(tree: ast.Module) -> set[str]:
    """The full names of what a file imports of s2s."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            found |= {a.name for a in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            found |= {f"{module}.{a.name}" for a in statement.names}
    return {n for n in found if n.split(".")[0] == "s2s" or n.split(".")[-1] in _MARKERS}


# --- one function -----------------------------------------------------------------------------


def _made(source: Source, taken: set[str]) -> tuple[_Made, str]:
    """The class and the function of one function, and the name of the class.

    Raises TransformError where it has to stay as it is.
    """
    rule = pipeline.read(source)
    # s2s makes another class for a number where it took a tensor for granted; this one takes both
    rule = retyped(rule, dict.fromkeys(maybe_numbers(rule), ""))
    pair = pipeline.lift(rule)
    done = {stage.name: stage.pair for stage in pipeline.stages(pair, "eager")}
    final = done["save_if_needed"]  # the next one, in_place, writes formulas as nobody reads them
    name = camel(pair.name)
    clashes = {n for n in taken if n.startswith(name)}
    emitted = pipeline.printed(replace(final, taken=final.taken | clashes), "eager")
    (name,) = emitted.names
    problems = [*_used_otherwise(source), *_read_of_s2s(source, emitted)]
    if problems:
        raise TransformError(problems)
    imports, cls = _class_rows(emitted)
    call = f"return {applied(pair, name, emitted.extra)}"
    return _Made(source, cls, _function_rows(source, call), imports, _notes(source, pair)), name


def _used_otherwise(source: Source) -> list[Diagnostic]:
    """Uses of the function that only what s2s compiles has, and functions of s2s inside it."""
    function = source.function
    found = _casts(source)
    for mention in _uses(source):
        outer = mention.parents[-1]
        if isinstance(outer, ast.Attribute) and not outer.attr.startswith("__"):
            what = f"reads {source.name}.{outer.attr}, which a plain function does not have"
            found.append(_left(source, outer, what))
        elif isinstance(outer, ast.Call) and mention.node is not outer.func:
            called = ast.unparse(outer.func)
            if _is_of_s2s(source, called.partition(".")[0]) or called == "torch.jit.script":
                what = f"hands {source.name} to {called}, which takes what s2s compiles"
                found.append(_left(source, outer, what))
    for outer in source.enclosing:
        if _is_decorated(source, outer):
            found.append(_left(source, function, "is part of a function that is decorated too"))
    inner = [n for s in function.body for n in walk(s) if _is_decorated(source, n)]
    found += [_left(source, n, "defines a function that is decorated too") for n in inner]
    return found


def _is_decorated(source: Source, node: ast.AST) -> bool:
    return any(decorated(d, source.tree) for d in getattr(node, "decorator_list", []))


def _casts(source: Source) -> list[Diagnostic]:
    """``cast_inputs``: what the decorator does around the class."""
    keywords = [
        k
        for d in source.function.decorator_list
        if isinstance(d, ast.Call) and decorated(d, source.tree)
        for k in d.keywords
        if k.arg == "cast_inputs"
        and not (isinstance(k.value, ast.Constant) and k.value.value is None)
    ]
    return [_left(source, k.value, "casts its inputs under autocast") for k in keywords]


def _uses(source: Source) -> list[Mention]:
    """Where a function is read by its name; a method is read through others."""
    if source.in_class:
        return []
    home = home_of(source.text, source.tree, source.function)
    every = mentions(source.text, source.tree)
    return [m for m in every if m.name == source.name and m.home == home and not m.binds]


def _is_of_s2s(source: Source, name: str) -> bool:
    binding = bindings(source.tree).get(name)
    return binding is not None and binding.origin.split(".")[0] == "s2s"


def _read_of_s2s(source: Source, emitted: Emitted) -> list[Diagnostic]:
    """Names of s2s that the class would read."""
    for node in walk(ast.parse(emitted.text)):
        if isinstance(node, ast.Name) and _is_of_s2s(source, node.id):
            return [_left(source, _first_read(source, node.id), f"reads {node.id} of s2s")]
    return []


def _first_read(source: Source, name: str) -> ast.AST:
    body = [n for statement in source.function.body for n in walk(statement)]
    return next((n for n in body if isinstance(n, ast.Name) and n.id == name), source.function)


def _left(source: Source, node: ast.AST, what: str) -> Diagnostic:
    span = source.span(node)
    text = f"{source.name} is left as it is: line {span.line} {what}"
    return Diagnostic("error", span, text, "write that otherwise first, or keep the function")


def _notes(source: Source, pair: Pair) -> tuple[str, ...]:
    """What s2s refuses at a call, and a class lets pass."""
    outside = ", ".join(dict.fromkeys(".".join([w.name, *w.path]) for w in watched(pair)))
    if not outside:
        return ()
    place = f"{source.file}:{source.line(source.function)}"
    what = f"{source.name} reads {outside} from outside"
    return (f"{place}: note: {what}: s2s refuses that where it requires grad, a class does not",)


# --- its rows ---------------------------------------------------------------------------------


def _class_rows(emitted: Emitted) -> tuple[tuple[ast.Import, ...], Rows]:
    """The imports of an eager text, of those that name modules, and the rows of its class."""
    tree = ast.parse(emitted.text)
    head = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    first = next(s.lineno for s in tree.body if s not in head)
    rows = list(zip(emitted.text.rstrip("\n").split("\n"), emitted.lines))
    return tuple(s for s in head if isinstance(s, ast.Import)), rows[first - 1 :]


def _function_rows(source: Source, call: str) -> Rows:
    """The user's other decorators, signature and docstring, and a call for the rest."""
    function = source.function
    lines = source.text.split("\n")
    rows: Rows = []
    for decorator in function.decorator_list:
        if not decorated(decorator, source.tree):
            last = decorator.end_lineno or decorator.lineno
            rows += [(lines[n - 1], n) for n in range(decorator.lineno, last + 1)]
    head = _signature(lines, function.lineno)
    rows += [(row, function.lineno + i) for i, row in enumerate(head)]
    margin = _margin(lines[function.lineno - 1])
    inner = _margin(lines[function.body[0].lineno - 1])
    inner = inner if inner.startswith(margin) and inner != margin else f"{margin}    "
    doc = function.body[0]
    if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
        text = ast.get_source_segment(source.text, doc)
        if ast.get_docstring(function, clean=False) is not None and text is not None:
            rows += [(r, doc.lineno + i) for i, r in enumerate(f"{inner}{text}".split("\n"))]
    return [*rows, (inner + call, 0)]


def _signature(lines: Sequence[str], first: int) -> list[str]:
    """The rows of a ``def`` up to its colon, without what it says to return: that was a pair."""
    depth = 0
    arrow: tuple[int, int] | None = None
    text = "\n".join(lines[first - 1 :]) + "\n"
    lexed = tokenize.generate_tokens(io.StringIO(text.lstrip()).readline)
    margin = len(text) - len(text.lstrip())
    for token in lexed:
        depth += token.string in ("(", "[", "{") and token.type == tokenize.OP
        depth -= token.string in (")", "]", "}") and token.type == tokenize.OP
        if depth == 0 and token.string == "->":
            arrow = token.start
        if depth == 0 and token.string == ":":
            (row, column) = arrow or token.start
            head = lines[first - 1 : first - 1 + row]
            column += margin if row == 1 else 0
            rest = lines[first - 1 + token.start[0] - 1]
            rest = rest[token.end[1] + (margin if token.start[0] == 1 else 0) :]
            comment = f"  {rest.strip()}" if rest.strip().startswith("#") else ""
            return [*head[:-1], f"{head[-1][:column].rstrip()}:{comment}"]
    raise AssertionError("a def has a colon")


def _margin(row: str) -> str:
    return row[: len(row) - len(row.lstrip())]


# --- the file ---------------------------------------------------------------------------------


def _places(file: FileText, made: _Made) -> list[_Place]:
    """The class and the function where the decorated function stands.

    A class body holds the function alone: the class goes in front of that class.
    """
    source = made.source
    function = source.function
    first, last = _top(function), function.end_lineno or function.lineno
    outer = _outer_class(source)
    margin = _margin(file.rows[(outer or function).lineno - 1].text)
    cls = _indented(made.cls, margin)
    gap: Rows = [("", 0)] if margin else [("", 0), ("", 0)]
    shown = with_comments(source.text, first, function.lineno - 1, made.function)
    first_row, inside = shown[0], function.lineno  # what is beside the decorators is dealt with
    if outer is None:
        rows = with_comments(source.text, inside, last, [*cls, *gap, *shown])
        return [(first - 1, last, rows)]
    above = _top(outer) - 1
    while above and file.rows[above - 1].text.startswith(f"{margin}#"):
        above -= 1
    rows = with_comments(source.text, inside, last, [*cls, *shown])
    cut = next(i for i, row in enumerate(rows) if row == first_row)
    return [(above, above, [*rows[:cut], *gap]), (first - 1, last, rows[cut:])]


def _top(node: ast.stmt) -> int:
    lines: list[int] = [d.lineno for d in getattr(node, "decorator_list", [])]
    return min([node.lineno, *lines])


def _outer_class(source: Source) -> ast.stmt | None:
    """The outermost of the classes right around a method."""
    found = None
    for outer in reversed(source.enclosing):
        if not isinstance(outer, ast.ClassDef):
            break
        found = outer
    return found


def _indented(rows: Rows, margin: str) -> Rows:
    """The rows further right; strings over several lines keep what they say."""
    inside = inside_strings("\n".join(row for row, _ in rows))
    return [
        (margin + row if row and i not in inside else row, n) for i, (row, n) in enumerate(rows)
    ]


def _with_imports(file: FileText, imports: Sequence[ast.Import]) -> FileText:
    """The file with the modules that a class needs and that nothing in it imports."""
    for statement in imports:
        for alias in statement.names:
            bound = alias.asname or alias.name.split(".")[0]
            if bound not in bindings(parse_text(file.text)):
                file = with_import(file, alias.name, alias.asname or alias.name, len(file.rows))
    return file
