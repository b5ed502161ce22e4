"""Where ``ctx`` goes into another function, that function's statements come here.

    def forward(ctx, x):                     def forward(ctx, x):
        keep(ctx, x)             -->             ctx.save_for_backward(x)
        return x * 2                             return x * 2

``keep`` is a function of the same file, or a method of the class or of one of its bases. A forward
that stands beside a ``setup_context`` gets that one's statements in front of its returns.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from ..errors import TransformError, diagnostic
from ..ir import lines_of, replace
from ..names import fresh, mentioned, returns_in, walk, writes
from ..source import bindings
from ..syntax import assigned, code, renamed
from .find import FunctionClass, lookup
from .marks import marked
from .methods import Part, one_by_one, tree_of

__all__ = ["inlined", "is_docstring", "with_setup"]

_DEEPEST = 8


def inlined(cls: FunctionClass, part: Part, owner: ast.ClassDef) -> Part:
    """The method with the functions that take its ctx written out."""
    node = part.node
    if not part.ctx:
        return part
    for _ in range(_DEEPEST):
        changed = node.visit(_Inline(cls, owner, part.ctx, set(mentioned(tree_of(node)))))
        assert isinstance(changed, cst.FunctionDef)
        if changed is node or code(changed) == code(node):
            break
        node = _without_itself(one_by_one(changed), part.ctx)
    return replace(part, node=node)


class _Itself(cst.CSTTransformer):
    """Drops ``ctx = ctx``, which is left of a function that returned it."""

    def __init__(self, ctx: str) -> None:
        self.ctx = ctx

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        pair = _copied(updated_node)
        return cst.RemoveFromParent() if pair == (self.ctx, self.ctx) else updated_node


def _without_itself(node: cst.FunctionDef, ctx: str) -> cst.FunctionDef:
    changed = node.visit(_Itself(ctx))
    assert isinstance(changed, cst.FunctionDef)
    return changed


class _Inline(cst.CSTTransformer):
    def __init__(self, cls: FunctionClass, owner: ast.ClassDef, ctx: str, taken: set[str]) -> None:
        self.cls = cls
        self.owner = owner
        self.ctx = ctx
        self.taken = taken

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        small = updated_node.body[0] if updated_node.body else None
        value = getattr(small, "value", None)
        if not isinstance(small, (cst.Expr, cst.Assign, cst.Return)):
            return updated_node
        if not isinstance(value, cst.Call) or not self._takes_ctx(value):
            return self._in_front(updated_node)
        found = self._function(value.func)
        if found is None:
            return updated_node
        body = self._body(found, value, small)
        if body is None:
            return updated_node
        first = body[0]
        above = [*updated_node.leading_lines, *getattr(first, "leading_lines", ())]
        return cst.FlattenSentinel([first.with_changes(leading_lines=above), *body[1:]])

    def _in_front(
        self, line: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """A call inside an expression as a statement of its own, which is looked at next time."""
        finder = _Calls(self)
        line.visit(finder)
        if finder.found is None:
            return line
        name = fresh("result", self.taken)
        self.taken.add(name)
        rest = line.deep_replace(finder.found, cst.Name(name))
        first = _assign(name, finder.found.with_changes(lpar=[], rpar=[]))
        assert isinstance(rest, cst.SimpleStatementLine)
        marks = [m for m in rest.leading_lines if m.comment and m.comment.value[:2] == "#@"]
        first = first.with_changes(leading_lines=rest.leading_lines)
        return cst.FlattenSentinel([first, rest.with_changes(leading_lines=marks)])

    def _takes_ctx(self, call: cst.Call) -> bool:
        return any(isinstance(a.value, cst.Name) and a.value.value == self.ctx for a in call.args)

    def _function(self, target: cst.BaseExpression) -> ast.FunctionDef | None:
        """The function of this file that a call means."""
        if isinstance(target, cst.Name):
            binding = bindings(self.cls.tree).get(target.value)
            return binding.function if binding else None
        if not isinstance(target, cst.Attribute):
            return None
        name, order = target.attr.value, self.cls.order
        if isinstance(target.value, cst.Call) and code(target.value.func) == "super":
            order = order[order.index(self.owner) + 1 :]
        elif isinstance(target.value, cst.Name):
            known = {c.name: i for i, c in enumerate(order)}
            if target.value.value not in known:
                return self._elsewhere(target.value.value, name)
            order = order[known[target.value.value] :]
        else:
            return None
        method = lookup(order, name)
        return method.function if method else None

    def _elsewhere(self, owner: str, name: str) -> ast.FunctionDef | None:
        """A static method of another class of the file."""
        for statement in self.cls.tree.body:
            if isinstance(statement, ast.ClassDef) and statement.name == owner:
                method = lookup((statement,), name)
                return method.function if method else None
        return None

    def _body(
        self, function: ast.FunctionDef, call: cst.Call, small: cst.BaseSmallStatement
    ) -> list[cst.BaseStatement] | None:
        """The function's statements with the arguments in place, ending as the call is used."""
        arguments = function.args
        odd = arguments.vararg or arguments.kwarg or arguments.kwonlyargs
        nested = [n for n in walk(function) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        if odd or len(nested) > 1 or "super" in mentioned(function):
            return None
        given = _matched(function, call, self.cls.name)
        if given is None:
            return None
        returns = returns_in(function.body)
        last = function.body[-1]
        at_end = not returns or (len(returns) == 1 and returns[0] is last)
        if not at_end and not isinstance(small, cst.Return):
            return None
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        text = "\n".join(lines_of(self.cls.text)[first - 1 : function.end_lineno])
        node = marked(text, first)
        names: dict[str, str] = {}
        before: list[cst.BaseStatement] = []
        bound = {n for s in function.body for n in writes(s)}
        for name, value in given.items():
            same = isinstance(value, cst.Name) and (value.value == self.ctx or name not in bound)
            if same and isinstance(value, cst.Name):
                names[name] = value.value
                continue
            names[name] = fresh(name, self.taken)
            self.taken.add(names[name])
            before.append(_assign(names[name], value))
        for name in sorted(bound - set(given)):
            names[name] = fresh(name, self.taken)
            self.taken.add(names[name])
        changed = renamed(node.body, names)
        assert isinstance(changed, cst.IndentedBlock)
        body = [s for s in changed.body if isinstance(s, cst.BaseStatement)]
        body = [s for s in body if not is_docstring(s)]
        if at_end:
            body = _ended(body, bool(returns), small)
        elif isinstance(small, cst.Return):
            body.append(cst.SimpleStatementLine([cst.Return(cst.Name("None"))]))
        return [*before, *body] or [cst.SimpleStatementLine([cst.Pass()])]


class _Calls(cst.CSTVisitor):
    """The first call that takes ctx and that is surely made."""

    def __init__(self, inline: _Inline) -> None:
        self.inline = inline
        self.found: cst.Call | None = None

    def visit_Call(self, node: cst.Call) -> bool:
        if self.found is None and self.inline._takes_ctx(node):
            if self.inline._function(node.func) is not None:
                self.found = node
        return self.found is None

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_IfExp(self, node: cst.IfExp) -> bool:
        return False

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> bool:
        return False

    def visit_GeneratorExp(self, node: cst.GeneratorExp) -> bool:
        return False

    def visit_ListComp(self, node: cst.ListComp) -> bool:
        return False


def _matched(
    function: ast.FunctionDef, call: cst.Call, owner: str
) -> dict[str, cst.BaseExpression] | None:
    """The arguments of a call by the parameters of the function, defaults included."""
    positional = [*function.args.posonlyargs, *function.args.args]
    names = [a.arg for a in positional]
    given: dict[str, cst.BaseExpression] = {}
    if any("classmethod" in ast.unparse(d) for d in function.decorator_list):
        own = names.pop(0)
        given[own] = cst.Name(owner)
    for index, argument in enumerate(call.args):
        if argument.star:
            return None
        name = argument.keyword.value if argument.keyword else ""
        if not name:
            if index >= len(names):
                return None
            name = names[index]
        given[name] = argument.value
    for name, default in zip(reversed(names), reversed(function.args.defaults)):
        given.setdefault(name, cst.parse_expression(ast.unparse(default)))
    return given if set(names) <= set(given) else None


def _ended(
    body: list[cst.BaseStatement], returns: bool, small: cst.BaseSmallStatement
) -> list[cst.BaseStatement]:
    """The last statement, a return, turned into what the caller does with the result."""
    value: cst.BaseExpression = cst.Name("None")
    leading: Sequence[cst.EmptyLine] = ()
    if returns:
        last = body.pop()
        assert isinstance(last, cst.SimpleStatementLine)
        returned = last.body[0]
        assert isinstance(returned, cst.Return)
        value, leading = returned.value or value, last.leading_lines
    if isinstance(small, cst.Expr):
        simple = isinstance(value, (cst.Name, cst.Attribute))
        return body if simple else [*body, _line(cst.Expr(value), leading)]
    assert isinstance(small, (cst.Assign, cst.Return))
    return [*body, _line(small.with_changes(value=value), leading)]


def _line(
    small: cst.BaseSmallStatement, leading: Sequence[cst.EmptyLine] = ()
) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([small], leading_lines=leading)


def _assign(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return _line(cst.Assign([cst.AssignTarget(cst.Name(name))], value))


def is_docstring(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    strings = (cst.SimpleString, cst.ConcatenatedString)
    return isinstance(small, cst.Expr) and isinstance(small.value, strings)


# --- setup_context --------------------------------------------------------------------------


def with_setup(cls: FunctionClass, forward: Part, setup: Part) -> Part:
    """A forward that takes ctx, from one that does not and its setup_context."""
    tree = tree_of(forward.node)
    taken = set(mentioned(tree) | mentioned(tree_of(setup.node)))
    bound = {n for s in tree.body for n in writes(s)}
    ctx = setup.ctx
    if ctx in mentioned(tree):
        ctx = fresh(ctx, taken)
    early: list[cst.BaseStatement] = []
    inputs: list[str] = []
    for name in forward.params:
        alias = name
        if name in bound:  # setup_context sees what was passed in
            alias = fresh(f"{name}_in", taken)
            taken.add(alias)
            early.append(_assign(alias, cst.Name(name)))
        inputs.append(alias)
    if any(isinstance(n, ast.Return) for n in walk(setup.tree) if n is not setup.tree.body[-1]):
        problem = diagnostic(
            "S2S221",
            cls.span(cls.node),
            f"setup_context of {cls.name} returns early",
            hint="write its statements as if and else",
        )
        raise TransformError([problem])
    node = forward.node.visit(_Setup(forward, setup, ctx, tuple(inputs), taken))
    assert isinstance(node, cst.FunctionDef)
    body = node.body
    assert isinstance(body, cst.IndentedBlock)
    node = node.with_changes(body=body.with_changes(body=[*early, *body.body]))
    return replace(forward, node=node, ctx=ctx)


class _Setup(cst.CSTTransformer):
    """Puts the statements of setup_context in front of each return."""

    def __init__(
        self, forward: Part, setup: Part, ctx: str, inputs: tuple[str, ...], taken: set[str]
    ) -> None:
        self.forward = forward
        self.setup = setup
        self.ctx = ctx
        self.inputs = inputs
        self.taken = taken

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node is self.forward.node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        small = updated_node.body[0] if updated_node.body else None
        if not isinstance(small, cst.Return) or small.value is None:
            return updated_node
        before, outputs = self._outputs(small.value)
        lines = [*before, *self._statements(outputs, isinstance(small.value, cst.Tuple))]
        value: cst.BaseExpression = outputs[0]
        if isinstance(small.value, cst.Tuple):
            comma = cst.Comma() if len(outputs) == 1 else cst.MaybeSentinel.DEFAULT
            value = cst.Tuple([cst.Element(o, comma=comma) for o in outputs])
        last = updated_node.with_changes(body=[cst.Return(value)])
        return cst.FlattenSentinel([*lines, last])

    def _outputs(
        self, value: cst.BaseExpression
    ) -> tuple[list[cst.BaseStatement], list[cst.BaseExpression]]:
        """A name for each returned value."""
        several = isinstance(value, cst.Tuple)
        elements = [e.value for e in value.elements] if isinstance(value, cst.Tuple) else [value]
        before: list[cst.BaseStatement] = []
        named: list[cst.BaseExpression] = []
        for index, element in enumerate(elements):
            if not isinstance(element, cst.Name):
                name = fresh(f"output_{index}" if several else "output", self.taken)
                before.append(_assign(name, element))
                element = cst.Name(name)
            named.append(element)
        return before, named

    def _statements(
        self, outputs: list[cst.BaseExpression], several: bool
    ) -> list[cst.BaseStatement]:
        """setup_context's own, with inputs and output for its parameters."""
        tree = self.setup.tree
        mine, theirs = self.setup.params[0], self.setup.params[1]
        body = self.setup.node.body
        assert isinstance(body, cst.IndentedBlock)
        starred = f"*{self.forward.params[-1]}" if self._has_star() else ""
        names = [*self.inputs[:-1], starred] if starred else list(self.inputs)
        given = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
        one = ", ".join(code(o) for o in outputs) + ("," if len(outputs) == 1 else "")
        made = f"({one})" if several else code(outputs[0])
        block = body.visit(_Given({mine: given, theirs: made}))
        assert isinstance(block, cst.IndentedBlock)
        lines = [s for s in block.body if isinstance(s, cst.BaseStatement)]
        lines = [s for s in lines if not is_docstring(s) and code(s).strip() != "return"]
        lines = [part for line in lines for part in _spread(line)]
        return self._apart(lines, tree)

    def _has_star(self) -> bool:
        return isinstance(self.forward.node.params.star_arg, cst.Param)

    def _apart(
        self, lines: list[cst.BaseStatement], tree: ast.FunctionDef
    ) -> list[cst.BaseStatement]:
        """Without ``x = x``, and with locals that forward does not have."""
        bound = {n for s in tree.body for n in writes(s)} - {self.setup.ctx}
        names = {self.setup.ctx: self.ctx} if self.setup.ctx != self.ctx else {}
        known = mentioned(tree_of(self.forward.node))
        dropped: list[cst.BaseStatement] = []
        for line in lines:
            pair = _copied(line)
            if pair is not None and pair[0] in bound and _stores(lines, pair[0]) == 1:
                names[pair[0]] = pair[1]
                dropped.append(line)
        for name in sorted(bound - set(names)):
            if name in known:
                names[name] = fresh(name, self.taken)
        kept = [line for line in lines if not any(line is d for d in dropped)]
        kept = [line for line in kept if not _unused_copy(line)]
        return [_statement(renamed(line, names)) for line in kept]


def _statement(node: cst.CSTNode) -> cst.BaseStatement:
    assert isinstance(node, cst.BaseStatement)
    return node


class _Given(cst.CSTTransformer):
    """Expressions for names."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {name: cst.parse_expression(text) for name, text in values.items()}

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self.values.get(updated_node.value)
        return value.deep_clone() if value is not None else updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


def _spread(line: cst.BaseStatement) -> list[cst.BaseStatement]:
    """``a, b = (x, y)`` as two assignments."""
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(line.body[0], cst.Assign):
        return [line]
    assign = line.body[0]
    target, value = assign.targets[0].target, assign.value
    if len(assign.targets) != 1 or not isinstance(target, (cst.Tuple, cst.List)):
        return [line]
    if not isinstance(value, cst.Tuple) or len(value.elements) != len(target.elements):
        return [line]
    every = (*target.elements, *value.elements)
    if any(isinstance(e, cst.StarredElement) for e in every):
        return [line]
    parts = [_line(assigned(t.value, v.value)) for t, v in zip(target.elements, value.elements)]
    marks = [m for m in line.leading_lines if m.comment and m.comment.value.startswith("#@")]
    parts = [p.with_changes(leading_lines=marks) for p in parts]
    return [parts[0].with_changes(leading_lines=line.leading_lines), *parts[1:]]


def _copied(line: cst.BaseStatement) -> tuple[str, str] | None:
    """``a = b``: the two names."""
    if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Assign):
        assign = line.body[0]
        target = assign.targets[0].target
        if len(assign.targets) == 1 and isinstance(target, cst.Name):
            if isinstance(assign.value, cst.Name):
                return target.value, assign.value.value
    return None


def _unused_copy(line: cst.BaseStatement) -> bool:
    pair = _copied(line)
    return pair is not None and pair[0].strip("_") == ""


def _stores(lines: Sequence[cst.BaseStatement], name: str) -> int:
    count = 0
    for line in lines:
        for node in walk(ast.parse(code(line))):
            count += (
                isinstance(node, ast.Name)
                and node.id == name
                and not isinstance(node.ctx, ast.Load)
            )
    return count
