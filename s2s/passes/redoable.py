"""Which values of forward may be computed a second time, in backward, and from what.

A recomputation must not see anything that has changed since. Left out are names that are bound
again or in a branch, tensors that are changed in place or handed to code that cannot be seen,
random draws, and what reads the attributes of an object, a list of the caller's, or PyTorch's own
state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..captures import is_data_global
from ..effects import aliases, doing, nested_functions, touched
from ..flow import bound_at_returns
from ..infer import infer, is_plain, is_tensor, is_tensor_tuple, origin
from ..ir import Pair, Stmt
from ..names import changed, children, is_name, of_kind, reads, same_scope, walk, writes
from ..source import bindings
from ..vocabulary import METADATA, POINTWISE, SIZES, VIEWS
from .lift_backward import keep_for
from .redoing import forward_types
from .save_sizes import is_fact

__all__ = ["Value", "values"]

RANDOM = "it draws random numbers"

_UNCHANGING = ("int", "float", "bool", "number", "complex", "str", "dtype", "device", "None")
_STATE = ("requires_grad", "grad_fn", "grad", "is_leaf", "_version", "data_ptr", "is_inference")
_HIDDEN = (ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_EACH = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.keyword)
_EACH += (ast.Attribute, ast.Call, ast.Tuple)  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Value:
    """A name of forward: an input, or what one assignment binds.

    ``operands`` are the values that its statement reads, ``facts`` the inputs of which it reads the
    shape or dtype alone. ``refused`` says why it cannot be computed
    again, "" where it can; ``cheap``: element by element; ``keepable``: it could be saved; ``own``:
    nobody else can change it or sees it, for its memory is forward's alone. Of one
    that is not cheap, ``parts`` are the tensors in its statement that take more than that, where
    the rest does not: the mean of ``x - x.mean(-1, keepdim=True)``.
    """

    name: str
    statement: Stmt | None
    type: str
    operands: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    refused: str = ""
    cheap: bool = False
    keepable: bool = True
    own: bool = False
    parts: tuple[ast.expr, ...] = ()

    @property
    def plain(self) -> bool:
        return is_plain(self.type)


def values(pair: Pair) -> dict[str, Value]:
    """Every value that keeps its first meaning until backward, in the order of forward."""
    facts = _Facts(pair)
    found: dict[str, Value] = {}
    for name in pair.arguments:
        if facts.lasts(name) and facts.count.get(name, 0) == 0:
            type_ = facts.types.get(name, "")
            if is_tensor(type_) or type_ in ("", *_UNCHANGING):
                found[name] = Value(name, None, type_, refused="it is an input", keepable=True)
    for statement in pair.forward:
        for name in writes(statement.tree):
            if name in pair.arguments or facts.count[name] > 1 or not facts.lasts(name):
                continue
            found[name] = _value(facts, name, statement, found)
    return found


class _Facts:
    """What is asked about a forward over and over."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.found = bindings(pair.source.tree)
        self.types = forward_types(pair)
        self.trees = [s.tree for s in pair.forward]
        self.local = {n for t in self.trees for n in writes(t)} | set(pair.arguments)
        self.objects = {p.name for p in pair.params if p.type in ("object", "")}
        self.helpers = nested_functions(self.trees)
        self.count: dict[str, int] = {}
        for tree in self.trees:
            for name in writes(tree):
                self.count[name] = self.count.get(name, 0) + 1
        ends = bound_at_returns(self.trees, pair.arguments)
        self.bound = frozenset.intersection(*ends) if ends else frozenset()
        self.changed = self._changed()
        self.shared = aliases([*self.trees, *_outputs(self.trees)])

    def _changed(self) -> set[str]:
        """Names that share memory with what is changed, or may be."""
        names = set(self.pair.dirty)
        for tree in self.trees:
            names |= touched(tree, self.found, nested=self.helpers)
            for node in walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                    body = node.body if isinstance(node.body, list) else [node.body]
                    names |= {n for part in body for n in changed(part)}
                elif isinstance(node, ast.Call) and not self._is_seen(node):
                    names |= {n.id for n in of_kind(node, ast.Name)}
        shared = aliases(self.trees)
        return {other for name in names for other in shared.get(name, {name})}

    def _is_seen(self, call: ast.Call) -> bool:
        path = origin(call.func, self.found, self.local)
        if path is not None and path.startswith("builtins."):
            return path.split(".")[-1] not in ("setattr", "delattr", "next", "exec", "eval")
        kind = doing(call, self.found, self.local, self.objects, self.helpers)
        return kind != "opaque"

    def is_own(self, name: str) -> bool:
        """Does it share no memory with inputs, outputs, or what is outside?"""
        group = self.shared.get(name, {name})
        return (
            _OUTPUT not in group and group.isdisjoint(self.pair.arguments) and group <= self.local
        )

    def lasts(self, name: str) -> bool:
        """Is it surely not changed in place?"""
        return name not in self.changed


_OUTPUT = "return"  # what no name is called


