"""The TorchScript form: a typed forward and backward that ``torch.jit.script`` compiles."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

import libcst as cst

from ..asked import NEEDS
from ..infer import infer, types_after, written_type
from ..ir import Constant, Emitted, Pair, Param, Stmt, replace
from ..names import reads, walk
from ..passes.lift_helpers import typed_parameter
from ..source import bindings
from ..syntax import handed_over, make, without_blank_lines
from .layout import (
    Line,
    header,
    indented,
    module_text,
    own,
    simple_default,
    statement_lines,
)

__all__ = ["emit_torchscript"]


def emit_torchscript(
    pair: Pair,
    types: Mapping[str, str] | None = None,
    literals: Mapping[str, str] | None = None,
) -> Emitted:
    """``<name>_forward`` and ``<name>_backward``.

    ``types`` are the types that TorchScript has found for the saved values, for ``forward ->`` and
    for ``backward ->``; without them the annotations come from the text, and a type that it does
    not tell is left out; "-" leaves out one that it does tell. ``literals`` are the values of
    outside names; one that is not known becomes a parameter.
    """
    known = dict(types or {})
    values = {c.name: c.literal for c in pair.constants if c.literal is not None}
    values.update(literals or {})
    fixed = [c for c in pair.constants if c.name in values]
    given = [c for c in pair.constants if c.name not in values and c.lifted]
    pair = _without(pair, {c.name for c in fixed})
    inferred = _inferred(pair)
    forward = [*_literal_lines(fixed, values, pair.forward), *_asked(pair, pair.forward)]
    forward += _first_tidy(pair.forward)
    backward = [*_literal_lines(fixed, values, pair.backward), *_asked(pair, pair.backward)]
    backward += _first_tidy(pair.backward)
    saved = [(s.name, known.get(s.name, "") or inferred.get(s.name, "")) for s in pair.saved]
    head = _signature(
        f"{pair.name}_forward",
        [
            *(_parameter(p, with_default=not given) for p in pair.params),
            *(_annotated(c.name, c.type) for c in given),
        ],
        known.get("forward ->") or _forward_type(pair, inferred, [t for _, t in saved]),
    )
    comments = [Line(line.comment.value) for line in pair.comments if line.comment]
    tail = _signature(
        f"{pair.name}_backward",
        [
            *(f"{g}: {_gradient_type(pair)}" for g in pair.grads),
            *(_annotated(n, t) for n, t in saved),
        ],
        known.get("backward ->") or _backward_type(pair, inferred),
    )
    helpers = _helpers(pair, _literal_types(fixed, values))
    body = helpers + head + indented(statement_lines(forward), 4)
    body += own("", "") + comments + tail + indented(statement_lines(backward), 4)
    lines = own(*_header(pair, body)) + body
    names = (f"{pair.name}_forward", f"{pair.name}_backward")
    return module_text("torchscript", pair, lines, names)


def _asked(pair: Pair, body: Sequence[Stmt]) -> list[Stmt]:
    """Every gradient is computed: the caller takes those that it needs."""
    if not pair.asks or not any(NEEDS in reads(s.tree) for s in body):
        return []
    count = len([p for p in pair.params if not p.bound])
    return [make(f"{NEEDS} = [{', '.join(['True'] * count)}]  # compute every gradient")]


def _literal_types(fixed: Sequence[Constant], values: Mapping[str, str]) -> dict[str, str]:
    """The types of outside names whose values are written down."""
    return {c.name: infer(ast.parse(values[c.name], mode="eval").body, {}, {}) for c in fixed}


def _helpers(pair: Pair, types: Mapping[str, str]) -> list[Line]:
    """The functions that stand in front of forward; ``types`` are those of outside names."""
    lines: list[Line] = []
    for helper in pair.helpers:
        node = cst.ensure_type(helper.node, cst.FunctionDef)
        params = [typed_parameter(p, types.get(p.name.value, "")) for p in node.params.params]
        node = node.with_changes(params=node.params.with_changes(params=params))
        lines += [*statement_lines([replace(helper, node=node)]), *own("", "")]
    return lines


def _without(pair: Pair, names: set[str]) -> Pair:
    """The pair without saving the values of ``names``."""
    saved = tuple(s for s in pair.saved if s.name not in names)
    if len(saved) == len(pair.saved):
        return pair
    before = [s.name for s in pair.saved]
    forward = handed_over(pair.forward, before, [s.name for s in saved])
    return replace(pair, saved=saved, forward=forward)


def _literal_lines(
    fixed: Sequence[Constant], values: Mapping[str, str], body: Sequence[Stmt]
) -> list[Stmt]:
    """``alpha = 2.0  # from make_atan`` for the outside names that a body reads."""
    read = {n for s in body for n in reads(s.tree)}
    return [
        make(f"{c.name} = {values[c.name]}  # from {c.origin}") for c in fixed if c.name in read
    ]


