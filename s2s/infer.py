"""What kind of value a name holds, as far as the text alone says.

The answers are TorchScript type names ("Tensor", "Optional[Tensor]", "int", "List[int]",
"Tuple[Tensor, Tensor]", ...), "object" for a Python value that is surely no tensor, and "" where
the text does not say. They decide how a capture is kept: a wrong "plain" would hide a tensor
from autograd, so every doubt is "".
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterable, Mapping

from .names import children, walk, writes
from .source import Binding
from .vocabulary import (
    BOOLEAN,
    FLAGS,
    INTEGER,
    MANY,
    PAIRS,
    PLAIN,
    SIZES,
    TENSOR_ATTRIBUTES,
    TENSOR_LISTS,
)

__all__ = [
    "from_annotation",
    "infer",
    "is_plain",
    "is_tensor",
    "is_tensor_tuple",
    "join",
    "origin",
    "types_after",
    "written_type",
]

_CASTS = {"float": "float", "int": "int", "bool": "bool", "str": "str", "len": "int"}
_CASTS |= {"abs": "", "isinstance": "bool", "hasattr": "bool", "callable": "bool", "repr": "str"}
_TORCH_PLAIN = {"finfo": "object", "iinfo": "object", "Size": "List[int]", "device": "device"}
_TORCH_PLAIN |= {"numel": "int", "get_default_dtype": "dtype", "promote_types": "dtype"}
_TORCH_PLAIN |= {"result_type": "dtype", "is_tensor": "bool", "is_floating_point": "bool"}
_TORCH_PLAIN |= {"is_complex": "bool", "is_grad_enabled": "bool", "broadcast_shapes": "List[int]"}
_TORCH_PLAIN |= {"Generator": "object", "is_nonzero": "bool"}
_ATTRIBUTES = {"shape": "List[int]", "dtype": "dtype", "device": "device", "ndim": "int"}
_ATTRIBUTES |= {"requires_grad": "bool", "is_cuda": "bool", "layout": "object", "itemsize": "int"}

Types = Mapping[str, str]
Bindings = Mapping[str, Binding]


def is_tensor(type_: str) -> bool:
    """A tensor, an integer or mask tensor, or one that may be None."""
    return type_ in ("Tensor", "Optional[Tensor]", "IntTensor")


@functools.lru_cache(maxsize=256)
def is_plain(type_: str) -> bool:
    """Surely no tensor, and holds none."""
    if type_ in PLAIN:
        return True
    inner = _argument(type_, "List") or _argument(type_, "Optional")
    if inner is not None:
        return is_plain(inner)
    parts = _arguments(type_, "Tuple")
    return bool(parts) and all(is_plain(part) for part in parts)


def is_tensor_tuple(type_: str) -> bool:
    """A tuple of a known number of tensors."""
    parts = _arguments(type_, "Tuple")
    return bool(parts) and all(part in ("Tensor", "IntTensor") for part in parts)


def join(one: str, other: str) -> str:
    """The type of a name that two assignments bind.

    >>> join("Tensor", "None"), join("int", "int"), join("Tensor", "float"), join("int", "float")
    ('Optional[Tensor]', 'int', '', 'number')
    """
    if one == other:
        return one
    pair = {one, other}
    if pair <= {"Tensor", "IntTensor"}:
        return "Tensor"
    if pair <= {"Tensor", "IntTensor", "None", "Optional[Tensor]"}:
        return "Optional[Tensor]"
    if pair <= {"int", "float", "bool", "number"}:
        return "number"
    return "object" if is_plain(one) and is_plain(other) else ""


def origin(node: ast.AST, bindings: Bindings, local: Iterable[str] = ()) -> str | None:
    """The dotted name that an expression stands for: ``F.relu`` is "torch.nn.functional.relu".

    None where it starts from a local name or a value.
    """
    if isinstance(node, ast.Name):
        if node.id in local:
            return None
        binding = bindings.get(node.id)
        if binding is None:
            if node.id == "torch":  # nothing else binds it: a star import, or none at all
                return "torch"
            return f"builtins.{node.id}" if hasattr(builtins, node.id) else None
        if binding.kind == "import":
            return binding.origin
        if binding.kind == "data" and isinstance(binding.value, (ast.Attribute, ast.Name)):
            if not (isinstance(binding.value, ast.Name) and binding.value.id == node.id):
                return origin(binding.value, {k: v for k, v in bindings.items() if k != node.id})
        return None
    if isinstance(node, ast.Attribute):
        outer = origin(node.value, bindings, local)
        return f"{outer}.{node.attr}" if outer else None
    return None


def from_annotation(node: ast.expr | None, bindings: Bindings) -> str:
    """The TorchScript name of an annotation, "object" for another class, "" for none.

    >>> from_annotation(ast.parse("torch.Tensor | None", mode="eval").body, {})
    'Optional[Tensor]'
    """
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        if node.value is None:
            return "None"
        if isinstance(node.value, str):
            try:
                return from_annotation(ast.parse(node.value, mode="eval").body, bindings)
            except SyntaxError:
                return ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [from_annotation(node.left, bindings), from_annotation(node.right, bindings)]
        return _union(sides)
    if isinstance(node, ast.Subscript):
        return _subscript(node, bindings)
    name = (origin(node, bindings) or ast.unparse(node)).split(".")[-1]
    known = {"Tensor": "Tensor", "Parameter": "Tensor", "FloatTensor": "Tensor", "Any": ""}
    known |= {"int": "int", "float": "float", "bool": "bool", "str": "str", "complex": "complex"}
    known |= {"dtype": "dtype", "device": "device", "Device": "device", "Size": "List[int]"}
    known |= {"number": "number", "Number": "number", "Scalar": "number", "TensorType": "Tensor"}
    return known.get(name, "object" if _is_class_name(name) else "")


def _is_class_name(name: str) -> bool:
    plain = ("dict", "list", "tuple", "set", "object", "bytes", "callable")
    return name in ("Callable", "Module", "Generator") or name in plain


def _subscript(node: ast.Subscript, bindings: Bindings) -> str:
    outer = (origin(node.value, bindings) or ast.unparse(node.value)).split(".")[-1]
    elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Literal":
        values = [e.value for e in elements if isinstance(e, ast.Constant)]
        return "str" if values and all(isinstance(v, str) for v in values) else "object"
    inner = [from_annotation(e, bindings) for e in elements if not _is_ellipsis(e)]
    if outer == "Annotated":
        return inner[0]
    if outer == "Optional":
        return _union([*inner, "None"])
    if outer == "Union":
        return _union(inner)
    if outer in ("List", "list", "Sequence", "Iterable") and len(inner) == 1 and inner[0]:
        return f"List[{inner[0]}]"
    if outer in ("Tuple", "tuple") and inner and all(inner):
        if len(elements) > len(inner):  # Tuple[int, ...]
            return f"List[{inner[0]}]"
        return f"Tuple[{', '.join(inner)}]"
    if outer.startswith(("Float", "Int", "Shaped", "Num", "Bool")) and outer not in ("Bool",):
        return "Tensor"  # jaxtyping's Float[Tensor, "batch features"]
    if outer in ("Dict", "dict", "Mapping") and "Tensor" in inner:
        return "Dict[str, Tensor]"
    return "object" if outer in ("Dict", "dict", "Callable", "Type", "type", "Set", "set") else ""


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _union(types: list[str]) -> str:
    present = [t for t in types if t != "None"]
    if not all(present) or not present:
        return ""
    joined = present[0]
    for other in present[1:]:
        joined = join(joined, other)
    if len(present) == len(types) or not joined or joined.startswith("Optional"):
        return joined
    return joined if joined == "object" else f"Optional[{joined}]"


def types_after(body: Iterable[ast.stmt], types: Types, bindings: Bindings) -> dict[str, str]:
    """The type of every name once ``body`` has run, joined over all its assignments."""
    known = dict(types)
    bound: set[str] = set(types)
    for statement in body:
        _assign(statement, known, bound, bindings)
    return {name: "" if type_ == _EMPTY_LIST else type_ for name, type_ in known.items()}


def _bind(name: str, type_: str, known: dict[str, str], bound: set[str]) -> None:
    known[name] = join(known[name], type_) if name in bound else type_
    bound.add(name)


def _assign(node: ast.AST, known: dict[str, str], bound: set[str], bindings: Bindings) -> None:
    if isinstance(node, ast.Assign):
        _walrus(node.value, known, bound, bindings)
        for target in node.targets:
            _bind_target(target, infer(node.value, known, bindings), node.value, known, bound)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        type_ = from_annotation(node.annotation, bindings)
        if not type_ and node.value is not None:
            type_ = infer(node.value, known, bindings)
        _bind(node.target.id, type_, known, bound)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        mixed = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        _bind(node.target.id, infer(mixed, known, bindings), known, bound)
    elif isinstance(node, ast.Expr):
        _append(node.value, known, bindings)
        _walrus(node.value, known, bound, bindings)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        _bind_target(node.target, _element(infer(node.iter, known, bindings)), None, known, bound)
        for statement in [*node.body, *node.orelse]:
            _assign(statement, known, bound, bindings)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        _bind(node.name, "object", known, bound)
    elif isinstance(node, ast.expr):
        _walrus(node, known, bound, bindings)
    elif isinstance(node, ast.match_case):
        for name in writes(node.pattern):
            _bind(name, "", known, bound)
        for statement in node.body:
            _assign(statement, known, bound, bindings)
    elif isinstance(node, ast.withitem):
        if node.optional_vars is not None:
            _bind_target(node.optional_vars, "", None, known, bound)
    elif not isinstance(node, (ast.AsyncFunctionDef, ast.Lambda)):
        for child in children(node):
            _assign(child, known, bound, bindings)


def _append(node: ast.expr, known: dict[str, str], bindings: Bindings) -> None:
    """``parts.append(t)``: what an empty list is filled with."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    owner = node.func.value
    if node.func.attr != "append" or not isinstance(owner, ast.Name) or len(node.args) != 1:
        return
    before = known.get(owner.id, "")
    part = infer(node.args[0], known, bindings)
    part = "Tensor" if part == "IntTensor" else part
    if before == _EMPTY_LIST:
        known[owner.id] = f"List[{part}]" if part else ""
    elif before.startswith("List["):
        joined = join(before[5:-1], part)
        known[owner.id] = f"List[{joined}]" if joined else ""


