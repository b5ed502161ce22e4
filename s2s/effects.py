"""May a statement be run a second time, and does a value carry a gradient?

A second derivative recomputes what forward computed. That is only right for statements that
give the same value again and do nothing else: no random draws, no calls into code that cannot be
seen. What is doubtful is opaque.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterable, Mapping

from .infer import Bindings, origin
from .names import changed, children, is_none, of_kind, reads, same_scope, walk, writes
from .vocabulary import (
    FLAT,
    IN_PLACE,
    LIKE,
    METADATA,
    NONLINEAR,
    PURE_BUILTINS,
    RANDOM,
    READS_ONLY,
    SHARING,
    STATISTICS,
)

__all__ = [
    "aliases",
    "carries_gradient",
    "closed_over",
    "doing",
    "may_share",
    "nested_functions",
    "not_linear",
    "slice_for",
    "touched",
    "without_grad",
]

_SEEN = (
    "functools.partial",
    "torch.",
    "math.",
    "operator.",
    "numpy.",
    "builtins.",
    "typing.",
    "itertools.",
)
_UNSEEN = ("torch.ops.", "torch.load", "torch.save", "torch.manual_seed", "torch.seed")


def doing(
    node: ast.AST,
    bindings: Bindings,
    local: Collection[str],
    objects: Collection[str] = (),
    helpers: Mapping[str, ast.AST] | None = None,
    depth: int = 4,
) -> str:
    """ "pure", "random" or "opaque": what running ``node`` does beside its assignments.

    ``local`` are the names bound in the function, ``objects`` those that hold other values than
    tensors and plain data, ``helpers`` the nested functions whose bodies can be looked into.
    """
    found = "pure"
    generators = of_kind(node, ast.comprehension)
    own = {n.id for g in generators for n in of_kind(g.target, ast.Name)}
    local = {*local, *own}
    for inner in walk(node) if isinstance(node, ast.expr) else same_scope(node):
        if isinstance(inner, ast.Call):
            kind = _call(inner, bindings, local, objects, helpers or {}, depth)
            found = "opaque" if "opaque" in (kind, found) else kind if found == "pure" else found
        elif isinstance(inner, (ast.Global, ast.Nonlocal, ast.Yield, ast.Await, ast.YieldFrom)):
            return "opaque"
    return found


def _call(
    call: ast.Call,
    bindings: Bindings,
    local: Collection[str],
    objects: Collection[str],
    helpers: Mapping[str, ast.AST],
    depth: int,
) -> str:
    func = call.func
    path = origin(func, bindings, local)
    if path is not None:
        name = path.split(".")[-1]
        if path.startswith("builtins."):
            return "pure" if name in PURE_BUILTINS or _is_exception(name) else "opaque"
        if not path.startswith(_SEEN) or path.startswith(_UNSEEN):
            return "opaque"
        if name == "scaled_dot_product_attention":
            drops = [k for k in call.keywords if k.arg == "dropout_p"] or call.args[4:]
            return "random" if drops else "pure"
        if _changes_given(call, path, name):
            return "opaque"
        return "random" if name in RANDOM else "pure"
    if isinstance(func, ast.Name):
        if func.id in helpers and depth:
            return _function(helpers[func.id], bindings, local, objects, helpers, depth)
        binding = bindings.get(func.id)
        if func.id not in local and binding and binding.function is not None and depth:
            return _function(binding.function, bindings, (), (), {}, depth)
        return "opaque"
    if isinstance(func, ast.Attribute):
        if func.attr in RANDOM:
            return "random"
        owner = _dotted_root(func.value)
        if owner is None:  # a method of a value just computed
            return "pure"
        outside = owner not in local
        if (owner in objects or outside) and func.attr not in READS_ONLY:
            return "opaque"
        return "pure"
    return "opaque"


def _changes_given(call: ast.Call, path: str, name: str) -> bool:
    """Does it write to tensors it is given, though no underscore says so? Running statistics, in
    training, and the rows of an embedding that are held to a norm."""
    if name in ("embedding", "embedding_bag"):
        return not _is_none(_argument(call, 3, "max_norm"))
    if name not in STATISTICS:
        return False
    first = 1 if ".functional." in path or name == "batch_norm_update_stats" else 3
    mean = _argument(call, first, "running_mean")
    if _is_none(mean) and _is_none(_argument(call, first + 1, "running_var")):
        return False
    training = _argument(call, 5, "training", "use_input_stats")
    if "update" in name or "gather" in name or training is None:
        return "functional.batch_norm" not in path  # where nothing said means not training
    return not (isinstance(training, ast.Constant) and training.value is False)


def _argument(call: ast.Call, place: int, *names: str) -> ast.expr | None:
    """What a call gives for a parameter, None for nothing; one that is unpacked may be anything."""
    for keyword in call.keywords:
        if keyword.arg in (None, *names):
            return keyword.value
    before = call.args[: place + 1]
    unpacked = next((a for a in before if isinstance(a, ast.Starred)), None)
    return unpacked or (call.args[place] if place < len(call.args) else None)


def _is_none(node: ast.expr | None) -> bool:
    return node is None or is_none(node)


def _dotted_root(node: ast.expr) -> str | None:
    """The name that a chain of attributes starts from; None for any other expression."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_exception(name: str) -> bool:
    value = getattr(builtins, name, None)
    return isinstance(value, type) and issubclass(value, BaseException)


