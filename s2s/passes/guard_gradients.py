"""What only one gradient needs is computed only when that gradient is asked for.

    def f_backward(grad_out, x, w):        def f_backward(grad_out, x, w):
        t = grad_out * w                       grad_x = grad_w = None
        return t.exp(), grad_out * x  -->      if needs_input_grad[0]:
                                                   t = grad_out * w
                                                   grad_x = t.exp()
                                               if needs_input_grad[1]:
                                                   grad_w = grad_out * x
                                               return grad_x, grad_w

``needs_input_grad`` is PyTorch's: one bool per argument of forward. It is False for ``None`` too,
and a gradient for ``None`` is an error, which none may leave out: an input that may be None gets
a guard only where its gradient is None as well. A number in place of a tensor gets no gradient. A
backward with branches, in-place changes, names bound twice or a list of gradients is left as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from ..asked import NEEDS
from ..effects import closed_over
from ..ir import Pair, Stmt, replace
from ..names import changed, fresh, is_none, of_kind, reads, writes
from ..syntax import assigned, code, make, returning, standalone, under, without_blank_lines

__all__ = ["guard_gradients"]

_NEVER_NONE = ("Tensor", "IntTensor", "int", "float", "bool", "complex")


@dataclass
class _Gradient:
    """One element of the returned tuple while its statements are collected."""

    value: cst.BaseExpression
    tree: ast.expr
    comments: list[str] = field(default_factory=list)
    own: list[Stmt] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    always: bool = False  # computed whether it is asked for or not


def guard_gradients(pair: Pair) -> Pair:
    """Put ``if needs_input_grad[i]:`` around the work of each gradient.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x, w):
    ...     def backward(g):
    ...         t = g * w
    ...         return t.exp(), g * x
    ...     return x * w, backward
    ... ''', guard_gradients))
    def f_forward(x, w):
        return x * w, (x, w)
    <BLANKLINE>
    def f_backward(g, x, w, needs_input_grad):
        grad_x = grad_w = None
        if needs_input_grad[0]:
            t = g * w
            grad_x = t.exp()
        if needs_input_grad[1]:
            grad_w = g * x
        return grad_x, grad_w
    """
    if not pair.backward or not isinstance(pair.backward[-1].tree, ast.Return):
        return pair
    if pair.asks or NEEDS in pair.taken:  # the user's own
        return pair
    *body, last = pair.backward
    gradients = _gradients(last)
    slots = [pair.arguments.index(p.name) for p in pair.params if not p.bound]
    if pair.listed or gradients is None or len(gradients) != len(slots):
        return pair
    if sum(not is_none(g.tree) for g in gradients) < 2 or not _movable(pair, body):
        return pair
    types = {p.name: p.type for p in pair.params}
    for gradient, slot in zip(gradients, slots):
        name = pair.arguments[slot]
        sure = types[name] in _NEVER_NONE or _is_none_without(pair, name, gradient.tree)
        gradient.always = not sure
    shared = _distribute(body, gradients)
    names = _names(pair, gradients, slots)
    guards: list[Stmt] = []
    results: list[str] = []
    guarded: list[str] = []
    for gradient, slot, name in zip(gradients, slots, names):
        if gradient.always or (not gradient.own and not _is_work(gradient.tree)):
            results.append(code(gradient.value).strip())
            continue
        results.append(name)
        guarded.append(name)
        guards.append(_guard(gradient, slot, name))
    if not guards:
        return pair
    unset = make(" = ".join(dict.fromkeys(guarded)) + " = None")
    comments = [line for line in getattr(last.node, "leading_lines", ()) if line.comment]
    unset = replace(unset, node=unset.node.with_changes(leading_lines=comments))
    returned = make(returning(results))
    returned = replace(returned, line=last.line)
    return replace(pair, backward=(*shared, unset, *guards, returned))


def _gradients(last: Stmt) -> list[_Gradient] | None:
    """The elements of the final literal tuple, with the comments written beside them."""
    assert isinstance(last.tree, ast.Return)
    node = last.node
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(last.tree.value, ast.Tuple):
        return None
    returned = node.body[0]
    assert isinstance(returned, cst.Return) and isinstance(returned.value, cst.Tuple)
    if any(not isinstance(e, cst.Element) for e in returned.value.elements):
        return None
    gradients: list[_Gradient] = []
    pending = _comments(returned.value.lpar[0].whitespace_after) if returned.value.lpar else []
    for element, tree in zip(returned.value.elements, last.tree.value.elts):
        gradient = _Gradient(standalone(element.value), tree, pending, needs=set(reads(tree)))
        pending = []
        if isinstance(element.comma, cst.Comma):
            after = element.comma.whitespace_after
            if isinstance(after, cst.ParenthesizedWhitespace):
                if after.first_line.comment is not None:
                    gradient.comments.append(after.first_line.comment.value)
                pending = [e.comment.value for e in after.empty_lines if e.comment]
        gradients.append(gradient)
    return gradients


def _comments(space: cst.BaseParenthesizableWhitespace) -> list[str]:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return []
    comments = [space.first_line.comment, *(line.comment for line in space.empty_lines)]
    return [comment.value for comment in comments if comment is not None]


def _is_work(tree: ast.expr) -> bool:
    return not isinstance(tree, (ast.Name, ast.Constant))


def _is_none_without(pair: Pair, name: str, gradient: ast.expr) -> bool:
    """Is a gradient surely None for an input that is None?

    ``g.sum(0) if b is not None else None``, where the whole, or what is asked, may have a name.
    """
    gradient = _meant(pair, gradient)
    rebound = any(name in writes(s.tree) for s in pair.forward)
    if not isinstance(gradient, ast.IfExp) or rebound:
        return is_none(gradient)
    absent = _says_none(pair, name, gradient.test)
    return absent is not None and is_none(gradient.body if absent else gradient.orelse)


def _says_none(pair: Pair, name: str, test: ast.expr) -> bool | None:
    """What a test comes to for an input that is None, where that is sure."""
    test = _meant(pair, test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _says_none(pair, name, test.operand)
        return None if inner is None else not inner
    return {f"{name} is None": True, f"{name} is not None": False}.get(ast.unparse(test))


def _meant(pair: Pair, value: ast.expr) -> ast.expr:
    """What the one statement that binds a name says, or what is saved by that name."""
    if not isinstance(value, ast.Name):
        return value
    kept = [s.value for s in pair.saved if s.name == value.id and s.value]
    made = [s.tree for s in (*pair.forward, *pair.backward) if value.id in writes(s.tree)]
    if kept and not made:
        return ast.parse(kept[0], mode="eval").body
    if len(made) == 1 and isinstance(made[0], ast.Assign):
        return made[0].value
    return value


def _movable(pair: Pair, body: Sequence[Stmt]) -> bool:
    """May assignments be put off? Not where a name is bound twice or a value changes."""
    bound = {*pair.grads, *(s.name for s in pair.saved)}
    for statement in body:
        if _is_recompute(statement):
            continue
        if changed(statement.tree):
            return False
        for name in writes(statement.tree):
            if name in bound:
                return False
            bound.add(name)
    return not any(of_kind(s.tree, ast.NamedExpr) for s in pair.backward)


def _is_recompute(statement: Stmt) -> bool:
    return statement.line == 0 and isinstance(statement.tree, ast.If)


def _distribute(body: Sequence[Stmt], gradients: list[_Gradient]) -> list[Stmt]:
    """Hand each statement that one gradient alone needs to it; the others, in order."""
    shared: list[Stmt] = []
    always = closed_over(s.tree for s in body).union(*(g.needs for g in gradients if g.always))
    for statement in reversed(body):
        bound = set(writes(statement.tree))
        users = [g for g in gradients if g.needs & bound]
        simple = isinstance(statement.tree, ast.Assign) and not bound & always
        if simple and len(users) == 1:
            gradient = users[0]
            gradient.own.insert(0, statement)
            gradient.needs |= set(reads(statement.tree))
            continue
        shared.insert(0, statement)
        always |= set(reads(statement.tree))
    return shared


def _names(pair: Pair, gradients: list[_Gradient], slots: list[int]) -> list[str]:
    """A name for each gradient: the user's where the tuple holds one, else ``grad_<input>``."""
    taken = set(pair.taken)
    names: list[str] = []
    for gradient, slot in zip(gradients, slots):
        tree = gradient.tree
        bound = {n for s in gradient.own for n in writes(s.tree)}
        if isinstance(tree, ast.Name) and (tree.id in bound or not gradient.own):
            names.append(tree.id)
            continue
        name = fresh(f"grad_{pair.arguments[slot]}", taken)
        taken.add(name)
        names.append(name)
    return names


def _guard(gradient: _Gradient, slot: int, name: str) -> Stmt:
    body = [replace(s, node=without_blank_lines(s.node)) for s in gradient.own]
    is_bound = isinstance(gradient.tree, ast.Name) and gradient.tree.id == name
    if not is_bound:
        body.append(_bound_to(name, gradient))
    lines = [cst.EmptyLine(comment=cst.Comment(text)) for text in gradient.comments]
    if lines:
        first = body[0].node
        lines += getattr(first, "leading_lines", ())
        body[0] = replace(body[0], node=first.with_changes(leading_lines=lines))
    line = gradient.own[0].line if gradient.own else 0
    return under(f"{NEEDS}[{slot}]", body, line)


def _bound_to(name: str, gradient: _Gradient) -> Stmt:
    node = cst.SimpleStatementLine([assigned(cst.Name(name), gradient.value)])
    tree = ast.Assign([ast.Name(name, ast.Store())], gradient.tree)
    for new in (tree, *tree.targets):
        ast.copy_location(new, gradient.tree)
    return Stmt(node, tree)
