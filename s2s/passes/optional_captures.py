"""For TorchScript, a capture that one way through forward leaves unbound is an Optional.

    s = None                               s: Optional[Tensor] = None
    if flag:                         -->   if flag:
        s = torch.exp(x)                       s = torch.exp(x)

and the branch of backward that reads it says so: ``assert s is not None``.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..infer import written_type
from ..ir import Pair, Stmt, replace
from ..names import reads
from ..syntax import from_node, make

__all__ = ["optional_captures"]


def optional_captures(pair: Pair) -> Pair:
    """Annotate the initial ``None`` of such captures, and assert where they are read.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x, flag: bool):
    ...     if flag:
    ...         s = torch.exp(x)
    ...         def backward(g):
    ...             return g * s, None
    ...     else:
    ...         def backward(g):
    ...             return g, None
    ...     return x * 2, backward
    ... ''', optional_captures))
    def f_forward(x, flag):
        s: Optional[Tensor] = None
        if flag:
            s = torch.exp(x)
            branch = 0
        else:
            branch = 1
        return x * 2, (branch, s)
    <BLANKLINE>
    def f_backward(g, branch, s):
        if branch == 0:
            assert s is not None
            return g * s, None
        else:
            return g, None
    """
    types = {s.name: written_type(s.type) for s in pair.saved}
    forward: list[Stmt] = []
    optional: set[str] = set()
    for statement in pair.forward:
        name = _initial_none(statement)
        if name and types.get(name):
            optional.add(name)
            type_ = types[name]
            wrapped = type_ if type_.startswith("Optional[") else f"Optional[{type_}]"
            forward.append(make(f"{name}: {wrapped} = None"))
        else:
            forward.append(statement)
    if not optional:
        return pair
    saved = tuple(
        replace(s, type=f"Optional[{s.type}]")
        if s.name in optional and not s.type.startswith("Optional[")
        else s
        for s in pair.saved
    )
    backward = tuple(_asserted(s, optional) for s in pair.backward)
    return replace(pair, forward=tuple(forward), backward=backward, saved=saved)


def _initial_none(statement: Stmt) -> str | None:
    """The name in an ``x = None`` that lifting has put in front."""
    tree = statement.tree
    if statement.line or not isinstance(tree, ast.Assign):
        return None
    none = isinstance(tree.value, ast.Constant) and tree.value.value is None
    target = tree.targets[0]
    return target.id if none and isinstance(target, ast.Name) else None


def _asserted(statement: Stmt, optional: set[str]) -> Stmt:
    """In each arm of the choice between backwards, ``assert`` what the arm reads."""
    node = statement.node
    if not isinstance(node, cst.If):
        return statement
    return from_node(_arms(node, optional), statement.line)


def _arms(node: cst.If, optional: set[str]) -> cst.If:
    otherwise = node.orelse
    if isinstance(otherwise, cst.If):
        otherwise = _arms(otherwise, optional)
    elif otherwise is not None:
        otherwise = otherwise.with_changes(body=_with_asserts(otherwise.body, optional))
    return node.with_changes(body=_with_asserts(node.body, optional), orelse=otherwise)


def _with_asserts(suite: cst.BaseSuite, optional: set[str]) -> cst.BaseSuite:
    if not isinstance(suite, cst.IndentedBlock):
        return suite
    text = cst.Module([]).code_for_node(cst.If(cst.Name("x"), suite))
    read = set(reads(ast.parse(text)))
    asserts = [make(f"assert {n} is not None").node for n in sorted(optional & read)]
    return suite.with_changes(body=[*asserts, *suite.body])