def _outputs(trees: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The outputs of a lifted forward's ``return outputs, (saved...)``, as assignments."""
    for node in (n for tree in trees for n in same_scope(tree)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for value in node.value.elts[:-1]:
                yield ast.Assign([ast.Name(_OUTPUT, ast.Store())], value)


def _value(facts: _Facts, name: str, statement: Stmt, found: Mapping[str, Value]) -> Value:
    tree = statement.tree
    type_ = facts.types.get(name, "")
    bound = name in facts.bound and keep_for(type_) in ("tensor", "plain")
    simple = isinstance(tree, (ast.Assign, ast.AnnAssign)) and _target(tree) == name
    if not simple or tree.value is None:  # type: ignore[attr-defined]
        what = "it is bound in a branch or a loop, or together with others"
        return Value(name, statement, type_, refused=what, keepable=bound)
    node: ast.expr = tree.value  # type: ignore[attr-defined]
    read = [n for n in reads(node) if n in facts.local]
    only = tuple(n for n in read if n in facts.pair.arguments and _only_facts(node, n))
    operands = tuple(n for n in read if n not in only)
    why = _refused(facts, node, found)
    cheap = is_plain(type_) or all(_is_cheap(part, facts) for part in walk(node))
    own = bound and why in ("", RANDOM) and facts.is_own(name)
    parts = () if cheap or why else tuple(_costly(node, facts))
    return Value(name, statement, type_, operands, only, why, cheap, bound, own, parts)


def _only_facts(node: ast.expr, name: str) -> bool:
    """Does an expression read no values of a tensor?"""
    uses = sum(is_name(part, name) for part in walk(node))
    return uses == sum(is_fact(part, name) for part in walk(node))


def _target(tree: ast.Assign | ast.AnnAssign) -> str | None:
    targets = tree.targets if isinstance(tree, ast.Assign) else [tree.target]
    only = targets[0]
    return only.id if len(targets) == 1 and isinstance(only, ast.Name) else None


def _refused(facts: _Facts, node: ast.expr, found: Mapping[str, Value]) -> str:
    """Why an expression may not be computed again, or ""."""
    kind = doing(node, facts.found, facts.local, facts.objects)
    if kind == "random":
        return RANDOM
    if kind == "opaque":
        return "it calls what cannot be seen into"
    for name in reads(node):
        if name in facts.local and (name not in found or not _is_value(found[name])):
            return f"{name} may have changed by then"
        if name not in facts.local and not _is_fixed(facts, name):
            return f"{name}, from outside, may have changed by then"
    for part in walk(node):
        what = _state_read(part, facts)
        if what:
            return what
    return ""


def _is_value(value: Value) -> bool:
    """No object whose attributes or items may be others by then."""
    return value.type != "object" and not value.type.startswith("Dict")


def _is_fixed(facts: _Facts, name: str) -> bool:
    """A name from outside the function that means the same later: a module, a function, a number
    (which is kept), a tensor (which is kept and watched)."""
    if not is_data_global(facts.pair.source, name):
        return True
    type_ = infer(ast.Name(name, ast.Load()), {}, facts.found)
    return type_ in _UNCHANGING or type_ == "Tensor"


def _state_read(part: ast.AST, facts: _Facts) -> str:
    """What an expression reads beside the values of names, or ""."""
    if isinstance(part, _HIDDEN):
        return "it holds a function or an assignment"
    if isinstance(part, ast.Call):
        return _called_state(part, facts)
    if isinstance(part, ast.Attribute):
        if origin(part, facts.found, facts.local) is not None:
            return ""
        if part.attr in _STATE:
            return f"it reads .{part.attr}"
        owner = infer(part.value, facts.types, facts.found)
        fixed = is_tensor(owner) or is_tensor_tuple(owner) or owner in _UNCHANGING
        if not fixed and not (owner == "" and _is_tensor_like(part, facts)):
            return f"{ast.unparse(part)} may have changed by then"
    return ""


def _is_tensor_like(part: ast.Attribute, facts: _Facts) -> bool:
    """An attribute of a value of unknown type that only a tensor has."""
    return part.attr in METADATA or part.attr in VIEWS or part.attr in POINTWISE


def _called_state(call: ast.Call, facts: _Facts) -> str:
    path = origin(call.func, facts.found, facts.local)
    name = path.split(".")[-1] if path else getattr(call.func, "attr", "")
    if name.startswith(("empty", "new_empty")):
        return "it makes a tensor without values"
    if path and path.startswith(("torch.is_", "torch.get_", "torch.cuda.", "torch.backends.")):
        return f"it asks {path}"
    if path is None and isinstance(call.func, ast.Name):
        binding = facts.found.get(call.func.id)
        function = binding.function if binding is not None else None
        if function is None or any(is_data_global(facts.pair.source, n) for n in reads(function)):
            return f"{call.func.id} may do something else by then"
    return ""


# --- element by element -------------------------------------------------------------------------


def _is_cheap(part: ast.AST, facts: _Facts) -> bool:
    """Arithmetic on elements, views, and numbers."""
    if isinstance(part, ast.BinOp):
        return not isinstance(part.op, ast.MatMult)
    if isinstance(part, ast.Subscript):
        return _is_view(part, facts)
    if isinstance(part, (ast.Slice, ast.expr_context)):
        return True
    if not isinstance(part, ast.Call):
        return isinstance(part, _EACH)
    path = origin(part.func, facts.found, facts.local)
    name = path.split(".")[-1] if path else getattr(part.func, "attr", "")
    if path is not None and not path.startswith("torch."):
        return is_plain(infer(part, facts.types, facts.found))
    return name in POINTWISE or name in VIEWS or name in SIZES or name == "size"


def _costly(node: ast.expr, facts: _Facts) -> Iterator[ast.expr]:
    """The largest parts of an expression that are computed in any case and are not cheap."""
    inner = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else node
    if not _is_cheap(node, facts) or not _is_cheap(inner, facts):
        if is_tensor(infer(node, facts.types, facts.found)):
            yield node
    elif not isinstance(node, ast.IfExp):  # one of its arms is not
        for child in children(node):
            part = child.value if isinstance(child, ast.keyword) else child
            if isinstance(part, ast.expr):
                yield from _costly(part, facts)


def _is_view(part: ast.Subscript, facts: _Facts) -> bool:
    """A part of a tensor or a shape, by numbers and slices."""
    index = part.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    simple = (ast.Slice, ast.Constant, ast.UnaryOp)
    return all(isinstance(p, simple) for p in parts)
