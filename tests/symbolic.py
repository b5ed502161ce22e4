"""The gradient formulas that PyTorch ships, and arguments to try them with.

TorchScript's autodiff keeps its rules as text inside the compiled library, in the closure form:
a function that returns its outputs and a nested ``backward``. The text is read from the installed
library when the tests run; none of it is kept here. ``AD_*`` functions are helpers of the rules.
"""

from __future__ import annotations
import __future__

import ast
import functools
import mmap
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from s2s import pipeline
from s2s.ir import Pair, Rule, Source
from s2s.prepare import Prepared
from s2s.runtime import Compiled

torch.set_num_threads(1)

Function = Callable[..., Any]
Values = list[Any]

# Functions that are refused under their own name, because TorchScript compiles its builtin of that
# name in place of a call of them. They are read under this other name.
BUILTIN_NAMES = {name: f"{name}_rule" for name in ("abs", "max", "min", "round")}


# --- the text -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """One function of the library: its name and its text."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.name

    @property
    def helpers(self) -> str:
        """The text of the helpers that it calls, through others too."""
        wanted: dict[str, None] = {}
        todo = [self.text]
        while todo:
            for name in re.findall(r"\bAD_\w+", todo.pop()):
                if name in HELPERS and name not in wanted:
                    wanted[name] = None
                    todo.append(HELPERS[name].text)
        return "\n".join(helper.text for name, helper in HELPERS.items() if name in wanted)


def _texts() -> Iterator[str]:
    """The strings in the library that hold closures, each a few dozen functions."""
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted(folder.glob("*torch_cpu.*")):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = data.find(b"def backward(")
            while place >= 0:
                end = data.find(b"\0", place)
                yield textwrap.dedent(data[data.rfind(b"\0", 0, place) + 1 : end].decode())
                place = data.find(b"def backward(", end)


def _functions() -> Iterator[tuple[bool, Formula]]:
    for text in _texts():
        for tree in ast.parse(text).body:
            if isinstance(tree, ast.FunctionDef):
                own = ast.get_source_segment(text, tree)
                assert own is not None
                inner = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
                yield "backward" in inner, Formula(tree.name, own + "\n")


_FOUND = tuple(_functions())
FORMULAS = {f.name: f for is_rule, f in _FOUND if is_rule}
HELPERS = {f.name: f for is_rule, f in _FOUND if not is_rule}


# --- what s2s makes of a formula ------------------------------------------------------------------


def source(formula: Formula, name: str) -> Source:
    """The formula as a file of its own, under a name."""
    text = re.sub(r"^def \w+", f"def {name}", formula.text)
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.FunctionDef)
    return Source(text, f"<symbolic {name}>", "symbolic", name, tree, tree.body[0], ())


@functools.cache
def rule(formula: Formula) -> Rule:
    return pipeline.read(source(formula, BUILTIN_NAMES.get(formula.name, formula.name)))


@functools.cache
def pair(formula: Formula) -> Pair:
    return pipeline.lift(rule(formula))


@functools.cache
def scripted(formula: Formula) -> tuple[Any, Any]:
    """The forward and backward of the TorchScript form, compiled with the types found in it."""
    types = {"forward ->": "-", "backward ->": "-"}
    forward, backward = f"{pair(formula).name}_forward", f"{pair(formula).name}_backward"
    text = _body(pipeline.emit(pair(formula), "torchscript", types).text)
    unit = script(formula.helpers + text[: text.index(f"def {backward}")])
    kind = getattr(unit, forward).schema.returns[0].type
    saved = zip(pair(formula).saved, kind.elements()[1].elements(), strict=True)
    types |= {"forward ->": _spelled(kind)} | {s.name: _spelled(t) for s, t in saved}
    text = _body(pipeline.emit(pair(formula), "torchscript", types).text)
    unit = script(formula.helpers + text)
    return getattr(unit, forward), getattr(unit, backward)


def _body(text: str) -> str:
    """Without imports, which a compilation unit does not know."""
    rows = text.splitlines(keepends=True)
    return "".join(row for row in rows if not row.startswith(("import ", "from ")))


def _spelled(kind: Any) -> str:
    return str(re.sub(r"\bNoneType\b", "None", kind.annotation_str))


