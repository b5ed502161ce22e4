"""The operator's text: its schema, and the forward that runs when no gradient is asked for."""

from __future__ import annotations

import ast
import re

import libcst as cst

from ..asked import NEEDS
from ..infer import origin
from ..ir import LISTS, Emitted, Pair, Param, replace
from ..names import fresh, reads, same_scope, writes
from ..source import bindings
from ..syntax import code, replace_returns, split_return
from .eager import all_needed, as_tuple, returned, small_statement, tidy
from .layout import (
    as_list,
    header,
    indented,
    module_text,
    own,
    parameters,
    simple_default,
    statement_lines,
)

__all__ = ["emit_op", "operator_name", "schema", "schema_order", "without_schema"]

_SCALARS = {"int": "SymInt", "float": "float", "bool": "bool", "str": "str", "number": "Scalar"}
_SCALARS |= {"complex": "complex", "dtype": "ScalarType", "device": "Device", "Tensor": "Tensor"}
_SCALARS |= {"IntTensor": "Tensor"}


def operator_name(pair: Pair) -> str:
    """The name in ``torch.ops.s2s``: module and qualified name, so that two never meet.

    >>> from types import SimpleNamespace as N
    >>> operator_name(N(source=N(module="pkg.mod", qualname="make.<locals>.spike")))
    'pkg_mod_make_spike'
    """
    module = pair.source.module
    path = f"{module}.{pair.source.qualname}" if module else pair.source.qualname
    return re.sub(r"\W+", "_", path.replace(".<locals>", ""))


def schema(pair: Pair) -> str | None:
    """The operator's schema, or None where a parameter or output has no type in one."""
    types = {p.name: _schema_type(p) for p in pair.params}
    types |= {c.name: _plain_type(c.type) for c in pair.constants if c.lifted}
    defaults = {p.name: _schema_default(p) for p in pair.params}
    if None in types.values():
        return None
    first, named = schema_order(pair)
    shown = [f"{types[n]} {n}{defaults.get(n, '')}" for n in (*first, *named)]
    parts = [*shown[: len(first)], *(["*"] if named else []), *shown[len(first) :]]
    if pair.changed or any(not _is_tensor_output(o.type) for o in pair.outputs):
        return None
    outputs = ["Tensor[]" if pair.list_output else "Tensor"] * len(pair.outputs)
    returns = outputs[0] if pair.single else f"({', '.join(outputs)})"
    return f"{operator_name(pair)}({', '.join(parts)}) -> {returns}"


def without_schema(pair: Pair) -> list[str]:
    """What has no type in an operator's schema: parameters, and names of enclosing functions."""
    bare = replace(pair, params=(), constants=(), dirty=(), outputs=(), single=False)
    odd = [
        f"{p.name}: {p.annotation or p.type or 'unknown'}"
        for p in pair.params
        if schema(replace(bare, params=(p,))) is None
    ]
    return odd + [
        f"{c.name} of {c.origin}"
        for c in pair.constants
        if c.lifted and schema(replace(bare, constants=(c,))) is None
    ]


def schema_order(pair: Pair) -> tuple[list[str], list[str]]:
    """The operator's arguments by position, and those by name.

    Tensors go by position, keyword-only ones too: vmap takes them in no other way.
    """
    tensors = ("Tensor", "Optional[Tensor]", *LISTS)
    by_name = [p for p in pair.params if p.kind == "keyword-only" and p.type not in tensors]
    first = [p for p in pair.params if p not in by_name]
    if any(p.kind == "keyword-only" and p.default is None for p in first):
        # no default may stand in front of a keyword-only tensor without one
        first.sort(key=lambda p: p.default is not None)
    lifted = [c.name for c in pair.constants if c.lifted]
    return [p.name for p in first], [*(p.name for p in by_name), *lifted]


def _is_tensor_output(type_: str) -> bool:
    return type_ in ("", "Tensor", "IntTensor", "List[Tensor]")


def _schema_type(param: Param) -> str | None:
    if param.kind == "variadic":
        return "Tensor[]"
    if param.type == "List[Optional[Tensor]]":
        return "Tensor?[]"
    if param.name in _RESERVED:
        return None
    return _plain_type(param.type)


_RESERVED = {"self_", "out"} - {"self_"}


def _plain_type(type_: str) -> str | None:
    if type_ in _SCALARS:
        return _SCALARS[type_]
    for outer, after in (("Optional[", "?"), ("List[", "[]")):
        if type_.startswith(outer) and type_.endswith("]"):
            inner = _plain_type(type_[len(outer) : -1])
            return None if inner is None else inner + after
    return None


def _schema_default(param: Param) -> str:
    default = simple_default(param)
    if default is None or param.type in ("dtype", "device"):
        return ""
    if param.type == "float" and re.fullmatch(r"-?\d+", default):
        default += ".0"
    if param.type in ("int", "number") and "_" in default:
        default = default.replace("_", "")
    if param.type == "str":
        value = cst.parse_expression(default)
        assert isinstance(value, cst.SimpleString)
        default = '"' + str(value.evaluated_value).replace('"', '\\"') + '"'
    return f"={default}"


