"""A helper nested in forward becomes a function of its own, and takes what it captured.

    def soft_clip_forward(x, low):         def soft_clip_squash(t, low):
        def squash(t):                         return torch.sigmoid(t - low)
            return torch.sigmoid(t - low)
        return squash(x), (x, low)   -->   def soft_clip_forward(x, low):
                                               return soft_clip_squash(x, low), (x, low)

TorchScript knows no nested functions. A call hands over what the captured names hold at that
moment, which is what a closure reads. Helpers that are passed around, called with stars, that
call themselves or change what they captured stay where they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from ..infer import infer, types_after, written_type
from ..ir import Pair, Stmt, replace
from ..names import fresh, reads, walk, writes
from ..source import bindings
from ..syntax import code, from_node, make, without_blank_lines

__all__ = ["lift_helpers", "typed_parameter"]

Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class _Helper:
    """One nested function: its name outside, and the captured names that it takes last."""

    statement: Stmt
    tree: Function
    name: str
    captured: tuple[str, ...]


def lift_helpers(pair: Pair) -> Pair:
    """Put nested helpers in front of forward, as ``<name>_<helper>``."""
    forward, lifted = _lifted(pair, pair.forward, ())
    backward, lifted = _lifted(pair, pair.backward, lifted)
    if not lifted:
        return pair
    types = _types(pair)
    bodies = [*forward, *backward, *(h.statement for h in lifted)]
    helpers = tuple(_finished(h, types, bodies, pair) for h in lifted)
    taken = pair.taken | {h.name for h in lifted}
    return replace(pair, forward=forward, backward=backward, helpers=helpers, taken=taken)


def _types(pair: Pair) -> dict[str, str]:
    start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
    found = bindings(pair.source.tree)
    known = types_after([s.tree for s in pair.forward], start, found)
    known |= {s.name: s.type for s in pair.saved if not known.get(s.name)}
    known |= dict.fromkeys(pair.grads, "Tensor")
    return types_after([s.tree for s in pair.backward], known, found)


# --- which ones -------------------------------------------------------------------------------


def _lifted(
    pair: Pair, body: tuple[Stmt, ...], before: tuple[_Helper, ...]
) -> tuple[tuple[Stmt, ...], tuple[_Helper, ...]]:
    """The body without its helpers, and all helpers so far."""
    found: dict[str, _Helper] = {}
    outside = {c.name for c in pair.constants}
    local = {n for s in body for n in writes(s.tree)} | outside
    local |= set(pair.arguments) if body is pair.forward else {s.name for s in pair.saved}
    unseen = {_name(s) for s in body} | _shadows(body)
    for statement in body:
        tree = _function(statement)
        if tree is None:
            continue
        name = _name(statement)
        inner = _own_names(tree)
        captured: dict[str, None] = {}
        for read in reads(statement.tree):
            more = found[read].captured if read in found else (read,) if read in local else ()
            captured.update(dict.fromkeys(more))
        usable = not inner & {*captured, *found} and not unseen & set(captured)
        if usable and _is_simple(tree) and _only_called(name, body):
            full = fresh(f"{pair.name}_{name}", pair.taken | {h.name for h in before})
            found[name] = _Helper(statement, tree, full, tuple(captured))
    if not found:
        return body, before
    same = {(h.captured, ast.dump(h.tree)): h.name for h in before}
    found = {
        name: replace(h, name=same.get((h.captured, ast.dump(h.tree)), h.name))
        for name, h in found.items()
    }
    known = {h.name for h in before}
    rest = tuple(_calling(s, found) for s in body if _name(s) not in found)
    made = [replace(h, statement=_calling(h.statement, found)) for h in found.values()]
    return rest, (*before, *(h for h in made if h.name not in known))


def _shadows(body: Sequence[Stmt]) -> set[str]:
    """What comprehensions bind: inside them it hides the names that a helper captured."""
    nodes = [n for s in body for n in walk(s.tree) if isinstance(n, ast.comprehension)]
    return {n.id for g in nodes for n in walk(g.target) if isinstance(n, ast.Name)}


def _function(statement: Stmt) -> Function | None:
    tree = statement.tree
    if isinstance(tree, ast.FunctionDef):
        return tree
    if isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Lambda):
        return tree.value if isinstance(tree.targets[0], ast.Name) else None
    return None


def _name(statement: Stmt) -> str:
    names = writes(statement.tree)
    return names[0] if len(names) == 1 and _function(statement) is not None else ""


def _own_names(tree: Function) -> set[str]:
    body: Sequence[ast.AST] = tree.body if isinstance(tree, ast.FunctionDef) else [tree.body]
    names = {n.arg for n in walk(tree.args) if isinstance(n, ast.arg)}
    bound = {
        n.id
        for g in walk(tree)
        if isinstance(g, ast.comprehension)
        for n in walk(g.target)
        if isinstance(n, ast.Name)
    }
    return names | bound | {n for part in body for n in writes(part)}


def _is_simple(tree: Function) -> bool:
    """Plain parameters, literal defaults, no decorators, no functions inside."""
    args = tree.args
    defaults = [*args.defaults, *(d for d in args.kw_defaults if d is not None)]
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
        return False
    if not all(isinstance(d, ast.Constant) for d in defaults):
        return False
    if isinstance(tree, ast.FunctionDef) and tree.decorator_list:
        return False
    inner = [n for n in walk(tree) if n is not tree]
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    odd = (ast.Nonlocal, ast.Global, ast.Yield, ast.YieldFrom, ast.Await, *nested)
    return not any(isinstance(n, odd) for n in inner)


def _only_called(name: str, body: Sequence[Stmt]) -> bool:
    """Bound once, and only ever called, without stars, where its captured names are seen."""
    if sum(name in writes(s.tree) for s in body) != 1:
        return False
    uses = [n for s in body for n in walk(s.tree) if isinstance(n, ast.Name) and n.id == name]
    calls = [n for s in body for n in walk(s.tree) if _calls(n, name)]
    deep = [n for s in body if _function(s) is None for n in walk(s.tree)]
    functions = [n for n in deep if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    if any(isinstance(n, ast.Name) and n.id == name for f in functions for n in walk(f)):
        return False
    stored = sum(isinstance(n.ctx, ast.Store) for n in uses)
    return len(calls) == len(uses) - stored and name not in _shadows(body)


def _calls(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    plain = not any(isinstance(a, ast.Starred) for a in node.args)
    plain = plain and all(k.arg is not None for k in node.keywords)
    return (
        node.func.id == name and plain and not any(isinstance(n, ast.NamedExpr) for n in walk(node))
    )


# --- the text ---------------------------------------------------------------------------------


class _Calls(cst.CSTTransformer):
    """``squash(x)`` as ``soft_clip_squash(x, low)``."""

    def __init__(self, helpers: Mapping[str, _Helper]) -> None:
        self.helpers = helpers

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = original_node.func
        helper = self.helpers.get(func.value) if isinstance(func, cst.Name) else None
        if helper is None:
            return updated_node
        args = list(updated_node.args)
        parameters = helper.tree.args.args
        by_place = len(args) == len(parameters) and not any(arg.keyword for arg in args)
        if helper.tree.args.defaults:  # then they come first
            args = [*(cst.Arg(cst.Name(name)) for name in helper.captured), *args]
            return updated_node.with_changes(func=cst.Name(helper.name), args=args)
        if args and helper.captured and isinstance(args[-1].comma, cst.Comma):
            args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        for name in helper.captured:
            args.append(cst.Arg(cst.Name(name)) if by_place else _keyword(name))
        return updated_node.with_changes(func=cst.Name(helper.name), args=args)


def _keyword(name: str) -> cst.Arg:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(cst.Name(name), keyword=cst.Name(name), equal=tight)


def _calling(statement: Stmt, helpers: Mapping[str, _Helper]) -> Stmt:
    """The statement with calls of the lifted helpers in place of those of the nested ones."""
    if not any(n in helpers for n in reads(statement.tree)):
        called = {n.id for n in walk(statement.tree) if isinstance(n, ast.Name)}
        if not called & set(helpers):
            return statement
    node = statement.node.visit(_Calls(helpers))
    assert isinstance(node, cst.BaseStatement)
    return from_node(node, statement.line)


def _finished(
    helper: _Helper, types: Mapping[str, str], bodies: Sequence[Stmt], pair: Pair
) -> Stmt:
    """The function under its new name, with its types and the captured names as parameters."""
    node = without_blank_lines(helper.statement.node)
    if isinstance(node, cst.SimpleStatementLine):
        node = _as_def(node, helper.name)
    assert isinstance(node, cst.FunctionDef)
    given = _given(helper, types, bodies, pair)
    params = [typed_parameter(p, given.get(p.name.value, "")) for p in node.params.params]
    extra = [typed_parameter(cst.Param(cst.Name(n)), types.get(n, "")) for n in helper.captured]
    if any(p.default is not None for p in params):
        params = [*extra, *params]
    else:
        params = [*params, *extra]
    params = [p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in params]
    node = node.with_changes(name=cst.Name(helper.name), params=cst.Parameters(params))
    return from_node(node, helper.statement.line)


def _as_def(line: cst.SimpleStatementLine, name: str) -> cst.FunctionDef:
    """``h = lambda t: t * 2`` as ``def h(t): return t * 2``."""
    value = cst.ensure_type(cst.ensure_type(line.body[0], cst.Assign).value, cst.Lambda)
    made = cst.ensure_type(make(f"def {name}():\n    return None").node, cst.FunctionDef)
    body = value.body
    if "\n" in code(body) and not body.lpar:
        body = body.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    result = cst.SimpleStatementLine([cst.Return(body)])
    return made.with_changes(
        params=value.params,
        body=cst.IndentedBlock([result]),
        leading_lines=line.leading_lines,
    )


def _given(
    helper: _Helper, types: Mapping[str, str], bodies: Sequence[Stmt], pair: Pair
) -> dict[str, str]:
    """The types of the parameters that say none, where all calls that tell hand over the same."""
    found: dict[str, set[str]] = {}
    names = [a.arg for a in helper.tree.args.args]
    known = bindings(pair.source.tree)
    for call in (n for s in bodies for n in walk(s.tree) if _calls(n, helper.name)):
        assert isinstance(call, ast.Call)
        first = len(helper.captured) if helper.tree.args.defaults else 0
        for name, value in _pairs(call.args[first:], call.keywords, names):
            found.setdefault(name, set()).add(infer(value, types, known))
    defaults = helper.tree.args.defaults
    for name, default in zip(names[len(names) - len(defaults) :], defaults):
        found.setdefault(name, set()).add(infer(default, {}, known))
    sure = {name: kinds - {""} for name, kinds in found.items()}
    return {name: kinds.pop() for name, kinds in sure.items() if len(kinds) == 1}


def _pairs(
    args: Sequence[ast.expr], keywords: Sequence[ast.keyword], names: Sequence[str]
) -> Iterator[tuple[str, ast.expr]]:
    yield from zip(names, args)
    yield from ((k.arg, k.value) for k in keywords if k.arg in names and k.arg)


def typed_parameter(param: cst.Param, type_: str) -> cst.Param:
    """With a type, unless it has one, or is the Tensor that TorchScript takes it for anyway."""
    written = written_type(type_)
    if param.annotation is not None or written in ("", "Tensor"):
        return param
    return param.with_changes(
        annotation=cst.Annotation(cst.parse_expression(written)),
        equal=cst.AssignEqual() if param.default is not None else cst.MaybeSentinel.DEFAULT,
    )
