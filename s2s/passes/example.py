"""How the examples in the passes' docstrings are made."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable

from ..captures import captures, constants
from ..emit.pair import emit_pair
from ..ir import Pair, Save, Source, replace
from ..parse import parse
from .lift_backward import lift_backward

__all__ = ["after", "lifted"]


def after(text: str, *passes: Callable[[Pair], Pair], save: Save = "all") -> str:
    """The lifted function that ``text`` holds, as the passes leave it.

    >>> print(after("def f(x):\\n    return x * 2, lambda g: g * 2"))
    def f_forward(x):
        return x * 2, ()
    <BLANKLINE>
    def f_backward(g):
        return g * 2
    """
    pair = lifted(text, save)
    for step in passes:
        pair = step(pair)
    rows = emit_pair(pair).text.replace("\n\n\n", "\n\n").split("\n")
    start = next(i for i, row in enumerate(rows) if row.startswith("def "))
    return "\n".join(rows[start:]).rstrip()


def lifted(text: str, save: Save = "all") -> Pair:
    """The last function of a text, lifted."""
    text = "import torch\n" + textwrap.dedent(text)
    tree = ast.parse(text)
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    source = Source(text, "example.py", "example", function.name, tree, function, ())
    rule = replace(parse(source), save=save)
    return lift_backward(rule, captures(rule), constants(rule))
