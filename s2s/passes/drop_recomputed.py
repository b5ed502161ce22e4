"""Forward does not compute what backward computes by itself, if nothing else reads it.

def f_forward(x):                      def f_forward(x):
    s = torch.sigmoid(x)                   return x * 2, (x,)
    return x * 2, (x,)
                                 -->
def f_backward(grad_out, x):           def f_backward(grad_out, x):
    s = torch.sigmoid(x)                   s = torch.sigmoid(x)
    return grad_out * s                    return grad_out * s
"""

from __future__ import annotations

from ..effects import closed_over
from ..ir import Pair, Stmt, replace
from ..names import reads, writes
from ..syntax import without_blank_lines
from .redoing import bare, redone_already

__all__ = ["drop_recomputed"]


def drop_recomputed(pair: Pair) -> Pair:
    """Take out of forward what ``save_less`` has left without a reader there.

    >>> from s2s.passes.example import after
    >>> from s2s.passes.save_less import save_less
    >>> print(after('''
    ... def f(x):
    ...     s = torch.sigmoid(x)
    ...     def backward(g):
    ...         return g * s
    ...     return x * 2, backward
    ... ''', save_less, drop_recomputed, save="auto"))
    def f_forward(x):
        return x * 2, (x,)
    <BLANKLINE>
    def f_backward(g, x):
        s = torch.sigmoid(x)
        return g * s
    """
    redone = redone_already(pair)
    if not redone:
        return pair
    trees = {s.tree for s in redone}
    needed = closed_over(s.tree for s in pair.forward)
    forward: list[Stmt] = []
    for statement in reversed(pair.forward):
        if statement.tree in trees and not set(writes(statement.tree)) & needed:
            continue
        forward.insert(0, statement)
        needed |= set(reads(statement.tree))
    left = {s.tree for s in forward}
    # the comments stay in forward where the statement does
    backward = [
        s
        if s.tree not in trees
        else replace(s, node=bare(s) if s.tree in left else without_blank_lines(s.node))
        for s in pair.backward
    ]
    return replace(pair, forward=tuple(forward), backward=tuple(backward))
