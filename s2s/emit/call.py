"""The function that stands in the user's place and chooses a form for every call.

Beside it stands the function that ``torch.jit.script`` compiles in its place: a call of the
operator. Everything the two need beside their own parameters comes as a closure of ``bind``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..captures import is_data_global
from ..infer import written_type
from ..ir import CELLS, LISTS, Emitted, Pair, Param
from ..names import fresh, walk
from ..source import bindings
from .layout import module_text, own, simple_default

__all__ = ["Watched", "emit_call", "watched"]

NUMBERS = ("int", "float", "bool", "str")


@dataclass(frozen=True, slots=True)
class Watched:
    """A value from outside that must not require grad: a name, and attributes read from it."""

    name: str
    path: tuple[str, ...]


def watched(pair: Pair) -> tuple[Watched, ...]:
    """Outside values that may be tensors or modules: globals, names of enclosing functions, and
    what is read from ``self``."""
    names = {c.name for c in pair.constants if c.type not in NUMBERS}
    names |= _called_objects(pair)
    owners = {p.name for p in pair.params if p.bound}
    found: dict[Watched, None] = {}
    inner: set[ast.AST] = set()
    for node in walk(pair.source.function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node not in inner:
            path: list[str] = []
            base: ast.expr = node
            while isinstance(base, ast.Attribute):
                path.insert(0, base.attr)
                inner.add(base)
                base = base.value
            inner.add(base)
            if isinstance(base, ast.Name) and base.id in names | owners:
                found[Watched(base.id, tuple(path))] = None
        elif isinstance(node, ast.Name) and node.id in names and node not in inner:
            found[Watched(node.id, ())] = None
    return tuple(sorted(found, key=lambda w: (w.name, w.path)))


def _called_objects(pair: Pair) -> set[str]:
    """Globals that the function calls and that are no functions or classes: modules, perhaps."""
    found = bindings(pair.source.tree)
    local = {n.arg for n in walk(pair.source.function) if isinstance(n, ast.arg)}
    called = {
        n.func.id
        for n in walk(pair.source.function)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    return {n for n in called - local if is_data_global(pair.source, n) and n in found}


def emit_call(pair: Pair) -> Emitted:
    """``bind(...)``, which makes the function that users call."""
    cells = {name: fresh(name, pair.taken | {pair.name}) for name in CELLS}
    lifted = [c.name for c in pair.constants if c.lifted]
    maker = fresh("bind", pair.taken | {pair.name})
    scripted = fresh(f"{pair.name}_scripted", pair.taken | {pair.name})
    body = _body(pair, cells)
    rows = [
        f"def {maker}({', '.join([*lifted, *cells.values()])}):",
        *(f"    {row}" for row in _head(pair)),
        *(f"        {row}" for row in body),
        "",
        *(f"    {row}" for row in _scripted_head(pair, scripted)),
        *(f"        {row}" for row in _scripted_body(pair, cells["s2s"])),
        "",
        f"    return {pair.name}, {scripted}",
    ]
    return module_text("call", pair, own(*rows), (maker, *cells.values()))


def _head(pair: Pair) -> list[str]:
    """The user's signature."""
    shown: list[str] = []
    for index, param in enumerate(pair.params):
        if param.kind == "keyword-only" and "*" not in shown:
            shown.append("*")
        shown.append(_parameter(param))
        after = pair.params[index + 1].kind if index + 1 < len(pair.params) else ""
        if param.kind == "positional-only" and after != "positional-only":
            shown.append("/")
    return [f"def {pair.name}({', '.join(shown)}):"]


def _scripted_head(pair: Pair, name: str) -> list[str]:
    """What TorchScript sees: it knows neither positional-only parameters nor keyword-only ones
    with defaults, which come last by position."""
    shown = [_parameter(p) for p in pair.scripted_order]
    required = [p for p in pair.params if p not in pair.scripted_order]
    if required:
        shown += ["*", *map(_parameter, required)]
    return [f"def {name}({', '.join(shown)}):"]


def _parameter(param: Param) -> str:
    if param.kind == "variadic":
        return f"*{param.name}"
    written = "" if param.type in ("Tensor", "IntTensor") else written_type(param.type)
    text = f"{param.name}: {written}" if written else param.name
    if param.default is None:
        return text
    default = simple_default(param) or "None"  # the user's own objects are put in afterwards
    return f"{text} = {default}" if written else f"{text}={default}"