def _function(
    tree: ast.AST,
    bindings: Bindings,
    outer: Collection[str],
    objects: Collection[str],
    helpers: Mapping[str, ast.AST],
    depth: int,
) -> str:
    """What calling a function of the same file does, read off its body."""
    body = tree.body if isinstance(tree.body, list) else [tree.body]  # type: ignore[attr-defined]
    arguments: ast.arguments = tree.args  # type: ignore[attr-defined]
    own = {a.arg for a in walk(arguments) if isinstance(a, ast.arg)}
    own |= {name for part in body for name in writes(part)}
    rest = {key: value for key, value in helpers.items() if value is not tree}
    kinds = {doing(s, bindings, {*outer, *own}, objects, rest, depth - 1) for s in body}
    return "opaque" if "opaque" in kinds else "random" if "random" in kinds else "pure"


def without_grad(node: ast.AST) -> bool:
    """Is it ``with torch.no_grad():``? What is computed there is a constant to autograd."""
    return isinstance(node, ast.With) and any(
        ast.unparse(item.context_expr).split("(")[0].split(".")[-1] in ("no_grad", "inference_mode")
        for item in node.items
    )


def carries_gradient(node: ast.AST, carrying: Collection[str]) -> bool:
    """Does the value depend on one of ``carrying`` in a way that has a derivative?

    Comparisons, rounding, ``detach``, shapes and indices do not.

    >>> tree = ast.parse("(torch.rand_like(x) >= p).to(x.dtype) / (1 - p)", mode="eval").body
    >>> carries_gradient(tree, {"x"})
    False
    """
    if isinstance(node, ast.Name):
        return node.id in carrying
    if isinstance(node, ast.Compare):
        return False
    if isinstance(node, ast.Attribute) and node.attr in METADATA:
        return False
    if isinstance(node, ast.Call):
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", None)
        if name in FLAT:
            return False
        if name in LIKE and isinstance(func, ast.Attribute):
            return carries_gradient(func.value, carrying)
        parts: list[ast.AST] = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(func, ast.Attribute):
            parts.append(func.value)
        else:  # a nested function may have closed over what carries
            parts.append(func)
        return any(carries_gradient(p, carrying) for p in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        return False
    if isinstance(node, ast.Subscript):
        return carries_gradient(node.value, carrying)
    if isinstance(node, ast.Lambda):
        return any(name in carrying for name in reads(node))
    return any(carries_gradient(child, carrying) for child in children(node))


def aliases(body: Iterable[ast.stmt]) -> dict[str, frozenset[str]]:
    """For each name, the names that may share memory with it: a view of it, or it of them."""
    groups: dict[str, set[str]] = {}
    for statement in body:
        for inner in same_scope(statement):
            if not isinstance(inner, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For)):
                continue
            value = inner.iter if isinstance(inner, ast.For) else inner.value
            if value is None:
                continue
            merged: set[str] = set()
            for name in {*writes(inner), *may_share(value)}:
                merged |= groups.get(name, {name})
            for name in merged:
                groups[name] = merged
    return {name: frozenset(group) for name, group in groups.items()}


