"""One method of a Function class as trees, and what its decorators say."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from ..errors import TransformError, diagnostic
from ..infer import origin
from ..ir import lines_of
from ..source import bindings
from ..syntax import assigned, code, renamed
from .find import FunctionClass, Method
from .marks import marked

__all__ = ["Part", "one_by_one", "part_of", "tree_of"]

_ONCE = "once_differentiable"
_FORWARD, _BACKWARD = "custom_fwd", "custom_bwd"
_MODES = ("enable_grad", "no_grad")
_UNSCRIPTED = ("torch.jit.ignore", "torch.jit.unused")  # they mean something to TorchScript alone
_NOTHING = ("no_grad", "inference_mode")  # forward runs like that anyway


@dataclass(frozen=True, slots=True)
class Part:
    """A method to rewrite: each statement marked with its line and on a line of its own."""

    name: str
    node: cst.FunctionDef
    ctx: str  # "" for a forward that takes none
    params: tuple[str, ...]  # behind ctx, *args among them
    once: bool = False
    cast: str = ""  # custom_fwd(cast_inputs=...)
    device: str = "cuda"  # custom_fwd(device_type=...)
    grad: str = ""  # "enable_grad" or "no_grad", where backward is decorated with it

    @property
    def tree(self) -> ast.FunctionDef:
        return tree_of(self.node)


@functools.lru_cache(maxsize=256)
def tree_of(node: cst.FunctionDef) -> ast.FunctionDef:
    """The same function for analysis."""
    tree = ast.parse(code(node.with_changes(decorators=(), leading_lines=()))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


def part_of(cls: FunctionClass, method: Method, has_setup: bool = False) -> Part:
    """A method of the class; a forward beside a setup_context takes no ctx.

    Raises TransformError for decorators and signatures that have no meaning here.
    """
    function = method.function
    first = min([function.lineno, *(d.lineno for d in method.decorators)])
    text = "\n".join(lines_of(cls.text)[first - 1 : function.end_lineno])
    node = one_by_one(marked(text, first))
    said = _decorators(cls, method)
    names = _names(function)
    if "classmethod" in said:  # its first parameter is the class
        node, names = _without_class(cls, node, names), names[1:]
    elif "staticmethod" not in said and function.name != "backward":
        raise TransformError(
            [
                diagnostic(
                    "S2S221",
                    cls.span(function),
                    f"{function.name} of {cls.name} is no static method; PyTorch refuses to "
                    "run such a class",
                    hint="put @staticmethod above forward and backward, take ctx first, and call "
                    f"{cls.name}.apply(...)",
                )
            ]
        )
    grad = next((n for n in _MODES if n in said and function.name == "backward"), "")
    ctx = "" if function.name == "forward" and has_setup else names.pop(0)
    cast, device = said.get(_FORWARD, ""), said.get("device", "cuda")
    return Part(function.name, node, ctx, tuple(names), _ONCE in said, cast, device, grad)


def _names(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    return names + ([arguments.vararg.arg] if arguments.vararg else [])


def _without_class(cls: FunctionClass, node: cst.FunctionDef, names: list[str]) -> cst.FunctionDef:
    """``cls`` of a class method is the class; here its name."""
    params = node.params.params[1:]
    bare = node.with_changes(params=node.params.with_changes(params=params))
    changed = renamed(bare, {names[0]: cls.name})
    assert isinstance(changed, cst.FunctionDef)
    return changed


def _decorators(cls: FunctionClass, method: Method) -> Mapping[str, str]:
    """What stands above a method: the last part of each name, and cast_inputs of custom_fwd."""
    found: dict[str, str] = {}
    known = bindings(cls.tree)
    for decorator in method.decorators:
        call = decorator if isinstance(decorator, ast.Call) else None
        target = call.func if call else decorator
        path = origin(target, known) or ast.unparse(target)
        name = path.split(".")[-1]
        bare = name == "partial" and call is not None  # functools.partial(custom_fwd, ...)
        if bare and call is not None and call.args:
            name = (origin(call.args[0], known) or ast.unparse(call.args[0])).split(".")[-1]
        if name in ("staticmethod", "classmethod", _ONCE, _FORWARD, _BACKWARD):
            found[name] = _cast_inputs(call)
            found["device"] = _device(call) if name == _FORWARD else found.get("device", "cuda")
        elif name in _MODES and path.startswith("torch.") and method.function.name == "backward":
            found[name] = ""
        elif path not in _UNSCRIPTED and not (
            name in _NOTHING and method.function.name == "forward"
        ):
            raise TransformError(
                [
                    diagnostic(
                        "S2S212",
                        cls.span(decorator),
                        f"{method.function.name} of {cls.name} is decorated with "
                        f"@{ast.unparse(decorator)}",
                        hint="write what it does inside the method, for example "
                        "`with torch.no_grad():`",
                    )
                ]
            )
    return found


def _device(call: ast.Call | None) -> str:
    """``custom_fwd(device_type="cpu")``; torch.cuda.amp's own takes none."""
    given = [k.value for k in call.keywords if k.arg == "device_type"] if call else []
    constant = given[0] if given else None
    return str(constant.value) if isinstance(constant, ast.Constant) else "cuda"