def _body(pair: Pair, cells: dict[str, str]) -> list[str]:
    arguments = ", ".join(f"*{n}" if n == pair.listed else n for n in pair.arguments)
    guard = _guard(pair, cells["s2s"])
    c, s2s = cells, cells["s2s"]
    transformed = _put_back(pair, f"{s2s}.transformed({arguments})")
    watched_here = [f"if {c['is_grad_enabled']}():", *(f"    {row}" for row in guard)]
    return [
        f"if {c['is_dynamo_compiling']}() or {c['compiler']}._is_compiling_flag "
        f"or {c['forward_ad']}._current_level >= 0 or {c['fx']}._is_fx_tracing_flag "
        f"or {c['is_tracing']}():",
        *(f"    {row}" for row in guard),
        f"    return {transformed}",
        *(watched_here if guard else []),
        *_needed(pair, cells, arguments),
        f"if {c['transforms_active']}() and {c['is_grad_enabled']}():",
        f"    return {transformed}",
        "return " + _put_back(pair, f"{c['run']}({arguments})"),
    ]


def _put_back(pair: Pair, call: str) -> str:
    """The outputs in the list or dict that the user's function returns."""
    if pair.list_output or pair.container == "list":
        return f"list({call})"
    if pair.container:
        return f"dict(zip({tuple(pair.container.split())!r}, {call}))"
    return call


def _scripted_body(pair: Pair, s2s: str) -> list[str]:
    call = f"{s2s}.op({_scripted_arguments(pair, s2s)})"
    alone = len(pair.outputs) == 1
    if not pair.container and (pair.single or not alone):
        return [f"return {call}"]
    names = [fresh(f"out_{i}", pair.taken) for i in range(len(pair.outputs))]
    if not pair.container:
        value = f"({names[0]},)"
    elif pair.container == "list":
        value = f"[{', '.join(names)}]"
    else:
        pairs = [f'"{key}": {name}' for key, name in zip(pair.container.split(), names)]
        value = "{" + ", ".join(pairs) + "}"
    # an operator with one output returns it alone
    return [f"{', '.join(names)} = {call}", f"return {value}"]


def _scripted_arguments(pair: Pair, s2s: str) -> str:
    """The operator's arguments, where outside names are constants of a module: TorchScript reads
    those, and no others."""
    parts: list[str] = []
    for param in pair.params:
        named = f"{param.name}={param.name}"
        parts.append(named if param.kind == "keyword-only" else param.name)
    parts += [f"{c.name}={s2s}.{c.name}" for c in pair.constants if c.lifted]
    return ", ".join(parts)


def _guard(pair: Pair, s2s: str) -> list[str]:
    """Outside values may not require grad. A global number is only looked at if it is none."""
    names = list(dict.fromkeys(w.name for w in watched(pair)))
    rows = [f"{s2s}.refuse_trainable({', '.join(names)})"] if names else []
    for constant in pair.constants:
        if constant.type in NUMBERS:
            rows += [
                f"if type({constant.name}) is not {constant.type}:",
                f'    {s2s}.refuse_outside("{constant.name}", {constant.name})',
            ]
    return rows


def _needed(pair: Pair, cells: dict[str, str], arguments: str) -> list[str]:
    """Does an input ask for a gradient? One that is not what its type says goes elsewhere."""
    asks: list[str] = []
    odd: list[str] = []
    for param in pair.params:
        name = param.name
        if name == pair.listed:
            maybe = "t is not None and " if "Optional" in param.type else ""
            asks.append(f"any([{maybe}t.requires_grad for t in {name}])")
        elif param.type == "Tensor":
            asks.append(f"{name}.requires_grad")
        elif param.type == "Optional[Tensor]":
            asks.append(f"({name} is not None and {name}.requires_grad)")
        elif not param.bound:
            odd.append(_odd(name, param.type, cells))
    other = f"    return {cells['s2s']}.other({arguments})"
    rows = [f"if {' or '.join(odd)}:", other] if odd else []
    if not asks:
        return rows
    needed = fresh("needed", pair.taken)
    rows += ["try:", f"    {needed} = {' | '.join(asks)}", "except AttributeError:", other]
    rows.append(f"if {needed} and {cells['is_grad_enabled']}():")
    return [
        *rows,
        f"    if {cells['transforms_active']}():",
        f"        return {_put_back(pair, cells['s2s'] + f'.transformed({arguments})')}",
        f"    if {cells['autocast_active']}():",
        f"        return {_put_back(pair, cells['s2s'] + f'.autocast({arguments})')}",
        f"    return {_applied(pair, cells, arguments)}",
    ]


def _odd(name: str, type_: str, cells: dict[str, str]) -> str:
    """True where a parameter that should be plain holds a tensor, alone or in a container."""
    if type_ in NUMBERS:
        return f"type({name}) is not {type_} and isinstance({name}, {cells['Tensor']})"
    return f"{cells['s2s']}.holds_tensor({name})"


def _applied(pair: Pair, cells: dict[str, str], arguments: str) -> str:
    call = f"{cells['apply']}({arguments})"
    unclear = [s for s in pair.saved if s.keep == "either" and s.name not in pair.arguments]
    if unclear:
        call = f"{cells['s2s']}.kept({call})"
    sure = all(o.type in ("Tensor", "IntTensor", *LISTS) for o in pair.outputs)
    return _put_back(pair, call if sure else f"{cells['s2s']}.outputs({call})")
