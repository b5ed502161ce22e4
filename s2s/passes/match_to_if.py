"""``match`` on constants becomes ``if``: TorchScript has no ``match``.

    match kind:                            if kind == "sin":
        case "sin":                            y = torch.sin(x)
            y = torch.sin(x)         -->   else:
        case other:                            other = kind
            raise ValueError(other)            raise ValueError(other)

A subject that is no name is bound to one first. Patterns that take a value apart stay.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..ir import Pair
from ..names import fresh
from ..syntax import standalone
from .rewriting import line, rewritten

__all__ = ["match_to_if"]


def match_to_if(pair: Pair) -> Pair:
    """Each ``match`` whose cases are constants, names and ``_`` as ``if``/``elif``/``else``."""
    taken = set(pair.taken)
    return rewritten(pair, lambda node: isinstance(node, ast.Match), _Matches(taken), taken)


class _Matches(cst.CSTTransformer):
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def leave_Match(
        self, original_node: cst.Match, updated_node: cst.Match
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        subject = updated_node.subject
        name = subject if isinstance(subject, cst.Name) else cst.Name(fresh("subject", self.taken))
        chain = _chain(updated_node.cases, name)
        if not isinstance(chain, cst.If):  # a pattern of another kind, or nothing to choose
            return updated_node
        comments = updated_node.leading_lines
        if name is subject:
            return chain.with_changes(leading_lines=(*comments, *chain.leading_lines))
        self.taken.add(name.value)
        bound = line(_assign(name, standalone(subject))).with_changes(leading_lines=comments)
        return cst.FlattenSentinel([bound, chain])


def _chain(cases: object, subject: cst.Name) -> cst.If | cst.Else | None:
    """The cases as one statement, or None where one of them is no test."""
    chain: cst.If | cst.Else | None = None
    assert isinstance(cases, (list, tuple))
    for index, case in reversed(list(enumerate(cases))):
        found = _test(case.pattern, subject)
        if found is None or (found[1] and case.guard):
            return None
        test, bound = found
        if case.guard:
            guard = _atom(case.guard)
            test = guard if test is None else cst.BooleanOperation(_atom(test), cst.And(), guard)
        body = _with_first(case.body, _assign(bound, subject)) if bound else case.body
        if test is None:
            if index != len(cases) - 1:
                return None
            chain = cst.Else(body, leading_lines=case.leading_lines)
        else:
            chain = cst.If(test, body, orelse=chain, leading_lines=case.leading_lines)
    return chain


def _test(
    pattern: cst.MatchPattern, subject: cst.Name
) -> tuple[cst.BaseExpression | None, cst.Name | None] | None:
    """The condition of a pattern (None: always) and the name it binds."""
    plain = cst.Name(subject.value)
    if isinstance(pattern, cst.MatchValue):
        equal = cst.ComparisonTarget(cst.Equal(), pattern.value)
        return cst.Comparison(plain, [equal]), None
    if isinstance(pattern, cst.MatchSingleton):
        return cst.Comparison(plain, [cst.ComparisonTarget(cst.Is(), pattern.value)]), None
    if isinstance(pattern, cst.MatchOr):
        tests = [_test(part.pattern, subject) for part in pattern.patterns]
        joined: cst.BaseExpression | None = None
        for found in tests:
            if found is None or found[0] is None or found[1] is not None:
                return None
            joined = cst.BooleanOperation(joined, cst.Or(), found[0]) if joined else found[0]
        return joined, None
    if isinstance(pattern, cst.MatchAs):
        name = cst.Name(pattern.name.value) if pattern.name else None
        if pattern.pattern is None:
            return None, name
        found = _test(pattern.pattern, subject)
        return (found[0], name) if found and found[1] is None else None
    return None


def _atom(node: cst.BaseExpression) -> cst.BaseExpression:
    """In parentheses where ``and`` would take it apart."""
    loose = isinstance(node, (cst.BooleanOperation, cst.IfExp, cst.NamedExpr, cst.Lambda))
    if not loose or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _assign(name: cst.Name, value: cst.BaseExpression) -> cst.Assign:
    return cst.Assign([cst.AssignTarget(cst.Name(name.value))], value)


def _with_first(suite: cst.BaseSuite, small: cst.BaseSmallStatement) -> cst.BaseSuite:
    return suite.with_changes(body=[line(small), *suite.body])
