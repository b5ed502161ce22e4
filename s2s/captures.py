"""Which names ``backward`` reads from outside itself, and of what kind each is.

Scoping is CPython's own (``symtable``), asked about the same text that libcst parsed. The order is
the one in which forward binds the names: symtable's own order depends on hashing.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterator, Mapping

from .infer import from_annotation, infer, origin
from .ir import Backward, Capture, Constant, Rule, Source, lines_of
from .names import of_kind, reads, walk, writes
from .source import Binding, bindings

__all__ = ["captures", "constants", "free_names", "helpers_of", "is_data_global"]

Table = symtable.SymbolTable


@functools.lru_cache(maxsize=32)  # of one rule, whoever asks
def captures(rule: Rule, backward: Backward | None = None) -> tuple[Capture, ...]:
    """What one backward captures, or all of them together.

    A helper (a function nested in forward) brings what it reads itself.
    """
    wanted = (backward,) if backward is not None else rule.backwards
    names: set[str] = set()
    for one in wanted:
        names |= _outside_names(rule, one)
    found = [_capture(rule, name) for name in _in_binding_order(rule, names)]
    return tuple(c for c in found if c is not None)


def constants(rule: Rule) -> tuple[Constant, ...]:
    """Names from outside the function: of enclosing functions, and globals that hold data."""
    source = rule.source
    found = bindings(source.tree)
    table = _table(source)
    enclosing = set(_function_frees(table))
    read: dict[str, None] = {}
    lifted = {b.tree for b in rule.backwards}
    for statement in rule.body:
        if statement.tree not in lifted:
            read.update(dict.fromkeys(reads(statement.tree)))
    for backward in rule.backwards:
        inner = _nested_table(source, backward.tree)
        outside = {*_function_frees(inner), *_all_globals(inner)}  # not its own variables
        for statement in backward.body:
            read.update(dict.fromkeys(n for n in reads(statement.tree) if n in outside))
    result = []
    for name in read:
        if name in enclosing:
            result.append(_enclosing_constant(source, name, found))
    for name in read:
        if name not in rule.locals and name not in enclosing and is_data_global(source, name):
            if not _only_called(source.function, name):
                type_ = infer(ast.Name(name, ast.Load()), {}, found)
                literal = _literal(found[name].value)
                result.append(Constant(name, type_, "the module", False, literal))
    return tuple(result)


def free_names(rule: Rule, tree: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """Names that a nested function reads from the functions around it."""
    table = _nested_table(rule.source, tree)
    return frozenset(_function_frees(table))


def helpers_of(rule: Rule) -> dict[str, ast.FunctionDef | ast.Lambda]:
    """Functions nested in forward that are no backward: name -> tree, bound exactly once."""
    lifted = {b.tree for b in rule.backwards}
    found: dict[str, ast.FunctionDef | ast.Lambda] = {}
    bound: dict[str, int] = {}
    for statement in rule.body:
        for name in writes(statement.tree):
            bound[name] = bound.get(name, 0) + 1
        tree = statement.tree
        if isinstance(tree, ast.FunctionDef) and tree not in lifted:
            found[tree.name] = tree
        elif isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Lambda):
            target = tree.targets[0]
            if isinstance(target, ast.Name) and tree.value not in lifted:
                found[target.id] = tree.value
    return {name: tree for name, tree in found.items() if bound[name] == 1}


def _outside_names(rule: Rule, backward: Backward) -> set[str]:
    """Free names of a backward and of the helpers it calls, and the data globals it reads."""
    names = set(free_names(rule, backward.tree)) | _data_globals(rule, backward.tree)
    body_reads = {n for s in backward.body for n in reads(s.tree)}
    names &= body_reads  # not what only its annotations mention
    names |= set(backward.early)
    helpers = helpers_of(rule)
    todo = [n for n in names if n in helpers]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        inner = set(free_names(rule, helpers[name])) | _data_globals(rule, helpers[name])
        names |= inner
        todo.extend(n for n in inner if n in helpers)
    return names


def _capture(rule: Rule, name: str) -> Capture | None:
    types = dict(rule.types)
    if name not in rule.locals:
        found = bindings(rule.source.tree)
        if name in _function_frees(_table(rule.source)):
            type_ = _enclosing_constant(rule.source, name, found).type
        else:
            type_ = infer(ast.Name(name, ast.Load()), {}, found)
        return Capture(name, "constant", 0, type_)
    written = [s for s in rule.body if name in writes(s.tree)]
    if name in helpers_of(rule):
        return Capture(name, "helper", rule.source.user_line(written[0].line), "object")
    is_param = any(p.name == name for p in rule.params)
    line = written[0].line if written and not is_param else rule.source.function.lineno
    line = rule.source.user_line(line)
    if is_param and not written:
        return Capture(name, "input", line, types.get(name, ""))
    if any(output.name == name for output in rule.outputs):
        return Capture(name, "output", line, types.get(name, "") or "Tensor")
    return Capture(name, "intermediate", line, types.get(name, ""))


def _in_binding_order(rule: Rule, names: set[str]) -> list[str]:
    order: dict[str, None] = dict.fromkeys(p.name for p in rule.params)
    for statement in rule.body:
        order.update(dict.fromkeys(writes(statement.tree)))
    bound = [name for name in order if name in names]
    outside = sorted(names - set(order))
    if outside:  # in the order of reading
        read = [n for b in rule.backwards for s in b.body for n in reads(s.tree)]
        first = {name: index for index, name in reversed(list(enumerate(read)))}
        outside.sort(key=lambda name: first.get(name, len(read)))
    return bound + outside


def _data_globals(rule: Rule, tree: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Globals read as values in a nested function: module data, not modules or functions."""
    found = bindings(rule.source.tree)
    table = _nested_table(rule.source, tree)
    return {
        name
        for name in _all_globals(table)
        if _is_data(found.get(name), name, found) and not _only_called(tree, name)
    }


