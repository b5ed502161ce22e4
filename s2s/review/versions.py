"""One version of a function as a reviewer compares it with another: facts, formulas, texts."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .. import pipeline
from ..captures import captures
from ..effects import doing, slice_for
from ..errors import TransformError
from ..ir import Backward, Diagnostic, Pair, Rule, Source
from ..names import reads, returns_in, walk, writes
from ..source import bindings
from .canonical import neutral
from .facts import Facts, facts

__all__ = ["Version", "version"]


@dataclass(frozen=True, slots=True)
class Version:
    """``facts`` is None for a function that does not compile; ``problems`` say why.

    ``backwards`` holds, for each input, the text of what backward computes for it from the
    captures, ``formulas`` of what forward and backward compute for it from the inputs, and
    ``forwards`` of what forward computes for a capture, or under "" for the outputs; all with
    neutral names of variables. ``texts`` are the generated ones, by form.
    """

    source: Source
    facts: Facts | None
    problems: tuple[Diagnostic, ...] = ()
    backwards: tuple[tuple[str, str], ...] = ()
    formulas: tuple[tuple[str, str], ...] = ()
    forwards: tuple[tuple[str, str], ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    @property
    def line(self) -> int:
        return self.source.line(self.source.function)

    @property
    def name(self) -> str:
        return self.source.qualname.replace("<locals>.", "")


def version(source: Source) -> Version:
    """Read one function; what is wrong with it becomes its problems."""
    try:
        rule = pipeline.read(source)
        pair = pipeline.lift(rule)
        texts = tuple((form, pipeline.emit(pair, form).text) for form in pipeline.FORMS)
    except TransformError as error:
        return Version(source, None, error.diagnostics)
    found = facts(rule, pair)
    read = _Read(rule, pair)
    both = read.backwards(), read.formulas()
    return Version(source, found, (), *both, read.forwards(), texts)


class _Read:
    """What is computed for each input, capture and output, as text with neutral names."""

    def __init__(self, rule: Rule, pair: Pair) -> None:
        self.rule = rule
        self.pair = pair
        lifted = {b.tree for b in rule.backwards}
        self.body = [s.tree for s in rule.body if s.tree not in lifted]
        self.local = {n for s in self.body for n in writes(s)} | {b.name for b in rule.backwards}
        self.inputs = {p.name: f"in{i}" for i, p in enumerate(rule.params)}
        self.captured = [c.name for c in captures(rule)]

    def backwards(self) -> tuple[tuple[str, str], ...]:
        """What backward computes for each input from the captures, by their names."""
        return self._each({name: name for name in self.captured} | self.inputs, self._alone)

    def formulas(self) -> tuple[tuple[str, str], ...]:
        """What forward and backward together compute for each input from the inputs."""
        return self._each(self.inputs, self._joined)

    def _each(
        self, names: Mapping[str, str], statements: Callable[[Backward, int], list[ast.stmt]]
    ) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for index, name in enumerate(p.name for p in self.rule.params if not p.bound):
            texts = []
            for backward in self.rule.backwards:
                grads = {self._own(backward, g): f"g{i}" for i, g in enumerate(backward.params)}
                body = statements(backward, index)
                local = {n for s in body for n in writes(s)}
                texts.append(neutral(body, {**names, **grads}, local, self._is_pure))
            found.append((name, "\n---\n".join(texts)))
        return tuple(found)

    def _alone(self, backward: Backward, index: int) -> list[ast.stmt]:
        inputs = [p for p in self.rule.params if not p.bound]
        own = _for_one([s.tree for s in backward.body], index, len(inputs), self.rule)
        bound = {*backward.params, *(n for s in backward.body for n in writes(s.tree))}
        apart = _Apart({name: self._own(backward, name) for name in bound})
        return [apart.visit(copy.deepcopy(statement)) for statement in own]

    def _own(self, backward: Backward, name: str) -> str:
        """A variable of backward where forward has one of that name."""
        return f"{name}_of_{backward.name}" if name in {*self.local, *self.inputs} else name

    def _joined(self, backward: Backward, index: int) -> list[ast.stmt]:
        """The statements of forward that the captures need, then those of backward."""
        own = self._alone(backward, index)
        needed = {n for s in own for n in reads(s)} & set(self.captured)
        before = [s for s in self.body if not returns_in([s])]
        indices, _ = slice_for(needed, tuple(before), (), bindings(self.rule.source.tree))
        return [*(before[i] for i in indices), *own]

    def forwards(self) -> tuple[tuple[str, str], ...]:
        """What forward computes for each capture, and under "" for the outputs."""
        outputs = [s.tree for s in self.pair.forward]
        found = [("", self._sliced(outputs, _returned(outputs)))]
        for capture in captures(self.rule):
            if capture.kind not in ("input", "constant"):
                found.append((capture.name, self._sliced(self.body, {capture.name})))
        return tuple(found)

    def _sliced(self, body: Sequence[ast.stmt], names: set[str]) -> str:
        """What some names are computed by; where outputs are meant, with how they are returned."""
        indices, _ = slice_for(names, tuple(body), (), bindings(self.rule.source.tree))
        chosen = [s for i, s in enumerate(body) if i in indices or returns_in([s])]
        if body is self.body:
            chosen = [s for s in chosen if not isinstance(s, ast.Return)]
            chosen.append(ast.Return(ast.Name(next(iter(names)), ast.Load())))
        kept = [_without_saved(s) for s in chosen]
        return neutral(kept, self.inputs, self.local, self._is_pure)

    def _is_pure(self, value: ast.expr) -> bool:
        found = bindings(self.rule.source.tree)
        return doing(value, found, {*self.local, *self.inputs}) == "pure"


def _for_one(body: Sequence[ast.stmt], index: int, count: int, rule: Rule) -> list[ast.stmt]:
    """The statements of backward that one gradient needs, returning that one alone."""
    alone = [_Return(index, count).visit(copy.deepcopy(statement)) for statement in body]
    names = {n for s in alone for r in returns_in([s]) for n in reads(r)}
    for statement in alone:  # and what decides which return is reached
        if returns_in([statement]) and not isinstance(statement, ast.Return):
            names |= set(reads(statement))
    indices, _ = slice_for(names, tuple(alone), (), bindings(rule.source.tree))
    return [s for i, s in enumerate(alone) if i in indices or returns_in([s])]


class _Apart(ast.NodeTransformer):
    """Other names for some variables."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.copy_location(ast.arg(self.names.get(node.arg, node.arg), node.annotation), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)


class _Return(ast.NodeTransformer):
    def __init__(self, index: int, count: int) -> None:
        self.index = index
        self.count = count

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == self.count:
            if not any(isinstance(e, ast.Starred) for e in value.elts):
                return ast.copy_location(ast.Return(value.elts[self.index]), node)
        return node


def _returned(body: Iterable[ast.stmt]) -> set[str]:
    """Names that the outputs read: of ``outputs, saved`` the first."""
    found: set[str] = set()
    for statement in body:
        for node in returns_in([statement]):
            assert isinstance(node.value, ast.Tuple)
            found |= set(reads(node.value.elts[0]))
    return found


def _without_saved(statement: ast.stmt) -> ast.stmt:
    if not returns_in([statement]):
        return statement
    made = copy.deepcopy(statement)
    for node in walk(made):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            node.value = node.value.elts[0]
    return made
