"""Function classes of a file as closures, and their ``Cls.apply`` as calls of these."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from .. import pipeline
from ..classes.find import METHODS, FunctionClass, classes_in
from ..errors import TransformError
from ..ir import Diagnostic, replace
from ..locate import Module
from ..names import fresh, walk
from ..parse_function import Closure, closure, function_name, marked_right, spliced
from ..source import parse_text
from ..vocabulary import SCRIPT_BUILTINS
from .comments import is_pragma, with_comments
from .elsewhere import elsewhere
from .imports import with_import, without_unused
from .scopes import mentions
from .text import Edit, FileText, edited, position, removed, with_rows
from .uses import Alias, Obstacle, Use, alias_of, exported, uses

__all__ = ["Converted", "to_closures"]

_UNUSED = ("torch.autograd.Function", "torch.autograd.function.Function")
_DERIVED = ("jvp", "vmap", "generate_vmap_rule")


@dataclass(frozen=True, slots=True)
class Converted:
    """The file, how many classes are functions now, and why the others are not."""

    file: FileText
    count: int
    problems: tuple[Diagnostic, ...]
    notes: tuple[str, ...]


class _Left(Exception):
    """A class that stays as it is."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        super().__init__()
        self.problems = tuple(problems)


def to_closures(file: FileText, module: Module, only: str = "", keep: bool = False) -> Converted:
    """Every class, or that of the qualified name ``only``, as a decorated closure.

    With ``keep`` a class that has nothing but ``apply`` keeps the name.
    """
    before = file
    names = [c.qualname for c in _classes(file, module) if only in ("", c.qualname)]
    # one inside the methods of another is a part of that
    names = [n for n in names if not any(n.startswith(f"{other}.") for other in names)]
    left: dict[str, tuple[Diagnostic, ...]] = {}
    final: set[str] = set()  # what will not become possible once others are converted
    notes: list[str] = []
    waiting = list(dict.fromkeys(names))
    while True:
        done = []
        for qualname in [n for n in waiting if n not in final]:
            try:
                file, said = _converted(file, module, qualname, keep)
            except _Left as error:
                left[qualname] = error.problems
            except TransformError as error:
                left[qualname] = error.diagnostics
                final.add(qualname)
            else:
                done.append(qualname)
                notes += said
        waiting = [n for n in waiting if n not in done]
        if not done:
            break
    if file is not before:
        file = without_unused(file, before, _UNUSED)
        ast.parse(file.text)
    problems = [p for name in waiting for p in left[name]]
    problems.sort(key=lambda p: p.span.line)
    return Converted(file, len(set(names)) - len(waiting), tuple(problems), tuple(notes))


def _classes(file: FileText, module: Module) -> tuple[FunctionClass, ...]:
    return classes_in(file.text, file.path, module.name, parse_text(file.text))


def _find(file: FileText, module: Module, qualname: str) -> FunctionClass:
    return next(c for c in _classes(file, module) if c.qualname == qualname)


def _original(file: FileText, problem: Diagnostic) -> Diagnostic:
    """A problem of the file as it is by now, at its place in the user's."""
    stub = ast.Pass(lineno=min(problem.span.line, len(file.rows)))
    return replace(problem, span=file.span(stub))


# --- one class --------------------------------------------------------------------------------


def _converted(
    file: FileText, module: Module, qualname: str, keep: bool
) -> tuple[FileText, list[str]]:
    """The file with one class converted, and what is to be said of it. Raises _Left."""
    cls = _find(file, module, qualname)
    found, obstacles = uses(cls)
    inside = set(walk(cls.node))
    problems = [_problem(file, cls, o) for o in obstacles if o.node not in inside]
    if not keep or cls.enclosing:
        problems += [_problem(file, cls, o) for o in exported(cls) if o.node not in inside]
    problems += _of_the_class(file, cls)
    problems += _of_other_files(file, cls, module, keep)
    if problems:
        raise _Left(problems)
    alias = alias_of(cls, found)
    if alias is not None and alias.name in SCRIPT_BUILTINS:
        alias = None
    name = alias.name if alias else _new_name(cls)
    changed = edited(file, _edits(file, found, name, alias))
    if alias is not None:
        changed = _without_alias(changed, alias)
    now = _find(changed, module, qualname)
    try:
        made = closure(now, name)
        source = spliced(now, made)
        rule = pipeline.read(source)
        wrong = marked_right(rule, made)
        if wrong:
            raise TransformError(wrong)
        pipeline.emit(pipeline.lift(rule), "eager")
    except TransformError as error:
        raise TransformError([_original(changed, d) for d in error.diagnostics]) from None
    _refuse_what_is_left(changed, now, made)
    return _placed(changed, now, made, keep and not cls.enclosing), _notes(file, cls)


def _problem(file: FileText, cls: FunctionClass, obstacle: Obstacle) -> Diagnostic:
    span = file.span(obstacle.node)
    what = f"{cls.name} is left as it is: line {span.line} {obstacle.what}"
    hint = "write that otherwise first, or keep the class and use s2s.from_function"
    return Diagnostic("error", span, what, hint)