_EMPTY_LIST = "List[]"


def _walrus(node: ast.AST, known: dict[str, str], bound: set[str], bindings: Bindings) -> None:
    for inner in walk(node):
        if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
            _bind(inner.target.id, infer(inner.value, known, bindings), known, bound)


def _bind_target(
    target: ast.expr, type_: str, value: ast.expr | None, known: dict[str, str], bound: set[str]
) -> None:
    if isinstance(target, ast.Name):
        _bind(target.id, type_, known, bound)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = _arguments(type_, "Tuple")
        for index, element in enumerate(target.elts):
            exact = parts and len(parts) == len(target.elts)
            part = parts[index] if parts and exact else _element(type_)
            if isinstance(element, ast.Starred):
                _bind_target(element.value, f"List[{part}]" if part else "", None, known, bound)
            else:
                _bind_target(element, part, None, known, bound)


def _element(type_: str) -> str:
    inner = _argument(type_, "List")
    if inner:
        return inner
    return "Tensor" if type_ == "Tensor" else ""


def infer(node: ast.expr, types: Types, bindings: Bindings) -> str:
    """The type of one expression."""
    if isinstance(node, ast.Name):
        return types[node.id] if node.id in types else _global_type(node.id, bindings)
    if isinstance(node, ast.Constant):
        return "None" if node.value is None else type(node.value).__name__
    if isinstance(node, ast.BinOp):
        return _binary(infer(node.left, types, bindings), infer(node.right, types, bindings), node)
    if isinstance(node, ast.UnaryOp):
        inner = infer(node.operand, types, bindings)
        return "bool" if isinstance(node.op, ast.Not) else inner
    if isinstance(node, ast.Compare):
        return _compare(node, types, bindings)
    if isinstance(node, ast.BoolOp):
        parts = [infer(v, types, bindings) for v in node.values]
        return _fold(parts)
    if isinstance(node, ast.IfExp):
        return join(infer(node.body, types, bindings), infer(node.orelse, types, bindings))
    if isinstance(node, ast.NamedExpr):
        return infer(node.value, types, bindings)
    if isinstance(node, ast.Tuple):
        parts = [infer(e, types, bindings) for e in node.elts]
        return f"Tuple[{', '.join(parts)}]" if parts and all(parts) else ""
    if isinstance(node, ast.List):
        if not node.elts:
            return _EMPTY_LIST
        part = _fold([infer(e, types, bindings) for e in node.elts])
        part = "Tensor" if part == "IntTensor" else part
        return f"List[{part}]" if part else ""
    if isinstance(node, ast.Dict) and node.values:
        part = _fold([infer(v, types, bindings) for v in node.values])
        named = all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys)
        return "Dict[str, Tensor]" if named and is_tensor(part) else ""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _comprehension(node, types, bindings)
    if isinstance(node, ast.Attribute):
        return _attribute(node, types, bindings)
    if isinstance(node, ast.Subscript):
        return _item(node, types, bindings)
    if isinstance(node, ast.Call):
        return _call(node, types, bindings)
    if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
        return "str"
    if isinstance(node, ast.Lambda):
        return "object"
    return ""


