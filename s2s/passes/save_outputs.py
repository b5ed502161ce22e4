"""Where an intermediate is an output under another name, the output is saved.

    def f_forward(x):                      def f_forward(x):
        s = torch.sigmoid(x)                   s = torch.sigmoid(x)
        y = s                                  y = s
        return y, (s,)                         return y, (y,)
                                     -->
    def f_backward(grad_out, s):           def f_backward(grad_out, y):
        return grad_out * s * (1 - s)          return grad_out * y * (1 - y)

Autograd knows a saved output: in a second derivative it is differentiated by the user's rule, and
nothing has to be kept to compute it again.
"""

from __future__ import annotations

import ast

from ..ir import Pair, Saved, replace
from ..names import writes
from ..syntax import rename
from .redoing import rename_locals, with_saved

__all__ = ["save_outputs"]


def save_outputs(pair: Pair) -> Pair:
    """Put the output's name in place of the other one in ``saved`` and in backward.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x)
    ...     y = s
    ...     def backward(g):
    ...         return g * s * (1 - s)
    ...     return y, backward
    ... ''', save_outputs))
    def f_forward(x):
        s = torch.sigmoid(x)
        y = s
        return y, (y,)
    <BLANKLINE>
    def f_backward(g, y):
        return g * y * (1 - y)
    """
    for name, output in _same(pair).items():
        pair = _instead(pair, name, output)
    return pair


def _same(pair: Pair) -> dict[str, str]:
    """Saved names that are the same tensor as an output: name -> output."""
    count: dict[str, int] = {}
    for statement in pair.forward:
        for name in writes(statement.tree):
            count[name] = count.get(name, 0) + 1
    outputs = {o.name for o in pair.outputs if o.type == "Tensor"}
    saved = {s.name for s in pair.saved if s.keep == "tensor"} - outputs
    found: dict[str, str] = {}
    for statement in pair.forward:
        tree = statement.tree
        if not isinstance(tree, ast.Assign) or not isinstance(tree.value, ast.Name):
            continue
        (target,) = writes(tree) if len(writes(tree)) == 1 else ("",)
        for name, output in ((tree.value.id, target), (target, tree.value.id)):
            # an input that is returned is another tensor outside
            if name in saved and output in outputs and count.get(output) == count.get(name) == 1:
                if {name, output}.isdisjoint(pair.arguments):
                    found[name] = output
    return found


def _instead(pair: Pair, name: str, output: str) -> Pair:
    pair = rename_locals(pair, {output})
    kept: list[Saved] = []
    present = {s.name for s in pair.saved}
    for saved in pair.saved:
        if saved.name != name:
            kept.append(saved)
        elif output not in present:
            kept.append(replace(saved, name=output))
    pair = with_saved(pair, tuple(kept))
    return replace(pair, backward=tuple(rename(s, {name: output}) for s in pair.backward))