def may_share(value: ast.expr) -> set[str]:
    """Names whose memory the value of an expression may be."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, (ast.BinOp, ast.Compare, ast.Constant, ast.UnaryOp)):
        return set()
    if isinstance(value, ast.IfExp):
        return may_share(value.body) | may_share(value.orelse)
    if isinstance(value, ast.Call):
        func = value.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if isinstance(func, ast.Attribute) and name in IN_PLACE.values():
            return may_share(func.value)
        known = isinstance(func, ast.Attribute) and name not in SHARING and name[:1] != "_"
        if known and not name.endswith("_"):
            return set()
        return set(reads(value))
    if isinstance(value, (ast.Attribute, ast.Subscript, ast.Starred)):
        return may_share(value.value)
    return {n for c in children(value) if isinstance(c, ast.expr) for n in may_share(c)}


def nested_functions(body: Iterable[ast.stmt]) -> dict[str, ast.FunctionDef | ast.Lambda]:
    """The functions that a body defines, by name."""
    found: dict[str, ast.FunctionDef | ast.Lambda] = {}
    for tree in body:
        if isinstance(tree, ast.FunctionDef):
            found[tree.name] = tree
        elif isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Lambda):
            found.update(dict.fromkeys(writes(tree), tree.value))
    return found


def closed_over(body: Iterable[ast.stmt]) -> set[str]:
    """Names that nested functions read, whenever they are called.

    >>> closed_over(ast.parse("h = lambda v: v * s; s = 2").body)
    {'s'}
    """
    inner = [n for s in body for n in walk(s) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    return {name for function in inner for name in reads(function)}


def touched(
    statement: ast.stmt,
    bindings: Bindings,
    sure: bool = False,
    nested: Mapping[str, ast.FunctionDef | ast.Lambda] | None = None,
) -> set[str]:
    """Names whose value a statement changes in place, by itself or in a function it calls.

    A call whose result is thrown away is there for what it does: unless it is known, it may
    change what it is given. ``sure`` leaves such guesses out. ``nested`` are the functions that
    are defined beside the statement: they change what they close over, too.
    """
    found = set(changed(statement))
    nested = nested or {}
    for node in same_scope(statement):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        binding = bindings.get(node.func.id)
        function = nested.get(node.func.id) or (binding.function if binding else None)
        if function is not None:
            rest = {name: f for name, f in nested.items() if f is not function}
            known = bindings
            if binding is not None and binding.function is function:  # it may call itself
                known = {name: b for name, b in bindings.items() if b.function is not function}
            found |= _touched_by(function, node, known, rest)
        elif not sure and isinstance(statement, ast.Expr) and node is statement.value:
            if origin(node.func, bindings) is None or binding is not None:
                found |= {name for a in node.args for name in may_share(a)}
    return found


def _touched_by(
    function: ast.FunctionDef | ast.Lambda,
    call: ast.Call,
    bindings: Bindings,
    nested: Mapping[str, ast.FunctionDef | ast.Lambda],
) -> set[str]:
    """What a call of a known function changes: its arguments, and what it closes over."""
    body = function.body if isinstance(function.body, list) else [ast.Expr(function.body)]
    inner = {n for s in body for n in touched(s, bindings, True, nested)}
    arguments = function.args
    params = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    found = {
        name
        for param, argument in zip(params, call.args)
        if param in inner
        for name in may_share(argument)
    }
    own = {a.arg for a in walk(arguments) if isinstance(a, ast.arg)}
    own |= {name for s in body for name in writes(s)}
    return found | (inner - own)


def slice_for(
    names: Collection[str],
    body: tuple[ast.stmt, ...],
    stop: Collection[str] = (),
    bindings: Bindings | None = None,
) -> tuple[list[int], set[str]]:
    """The statements of ``body`` that ``names`` depend on, and the names these start from.

    Whole compound statements are kept. A statement that changes a value in place belongs to
    every name that may share memory with it. Names in ``stop`` are not traced further.

    >>> body = tuple(ast.parse("a = f(x); b = g(y); c = a + 1; a.add_(1)").body)
    >>> slice_for({"c"}, body)[0], sorted(slice_for({"c"}, body)[1])
    ([0, 2], ['f', 'x'])
    """
    shared = aliases(body)
    nested = nested_functions(body)
    needed = set(names) - set(stop)
    reached: set[str] = set()
    kept: list[int] = []
    for index in range(len(body) - 1, -1, -1):
        statement = body[index]
        bound = set(writes(statement))
        changes = touched(statement, bindings or {}, nested=nested)
        inplace = {a for n in changes for a in shared.get(n, {n})}
        if not (bound | inplace) & needed:
            continue
        kept.append(index)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.FunctionDef)) and not inplace:
            needed -= bound
        needed |= set(reads(statement)) - set(stop)
        reached |= set(reads(statement)) & set(stop)
    return sorted(kept), needed | reached


def not_linear(names: Collection[str], body: Iterable[ast.stmt]) -> str | None:
    """The text of an expression that is surely not linear in ``names``, or None.

    >>> not_linear({"g"}, ast.parse("h = g * 2; return h.clamp(-1, 1) * x").body)
    'h.clamp(-1, 1)'
    """
    depending = set(names)
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.expr) and _bends(node, depending):
                return ast.unparse(node)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For)):
            if set(reads(statement)) & depending and not isinstance(statement, ast.For):
                if carries_gradient(statement.value or ast.Constant(0), depending):
                    depending |= set(writes(statement))
    return None


def _bends(node: ast.expr, depending: Collection[str]) -> bool:
    def depends(part: ast.AST) -> bool:
        return carries_gradient(part, depending)

    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mult):
            return depends(node.left) and depends(node.right)
        if isinstance(node.op, ast.Div):
            return depends(node.right)
        return isinstance(node.op, ast.Pow) and depends(node.left)
    if isinstance(node, ast.Call):
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        parts = [*node.args, *([func.value] if isinstance(func, ast.Attribute) else [])]
        return name in NONLINEAR and any(map(depends, parts))
    return False