def _comprehension(node: ast.ListComp | ast.GeneratorExp, types: Types, bindings: Bindings) -> str:
    known = dict(types)
    for generator in node.generators:
        own: dict[str, str] = {}
        element = _element(infer(generator.iter, known, bindings))
        _bind_target(generator.target, element, None, own, set())
        known |= own
    part = infer(node.elt, known, bindings)
    return f"List[{'Tensor' if part == 'IntTensor' else part}]" if part else ""


def _fold(parts: list[str]) -> str:
    joined = parts[0]
    for other in parts[1:]:
        joined = join(joined, other)
    return joined


def _global_type(name: str, bindings: Bindings) -> str:
    binding = bindings.get(name)
    if binding is None:
        return "object" if hasattr(builtins, name) else ""
    if binding.kind == "data" and binding.value is not None:
        rest = {key: b for key, b in bindings.items() if key != name}
        type_ = infer(binding.value, {}, rest)
        # a module-level list or dict may hold anything by the time it is read
        unchanging = type_ in PLAIN - {"object", "None"} or type_ == "Tensor"
        fixed = type_.startswith("Tuple[") and is_plain(type_) and "object" not in type_
        return type_ if unchanging or fixed else ""
    found = origin(ast.Name(name, ast.Load()), bindings)
    if found and found.startswith("math."):
        return "float"
    return "object" if binding.kind in ("def", "class") else ""


