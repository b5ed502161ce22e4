"""The function that stands in the user's place and chooses a form for every call.

Apart from it stands the function that ``torch.jit.script`` compiles in its place: a call of the
operator. What the two need beside their own parameters comes as a closure of ``bind``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..captures import is_data_global
from ..infer import written_type
from ..ir import CELLS, Emitted, Pair, Param
from ..names import fresh, of_kind, walk
from ..source import bindings
from ..vocabulary import LIBRARIES
from .layout import module_text, own, simple_default

__all__ = ["Watched", "emit_call", "emit_scripted_call", "put_back", "watched"]

NUMBERS = ("int", "float", "bool", "str")


@dataclass(frozen=True, slots=True)
class Watched:
    """A value from outside that must not require grad: a name, and attributes read from it."""

    name: str
    path: tuple[str, ...]


def watched(pair: Pair) -> tuple[Watched, ...]:
    """Outside values that may be tensors or modules: globals, names of enclosing functions, what
    other files define, and what is read from ``self`` or a class."""
    names = {c.name for c in pair.constants if c.type not in NUMBERS}
    names |= _called_objects(pair) | _global_names(pair, "import", "def")
    owners = {p.name for p in pair.params if p.bound} | _global_names(pair, "class")
    if not names and not owners:
        return ()
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
    local = {n.arg for n in of_kind(pair.source.function, ast.arg)}
    calls = of_kind(pair.source.function, ast.Call)
    called = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
    return {n for n in called - local if is_data_global(pair.source, n) and n in found}


def _global_names(pair: Pair, *kinds: str) -> set[str]:
    """Globals that statements of these kinds bind; those of the libraries hold no tensors."""
    found = bindings(pair.source.tree)
    nodes = list(walk(pair.source.function))
    local = {n.arg for n in nodes if isinstance(n, ast.arg)}
    local |= {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    names = {n.id for n in nodes if isinstance(n, ast.Name) and n.id in found} - local
    origins = {name: found[name].origin for name in names if found[name].kind in kinds}
    return {name for name, origin in origins.items() if origin.split(".")[0] not in LIBRARIES}


def emit_call(pair: Pair) -> Emitted:
    """``bind(...)``, which makes the function that users call."""
    cells = {name: fresh(name, pair.taken | {pair.name}) for name in CELLS}
    return _bound("call", pair, cells, [_head(pair), *_indented(_body(pair, cells))], pair.name)


def emit_scripted_call(pair: Pair) -> Emitted:
    """``bind(s2s)``, which makes the function that TorchScript compiles in its place."""
    cells = {"s2s": fresh("s2s", pair.taken | {pair.name})}
    name = fresh(f"{pair.name}_scripted", pair.taken | {pair.name})
    body = _indented(_scripted_body(pair, cells["s2s"]))
    return _bound("scripted call", pair, cells, [_scripted_head(pair, name), *body], name)


def _bound(form: str, pair: Pair, cells: dict[str, str], rows: list[str], returned: str) -> Emitted:
    lifted = [c.name for c in pair.constants if c.lifted]
    maker = fresh("bind", pair.taken | {pair.name})
    head = f"def {maker}({', '.join([*lifted, *cells.values()])}):"
    every = [head, *_indented([*rows, "", f"return {returned}"])]
    return module_text(form, pair, own(*every), (maker, *cells.values()))


def _indented(rows: list[str]) -> list[str]:
    return [f"    {row}" if row else row for row in rows]


def _head(pair: Pair) -> str:
    """The user's signature."""
    shown: list[str] = []
    for index, param in enumerate(pair.params):
        if param.kind == "keyword-only" and "*" not in shown:
            shown.append("*")
        shown.append(_parameter(param))
        after = pair.params[index + 1].kind if index + 1 < len(pair.params) else ""
        if param.kind == "positional-only" and after != "positional-only":
            shown.append("/")
    return f"def {pair.name}({', '.join(shown)}):"


