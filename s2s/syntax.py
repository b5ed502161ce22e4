"""Small tools over libcst trees: text to statement and back, renaming, replacing returns."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState

from .ir import Stmt
from .names import mentioned, same_scope, walk

__all__ = [
    "assigned",
    "block",
    "code",
    "expression",
    "from_node",
    "handed_over",
    "listed",
    "make",
    "one_a_line",
    "rename",
    "renamed",
    "renamed_text",
    "replace_returns",
    "returning",
    "split_return",
    "standalone",
    "under",
    "without_blank_lines",
]

WIDTH = 100
_NOWHERE = contextlib.nullcontext()


class _Printing(CodegenState):
    """libcst's printing without the positions of nodes, which take a third of its time."""

    def record_syntactic_position(self, *_: Any, **__: Any) -> Any:
        return _NOWHERE


@functools.lru_cache(maxsize=1024)
def code(node: cst.CSTNode) -> str:
    """The text of a node, as ``libcst.Module.code_for_node`` writes it."""
    state = _Printing(default_indent="    ", default_newline="\n")
    node._codegen(state)
    return "".join(state.tokens)


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> tuple[cst.BaseStatement, ast.stmt]:
    return cst.parse_statement(text), ast.parse(text).body[0]


def make(text: str, line: int = 0) -> Stmt:
    """A statement that s2s writes, from its text."""
    node, tree = _parsed(text)
    return Stmt(node, tree, line)


def from_node(node: cst.BaseStatement, line: int) -> Stmt:
    """A statement from a rewritten tree."""
    return Stmt(node, ast.parse(code(node)).body[0], line)


@functools.lru_cache(maxsize=512)
def expression(text: str) -> cst.BaseExpression:
    """An expression from its text."""
    return cst.parse_expression(text)


def block(body: Sequence[Stmt]) -> cst.IndentedBlock:
    """An indented block of statements; ``pass`` where there are none."""
    return cst.IndentedBlock([s.node for s in body] or [cst.parse_statement("pass")])


def under(
    test: str, body: Sequence[Stmt], line: int = 0, header: cst.TrailingWhitespace | None = None
) -> Stmt:
    """``if test:`` around statements, which keep their trees.

    >>> print(code(under("c", [make("x = 1"), make("y = x")]).node).strip())
    if c:
        x = 1
        y = x
    """
    head = make(f"if {test}: pass").tree
    assert isinstance(head, ast.If)
    suite = block(body) if header is None else block(body).with_changes(header=header)
    tree = ast.If(head.test, [s.tree for s in body], [])
    return Stmt(cst.If(expression(test), suite), ast.copy_location(tree, head), line)


def listed(before: str, items: Sequence[str], after: str, indent: int = 8) -> str:
    """``before`` + items + ``after`` on one line, or one item a line where that is too long.

    >>> print(listed("f(", ["a", "b"], ")"))
    f(a, b)
    """
    line = f"{before}{', '.join(items)}{after}"
    if len(line) + indent <= WIDTH or not items:
        return line
    rows: list[str] = []
    for item in items:
        if rows and len(rows[-1]) + len(item) + 2 + indent <= WIDTH:
            rows[-1] += f" {item},"
        else:
            rows.append(f"    {item},")
    return "\n".join([before, *rows, after])


def returning(items: Sequence[str], indent: int = 8) -> str:
    """``return a, b``, in parentheses where it takes several lines."""
    line = f"return {', '.join(items)}"
    return line if len(line) + indent <= WIDTH else listed("return (", items, ")", indent)