def _binary(left: str, right: str, node: ast.BinOp) -> str:
    if "Tensor" in (left, right):
        return "Tensor"
    if "IntTensor" in (left, right):
        both = {left, right} <= {"IntTensor", "int", "bool"}
        return "IntTensor" if both and not isinstance(node.op, ast.Div) else "Tensor"
    numbers = {"int", "float", "bool", "number", "complex"}
    if left in numbers and right in numbers:
        if "float" in (left, right) or isinstance(node.op, ast.Div):
            return "float" if "complex" not in (left, right) else "complex"
        if isinstance(node.op, ast.Pow):
            return "number"
        return "int" if {left, right} <= {"int", "bool"} else "number"
    if left == right and (left == "str" or left.startswith("List[")):
        return left
    if left.startswith("List[") and isinstance(node.op, ast.Mult):
        return left
    if left == "str":
        return "str"
    return ""


def _compare(node: ast.Compare, types: Types, bindings: Bindings) -> str:
    plain_ops = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
    if all(isinstance(op, plain_ops) for op in node.ops):
        return "bool"
    parts = [infer(e, types, bindings) for e in (node.left, *node.comparators)]
    if any(is_tensor(p) for p in parts):
        return "IntTensor" if len(node.ops) == 1 else ""
    return "bool" if all(is_plain(p) for p in parts) else ""