def is_data_global(source: Source, name: str) -> bool:
    """A module-level name that holds a value: no module, function or class."""
    found = bindings(source.tree)
    return _is_data(found.get(name), name, found)


def _is_data(binding: Binding | None, name: str, found: Mapping[str, Binding]) -> bool:
    if binding is None or binding.kind not in ("data", "unknown"):
        return False
    return origin(ast.Name(name, ast.Load()), found) is None


def _only_called(tree: ast.AST, name: str) -> bool:
    """Every use is a call of it or of its methods: a function or an object, no tensor."""
    uses = [n for n in of_kind(tree, ast.Name) if n.id == name]
    called = {n.func for n in of_kind(tree, ast.Call)}
    return called.issuperset(uses)


# --- constants ------------------------------------------------------------------------------


def _enclosing_constant(source: Source, name: str, found: Mapping[str, Binding]) -> Constant:
    for outer in reversed(source.enclosing):
        if not isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        arguments = [*outer.args.posonlyargs, *outer.args.args, *outer.args.kwonlyargs]
        for argument in arguments:
            if argument.arg == name:
                type_ = from_annotation(argument.annotation, found)
                type_ = type_ or _default_type(outer, name, found)
                return Constant(name, type_, outer.name, True)
        values = [n for n in walk(outer) if isinstance(n, (ast.Assign, ast.AnnAssign))]
        bound = [v for v in values if name in writes(v)]
        if bound:
            last = bound[-1].value
            simple = len(bound) == 1 and last is not None
            type_ = infer(last, {}, found) if simple and last is not None else ""
            literal = _literal(last) if simple else None
            return Constant(name, type_, outer.name, True, literal)
        if any(name in writes(s) for s in outer.body):
            return Constant(name, "object", outer.name, True)
    return Constant(name, "", "the function around it", True)


