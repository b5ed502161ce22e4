"""The closure form, read into a ``Rule``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from .asked import is_marked, is_once, may_be_undefined
from .errors import TransformError, diagnostic
from .infer import from_annotation, infer, types_after
from .ir import LISTS, Backward, Diagnostic, Output, Param, Rule, Source, Stmt, lines_of, replace
from .names import fresh, is_none, mentioned, of_kind, returns_in, same_scope, walk, writes
from .source import Binding, bindings
from .syntax import make, one_a_line, rename, standalone

__all__ = ["falls_through", "nested_nodes", "pair_up", "parse", "retyped", "values_of"]


def parse(source: Source) -> Rule:
    """Read one decorated function.

    Raises TransformError with every problem that keeps it from being read as
    ``outputs, backward``.
    """
    function = source.function
    _refuse_kinds(source)
    assert isinstance(function, ast.FunctionDef)
    node, function = _unmangled(source, _libcst_function(source), function)
    body = pair_up(node, function)
    if body and _is_docstring(body[0]):
        body = body[1:]
    found = bindings(source.tree)
    params = _params(source, found)
    returns = returns_in([s.tree for s in body])
    problems = [*_unsupported_params(source, params), *_bad_returns(source, function, returns)]
    if problems:
        raise TransformError(problems)
    backwards = _backwards(source, body, returns)
    count = len(_returned_values(returns[0].value, found)[0])  # type: ignore[arg-type]
    start = {p.name: p.type for p in params}
    types = types_after([s.tree for s in body], start, found)
    outputs, single, container = _outputs(source, returns, types, found)
    listed = single and outputs[0].type in LISTS
    body, backwards = _spelled_out(body, backwards, count, set(mentioned(function)), listed)
    types = types_after([s.tree for s in body], start, found)
    own = {p.name for p in params}.union(*(writes(s.tree) for s in body))
    return Rule(
        source=source,
        name=function.name,
        params=params,
        body=body,
        backwards=backwards,
        outputs=outputs,
        single=single,
        container=container,
        types=tuple(types.items()),
        locals=frozenset(own),
        dirty=source.dirty,
        once=any(_is_once(b, found) for b in backwards),
        undefined=any(may_be_undefined(b.tree, found) for b in backwards),
    )


def _is_once(backward: Backward, found: dict[str, Binding]) -> bool:
    decorators = getattr(backward.tree, "decorator_list", [])
    return any(is_once(d, found) for d in decorators)


def retyped(rule: Rule, given: Mapping[str, str]) -> Rule:
    """The same rule with other types of some arguments."""
    found = bindings(rule.source.tree)
    params = tuple(
        replace(p, type=given[p.name], assumed=False) if p.name in given else p for p in rule.params
    )
    types = types_after([s.tree for s in rule.body], {p.name: p.type for p in params}, found)
    outputs, _, _ = _outputs(rule.source, returns_in([s.tree for s in rule.body]), types, found)
    return replace(rule, params=params, types=tuple(types.items()), outputs=outputs)


def _refuse_kinds(source: Source) -> None:
    function = source.function
    kind = "an async function" if isinstance(function, ast.AsyncFunctionDef) else ""
    for statement in function.body:
        for node in same_scope(statement):
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                kind = "a generator"
            elif isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
                kind = kind or "an async function"
    if kind:
        problem = diagnostic(
            "S2S207",
            source.span(function),
            f"{source.name} is {kind}; a gradient needs a plain function",
            hint="write a plain `def` that computes its outputs and returns them with backward",
        )
        raise TransformError([problem])


def _libcst_function(source: Source) -> cst.FunctionDef:
    """The function alone, parsed by libcst, at whatever depth it stands."""
    function = source.function
    text = "\n".join(lines_of(source.text)[function.lineno - 1 : function.end_lineno])
    if text[:1].isspace():
        text = "if True:\n" + text
    if not text.endswith("\n"):
        text += "\n"
    node: cst.CSTNode = cst.parse_module(text).body[0]
    if isinstance(node, cst.If):
        node = node.body.body[0]
    assert isinstance(node, cst.FunctionDef)
    return node


class _Unmangle(cst.CSTTransformer):
    """``self.__k`` in a class means ``self._Layer__k``; lifted out it has to say so."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        name = updated_node.attr.value
        if not _is_private(name):
            return updated_node
        return updated_node.with_changes(attr=cst.Name(f"{self.prefix}{name}"))


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _unmangled(
    source: Source, node: cst.FunctionDef, function: ast.FunctionDef
) -> tuple[cst.FunctionDef, ast.FunctionDef]:
    """The function with the private names of its class written out."""
    classes = [outer for outer in source.enclosing if isinstance(outer, ast.ClassDef)]
    attributes = of_kind(function, ast.Attribute)
    private = [n for n in attributes if _is_private(n.attr)]
    if private and not classes:
        problem = diagnostic(
            "S2S216",
            source.span(private[0]),
            f"{source.name} reads .{private[0].attr}, which inside a class is another name",
            hint=f'write getattr(..., "{private[0].attr}")',
        )
        raise TransformError([problem])
    if not classes:
        return node, function
    prefix = "_" + classes[-1].name.lstrip("_")
    # a file's tree is read once and kept: the names may be written out in it already
    if not private and not any(n.attr.startswith(f"{prefix}__") for n in attributes):
        return node, function
    changed = node.visit(_Unmangle(prefix))
    assert isinstance(changed, cst.FunctionDef)
    for attribute in private:
        attribute.attr = f"{prefix}{attribute.attr}"
    return changed, function