def _attribute(node: ast.Attribute, types: Types, bindings: Bindings) -> str:
    path = origin(node, bindings, types)
    if path is not None:
        if path.startswith("math."):
            return "float"
        if path.startswith("torch."):
            last = path.split(".")[-1]
            return "dtype" if _is_dtype(last) else "object"
        return ""
    owner = infer(node.value, types, bindings)
    if node.attr in _ATTRIBUTES and (is_tensor(owner) or node.attr in ("shape", "dtype")):
        return _ATTRIBUTES[node.attr]
    if is_tensor(owner) and node.attr in TENSOR_ATTRIBUTES:
        return "Tensor"
    if is_tensor_tuple(owner) and node.attr in ("values", "indices"):
        return "Tensor" if node.attr == "values" else "IntTensor"
    return ""


def _is_dtype(name: str) -> bool:
    words = ("float", "int", "uint", "bfloat", "complex", "bool", "half", "double", "long", "short")
    return name.rstrip("0123456789_") in words


def _item(node: ast.Subscript, types: Types, bindings: Bindings) -> str:
    owner = infer(node.value, types, bindings)
    if is_tensor(owner):
        return "IntTensor" if owner == "IntTensor" else "Tensor"
    inner = _argument(owner, "List")
    if inner is not None:
        return owner if isinstance(node.slice, ast.Slice) else inner
    parts = _arguments(owner, "Tuple")
    if parts and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
        return parts[node.slice.value] if -len(parts) <= node.slice.value < len(parts) else ""
    return "str" if owner == "str" else ""


def _call(node: ast.Call, types: Types, bindings: Bindings) -> str:
    path = origin(node.func, bindings, types)
    if path is not None:
        return _known_call(path, node, types, bindings)
    if isinstance(node.func, ast.Attribute):
        owner = infer(node.func.value, types, bindings)
        method = node.func.attr
        if is_tensor(owner):
            return _method(method, owner, node, types, bindings)
        if owner == "str":
            return {"split": "List[str]", "startswith": "bool", "endswith": "bool"}.get(
                method, "str"
            )
        if method in SIZES:
            return "int"
        if method == "size":
            return "int" if node.args or node.keywords else "List[int]"
    return ""


def _known_call(path: str, node: ast.Call, types: Types, bindings: Bindings) -> str:
    scope, _, name = path.rpartition(".")
    if scope == "builtins":
        return _builtin(name, node, types, bindings)
    if scope == "math":
        exact = ("floor", "ceil", "gcd", "lcm", "comb", "perm", "factorial", "isqrt", "trunc")
        return "int" if name in exact else "bool" if name.startswith("is") else "float"
    if not path.startswith("torch."):
        return ""
    if name in _TORCH_PLAIN:
        return _TORCH_PLAIN[name]
    if "autograd" in scope or name.startswith("_") or scope == "torch.func":
        return ""
    if name[:1].isupper():  # a class: modules, distributions; tensors but for a few
        return "Tensor" if name in ("Tensor", "Parameter") or name.endswith("Tensor") else "object"
    return _method(name, "Tensor", node, types, bindings)