def standalone(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression in parentheses if it spans lines and has none of its own."""
    if "\n" not in code(node) or node.lpar:
        return node
    if isinstance(node, (cst.Call, cst.Subscript, cst.List, cst.Dict)):
        head = node.func if isinstance(node, cst.Call) else getattr(node, "value", None)
        if head is None or "\n" not in code(head):
            return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def without_blank_lines(node: cst.BaseStatement) -> cst.BaseStatement:
    """The statement with its leading comments and without its leading blank lines."""
    before = getattr(node, "leading_lines", ())
    lines = [line for line in before if line.comment is not None]
    return node if len(lines) == len(before) else node.with_changes(leading_lines=lines)


class _Rename(cst.CSTTransformer):
    """Replaces names, not attributes or keyword arguments of the same spelling."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.dotted = {old: new for old, new in names.items() if "." in new}

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        pass

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return True

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_MatchKeywordElement(
        self, original_node: cst.MatchKeywordElement, updated_node: cst.MatchKeywordElement
    ) -> cst.MatchKeywordElement:
        return updated_node.with_changes(key=original_node.key)

    def leave_Name(
        self, original_node: cst.Name, updated_node: cst.Name
    ) -> cst.Name | cst.Attribute:
        new = self.names.get(original_node.value)
        if new is None:
            return updated_node
        if "." not in new:
            return updated_node.with_changes(value=new)
        made = expression(new)
        assert isinstance(made, cst.Attribute)
        return made.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)


def rename(statement: Stmt, names: Mapping[str, str]) -> Stmt:
    """The statement with names replaced everywhere in it, nested scopes too.

    >>> print(code(rename(make("y = f(x, x=x.x)"), {"x": "ctx.x"}).node).strip())
    y = f(ctx.x, x=ctx.x.x)
    """
    bound = {getattr(n, "name", None) or "" for n in walk(statement.tree)}
    if not (mentioned(statement.tree) | bound) & set(names):
        return statement
    node = statement.node.visit(_Rename(names))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)


def renamed_text(text: str, names: Mapping[str, str]) -> str:
    """The text of a statement with names replaced; the tree is only visited if it has scopes.

    >>> renamed_text("y = f(x, x=x.x)  # x", {"x": "ctx.x"})
    'y = f(ctx.x, x=ctx.x.x)  # x'
    """
    nodes = list(ast.walk(ast.parse(text)))  # of no tree that is asked again
    if any(isinstance(n, _SCOPED) for n in nodes):
        return code(rename(make(text), names).node).rstrip("\n")
    lines = [line.encode() for line in text.split("\n")]
    found = [n for n in nodes if isinstance(n, ast.Name) and n.id in names]
    for node in sorted(found, key=lambda n: (n.lineno, -n.col_offset)):
        line = lines[node.lineno - 1]
        new = names[node.id].encode()
        lines[node.lineno - 1] = line[: node.col_offset] + new + line[node.end_col_offset :]
    return b"\n".join(lines).decode()


_SCOPED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ExceptHandler),
    *(ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Match, ast.JoinedStr),
)

Rewrite = Callable[[cst.Return, int], Sequence[cst.BaseSmallStatement]]


class _Returns(cst.CSTTransformer):
    """Replaces the return statements of one function, in the order they are written."""

    def __init__(self, rewrite: Rewrite, start: int) -> None:
        self.rewrite = rewrite
        self.count = start

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        last = original_node.body[-1]
        if not isinstance(last, cst.Return):
            return updated_node
        before = list(updated_node.body[:-1])
        after = [*before, *self.rewrite(last, self.count)]
        self.count += 1
        return cst.FlattenSentinel(one_a_line(updated_node, after))


def one_a_line(
    line: cst.SimpleStatementLine, parts: Sequence[cst.BaseSmallStatement]
) -> Iterator[cst.SimpleStatementLine]:
    """Small statements in place of a line, each on its own, with its comments around them."""
    for index, small in enumerate(parts):
        first, last = index == 0, index == len(parts) - 1
        if small.semicolon is not cst.MaybeSentinel.DEFAULT:
            small = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        yield cst.SimpleStatementLine(
            [small],
            leading_lines=line.leading_lines if first else (),
            trailing_whitespace=line.trailing_whitespace if last else cst.TrailingWhitespace(),
        )