def _default_type(
    outer: ast.FunctionDef | ast.AsyncFunctionDef, name: str, found: Mapping[str, Binding]
) -> str:
    positional = [*outer.args.posonlyargs, *outer.args.args]
    pairs = list(zip(reversed(positional), reversed(outer.args.defaults)))
    pairs += [(a, d) for a, d in zip(outer.args.kwonlyargs, outer.args.kw_defaults) if d]
    for argument, default in pairs:
        if argument.arg == name:
            type_ = infer(default, {}, found)
            return "" if type_ == "None" else type_
    return ""


def _literal(node: ast.expr | None) -> str | None:
    """The text of a number, string, bool or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return f"-{inner}" if inner else None
    if isinstance(node, ast.Constant) and node.value is not Ellipsis:
        return repr(node.value)
    return None


# --- symtable -------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def _file_table(text: str, file: str) -> Table:
    return symtable.symtable(text, file, "exec")


def _table(source: Source) -> Table:
    """The scope of the decorated function."""
    path: list[tuple[str, int]] = []
    for outer in (*source.enclosing, source.function):
        assert isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        path.append((outer.name, outer.lineno))
    text = source.text if source.enclosing else _alone(source)
    return _scope(text, source.file, tuple(path))


def _alone(source: Source) -> str:
    """The text of a function that no other encloses, at its place: the rest of the file, which may
    be long, says nothing about its scope."""
    function = source.function
    before = [""] * (function.lineno - 1)
    if function.col_offset:
        before[-1] = "if True:"
    lazy = bindings(source.tree).get("annotations")
    if lazy is not None and lazy.origin == "__future__.annotations":
        before[0] = "from __future__ import annotations"
    rows = lines_of(source.text)[function.lineno - 1 : function.end_lineno]
    return "\n".join([*before, *rows])


@functools.lru_cache(maxsize=64)
def _scope(text: str, file: str, path: tuple[tuple[str, int], ...]) -> Table:
    if not path:
        return _file_table(text, file)
    name, line = path[-1]
    return _child(_scope(text, file, path[:-1]), name, line)


@functools.lru_cache(maxsize=256)
def _inner(table: Table) -> tuple[Table, ...]:
    """The scopes right inside; symtable makes them anew at every question."""
    return tuple(table.get_children())


def _child(table: Table, name: str, line: int, skip: int = 0) -> Table:
    for child in _descend(table):
        if child.get_name() == name and child.get_lineno() == line:
            if skip == 0:
                return child
            skip -= 1
    raise LookupError(f"{name} at line {line} is not in the scope of {table.get_name()}")


def _descend(table: Table) -> Iterator[Table]:
    """Inner scopes, through those that hold no functions of the user's (type parameters)."""
    for child in _inner(table):
        yield child
        if child.get_type() not in ("function", "class"):
            yield from _descend(child)


def _nested_table(source: Source, tree: ast.FunctionDef | ast.Lambda) -> Table:
    """The scope of a function nested in the decorated one, at any depth."""
    name = tree.name if isinstance(tree, ast.FunctionDef) else "lambda"
    earlier = 0
    if isinstance(tree, ast.Lambda):  # several on one line: they come in the order of the text
        same = [n for n in of_kind(source.function, ast.Lambda) if n.lineno == tree.lineno]
        same.sort(key=lambda n: n.col_offset)
        earlier = next(i for i, n in enumerate(same) if n is tree)
    found = [
        t
        for t in _all_tables(_table(source))
        if t.get_name() == name and t.get_lineno() == tree.lineno
    ]
    return found[earlier]


def _all_tables(table: Table) -> Iterator[Table]:
    for child in _inner(table):
        yield child
        yield from _all_tables(child)


def _function_frees(table: Table) -> tuple[str, ...]:
    assert isinstance(table, symtable.Function)
    return tuple(sorted(table.get_frees()))


def _all_globals(table: Table) -> set[str]:
    names: set[str] = set()
    for inner in (table, *_all_tables(table)):
        if isinstance(inner, symtable.Function):
            names |= set(inner.get_globals())
    return names
