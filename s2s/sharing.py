"""Which tensors a piece of code changes in place, also through views and other names.

``y = x.view(-1); y.mul_(2)`` changes ``x``; ``y = x * 1; y.mul_(2)`` does not. What a name stands
for is followed statement by statement.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from .infer import is_plain
from .names import TENSOR_METHODS, UPDATES, changed, children, walk
from .source import Binding
from .vocabulary import METADATA, SHARING

__all__ = ["changes"]

_Roots = set[str]
_PASSED_ON = ("list", "tuple", "zip", "enumerate", "reversed", "iter", "next", "sorted", "map")


def changes(
    body: Sequence[ast.stmt],
    roots: Collection[str],
    types: Mapping[str, str],
    bindings: Mapping[str, Binding],
) -> Iterator[tuple[ast.AST, str]]:
    """The places where ``body`` changes the value of one of ``roots``, with that name.

    >>> body = ast.parse("y = x.view(-1); y.mul_(2); z = x.clone(); z.add_(1)").body
    >>> [(node.lineno, node.col_offset, name) for node, name in changes(body, ["x"], {}, {})]
    [(1, 16, 'x')]
    """
    yield from _Sharing(roots, types, bindings).block(body)


class _Sharing:
    def __init__(
        self, roots: Collection[str], types: Mapping[str, str], bindings: Mapping[str, Binding]
    ) -> None:
        self.roots = set(roots)
        self.shares: dict[str, _Roots] = {name: {name} for name in roots}
        self.types = types
        self.bindings = bindings
        self.alone: ast.expr | None = None  # the expression that is a statement, whose value goes

    # --- statements ---------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> Iterator[tuple[ast.AST, str]]:
        for statement in body:
            yield from self.statement(statement)

    def statement(self, node: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.shares[node.name] = set()
            return
        self.alone = node.value if isinstance(node, ast.Expr) else None
        for part in children(node):
            if isinstance(part, ast.expr):
                yield from self.expression(part)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.bind(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if not is_plain(self.types.get(node.target.id, "")):
                yield from ((node, name) for name in sorted(self.sources(node.target)))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            for _ in range(2):  # what a round leaves behind meets the next one
                self.bind(node.target, node.iter)
                found = list(self.arms([node.body]))
            yield from found
            yield from self.block(node.orelse)
        elif isinstance(node, (ast.If, ast.While)):
            yield from self.arms([node.body, node.orelse])
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                yield from self.expression(item.context_expr)
            yield from self.block(node.body)
        elif isinstance(node, ast.Try):
            handlers = [handler.body for handler in node.handlers]
            yield from self.arms([[*node.body, *node.orelse], *handlers])
            yield from self.block(node.finalbody)
        elif isinstance(node, ast.Match):
            yield from self.arms([case.body for case in node.cases])

    def arms(self, bodies: Sequence[Sequence[ast.stmt]]) -> Iterator[tuple[ast.AST, str]]:
        """Blocks of which one runs, or none: afterwards a name may share what it did in any."""
        before = {name: set(roots) for name, roots in self.shares.items()}
        merged = {name: set(roots) for name, roots in before.items()}
        for body in bodies:
            self.shares = {name: set(roots) for name, roots in before.items()}
            yield from self.block(body)
            for name, roots in self.shares.items():
                merged.setdefault(name, set()).update(roots)
        self.shares = merged

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.shares[target.id] = self.sources(value)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            exact = isinstance(value, (ast.Tuple, ast.List))
            same = exact and len(value.elts) == len(target.elts)  # type: ignore[attr-defined]
            for index, element in enumerate(target.elts):
                self.bind(element, value.elts[index] if same else value)  # type: ignore[attr-defined]

    # --- expressions --------------------------------------------------------------------------

    def expression(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """Changes that evaluating an expression makes, or storing to it."""
        if isinstance(node, ast.Lambda):
            return
        for child in children(node):
            yield from self.expression(child)
        if isinstance(node, ast.NamedExpr):
            self.bind(node.target, node.value)
        roots: _Roots = set()
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            if not isinstance(node.ctx, ast.Load) and not self.holds_only(node.value):
                roots = self.sources(node.value)
        elif isinstance(node, ast.Call):
            for argument in self.changed_arguments(node):
                roots |= self.sources(argument)
        yield from ((node, name) for name in sorted(roots))

    def changed_arguments(self, call: ast.Call) -> Iterator[ast.expr]:
        """The arguments, or the owner of the method, that a call changes in place."""
        for keyword in call.keywords:
            if keyword.arg == "out":
                yield keyword.value
            on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg == "inplace" and on and call.args:
                yield call.args[0]
        func = call.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        inplace = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        if isinstance(func, ast.Attribute) and not self.is_module(func.value):
            update = name in UPDATES and (call is self.alone or name not in TENSOR_METHODS)
            if inplace or (update and not self.holds_only(func.value)):
                yield func.value
        elif inplace and call.args:
            yield call.args[0]
        elif isinstance(func, ast.Name) and func.id in self.bindings:
            function = self.bindings[func.id].function
            if function is not None:
                params = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
                inner = self.changed_in(function, params)
                yield from (a for p, a in zip(params, call.args) if p in inner)

    def changed_in(self, function: ast.FunctionDef, params: Sequence[str]) -> set[str]:
        """The parameters that a function of the file changes; not `n` in `n = n % 6; n -= 1`."""
        others = {n: b for n, b in self.bindings.items() if b.function is not function}
        found = {name for _, name in changes(function.body, params, {}, others)}
        nested = [n for s in function.body for n in walk(s) if isinstance(n, ast.FunctionDef)]
        return found.union(*(changed(n) for n in nested))

    def holds_only(self, node: ast.expr) -> bool:
        """Is it a list of the function's own, which may change though what it holds may not?"""
        if not isinstance(node, ast.Name) or node.id in self.roots:
            return False
        return self.types.get(node.id, "").startswith(("List[", "Dict["))

    def is_module(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.shares:
            return False
        return node.id in self.bindings and self.bindings[node.id].kind == "import"

    def sources(self, node: ast.expr) -> _Roots:
        """The roots whose memory the value of an expression may be."""
        if isinstance(node, ast.Name):
            return set(self.shares.get(node.id, ()))
        if isinstance(node, ast.Attribute):
            return set() if node.attr in METADATA else self.sources(node.value)
        if isinstance(node, ast.Subscript):
            return set() if self.copies(node.slice) else self.sources(node.value)
        if isinstance(node, (ast.Starred, ast.NamedExpr)):
            return self.sources(node.value)
        if isinstance(node, ast.IfExp):
            return self.sources(node.body) | self.sources(node.orelse)
        if isinstance(node, ast.BoolOp):
            return set().union(*map(self.sources, node.values))
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return set().union(*map(self.sources, node.elts))
        if isinstance(node, ast.Call):
            return self.returned(node)
        return set()

    def returned(self, call: ast.Call) -> _Roots:
        func = call.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if isinstance(func, ast.Attribute) and not self.is_module(func.value):
            return self.sources(func.value) if name in SHARING or name.endswith("_") else set()
        if name in SHARING or name in _PASSED_ON or name.endswith("_"):
            return set().union(*map(self.sources, call.args))
        return set()

    def copies(self, index: ast.expr) -> bool:
        """Indexing with a tensor, a mask or a list copies; with numbers and slices it does not."""
        if isinstance(index, (ast.List, ast.Compare)):
            return True
        if isinstance(index, ast.Name):
            type_ = self.types.get(index.id, "")
            return "Tensor" in type_ or type_ == ""
        if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert):
            return True
        return isinstance(index, ast.Tuple) and any(map(self.copies, index.elts))