def _builtin(name: str, node: ast.Call, types: Types, bindings: Bindings) -> str:
    arguments = [infer(a, types, bindings) for a in node.args]
    if name in _CASTS and _CASTS[name]:
        return _CASTS[name]
    if name == "range":
        return "List[int]"
    if name in ("list", "tuple", "sorted", "reversed") and len(arguments) == 1:
        return arguments[0] if arguments[0].startswith("List[") else ""
    if name in ("min", "max", "sum") and arguments:
        if len(arguments) == 1:
            return _element(arguments[0])
        return _fold(arguments)
    if name == "abs" and arguments:
        return arguments[0]
    if name == "round" and arguments and arguments[0] in ("int", "float", "number"):
        return "int" if len(arguments) == 1 else "float"
    return ""


def _method(name: str, owner: str, node: ast.Call, types: Types, bindings: Bindings) -> str:
    """The type of ``tensor.name(...)`` or ``torch.name(...)``."""
    several = len(node.args) + len(node.keywords)
    is_function = origin(node.func, bindings, types) is not None
    if name in SIZES:
        return "int"
    if name in FLAGS:
        return "bool"
    if name in ("size", "stride"):
        return "int" if several - is_function else "List[int]"
    if name in ("item", "tolist", "numpy", "type", "data_ptr", "untyped_storage"):
        return "number" if name == "item" else "object" if name == "tolist" else ""
    if name in ("equal", "allclose", "is_nonzero"):
        return "bool"
    if name in ("max", "min") and several - is_function:
        return _extreme(node, is_function, types, bindings)
    if name in PAIRS:
        if name in ("median", "nanmedian") and not several - is_function:
            return "Tensor"
        return "Tuple[Tensor, IntTensor]"
    if name in TENSOR_LISTS:
        return "List[Tensor]"
    if name in MANY:
        return ""
    if name in INTEGER or name in BOOLEAN:
        return "IntTensor"
    if name in ("nonzero", "where") and not is_function and not node.args:
        return ""
    if owner == "IntTensor" and name in ("view", "reshape", "unsqueeze", "squeeze", "expand", "t"):
        return "IntTensor"
    return "Tensor"


def _extreme(node: ast.Call, is_function: bool, types: Types, bindings: Bindings) -> str:
    """max and min: (values, indices) over a dimension, a tensor against another tensor."""
    rest = node.args[1 if is_function else 0 :]
    if any(k.arg in ("dim", "keepdim") for k in node.keywords):
        return "Tuple[Tensor, IntTensor]"
    if any(k.arg == "other" for k in node.keywords):
        return "Tensor"
    if rest:
        kind = infer(rest[0], types, bindings)
        if kind == "int":
            return "Tuple[Tensor, IntTensor]"
        return "Tensor" if is_tensor(kind) else ""
    return "Tensor"


def _argument(type_: str, outer: str) -> str | None:
    if type_.startswith(outer + "[") and type_.endswith("]"):
        return type_[len(outer) + 1 : -1]
    return None


def _arguments(type_: str, outer: str) -> list[str]:
    inner = _argument(type_, outer)
    if not inner:
        return []
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(inner):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(inner[start:index].strip())
            start = index + 1
    return [*parts, inner[start:].strip()]


_NAMES = {"IntTensor": "Tensor", "dtype": "torch.dtype", "device": "torch.device"}
_NAMES |= {"number": "float", "object": "", "complex": "complex"}


def written_type(type_: str) -> str:
    """A type as TorchScript annotations spell it; "" where it has no name there,
    and for an empty list, of which nothing tells what it is for."""
    if _EMPTY_LIST in type_:
        return ""
    for ours, theirs in _NAMES.items():
        if re.search(rf"\b{ours}\b", type_) and not theirs:
            return ""
        if f".{ours}" not in type_:
            type_ = re.sub(rf"\b{ours}\b", theirs, type_)
    return type_