def _scripted_head(pair: Pair, name: str) -> str:
    """What TorchScript sees: it knows neither positional-only parameters nor keyword-only ones
    with defaults, which come last by position."""
    shown = [_parameter(p) for p in pair.scripted_order]
    required = [p for p in pair.params if p not in pair.scripted_order]
    if required:
        shown += ["*", *map(_parameter, required)]
    return f"def {name}({', '.join(shown)}):"


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
    call = fresh("call", pair.taken)
    other = f"return {s2s}.other({arguments})"
    odd = _odd_plain(pair, cells)
    asks = _asks(pair)
    with_grad = [
        *guard,
        *([f"if {odd}:", f"    {other}"] if odd else []),
        f"if {c['transforms_active']}():",
        f"    {call} = {s2s}.transformed",
        *(_differentiated(cells, call, asks, other) if asks else []),
    ]
    return [
        f"if {c['is_dynamo_compiling']}() or {c['compiler']}._is_compiling_flag "
        f"or {c['forward_ad']}._current_level >= 0 or {c['is_fx_tracing']}() "
        f"or {c['is_tracing']}():",
        *_indented(guard),
        "    return " + put_back(pair, f"{s2s}.transformed({arguments})"),
        f"{call} = {c['run']}",
        f"if {c['is_grad_enabled']}():",
        *_indented(with_grad),
        "return " + put_back(pair, f"{call}({arguments})"),
    ]


def put_back(pair: Pair, call: str) -> str:
    """The outputs in the list or dict that the user's function returns."""
    if pair.list_output:
        return call if pair.container == "tuple" else f"list({call})"
    if pair.container == "list":
        return f"list({call})"
    if pair.container:
        keys = [f'"{key}"' for key in pair.container.split()]
        return f"dict(zip(({', '.join(keys)}{',' * (len(keys) == 1)}), {call}))"
    return call


def _scripted_body(pair: Pair, s2s: str) -> list[str]:
    call = f"{s2s}.op({_scripted_arguments(pair, s2s)})"
    alone = len(pair.outputs) == 1
    plain = pair.container in ("", "tuple")
    if plain and (pair.single or not alone):
        return [f"return {call}"]
    names = [fresh(f"out_{i}", pair.taken) for i in range(len(pair.outputs))]
    if plain:
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


def _asks(pair: Pair) -> list[str]:
    """For each input that may ask for a gradient: does it?"""
    asks: list[str] = []
    for param in pair.params:
        name = param.name
        if name == pair.listed:
            maybe = "t is not None and " if "Optional" in param.type else ""
            asks.append(f"(True in [{maybe}t.requires_grad for t in {name}])")
        elif param.type == "Tensor":
            asks.append(f"{name}.requires_grad")
        elif param.type == "Optional[Tensor]":
            asks.append(f"({name} is not None and {name}.requires_grad)")
    return asks


def _differentiated(cells: dict[str, str], call: str, asks: list[str], other: str) -> list[str]:
    """The eager Function where an input asks for a gradient. An input that is not what its type
    says goes elsewhere."""
    autocast = f"{cells['s2s']}.autocast if {cells['autocast_active']}() else {cells['apply']}"
    return [
        "else:",
        "    try:",
        f"        if {' | '.join(asks)}:",
        f"            {call} = {autocast}",
        "    except AttributeError:",
        f"        {other}",
    ]


def _odd_plain(pair: Pair, cells: dict[str, str]) -> str:
    """Does a parameter that should be plain hold a tensor?"""
    tensors = ("Tensor", "Optional[Tensor]")
    plain = [p for p in pair.params if p.type not in tensors and not p.bound]
    return " or ".join(_odd(p.name, p.type, cells) for p in plain if p.name != pair.listed)


def _odd(name: str, type_: str, cells: dict[str, str]) -> str:
    """True where a parameter that should be plain holds a tensor, alone or in a container."""
    if type_ in NUMBERS:
        return f"type({name}) is not {type_} and isinstance({name}, {cells['Tensor']})"
    return f"{cells['s2s']}.holds_tensor({name})"