def _apart(pair: Pair, output: cst.BaseExpression, name: str) -> tuple[str, cst.BaseExpression]:
    """An input that is returned as it is comes back as another tensor, as from autograd.

    The first result is what ``name`` has to be bound to for that, "" where nothing has.
    """
    tree = ast.parse(code(output).strip(), mode="eval").body
    types = {p.name: p.type for p in pair.params}
    bound = [
        s.tree for s in pair.forward if isinstance(tree, ast.Name) and tree.id in writes(s.tree)
    ]
    if isinstance(tree, ast.Name) and not bound and types.get(tree.id) in ("Tensor", "IntTensor"):
        given = f"{tree.id}.detach()"
        if tree.id in pair.dirty:
            given = f"{given} if {tree.id}.requires_grad else {tree.id}"
        return "", cst.parse_expression(given)
    values = [v for t in bound for v in _values(t)] if bound else [tree]
    found = [
        n for v in values for n in _returned_by(v, pair) if types.get(n) and n not in pair.dirty
    ]
    if not found or any(n in pair.dirty for n in [getattr(tree, "id", "")]):
        return "", output
    made = tree.id if isinstance(tree, ast.Name) else name
    test = " or ".join(f"{made} is {n}" for n in dict.fromkeys(found))
    first = "" if made != name else code(output).strip()
    return first, cst.parse_expression(f"{made}.detach() if {test} else {made}")


def _list_apart(pair: Pair, output: cst.BaseExpression) -> cst.BaseExpression:
    """The same for a list of outputs: some of them may be some of the inputs."""
    tree = ast.parse(code(output).strip(), mode="eval").body
    inner = tree.args[0] if isinstance(tree, ast.Call) and len(tree.args) == 1 else tree
    made = isinstance(inner, (ast.ListComp, ast.GeneratorExp))
    if pair.listed is None or made and not _returned_by(inner.elt, pair):  # type: ignore[attr-defined]
        return as_tuple(output)
    t, x = (fresh(n, pair.taken) for n in ("t", "x"))
    given = f"True in [{t} is {x} for {x} in {pair.listed}]"
    whole = code(output).strip()
    return cst.parse_expression(f"tuple({t}.detach() if {given} else {t} for {t} in {whole})")


def _values(tree: ast.stmt) -> list[ast.expr]:
    """What the assignments in a statement assign."""
    return [n.value for n in same_scope(tree) if isinstance(n, ast.Assign)]


def _returned_by(value: ast.expr, pair: Pair) -> list[str]:
    """Inputs that an expression may be: ``x``, ``x.contiguous()``, ``helper(x)``."""
    if isinstance(value, ast.Name):
        return [value.id]
    if isinstance(value, ast.IfExp):
        return _returned_by(value.body, pair) + _returned_by(value.orelse, pair)
    if not isinstance(value, ast.Call):
        return []
    path = origin(value.func, bindings(pair.source.tree), pair.arguments) or ""
    if isinstance(value.func, ast.Attribute) and not path:
        inplace = value.func.attr.endswith("_") and not value.func.attr.endswith("__")
        owner = value.func.value
        kept = value.func.attr in _SAME or inplace
        return [owner.id] if isinstance(owner, ast.Name) and kept else []
    if path.startswith(("torch.", "builtins.", "math.", "numpy.")):
        return []
    return [a.id for a in value.args if isinstance(a, ast.Name)]


_SAME = ("contiguous", "to", "type_as", "float", "double", "half", "bfloat16", "type", "cpu")


def emit_op(pair: Pair) -> Emitted:
    """The plain function, under the schema it has as an operator.

    ``pair`` comes from ``plain_forward``: nothing is saved.
    """

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        outputs, _saved = split_return(node)
        if pair.list_output:
            return [returned([_list_apart(pair, outputs[0])], pair.single)]
        names = [
            fresh(f"out_{i}" if len(outputs) > 1 else "out", pair.taken)
            for i in range(len(outputs))
        ]
        parts = [_apart(pair, o, n) for o, n in zip(outputs, names)]
        bound = [f"{name} = {first}" for name, (first, _) in zip(names, parts) if first]
        small = [small_statement(text) for text in bound]
        return [*small, returned([value for _, value in parts], pair.single)]

    body = replace_returns(pair.forward, rewrite)
    shown = schema(pair)
    about = f"# torch.ops.s2s.{shown}" if shown else "# no operator: see `s2s explain`"
    lines = own(*header(pair), about, f"def {pair.name}({', '.join(parameters(pair))}):")
    asked = any(NEEDS in reads(s.tree) for s in pair.forward)
    first = [*as_list(pair), *(all_needed(pair, "False") if asked else [])]
    lines += indented(own(*first) + statement_lines(tidy(body)), 4)
    return module_text("op", pair, lines, (pair.name,))
