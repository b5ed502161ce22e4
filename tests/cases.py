"""The corpus, loaded in several ways, and the arithmetic that compares forms.

A file of ``corpus/`` defines ``FUNCTION`` (or a list of them), ``inputs()`` (a list of argument
tuples; a dict at the end holds keyword arguments) and these flags:

* ``TRUE_GRADIENT``: backward is the derivative of forward.
* ``SCRIPTS``: TorchScript compiles the lifted pair (``f.scripted``).
* ``TRANSFORMS``: ``torch.func`` and forward mode work. ``VMAP``, default True: ``vmap`` does too.
* ``OPERATOR``, default True: the function has one, so scripted code can call it.
* ``SECOND``, default True: it has a second derivative.
* ``LINEAR``, default True: backward is linear in its output gradients, which forward mode needs.
* ``RANDOM``, ``DIRTY``, default False: it draws numbers; it changes its input in place.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import s2s

torch.set_num_threads(1)

CORPUS = Path(__file__).parent / "corpus"
NAMES = tuple(sorted(path.stem for path in CORPUS.glob("*.py")))
Function = Any


# --- loading ------------------------------------------------------------------------------------


def plain(fn: Function) -> Function:
    """The function without its rule: PyTorch differentiates what forward does."""

    @functools.wraps(fn)
    def forward(*args: Any, **keywords: Any) -> Any:
        *outputs, _ = fn(*args, **keywords)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return forward


def reference(fn: Function) -> Function:
    """The reference decorator, which takes tuples of outputs alone."""

    @functools.wraps(fn)
    def listed(*args: Any, **keywords: Any) -> Any:
        *outputs, backward = fn(*args, **keywords)
        return (*(flat(outputs[0]) if len(outputs) == 1 else outputs), backward)

    containers = ("list_in_dict_out",)
    return s2s.autograd_function(listed if fn.__module__.endswith(containers) else fn)


WAYS = {
    "compiled": s2s.autograd_script,
    "least": functools.partial(s2s.autograd_script, save="least"),
    "all": functools.partial(s2s.autograd_script, save="all"),
    "reference": reference,
    "plain": plain,
}


@functools.cache
def load(name: str, way: str = "compiled") -> ModuleType:
    """A corpus file, with its functions decorated in one of these ways."""
    full = f"corpus_{way}_{name}"
    spec = importlib.util.spec_from_file_location(full, CORPUS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    decorator, s2s.autograd_script = s2s.autograd_script, WAYS[way]
    try:
        spec.loader.exec_module(module)
    finally:
        s2s.autograd_script = decorator
    return module


def functions(name: str, way: str = "compiled") -> list[Function]:
    """What a corpus file decorates."""
    found = load(name, way).FUNCTION
    return found if isinstance(found, list) else [found]


def flag(name: str, what: str) -> bool:
    """One of the flags of a corpus file."""
    return bool(getattr(load(name, "plain"), what, what not in ("RANDOM", "DIRTY")))


# --- samples ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One function of a corpus file with one set of arguments."""

    name: str
    function: int
    number: int

    def __str__(self) -> str:
        return f"{self.name}-{self.function}-{self.number}"

    def f(self, way: str = "compiled") -> Function:
        return functions(self.name, way)[self.function]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        args = list(load(self.name, "plain").inputs()[self.number])
        keywords = args.pop() if args and isinstance(args[-1], dict) else {}
        return args, keywords

    def complete(
        self, args: Sequence[Any] | None = None, keywords: dict[str, Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with the defaults filled in; what is not keyword-only by position."""
        if args is None or keywords is None:
            args, keywords = self.arguments()
        bound = inspect.signature(self.f("plain")).bind(*args, **keywords)
        bound.apply_defaults()
        return list(bound.args), bound.kwargs

    def tensors(self) -> list[Tensor]:
        """The arguments that may carry a gradient, those in lists too."""
        args, keywords = self.arguments()
        return list(smooth_in([*args, *keywords.values()]))

    def bind(self, f: Function) -> Function:
        """``f`` as a function of the tensors alone; its outputs always a tuple."""
        args, keywords = self.arguments()

        def bound(*tensors: Tensor) -> tuple[Tensor, ...]:
            if flag(self.name, "DIRTY"):
                tensors = tuple(t.clone() for t in tensors)
            if flag(self.name, "RANDOM"):
                torch.manual_seed(0)
            rest = iter(tensors)
            given = [filled(a, rest) for a in args]
            outputs = f(*given, **{k: filled(a, rest) for k, a in keywords.items()})
            return flat(outputs)

        return bound

    def smooth(self, f: Function) -> Function:
        """The same with the differentiable outputs alone."""
        bound = self.bind(f)
        return lambda *tensors: tuple(t for t in bound(*tensors) if is_smooth(t))


def samples(*wanted: str) -> list[Sample]:
    """Every sample of the corpus files that have these flags."""
    return [
        Sample(name, function, number)
        for name in NAMES
        if all(flag(name, what) for what in wanted)
        for function in range(len(functions(name, "plain")))
        for number in range(len(load(name, "plain").inputs()))
    ]


def is_smooth(value: object) -> bool:
    """A tensor of a dtype that autograd differentiates."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def smooth_in(values: Sequence[Any]) -> Iterator[Tensor]:
    """The differentiable tensors among values, and in the lists among them."""
    for value in values:
        if isinstance(value, list):
            yield from smooth_in(value)
        elif is_smooth(value):
            yield value


def filled(value: Any, rest: Iterator[Tensor]) -> Any:
    """The argument with its differentiable tensors replaced by the next ones."""
    if isinstance(value, list):
        return [filled(item, rest) for item in value]
    return next(rest) if is_smooth(value) else value


def flat(outputs: Any) -> tuple[Tensor, ...]:
    """The outputs as a tuple."""
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(outputs.values() if isinstance(outputs, dict) else outputs)


# --- gradients ----------------------------------------------------------------------------------


def leaves(tensors: Sequence[Tensor], wanted: Sequence[bool] | None = None) -> list[Tensor]:
    """Copies, of which some or all ask for a gradient."""
    asks = wanted or [True] * len(tensors)
    return [t.detach().clone().requires_grad_(a) for t, a in zip(tensors, asks)]


def like(tensors: Sequence[Tensor], seed: int = 0) -> tuple[Tensor, ...]:
    """Random tensors of the same shapes and dtypes."""
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(t.shape, generator=g, dtype=t.dtype) for t in tensors)


def pull(f: Function, tensors: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """Gradients of the tensors that ask for one, for random output gradients."""
    outputs = [t for t in f(*tensors) if t.requires_grad]
    asking = [t for t in tensors if t.requires_grad]
    if not outputs:
        return [torch.zeros_like(t) for t in asking]
    grads = torch.autograd.grad(outputs, asking, like(outputs, seed), allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, asking)]


def second(f: Function, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a random combination of the gradients, for inputs and output gradients."""
    tensors = leaves(tensors)
    outputs = [t for t in f(*tensors) if t.requires_grad]
    cotangents = leaves(like(outputs))
    grads = torch.autograd.grad(outputs, tensors, cotangents, create_graph=True, allow_unused=True)
    grads = [g for g in grads if g is not None and g.requires_grad]
    wanted = [*tensors, *cotangents]
    found = torch.autograd.grad(grads, wanted, like(grads, 1), allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted)]


def real(tensors: Sequence[Tensor]) -> Tensor:
    """All entries in one row of real numbers."""
    parts = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    return torch.cat([p.reshape(-1) for p in parts])


def basis(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Every unit direction in the space of these tensors."""
    for index, tensor in enumerate(tensors):
        for place in range(tensor.numel()):
            for unit in (1, 1j) if tensor.is_complex() else (1,):
                units = [torch.zeros(t.shape, dtype=t.dtype) for t in tensors]
                units[index].view(-1)[place] = unit
                yield units


def jacobian(sample: Sample) -> Tensor:
    """The matrix whose rows the user's backward returns for unit output gradients."""
    tensors = leaves(sample.tensors())
    outputs = [t for t in sample.bind(sample.f("reference"))(*tensors) if t.requires_grad]
    rows = []
    for units in basis(outputs):
        grads = torch.autograd.grad(outputs, tensors, units, retain_graph=True, allow_unused=True)
        rows.append(real([torch.zeros_like(t) if g is None else g for g, t in zip(grads, tensors)]))
    return torch.stack(rows)


@functools.cache
def _dynamo_tells() -> bool:
    said = "what went wrong"

    def fails(x: Tensor) -> Tensor:
        raise RuntimeError(said)

    try:
        torch.compile(fails, backend="eager", fullgraph=True)(torch.ones(1))
    except Exception as error:
        return said in str(error)
    raise AssertionError


def told_in_a_graph(message: str) -> str:
    """What the text of an error raised in a graph matches: in PyTorch 2.8 it is Dynamo's own."""
    return message if _dynamo_tells() else "Observed exception"