def _cast_inputs(call: ast.Call | None) -> str:
    for keyword in call.keywords if call else ():
        if keyword.arg == "cast_inputs" and not (
            isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        ):
            return ast.unparse(keyword.value)
    return ""


# --- ctx.a, ctx.b = a, b --------------------------------------------------------------------


class _OneByOne(cst.CSTTransformer):
    """``a, b = x, y`` and ``a = b = x`` as two assignments, where that is the same."""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        small = updated_node.body[0] if updated_node.body else None
        if not isinstance(small, cst.Assign):
            return updated_node
        pairs = _pairs(small)
        if len(pairs) < 2:
            return updated_node
        lines = [
            cst.SimpleStatementLine(
                [assigned(target, value)],
                leading_lines=[mark for mark in updated_node.leading_lines[-1:] if mark.comment],
            )
            for target, value in pairs
        ]
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        space = updated_node.trailing_whitespace
        lines[-1] = lines[-1].with_changes(trailing_whitespace=space)
        return cst.FlattenSentinel(lines)


def _pairs(node: cst.Assign) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Targets and values of the single assignments."""
    targets = [t.target for t in node.targets]
    if len(targets) == 2 and all(isinstance(t, (cst.Name, cst.Attribute)) for t in targets):
        first, second = targets
        if isinstance(second, cst.Name):
            first, second = second, first
        if isinstance(first, cst.Name):
            return [(first, node.value), (second, first)]
        return []
    if len(targets) != 1 or not isinstance(targets[0], (cst.Tuple, cst.List)):
        return []
    if not isinstance(node.value, cst.Tuple):
        return []
    left, right = targets[0].elements, node.value.elements
    if len(left) != len(right) or any(isinstance(e, cst.StarredElement) for e in (*left, *right)):
        return []
    bound = {code(e.value) for e in left}
    simple = all(isinstance(e.value, (cst.Name, cst.Attribute)) for e in left)
    reads = ast.parse(code(node.value).strip(), mode="eval")
    read = {ast.unparse(n) for n in ast.walk(reads) if isinstance(n, (ast.Name, ast.Attribute))}
    if not simple or bound & read and not _harmless(left, right):
        return []
    return [(a.value, b.value) for a, b in zip(left, right)]


def _harmless(left: Sequence[cst.BaseElement], right: Sequence[cst.BaseElement]) -> bool:
    """``x, ctx.n = x, n``: a name is only assigned to itself."""
    for index, one in enumerate(left):
        name = code(one.value)
        for other_index, other in enumerate(right):
            tree = ast.parse(code(other.value).strip(), mode="eval")
            uses = any(
                ast.unparse(n) == name
                for n in ast.walk(tree)
                if isinstance(n, (ast.Name, ast.Attribute))
            )
            if uses and other_index > index and code(right[index].value) != name:
                return False
    return True


def one_by_one(node: cst.FunctionDef) -> cst.FunctionDef:
    """The function with ``ctx.a, ctx.b = a, b`` as two statements."""
    changed = node.visit(_OneByOne())
    assert isinstance(changed, cst.FunctionDef)
    return changed