def pair_up(node: cst.FunctionDef, tree: ast.FunctionDef) -> tuple[Stmt, ...]:
    """The statements of a function body, each as libcst and as ast, one small statement a line."""
    lines: list[cst.BaseStatement] = []
    if isinstance(node.body, cst.SimpleStatementSuite):
        suite = node.body
        lines.append(
            cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)
        )
    else:
        assert isinstance(node.body, cst.IndentedBlock)
        for inner in node.body.body:
            assert isinstance(inner, cst.BaseStatement)
            lines.append(inner)
    apart = [part for line in lines for part in _split(line)]
    assert len(apart) == len(tree.body), "libcst and ast disagree about the statements"
    return tuple(Stmt(n, t, t.lineno) for n, t in zip(apart, tree.body))


def _split(line: cst.BaseStatement) -> Iterator[cst.BaseStatement]:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) == 1:
        yield _no_semicolon(line)
        return
    yield from one_a_line(line, line.body)


def _no_semicolon(line: cst.BaseStatement) -> cst.BaseStatement:
    if isinstance(line, cst.SimpleStatementLine):
        small = line.body[0]
        if isinstance(small.semicolon, cst.Semicolon):
            return line.with_changes(body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
    return line


def _is_docstring(statement: Stmt) -> bool:
    tree = statement.tree
    return (
        isinstance(tree, ast.Expr)
        and isinstance(tree.value, ast.Constant)
        and isinstance(tree.value.value, str)
    )


# --- parameters -----------------------------------------------------------------------------


def _params(source: Source, found: dict[str, Binding]) -> tuple[Param, ...]:
    function = source.function
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    called = _called_names(function)
    bound = _bound_parameter(source)
    params: list[Param] = []

    def add(argument: ast.arg, kind: str, default: ast.expr | None) -> None:
        is_bound = not params and argument.arg == bound
        type_, assumed = _param_type(argument, default, found, called, is_bound)
        if kind == "variadic":
            type_ = "List[Tensor]" if type_ == "Tensor" else "object"
        params.append(
            Param(
                name=argument.arg,
                kind=kind,  # type: ignore[arg-type]
                type=type_,
                annotation=_annotation(argument.annotation),
                default=_written(source, default) if default is not None else None,
                bound=is_bound,
                assumed=assumed,
            )
        )

    for index, argument in enumerate(positional):
        kind = "positional-only" if index < len(arguments.posonlyargs) else "positional"
        add(argument, kind, defaults[index])
    if arguments.vararg:
        add(arguments.vararg, "variadic", None)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        add(argument, "keyword-only", default)
    if arguments.kwarg:
        add(arguments.kwarg, "keywords", None)
    return tuple(params)


def _annotation(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return ast.unparse(node) if node is not None else None


def _written(source: Source, node: ast.expr) -> str:
    """An expression as the user wrote it: `1e-5`, not `1e-05`."""
    if node.lineno != node.end_lineno:
        return ast.unparse(node)
    line = lines_of(source.text)[node.lineno - 1].encode()
    return line[node.col_offset : node.end_col_offset].decode()


def _bound_parameter(source: Source) -> str | None:
    """``self`` of a method, ``cls`` of a class method: no gradient slot."""
    if not source.in_class:
        return None
    decorators = {ast.unparse(d) for d in source.function.decorator_list}
    positional = [*source.function.args.posonlyargs, *source.function.args.args]
    if "staticmethod" in decorators or not positional:
        return None
    return positional[0].arg


def _called_names(function: ast.AST) -> set[str]:
    return {node.func.id for node in of_kind(function, ast.Call) if isinstance(node.func, ast.Name)}


def _param_type(
    argument: ast.arg,
    default: ast.expr | None,
    found: dict[str, Binding],
    called: set[str],
    bound: bool,
) -> tuple[str, bool]:
    if bound:
        return "object", False
    if argument.annotation is not None:
        type_ = from_annotation(argument.annotation, found)
        if type_ == "Tensor" and is_none(default):
            return "Optional[Tensor]", False
        return type_, False
    if argument.arg in called:
        return "object", False
    if default is None:
        return "Tensor", True
    if is_none(default):
        return "Optional[Tensor]", True
    return infer(default, {}, found), False


def _unsupported_params(source: Source, params: tuple[Param, ...]) -> Iterator[Diagnostic]:
    arguments = source.function.args
    if arguments.kwarg:
        yield diagnostic(
            "S2S208",
            source.span(arguments.kwarg),
            f"{source.name} takes **{arguments.kwarg.arg}: there is no order in which backward "
            "could return gradients for them",
            hint="name each keyword, `def f(x, *, scale: float = 1.0)`",
        )
    variadic = next((p for p in params if p.kind == "variadic"), None)
    if arguments.vararg and variadic is not None and variadic.type != "List[Tensor]":
        yield diagnostic(
            "S2S208",
            source.span(arguments.vararg),
            f"*{arguments.vararg.arg} of {source.name} is annotated as {variadic.annotation}; "
            "only tensors can be taken in any number",
            hint="name each parameter",
        )
    if arguments.vararg and arguments.kwonlyargs:
        yield diagnostic(
            "S2S208",
            source.span(arguments.vararg),
            f"{source.name} takes *{arguments.vararg.arg} and keyword-only parameters",
            hint="name the tensors, or move the keywords in front of the star",
        )
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for param, node in zip([p for p in params if p.kind not in ("variadic", "keywords")], every):
        if "Tensor]" in param.type and param.type not in ("Optional[Tensor]", *LISTS):
            yield diagnostic(
                "S2S208",
                source.span(node),
                f"parameter {param.name} of {source.name} is a collection of tensors "
                f"({param.annotation}); gradients cannot flow through it",
                hint="take the tensors one by one, or as one `List[Tensor]`",
            )
    several = [p for p in params if p.type in LISTS]
    if len(several) > 1:
        yield diagnostic(
            "S2S208",
            source.span(source.function),
            f"{source.name} takes {len(several)} collections of tensors "
            f"({', '.join(p.name for p in several)}); one is the most",
            hint="take one list, and the position at which it is to be divided",
        )


# --- returns and outputs --------------------------------------------------------------------


def _bad_returns(
    source: Source, function: ast.FunctionDef, returns: list[ast.Return]
) -> Iterator[Diagnostic]:
    hint = (
        "end every path in `return outputs, backward`, with `def backward(grad_output): ...` above"
    )
    if not returns:
        nested = of_kind(function, ast.FunctionDef)[1:]
        what = "does not return anything" if nested else "defines no backward and returns nothing"
        yield diagnostic("S2S201", source.span(function), f"{source.name} {what}", hint=hint)
        return
    for statement in returns:
        value = statement.value
        if not isinstance(value, ast.Tuple) or len(value.elts) < 2:
            shown = ast.unparse(value) if value else "nothing"
            yield diagnostic(
                "S2S201",
                source.span(statement),
                f"{source.name} returns {_short(shown)} here, not `outputs, backward`",
                hint=hint,
            )
            continue
        outputs, _, _ = _returned_values(value, bindings(source.tree))
        if not outputs:
            yield diagnostic(
                "S2S201",
                source.span(statement),
                f"{source.name} returns no output beside backward",
                hint=hint,
            )
        for output in outputs:
            yield from _bad_output(source, output)
    if falls_through(function.body):
        last = function.body[-1]
        yield diagnostic(
            "S2S201",
            source.span(last),
            f"{source.name} can reach its end here without `return outputs, backward`",
            hint=hint,
        )


def _bad_output(source: Source, output: ast.expr) -> Iterator[Diagnostic]:
    if isinstance(output, ast.Starred):
        yield diagnostic(
            "S2S209",
            source.span(output),
            f"{source.name} returns *{ast.unparse(output.value)}: how many outputs that is "
            "cannot be known",
            hint="name the outputs, `return (a, b), backward`",
        )
    kinds = {ast.List: "list", ast.Dict: "dict", ast.Set: "set", ast.ListComp: "list"}
    kinds |= {ast.DictComp: "dict", ast.SetComp: "set", ast.GeneratorExp: "generator"}
    kind = kinds.get(type(output))
    if isinstance(output, ast.Tuple):
        kind = "nested tuple"
    if kind:
        yield diagnostic(
            "S2S209",
            source.span(output),
            f"{source.name} returns a {kind}: autograd would detach the tensors in it",
            hint="return a tuple of tensors, `return (a, b), backward`, or one list or dict that "
            "is written out",
        )


def falls_through(body: Sequence[ast.stmt]) -> bool:
    """Can control reach the end of this block?"""
    return not any(_leaves(statement) for statement in body)


def _leaves(node: ast.stmt) -> bool:
    """Does control surely not pass this statement?"""
    if isinstance(node, (ast.Return, ast.Raise)):
        return True
    if isinstance(node, ast.If):
        return not falls_through(node.body) and not falls_through(node.orelse)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return not falls_through(node.body)
    if isinstance(node, ast.Try):
        if node.finalbody and not falls_through(node.finalbody):
            return True
        whole = [*node.body, *node.orelse]
        return not falls_through(whole) and all(
            not falls_through(handler.body) for handler in node.handlers
        )
    if isinstance(node, ast.While):
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return forever and not any(isinstance(n, ast.Break) for n in same_scope(node))
    if isinstance(node, ast.Match):
        last = node.cases[-1]
        wild = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        total = wild and last.guard is None
        return total and all(not falls_through(case.body) for case in node.cases)
    return False


def _short(text: str) -> str:
    return f"`{text}`" if len(text) <= 40 else f"`{text[:37]}...`"


def _outputs(
    source: Source, returns: list[ast.Return], types: dict[str, str], found: dict[str, Binding]
) -> tuple[tuple[Output, ...], bool, str]:
    """What every return statement gives; they must agree in number and kind."""
    rows: list[list[ast.expr]] = []
    kinds: set[tuple[bool, str]] = set()
    for statement in returns:
        assert isinstance(statement.value, ast.Tuple)
        elements, single, container = _returned_values(statement.value, found)
        rows.append(elements)
        kinds.add((single, container))
    if len({len(row) for row in rows}) > 1 or len(kinds) > 1:
        spans = [source.span(r) for r in returns]
        counts = "; ".join(f"line {s.line}: {len(row)}" for s, row in zip(spans, rows))
        problem = diagnostic(
            "S2S214",
            spans[-1],
            f"the return statements of {source.name} give different numbers of outputs ({counts})",
            hint="return the same number of outputs on every path",
        )
        raise TransformError([problem])
    outputs = tuple(_output(column, types, found) for column in zip(*rows))
    single, container = kinds.pop()
    unknown = outputs[0].type in ("", "object", "Tensor")
    if single and (unknown or outputs[0].type in LISTS):
        if all(_is_tuple(source, row[0], returns) for row in rows):
            container = "tuple"
            type_ = outputs[0].type if outputs[0].type in LISTS else "List[Tensor]"
            outputs = (replace(outputs[0], type=type_),)
    return outputs, single, container


def _is_tuple(source: Source, value: ast.expr, returns: list[ast.Return]) -> bool:
    """``tuple(...)``, or ``*tensors`` as they came."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "tuple"
    if not isinstance(value, ast.Name):
        return False
    bound = [n for s in source.function.body for n in same_scope(s) if isinstance(n, ast.Assign)]
    found = [n.value for n in bound if value.id in writes(n)]
    star = source.function.args.vararg
    if star is not None and value.id == star.arg and not found:
        return not any(star.arg in writes(s) for s in source.function.body)
    return bool(found) and all(_is_tuple(source, v, returns) for v in found if v is not value)


def _returned_values(
    value: ast.Tuple, found: dict[str, Binding]
) -> tuple[list[ast.expr], bool, str]:
    """The outputs in ``return outputs, backward``; is it a single one; the list or dict of them.

    Marks of non-differentiable outputs are still on them.
    """
    elements = value.elts[:-1]
    if len(elements) != 1:
        return elements, False, ""
    only = elements[0]
    if isinstance(only, ast.Tuple):
        return only.elts, False, ""
    if isinstance(only, ast.List) and only.elts:
        return only.elts, False, "list"
    if isinstance(only, ast.Dict) and only.keys:
        keys = [k.value if isinstance(k, ast.Constant) else None for k in only.keys]
        if all(isinstance(k, str) and k.isidentifier() for k in keys):
            return only.values, False, " ".join(map(str, keys))
    return elements, True, ""


def _output(
    column: tuple[ast.expr, ...], types: dict[str, str], found: dict[str, Binding]
) -> Output:
    marked = any(is_marked(e, found) for e in column)
    column = tuple(e.args[0] if is_marked(e, found) else e for e in column)  # type: ignore[attr-defined]
    names = {e.id if isinstance(e, ast.Name) else None for e in column}
    if marked:  # a tensor without a gradient, like those of integers
        return Output(names.pop() if len(names) == 1 else None, "IntTensor", False, True)
    kinds = {infer(e, types, found) for e in column}
    type_ = kinds.pop() if len(kinds) == 1 else ""
    return Output(
        name=names.pop() if len(names) == 1 else None,
        type=type_,
        differentiable=type_ != "IntTensor" and not (type_ and type_ in _NO_GRADIENT),
    )


_NO_GRADIENT = ("int", "float", "bool", "str", "None", "dtype", "device", "number", "List[int]")


# --- backward -------------------------------------------------------------------------------


def _backwards(
    source: Source, body: tuple[Stmt, ...], returns: list[ast.Return]
) -> tuple[Backward, ...]:
    """The nested functions that the return statements may name, in the order of the text."""
    found: dict[ast.FunctionDef | ast.Lambda, str] = {}
    names: list[str] = []
    for statement in returns:
        assert isinstance(statement.value, ast.Tuple)
        _resolve(source, body, statement.value.elts[-1], found, names)
    for name in names:
        _refuse_other_uses(source, body, returns, name)
    nodes = nested_nodes(body)
    trees = sorted(found, key=lambda t: (t.lineno, t.col_offset))
    return tuple(_backward(tree, found[tree], nodes) for tree in trees)


def _resolve(
    source: Source,
    body: tuple[Stmt, ...],
    value: ast.expr,
    found: dict[ast.FunctionDef | ast.Lambda, str],
    names: list[str],
) -> None:
    """Collect the defs and lambdas that ``value`` may be."""
    if isinstance(value, ast.Lambda):
        found.setdefault(value, "backward")
    elif isinstance(value, ast.IfExp):
        _resolve(source, body, value.body, found, names)
        _resolve(source, body, value.orelse, found, names)
    elif isinstance(value, ast.Name) and values_of(body, value.id):
        if value.id in names:
            return
        names.append(value.id)
        for bound in values_of(body, value.id):
            if isinstance(bound, ast.FunctionDef):
                _refuse_decorated(source, bound)
                found.setdefault(bound, value.id)
            elif isinstance(bound, ast.Lambda):
                found.setdefault(bound, value.id)
            else:
                assert isinstance(bound, ast.expr)
                _resolve(source, body, bound, found, names)
    else:
        shown = _short(ast.unparse(value))
        problem = diagnostic(
            "S2S213",
            source.span(value),
            f"{source.name} returns {shown} as its backward: not a function nested in it",
            hint=f"write `def backward(grad_output): ...` inside {source.name} and return that; "
            "it may call anything",
        )
        raise TransformError([problem])


def values_of(body: tuple[Stmt, ...], name: str) -> list[ast.AST]:
    """What is assigned to ``name`` in the body: functions, lambdas and other expressions."""
    values: list[ast.AST] = []
    for statement in body:
        for node in same_scope(statement.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                values.append(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    values.extend(_assigned(target, node.value, name))
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                values.extend(_assigned(node.target, node.value, name))
    return values


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.AST]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, element in enumerate(target.elts):
            part = value.elts[index] if same else value  # type: ignore[attr-defined]
            yield from _assigned(element, part, name)


def _refuse_decorated(source: Source, function: ast.FunctionDef) -> None:
    found = bindings(source.tree)
    others = [d for d in function.decorator_list if not is_once(d, found)]
    if others:
        decorator = others[0]
        problem = diagnostic(
            "S2S212",
            source.span(decorator),
            f"backward of {source.name} is decorated with @{ast.unparse(decorator)}",
            hint="write what it does inside backward, for example `with torch.no_grad():`",
        )
        raise TransformError([problem])


def _refuse_other_uses(
    source: Source, body: tuple[Stmt, ...], returns: list[ast.Return], name: str
) -> None:
    """A backward that forward itself calls, or hands on, cannot be lifted out."""
    last = {id(n) for r in returns for n in walk(r.value.elts[-1])}  # type: ignore[union-attr]
    for statement in body:
        for node in of_kind(statement.tree, ast.Name):
            if node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in last:
                if _is_alias(body, node):
                    continue
                problem = diagnostic(
                    "S2S213",
                    source.span(node),
                    f"{name} of {source.name} is used for something else than the return",
                    hint="move what both need into a nested helper function, and call that",
                )
                raise TransformError([problem])


def _is_alias(body: tuple[Stmt, ...], name: ast.Name) -> bool:
    """``other = backward``, which ``_resolve`` has followed."""
    for statement in body:
        for node in same_scope(statement.tree):
            if isinstance(node, ast.Assign) and any(n is name for n in walk(node.value)):
                return isinstance(node.value, (ast.Name, ast.IfExp, ast.Tuple))
    return False


class _Nested(cst.CSTVisitor):
    """The nested defs and lambdas, in the order they are written."""

    def __init__(self) -> None:
        self.defs: list[cst.FunctionDef] = []
        self.lambdas: list[cst.Lambda] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.defs.append(node)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self.lambdas.append(node)


def nested_nodes(body: tuple[Stmt, ...]) -> dict[ast.AST, cst.CSTNode]:
    """The libcst node of each nested def and lambda of the body."""
    found: dict[ast.AST, cst.CSTNode] = {}
    for statement in body:
        defs = of_kind(statement.tree, ast.FunctionDef)
        trees: list[ast.FunctionDef | ast.Lambda] = [*defs, *of_kind(statement.tree, ast.Lambda)]
        if not trees:
            continue
        if trees == [statement.tree]:
            found[statement.tree] = statement.node
            continue
        trees.sort(key=lambda t: (t.lineno, t.col_offset))
        nested = _Nested()
        statement.node.visit(nested)
        found.update(zip([t for t in trees if isinstance(t, ast.FunctionDef)], nested.defs))
        found.update(zip([t for t in trees if isinstance(t, ast.Lambda)], nested.lambdas))
    return found


def _spelled_out(
    body: tuple[Stmt, ...],
    backwards: tuple[Backward, ...],
    outputs: int,
    taken: set[str],
    listed: bool,
) -> tuple[tuple[Stmt, ...], tuple[Backward, ...]]:
    """Backwards whose parameters are the output gradients alone.

    ``*grads`` becomes a parameter per output; a default, ``k=k``, is what it is when the def is
    reached: a variable of forward that is bound there.
    """
    done: list[Backward] = []
    for backward in backwards:
        arguments = backward.tree.args
        if arguments.vararg and len(backward.params) <= outputs and not arguments.defaults:
            backward = _without_star(backward, arguments.vararg.arg, outputs, taken, listed)
        extra = backward.params[outputs:]
        if extra and len(arguments.defaults) >= len(extra):
            body, backward = _without_defaults(body, backward, outputs, taken)
        done.append(backward)
    return body, tuple(done)


def _without_star(
    backward: Backward, rest: str, outputs: int, taken: set[str], listed: bool
) -> Backward:
    count = outputs - len(backward.params)
    names = [fresh(f"{rest}_{i}", taken) for i in range(count)]
    made = f"tuple({names[0]})" if listed else f"({', '.join(names)}{',' if count == 1 else ''})"
    together = make(f"{rest} = {made}", backward.line)
    return replace(backward, params=(*backward.params, *names), body=(together, *backward.body))


def _without_defaults(
    body: tuple[Stmt, ...], backward: Backward, outputs: int, taken: set[str]
) -> tuple[tuple[Stmt, ...], Backward]:
    place = next((i for i, s in enumerate(body) if s.tree is backward.tree), None)
    if place is None:
        return body, backward  # in a branch: refused, as it takes more than the gradients
    extra = backward.params[outputs:]
    values = backward.tree.args.defaults[-len(extra) :]
    names = {name: fresh(f"{name}_early", taken) for name in extra}
    bound = [make(f"{names[n]} = {ast.unparse(v)}", backward.line) for n, v in zip(extra, values)]
    return (*body[:place], *bound, *body[place:]), replace(
        backward,
        params=backward.params[:outputs],
        body=tuple(rename(s, names) for s in backward.body),
        early=tuple(names.values()),
    )


def _backward(
    tree: ast.FunctionDef | ast.Lambda, name: str, nodes: dict[ast.AST, cst.CSTNode]
) -> Backward:
    node = nodes[tree]
    every = [*tree.args.posonlyargs, *tree.args.args]
    params = tuple(a.arg for a in every)
    if isinstance(tree, ast.FunctionDef):
        assert isinstance(node, cst.FunctionDef)
        body = pair_up(node, tree)
        if len(body) > 1 and _is_docstring(body[0]):
            body = body[1:]
        header = node.body.header if isinstance(node.body, cst.IndentedBlock) else None
        comments = tuple(line for line in node.leading_lines if line.comment)
        return Backward(name, params, body, tree.lineno, tree, comments, header)
    assert isinstance(node, cst.Lambda)
    line = cst.SimpleStatementLine([cst.Return(standalone(node.body))])
    returned = ast.copy_location(ast.Return(tree.body), tree.body)
    return Backward(name, params, (Stmt(line, returned, tree.lineno),), tree.lineno, tree)
