"""A broken pair is noticed: what a wrong pass would do, and what `verify` says to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from s2s import pipeline
from s2s.ir import Pair, Saved, replace
from s2s.source import from_file
from s2s.syntax import make
from s2s.verify import InternalError, verify

TEXT = """
import torch
import s2s


def make(alpha):
    @s2s.autograd_script
    def gate(x, w, mode: str = "a"):
        s = torch.sigmoid(alpha * x)

        def backward(g):
            return g * s * w, (g * x * s).sum(0), None

        return x * s * w, backward

    return gate
"""


@pytest.fixture
def pair() -> Pair:
    (source,) = from_file(Path("gate.py"), "gate", TEXT)
    return pipeline.lift(pipeline.read(source))


def test_a_whole_pair_passes_through(pair: Pair) -> None:
    assert verify(pair, "nothing") is pair


def last(pair: Pair, text: str) -> Pair:
    """The pair with another last statement in forward."""
    return replace(pair, forward=(*pair.forward[:-1], make(text)))


def gradients(pair: Pair, text: str) -> Pair:
    return replace(pair, backward=(*pair.backward[:-1], make(text)))


def without(pair: Pair, name: str) -> Pair:
    """The pair with one saved value gone, in forward's return too."""
    saved = tuple(s for s in pair.saved if s.name != name)
    handed = ", ".join(s.name for s in saved)
    return last(replace(pair, saved=saved), f"return x * s * w, ({handed},)")


Break = Callable[[Pair], Pair]
BROKEN: dict[str, tuple[Break, str]] = {
    "a saved value that backward needs is gone": (
        lambda pair: without(pair, "s"),
        "backward reads s of forward, which is not saved",
    ),
    "an input that backward needs is not saved": (
        lambda pair: without(pair, "w"),
        "backward reads w of forward, which is not saved",
    ),
    "a value is saved twice": (
        lambda pair: last(
            replace(pair, saved=(*pair.saved, pair.saved[0])), "return x * s * w, (x, w, s, x)"
        ),
        "saved twice",
    ),
    "a saved value is bound nowhere": (
        lambda pair: last(
            replace(pair, saved=(*pair.saved, Saved("ghost", "tensor", "Tensor"))),
            "return x * s * w, (x, w, s, ghost)",
        ),
        "saved ghost is bound nowhere",
    ),
    "forward hands over too little": (
        lambda pair: last(pair, "return x * s * w, (x, w)"),
        r"forward hands over \(x, w\) for",
    ),
    "forward hands over in another order": (
        lambda pair: last(pair, "return x * s * w, (w, x, s)"),
        "forward hands over w as x",
    ),
    "forward returns outputs alone": (
        lambda pair: last(pair, "return x * s * w"),
        r"forward returns return x \* s \* w, not outputs and saved",
    ),
    "forward hands over something else than a tuple": (
        lambda pair: last(pair, "return x * s * w, s"),
        "forward hands over s for",
    ),
    "a gradient is lost": (
        lambda pair: gradients(pair, "return g * s * w, None"),
        "backward returns 2 gradients for 3",
    ),
    "an output gradient has the name of a saved value": (
        lambda pair: replace(pair, grads=("s",)),
        "an output gradient is named like a saved value",
    ),
    "two output gradients share a name": (
        lambda pair: replace(pair, grads=("g", "g")),
        "two output gradients share a name",
    ),
    "backward reads a name of an enclosing function": (
        lambda pair: gradients(pair, "return g * alpha, None, None"),
        "backward reads alpha of an enclosing function, not saved",
    ),
    "an output gradient is not a parameter of backward": (
        lambda pair: replace(pair, grads=("other",)),
        "backward reads g",
    ),
    "backward does not end in a return": (
        lambda pair: replace(pair, backward=pair.backward[:-1]),
        "backward",
    ),
    "forward does not end in a return": (
        lambda pair: replace(pair, forward=pair.forward[:-1]),
        "forward",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_pair_is_named(pair: Pair, what: str) -> None:
    change, message = BROKEN[what]
    with pytest.raises(InternalError, match=message) as caught:
        verify(change(pair), "some_pass")
    assert str(caught.value).startswith("gate after some_pass: ")


def test_the_error_is_no_error_of_the_user() -> None:
    assert issubclass(InternalError, AssertionError)
    assert not issubclass(InternalError, SyntaxError)