@functools.cache
def compiled(formula: Formula) -> Compiled:
    """What the decorator makes: ``.function`` is what a user calls, ``.op`` the operator."""
    plain = original(formula)
    prepared = Prepared(lambda: rule(Formula(formula.name, _for_python(formula.text))))
    defaults = plain.__defaults__, plain.__kwdefaults__
    return Compiled(prepared, plain.__globals__, {}, defaults)


# --- what PyTorch makes of it -----------------------------------------------------------------


class Operators(ModuleType):
    """``torch``, but with the operators that the formulas name from ``torch.ops.aten``: some are in
    TorchScript alone."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        super().__init__("torch")
        self.names = names

    def __getattr__(self, name: str) -> Any:
        if name not in self.names and hasattr(torch, name):
            return getattr(torch, name)
        return getattr(torch.ops.aten, name)


NAMED = frozenset(n for _, f in _FOUND for n in re.findall(r"\btorch\.(\w+)\(", f.text))


@functools.cache  # it must outlive the graphs taken from it
def script(text: str) -> Any:
    """The text compiled, as the functions of one object."""
    real, torch = globals()["torch"], Operators()  # noqa: F841 (TorchScript looks in this frame)
    return real.jit.CompilationUnit(text)


@functools.cache
def closure(formula: Formula) -> tuple[Function, Function, tuple[str, ...]]:
    """TorchScript's own lifting: forward, backward, and the names that backward captures.

    It turns the closure into a graph that takes a tuple of what it captures. Values without a name
    in that tuple are numbers that the user wrote down, which TorchScript keeps once per function.
    """
    unit = script(formula.helpers + formula.text)
    graph = getattr(unit, formula.name).graph.copy()
    inner = graph.findNode("prim::Closure")
    captured = next(n.user for n in inner.output().uses()).inputsAt(1)
    context = captured.node()
    names = [v.debugName() for v in context.inputs() if v.node().kind() != "prim::Constant"]
    returned = next(iter(graph.outputs())).node()
    *outputs, _ = returned.inputs()
    graph.eraseOutput(0)
    for value in (*outputs, captured):
        graph.registerOutput(value)
    graph.makeMultiOutputIntoTuple()
    backward = inner.g("Subgraph").copy()
    torch._C._jit_pass_dce(graph)  # the closure itself
    make = torch._C._create_function_from_graph
    found = tuple(re.sub(r"\.\d+$", "", name) for name in names)
    return make("forward", graph), make("backward", backward), found


@functools.cache
def original(formula: Formula) -> Function:
    """The formula as Python runs it."""

    def rangelist(count: int) -> list[int]:
        return list(range(count))

    scope: dict[str, Any] = {
        "torch": Operators(NAMED),
        "rangelist": rangelist,
        "__name__": "symbolic",
    }
    text = _for_python(formula.helpers + formula.text)
    flags = __future__.annotations.compiler_flag  # types that Python does not know
    exec(compile(text, "<symbolic>", "exec", flags=flags, dont_inherit=True), scope)
    found: Function = scope[formula.name]
    return found


def _for_python(text: str) -> str:
    """Without the cast that says to TorchScript that a value is not None."""
    return text.replace(".unchecked_unwrap_optional", "")


# --- arguments ----------------------------------------------------------------------------------


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


def between(low: float, high: float, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.double) * (high - low) + low


def positive(*shape: int) -> Tensor:
    return between(0.5, 2.0, *shape)


DOUBLE = torch.double
CPU = torch.device("cpu")


def arguments(formula: Formula) -> list[Values]:
    """The same argument lists at every call, as new tensors; all parameters by position."""
    torch.manual_seed(0)
    return EXAMPLES[formula.name]()


def _one(make: Callable[..., Tensor], *rest: Any) -> Callable[[], list[Values]]:
    return lambda: [[make(2, 3), *rest]]


def _two(make: Callable[..., Tensor], *rest: Any) -> Callable[[], list[Values]]:
    """Two tensors of one shape, and two that are broadcast."""
    return lambda: [[make(2, 3), make(2, 3), *rest], [make(2, 1, 3), make(4, 1), *rest]]


_UNARY = (
    "abs asin acos atan ceil cos cosh erf erfc exp expm1 floor frac hardsigmoid hardswish neg "
    "nonzero ones_like reciprocal relu relu6 round sigmoid silu sin sinh t tan tanh trunc"
)
_POSITIVE = "log log10 log1p log2 rsqrt sqrt"
_COMPARISONS = "eq ge gt le lt ne"

EXAMPLES: Mapping[str, Callable[[], list[Values]]] = {
    **dict.fromkeys(_UNARY.split(), _one(normal)),
    **dict.fromkeys(("asin", "acos"), _one(lambda *shape: between(-0.9, 0.9, *shape))),
    **dict.fromkeys(_POSITIVE.split(), _one(positive)),
    **dict.fromkeys(_COMPARISONS.split(), _one(normal, 0.1)),
    "_autocast_to_full_precision": _one(normal, True, True),
    "_autocast_to_reduced_precision": _one(normal, False, False, torch.half, torch.bfloat16),
    "_dim_arange": _one(normal, 1),
    "_grad_sum_to_size": lambda: [[normal(2, 3), [1, 3]], [normal(2, 3), None]],
    "adaptive_avg_pool1d": lambda: [[normal(2, 3, 8), [4]], [normal(2, 3, 8), [1]]],
    "adaptive_avg_pool2d": lambda: [[normal(2, 3, 4, 6), [2, 3]], [normal(2, 3, 4, 6), [1, 1]]],
    "adaptive_avg_pool3d": lambda: [
        [normal(1, 2, 4, 4, 2), [2, 2, 1]],
        [normal(1, 2, 4, 4, 2), [1, 1, 1]],
    ],
    "add_0": _two(normal, 0.5),
    "add_1": _one(normal, 2.0, 3.0),
    "addcmul": lambda: [
        [normal(2, 3), normal(2, 3), normal(2, 3), 0.5],
        [normal(3), normal(2, 1), normal(1, 3), 0.5],
    ],
    "addmm": lambda: [[normal(4), normal(2, 3), normal(3, 4), 0.5, 2.0]],
    "avg_pool2d": lambda: [[normal(1, 2, 5, 5), [2, 2], [2, 2], [1, 1], True, False, None]],
    "batch_norm": lambda: [
        [normal(4, 3), normal(3), normal(3), normal(3), positive(3), True, 0.1, 1e-5, False],
        [normal(4, 3), normal(3), normal(3), normal(3), positive(3), False, 0.1, 1e-5, False],
    ],  # without a weight the operator's backward gives an undefined tensor, for C++ alone
    "bmm": lambda: [[normal(2, 3, 4), normal(2, 4, 2)]],
    "cat": lambda: [[[normal(2, 3), normal(2, 1)], 1]],
    "clamp_1": lambda: [
        [normal(2, 3), low, high] for low in (-0.5, None) for high in (0.5, None) if low or high
    ],
    "clamp_2": lambda: [
        [normal(2, 3), -positive(2, 3), positive(2, 3)],
        [normal(2, 3), between(-0.2, 0.2, 2, 3), None],
        [normal(2, 3), None, between(-0.2, 0.2, 2, 3)],
    ],
    "contiguous": lambda: [[normal(2, 3).t(), torch.contiguous_format]],
    "div_0": _two(positive),
    "div_1": _one(normal, 2.5),
    "div_2": lambda: [[positive(2, 3), positive(3), mode] for mode in (None, "floor")],
    "div_3": lambda: [[normal(2, 3), 0.7, mode] for mode in (None, "trunc")],
    "dot": lambda: [[normal(4), normal(4)]],
    "dropout": lambda: [[normal(4, 5), 0.4, True], [normal(4, 5), 0.4, False]],
    "embedding": lambda: [[normal(5, 2), torch.tensor([0, 3, 3]), -1, False, False]],
    "expand": lambda: [[normal(3, 1), [2, 3, 4], False], [normal(3), [3], False]],
    "expand_as": lambda: [[normal(3, 1), normal(2, 3, 4)]],
    "fmod": _one(normal, 0.7),
    "full_like": _one(normal, 2.0),
    "gelu": lambda: [[normal(2, 3), "none"], [normal(2, 3), "tanh"]],
    "hardshrink": _one(normal, 0.5),
    "hardtanh": _one(normal, -0.5, 0.5),
    "index": lambda: [[normal(4, 3), [torch.tensor([0, 2, 2])]]],
    "layer_norm": lambda: [[normal(2, 4, 3), [4, 3], normal(4, 3), normal(4, 3), 1e-5, False]],
    "leaky_relu": _one(normal, 0.1),
    "lerp_0": _two(normal, 0.3),
    "lerp_1": lambda: [
        [normal(2, 3), normal(2, 3), normal(2, 3)],
        [normal(2, 1), normal(3), normal(2, 3)],
    ],
    "linear": lambda: [
        [normal(2, 4, 3), normal(5, 3), normal(5)],
        [normal(2, 3), normal(5, 3), None],
    ],
    "log_softmax": _one(normal, 1, None),
    "logsumexp": lambda: [[normal(2, 3, 4), [0, 2], False], [normal(2, 3, 4), [1], True]],
    "matmul": lambda: [
        [normal(2, 3), normal(3, 4)],
        [normal(2, 2, 3), normal(3, 4)],
        [normal(2, 2, 3), normal(3)],
        [normal(3), normal(3)],
    ],
    "max": _two(normal),
    "max_pool2d": lambda: [[normal(1, 2, 5, 5), [2, 2], [2, 2], [0, 0], [1, 1], False]],
    "max_pool2d_with_indices": lambda: EXAMPLES["max_pool2d"](),
    "mean_0": lambda: [[normal(2, 3), None], [normal(2, 3), DOUBLE]],
    "mean_1": lambda: [[normal(2, 3, 4), [0, 2], False, None], [normal(2, 3), [1], True, DOUBLE]],
    "meshgrid": lambda: [[[normal(2), normal(3)]], [[normal(2), normal(), normal(3)]]],
    "min": _two(normal),
    "mm": lambda: [[normal(2, 3), normal(3, 4)]],
    "mul_0": _two(normal),
    "mul_1": _one(normal, 2.5),
    "mv": lambda: [[normal(2, 3), normal(3)]],
    "nll_loss": lambda: [
        [normal(3, 4), torch.tensor([1, 3, 0]), weight, reduction, -100]
        for weight in (None, positive(4))
        for reduction in (0, 1, 2)
    ],
    "permute": lambda: [[normal(2, 3, 4), [2, 0, 1]]],
    "pow_0": lambda: [[positive(2, 3), 2.5], [positive(2, 3), 0.0]],
    "pow_1": _two(positive),
    "pow_2": lambda: [[1.5, normal(2, 3)]],
    "remainder": _one(normal, 0.7),
    "reshape": lambda: [[normal(2, 6), [3, 4]]],
    "rsub_0": _two(normal, 2.0),
    "rsub_1": _one(normal, 2.0, 3.0),
    "softmax": _one(normal, 1, None),
    "softplus": lambda: [[normal(2, 3), 2.0, 1.0]],
    "split": lambda: [[normal(5, 2), 2, 0]],
    "split_with_sizes": lambda: [[normal(5, 2), [1, 4], 0]],
    "squeeze_0": lambda: [[normal(2, 1, 3, 1)]],
    "squeeze_1": lambda: [[normal(2, 1, 3), 1], [normal(2, 1, 3), 0]],
    "stack": lambda: [[[normal(2, 3), normal(2, 3)], 1]],
    "std_0": lambda: [[normal(2, 3), True], [normal(2, 3), False]],
    "std_1": lambda: [[normal(2, 3, 4), [0, 2], True, False], [normal(2, 3), [1], False, True]],
    "std_2": lambda: [
        [normal(2, 3, 4), [0, 2], 1, False],
        [normal(2, 3), [1], 0, True],
        [normal(2, 3), None, None, False],
    ],
    "sub_0": _two(normal, 0.5),
    "sub_1": _one(normal, 2.0, 3.0),
    "threshold": _one(normal, 0.1, 0.0),
    "to_0": lambda: [
        [normal(2, 3), CPU, torch.float, False, False],
        [normal(2, 3), None, torch.float, False, True],
    ],
    "to_1": _one(normal, torch.float, False, False),
    "to_2": lambda: [[normal(2, 3), torch.ones(1), False, False]],
    "transpose": lambda: [[normal(2, 3, 4), 0, 2]],
    "type_as": lambda: [[normal(2, 3), torch.ones(1)]],
    "unbind": lambda: [[normal(2, 3), 1]],
    "unsqueeze": lambda: [[normal(2, 3), 1]],
    "var_0": lambda: [[normal(2, 3), True], [normal(2, 3), False]],
    "var_1": lambda: [[normal(2, 3, 4), [0, 2], True, False], [normal(2, 3), [1], False, True]],
    "var_2": lambda: EXAMPLES["std_2"](),
    "view": lambda: [[normal(2, 6), [3, 4]]],
    "where": lambda: [
        [normal(2, 3) > 0, normal(2, 3), normal(2, 3)],
        [normal(2, 3) > 0, normal(2, 1), normal(3)],
    ],
}