def _of_the_class(file: FileText, cls: FunctionClass) -> list[Diagnostic]:
    """What of the class itself a function does not have."""
    odd = [Obstacle(d, f"decorates it with @{ast.unparse(d)}") for d in cls.node.decorator_list]
    for owner in cls.order:
        for statement in owner.body:
            if getattr(statement, "name", "") == "symbolic":
                odd.append(Obstacle(statement, "defines symbolic, for the export to ONNX"))
    for node in walk(cls.node):
        if isinstance(node, ast.keyword) and node.arg == "cast_inputs":
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                odd.append(Obstacle(node, "casts its inputs under autocast (cast_inputs)"))
    return [_problem(file, cls, o) for o in odd]


def _of_other_files(
    file: FileText, cls: FunctionClass, module: Module, keep: bool
) -> list[Diagnostic]:
    if any(not isinstance(outer, ast.ClassDef) for outer in cls.enclosing):
        return []
    found = [u for u in elsewhere(module, cls.name) if not (keep and u.calls)]
    if not found:
        return []
    first = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    what = f"{cls.name} is left as it is: {first.file}:{first.line} {first.what}{more}"
    hint = "with --keep-names a class of that name keeps `apply` for other files"
    if keep:
        hint = "write that with the apply of the class alone, or keep the class"
    return [Diagnostic("error", file.span(cls.node), what, hint)]


def _refuse_what_is_left(file: FileText, cls: FunctionClass, made: Closure) -> None:
    """The closure may not read the class that it replaces."""
    tree = ast.parse("if True:\n" + made.text if made.text[:1].isspace() else made.text)
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id == cls.name:
            places: list[ast.AST] = [
                n for n in walk(cls.node) if isinstance(n, ast.Name) and n.id == cls.name
            ]
            obstacle = Obstacle((places or [cls.node])[0], f"reads {cls.name} in the class itself")
            raise _Left([_problem(file, cls, obstacle)])


def _new_name(cls: FunctionClass) -> str:
    """A name that nothing in the file has."""
    taken = {m.name for m in mentions(cls.text, cls.tree)}
    name = function_name(cls)
    return name if name not in taken else fresh(name, taken)


def _edits(file: FileText, found: Sequence[Use], name: str, alias: Alias | None) -> list[Edit]:
    edits = []
    for use in found:
        if alias is not None and use.parents[-2] is alias.statement:
            continue
        node, owner = use.node, use.node.value
        start = position(file, node.lineno, node.col_offset)
        end = position(file, node.end_lineno or node.lineno, node.end_col_offset or 0)
        prefix = f"{ast.unparse(owner.value)}." if isinstance(owner, ast.Attribute) else ""
        edits.append(Edit(start, end, use.new.format(prefix + name)))
    return edits


def _without_alias(file: FileText, alias: Alias) -> FileText:
    """Without ``swish = Swish.apply``, whose comment stays."""
    first, last = alias.statement.lineno - 1, alias.statement.end_lineno or alias.statement.lineno
    rest = file.rows[last - 1].text.encode()[alias.statement.end_col_offset :].decode().strip()
    if rest.startswith("#") and not is_pragma(rest):
        space = file.rows[first].text[: alias.statement.col_offset]
        return with_rows(file, first, last, [space + rest], [file.rows[first].line])
    if rest and not rest.startswith("#"):  # another statement on the line
        raise _Left([_shared_line(file, alias)])
    return removed(file, first, last)


def _shared_line(file: FileText, alias: Alias) -> Diagnostic:
    what = f"{alias.name} shares its line with another statement"
    return Diagnostic("error", file.span(alias.statement), what, "put it on a line of its own")


def _placed(file: FileText, cls: FunctionClass, made: Closure, keep: bool) -> FileText:
    """The file with the function where the class stands, and what it imports."""
    first = cls.node.lineno
    last = cls.node.end_lineno or first
    rows = with_comments(cls.text, first, last, list(zip(made.text.split("\n"), made.lines)))
    lines = [file.rows[n - 1].line if n else 0 for _, n in rows]
    texts = [text for text, _ in rows]
    if keep:
        texts += ["", "", f"class {cls.name}:  # for other files, which call {cls.name}.apply"]
        texts += [f"    apply = staticmethod({made.name})"]
    file = with_rows(file, first - 1, last, texts, lines)
    decorator = next(t.strip() for t in texts if "autograd_script" in t)
    return with_import(file, "s2s", decorator[1:].partition(".")[0], first)


def _notes(file: FileText, cls: FunctionClass) -> list[str]:
    """What of the class goes, because it is derived or because nothing reads it."""
    said = []
    used = {n.attr for n in walk(cls.node) if isinstance(n, ast.Attribute)}
    for statement in cls.node.body:
        names = [getattr(statement, "name", "")]
        if isinstance(statement, ast.Assign):
            names = [t.id for t in statement.targets if isinstance(t, ast.Name)]
        for name in filter(None, names):
            if name in METHODS and name not in _DERIVED or name in used:
                continue
            why = "s2s derives it from backward" if name in _DERIVED else "nothing here reads it"
            place = f"{file.path}:{file.span(statement).line}"
            said.append(f"{place}: note: {name} of {cls.name} is left out: {why}")
    return said