def _first_tidy(body: Sequence[Stmt]) -> list[Stmt]:
    tidy = list(body)
    for index in {0, len(tidy) - 1}:
        tidy[index] = replace(tidy[index], node=without_blank_lines(tidy[index].node))
    return tidy


def _inferred(pair: Pair) -> dict[str, str]:
    """Types by the text alone, of the names of forward."""
    start = {p.name: p.type for p in pair.params} | {c.name: c.type for c in pair.constants}
    return types_after([s.tree for s in pair.forward], start, bindings(pair.source.tree))


def _annotated(name: str, type_: str) -> str:
    written = written_type(type_)
    return f"{name}: {written}" if written else name


def _parameter(param: Param, with_default: bool) -> str:
    """A parameter with its type; no default may stand before the names of enclosing functions."""
    default = simple_default(param) if with_default else None
    text = _annotated(param.name, param.type)  # *tensors is a list here
    if default is None:
        return text
    return f"{text} = {default}" if ":" in text else f"{text}={default}"


def _forward_type(pair: Pair, types: Mapping[str, str], saved: list[str]) -> str:
    outputs = [o.type or types.get(o.name or "", "") for o in pair.outputs]
    if not all(map(written_type, [*outputs, *saved])):
        return ""
    first = outputs[0] if pair.single else f"Tuple[{', '.join(outputs)}]"
    handed = f"Tuple[{', '.join(saved)}]" if saved else "Tuple[()]"
    return f"Tuple[{written_type(first)}, {written_type(handed)}]"


def _backward_type(pair: Pair, types: Mapping[str, str]) -> str:
    """The type of the returned gradients, where the only return is a literal."""
    trees = [s.tree for s in pair.backward]
    found = bindings(pair.source.tree)
    start = dict(types) | dict.fromkeys(pair.grads, _gradient_type(pair))
    after = types_after(trees, start, found)
    last = trees[-1] if trees else None
    returns = [n for t in trees for n in walk(t) if isinstance(n, ast.Return)]
    if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
        return ""
    return written_type(infer(last.value, after, found))


def _gradient_type(pair: Pair) -> str:
    if pair.undefined:
        return "Optional[Tensor]"
    return "List[Tensor]" if pair.list_output else "Tensor"


def _signature(name: str, items: Sequence[str], returns: str) -> list[Line]:
    """``def name(...) -> ...:`` on one line, on three, or with a line per parameter."""
    arrow = f") -> {returns}:" if returns not in ("", "-") else "):"
    row = ", ".join(items)
    if len(f"def {name}({row}{arrow}") <= 88:
        return own(f"def {name}({row}{arrow}")
    if len(row) + 4 <= 96:
        return own(f"def {name}(", f"    {row}", arrow)
    return own(f"def {name}(", *(f"    {item}," for item in items), arrow)


def _header(pair: Pair, body: Sequence[Line]) -> list[str]:
    text = "\n".join(line.text for line in body)
    used = [n for n in ("Dict", "List", "Optional", "Tuple") if re.search(rf"\b{n}\[", text)]
    taken = {i.split()[-1] for i in pair.imports}
    imports = [i for i in pair.imports if not i.startswith("from typing import ")]
    if re.search(r"\btorch\.(dtype|device)\b", text) and pair.torch != "torch":
        imports.append("import torch")
    if re.search(r"\bTensor\b", text) and "Tensor" not in taken:
        imports.insert(imports.index(pair.imports[0]) + 1, "from torch import Tensor")
    if used:
        imports.insert(0, f"from typing import {', '.join(used)}")
    return header(replace(pair, imports=tuple(imports)))