def replace_returns(body: Sequence[Stmt], rewrite: Rewrite) -> tuple[Stmt, ...]:
    """Each ``return`` of the body becomes the small statements that ``rewrite`` makes of it.

    ``rewrite`` gets the return and its number in the order of the text.
    """
    done: list[Stmt] = []
    count = 0
    for statement in body:
        if not any(isinstance(n, ast.Return) for n in same_scope(statement.tree)):
            done.append(statement)
            continue
        visitor = _Returns(rewrite, count)
        if isinstance(statement.node, cst.SimpleStatementLine):  # by far the most: nothing to visit
            made = visitor.leave_SimpleStatementLine(statement.node, statement.node)
            assert isinstance(made, cst.FlattenSentinel)
            done += [from_node(node, statement.line) for node in made.nodes]
            count = visitor.count
            continue
        replaced = _suite_to_block(statement.node).visit(visitor)
        count = visitor.count
        nodes = replaced.nodes if isinstance(replaced, cst.FlattenSentinel) else [replaced]
        for node in nodes:
            assert isinstance(node, cst.BaseStatement)
            done.append(from_node(node, statement.line))
    return tuple(done)


def split_return(node: cst.Return) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]]:
    """The outputs and the saved values of a lifted forward's ``return outputs, (saved...)``.

    A single output comes as a list of one; ``return (a, b), (...)`` as a list of two.
    """
    assert isinstance(node.value, cst.Tuple)
    first, last = node.value.elements
    assert isinstance(last.value, cst.Tuple)
    outputs = [first.value]
    if isinstance(first.value, cst.Tuple):
        outputs = [element.value for element in first.value.elements]
    return outputs, [element.value for element in last.value.elements]


def handed_over(
    body: Sequence[Stmt],
    before: Sequence[str],
    after: Sequence[str],
    values: Mapping[str, str] | None = None,
) -> tuple[Stmt, ...]:
    """Lifted forward statements that hand over ``after`` instead of ``before``.

    ``values`` are the expressions of new names that are no variables.
    """
    made = {name: expression(text) for name, text in (values or {}).items()}

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        assert isinstance(node.value, cst.Tuple)
        first, last = node.value.elements
        assert isinstance(last.value, cst.Tuple)
        known = dict(zip(before, (element.value for element in last.value.elements)))
        known |= made
        items = [cst.Element(known.get(name, cst.Name(name))) for name in after]
        elements = [first, cst.Element(cst.Tuple(items))]
        return [node.with_changes(value=node.value.with_changes(elements=elements))]

    return replace_returns(body, rewrite)


class _Suites(cst.CSTTransformer):
    """``if c: return x`` on one line becomes a block, so that it can hold more statements."""

    def leave_SimpleStatementSuite(
        self,
        original_node: cst.SimpleStatementSuite,
        updated_node: cst.SimpleStatementSuite,
    ) -> cst.BaseSuite:
        if not isinstance(original_node.body[-1], cst.Return):
            return updated_node
        line = cst.SimpleStatementLine(
            updated_node.body, trailing_whitespace=updated_node.trailing_whitespace
        )
        return cst.IndentedBlock([line])


def _suite_to_block(node: cst.BaseStatement) -> cst.BaseStatement:
    changed = node.visit(_Suites())
    assert isinstance(changed, cst.BaseStatement)
    return changed


def assigned(target: cst.BaseExpression, value: cst.BaseExpression) -> cst.Assign:
    """``target = value``."""
    return cst.Assign([cst.AssignTarget(target)], value)  # type: ignore[arg-type]


def renamed(node: cst.CSTNode, names: Mapping[str, str]) -> cst.CSTNode:
    """The tree with names replaced everywhere in it, nested scopes too."""
    if not names:
        return node
    changed = node.visit(_Rename(names))
    assert isinstance(changed, cst.CSTNode)
    return changed
