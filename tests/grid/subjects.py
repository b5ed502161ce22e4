"""The functions of the grid: the shipped ones, some of the corpus, and untrue ones."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import s2s
from s2s import functions
from s2s.testing import undecorated

from . import untrue
from .judge import Case

_TESTS = Path(__file__).parents[1]

# corpus file, which of its functions, which of its inputs, and what does not hold of it
CORPUS: dict[str, tuple[int, int, str]] = {
    "swish_beta": (0, 0, ""),
    "marked": (0, 0, ""),
    "two_heads": (0, 0, ""),
    "linear_optional": (0, 0, ""),
    "rms_norm": (0, 0, ""),
    "spike_factory": (1, 0, ""),
    "early_return": (0, 1, ""),
    "modes_of_relu": (0, 0, ""),
    "bilinear": (0, 0, ""),
    "broadcast_affine": (0, 0, ""),
    "cross_entropy": (0, 1, ""),
    "huber": (0, 0, ""),
    "quantize": (0, 0, ""),
    "top_k": (0, 0, ""),
    "newton_sqrt": (0, 0, ""),
    "attention": (0, 1, ""),
    "rnn": (0, 0, ""),
    "complex_gain": (0, 0, ""),
    "concat": (0, 0, "scripts"),
    "clip_gradient": (0, 0, "linear"),
}
FLAGS = ("linear", "scripts")
# the functions that the costly ways take by turns; the first ones are those of every short run
UNTRUE = ("seven", "seven_saved", "seven_out")


def _random(*shapes: tuple[int, ...], seed: int = 0) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=g, dtype=torch.double) for shape in shapes)


def _arguments() -> dict[str, tuple[Any, ...]]:
    (x,) = _random((3, 2), seed=1)
    (a, b, c) = _random((4, 3), (2, 3), (2,), seed=2)
    (n, w, d) = _random((3, 4), (4,), (4,), seed=3)
    (u, v) = _random((2, 3), (2, 3), seed=4)
    wide = 1.5 * x
    return {
        "swish": (wide,),
        "mish": (wide,),
        "hard_mish": (wide,),
        "gelu_tanh": (wide,),
        "gradient_reversal": (x, 0.5),
        "scale_gradient": (x, 0.25),
        "linear": (a, b, c),
        "layer_norm": (n, w, d),
        "round_ste": (wide,),
        "sign": (x,),
        "clamp": (wide, -1.0, 0.5),
        "atan": (x, 2.0),
        "fast_sigmoid": (x, 25.0),
        "triangle": (x, 0.75),
        "sigmoid": (x, 4.0),
        "seven": (x,),
        "seven_saved": (u, v),
        "seven_out": (x,),
        "seven_nested": (x,),
        "seven_once": (x,),
        "seven_made": (x,),
    }


@functools.cache
def subjects() -> dict[str, Case]:
    """Every function of the grid, by name."""
    found: dict[str, Case] = {}
    for name, args in _arguments().items():
        home: Any = untrue if hasattr(untrue, name) else functions
        f = getattr(home, name)
        found[name] = _case(name, f, args, FLAGS, home.__name__, name)
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    import cases

    for name, (function, number, lacks) in CORPUS.items():
        sample = cases.Sample(name, function, number)
        args, keywords = sample.arguments()
        assert not keywords, f"{name}: the grid calls by position"
        flags = [flag for flag in FLAGS if flag != lacks]
        made = _case(name, sample.f(), tuple(args), flags)
        found.setdefault(name, made)
    return found


def _case(
    name: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    flags: Any,
    module: str = "",
    attribute: str = "",
) -> Case:
    truth = s2s.autograd_function(undecorated(f))
    opener = f"import {module}" if module else ""
    return Case(name, f, truth, args, frozenset(flags), module, attribute, opener=opener)
