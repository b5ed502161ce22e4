"""Inputs on which a ``torch.autograd.Function`` runs, found by trying."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .class_compare import runs

__all__ = ["guess"]

SHAPES = ((4, 3), (3, 3), (2, 3, 8), (2, 3, 3), (2, 4, 6, 6), (6,), (), (1, 2, 3, 4, 4))
TRIES, SECONDS = 400, 20

# names of parameters that say what is wanted; the first that is in the name counts
_NAMED: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
    (("eps", "epsilon", "tol"), (1e-5,)),
    (("inplace", "training", "is_", "use_", "has_", "requires", "keepdim", "async"), (False, True)),
    (("group",), (None, "world")),
    (("mesh", "handle", "stream", "generator", "ctx"), (None,)),
    (("dim", "axis"), (-1, 0, 1)),
    (("dtype",), (torch.float64, torch.float32)),
    (("device",), (torch.device("cpu"), None)),
    (("shape", "size"), ((4, 3), 2, 3, (3, 3))),
    (("num", "n_", "k", "n", "bits", "steps", "iter", "count", "groups", "world"), (2, 3, 8, 1)),
    (("fn", "func", "function", "run_function", "callable", "module", "op"), ("call",)),
    (("index", "indices", "idx", "label", "labels", "target"), ("index",)),
    (("mask",), ("mask",)),
    (("reduction", "mode"), ("mean", "sum", "none")),
)
_NUMBERS = ("alpha", "beta", "gamma", "scale", "slope", "lambd", "temp", "tau", "thr", "width", "k")


def guess(cls: type, seed: int = 0) -> tuple[list[Any], str] | None:
    """Inputs on which the class itself gets furthest, and whether that is "forward" or
    "backward". None where nothing that was tried runs."""
    best: tuple[list[Any], str] | None = None
    start = time.perf_counter()
    for tried, example in enumerate(_examples(cls, seed)):
        if tried >= TRIES or time.perf_counter() - start > SECONDS:
            break
        reached = runs(cls.apply, example)  # type: ignore[attr-defined]
        if reached == "backward":
            return example, reached
        if reached and best is None:
            best = example, reached
    return best


def _examples(cls: type, seed: int) -> Iterator[list[Any]]:
    params = list(inspect.signature(cls.forward).parameters.values())  # type: ignore[attr-defined]
    if not _has_setup(cls):
        params = params[1:]  # ctx
    choices = [c for p in params for c in _choices(p)]
    for dtype in (torch.float64, torch.float32):
        for shape in SHAPES:
            for picked in _product(choices):
                generator = torch.Generator().manual_seed(seed)
                yield [_made(one, shape, dtype, generator) for one in picked]


def _has_setup(cls: type) -> bool:
    own = getattr(cls, "setup_context", None)
    return own is not None and own is not torch.autograd.Function.setup_context


def _product(choices: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Combinations, the first choices first, at most as many as one shape may take."""
    ordered = itertools.product(*(range(len(c)) for c in choices))
    first = itertools.islice(ordered, 4000)
    ranked = sorted(first, key=sum)[: TRIES // len(SHAPES) + 1]
    return [tuple(c[i] for c, i in zip(choices, picked)) for picked in ranked]


def _choices(param: inspect.Parameter) -> list[tuple[Any, ...]]:
    """What to try for a parameter; several for a variadic one."""
    if param.kind is inspect.Parameter.VAR_POSITIONAL:
        return [("same",), ("same",)]
    if param.kind is inspect.Parameter.VAR_KEYWORD:
        return []
    note = param.annotation if isinstance(param.annotation, str) else _name(param.annotation)
    if "Tensor" in note or "Parameter" in note:
        return [_tensor_choices(param.name)]
    default = () if param.default is inspect.Parameter.empty else (param.default,)
    plain: dict[str, tuple[Any, ...]] = {
        "int": (2, 1, 3, 8),
        "float": (0.5, 2.0),
        "bool": (False, True),
        "str": ("mean",),
    }
    if note in plain:
        return [(*default, *(v for v in plain[note] if v not in default))]
    if default and isinstance(default[0], int | float | bool | str):
        return [(*default, "same")]
    named = _named(param.name)
    return [(*default, *named) if named else (*default, *_tensor_choices(param.name), 2, 0.5, None)]


def _named(name: str) -> tuple[Any, ...]:
    words = name.lower().strip("_").split("_")
    for keys, values in _NAMED:
        if any(key in words or (len(key) > 3 and key in name.lower()) for key in keys):
            return values
    if any(word.startswith(_NUMBERS) for word in words):
        return (0.5, 2.0, "last", "same")
    return ()


def _tensor_choices(name: str) -> tuple[Any, ...]:
    lower = name.lower()
    if "index" in lower or "indices" in lower or "label" in lower or "target" in lower:
        return ("index", "same")
    if "mask" in lower:
        return ("mask", "same")
    if "weight" in lower or lower == "w":
        return ("matrix", "last", "same")
    if "bias" in lower or lower == "b":
        return ("rows", "last", "same", None)
    return ("same", "last", "number", "index")


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))


def _made(what: Any, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Any:
    def noise(*size: int) -> Tensor:
        return torch.randn(size, dtype=dtype, generator=generator)

    last = shape[-1] if shape else 1
    made: dict[str, Callable[[], Any]] = {
        "same": lambda: noise(*shape),
        "last": lambda: noise(last),
        "matrix": lambda: noise(5, last),
        "rows": lambda: noise(5),
        "number": lambda: torch.rand((), dtype=dtype, generator=generator) + 0.5,
        "index": lambda: torch.randint(0, 2, shape[:-1] or (1,), generator=generator),
        "mask": lambda: torch.rand(shape, generator=generator) > 0.5,
        "call": lambda: _callable,
        "world": lambda: torch.distributed.group.WORLD,
    }
    return made[what]() if isinstance(what, str) and what in made else what


def _callable(*values: Any) -> Any:
    return sum(torch.sin(v) for v in values if isinstance(v, Tensor))
