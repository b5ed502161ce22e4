"""For function transforms: a captured value that may be what forward returns is an extra output.

    def f_forward(x, flag):                def f_forward(x, flag):
        s = torch.sin(x)                       s = torch.sin(x)
        return s if flag else x, (s,)          out = s if flag else x
                                     -->       return out, (s, s.clone() if s is out else None)

    def f_backward(g, s):                  def f_backward(g, s, s_out):
        return g * s                           if s_out is not None:
                                                   s = s_out
                                               return g * s

Plain autograd knows an output again when it is unpacked, and differentiates it through the rule of
this function. Here its gradient comes back as that of the extra output, and is one of the output.
"""

from __future__ import annotations

import libcst as cst

from ..ir import Pair, Saved, replace
from ..names import fresh
from ..syntax import from_node, handed_over, replace_returns, standalone
from .recompute_intermediates import recompute_always
from .redoing import OUTPUT, perhaps_outputs
from .save_sizes import facts_read

__all__ = ["return_outputs_apart"]

_WHY = "it may be one of the outputs, and function transforms do not show which"


def return_outputs_apart(pair: Pair) -> Pair:
    """Hand such values to setup_context as outputs. Of several outputs one might be any: there is
    no second derivative through it then.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def f(x, flag: bool):
    ...     s = torch.sin(x)
    ...     def backward(g):
    ...         return g * s, None
    ...     return s if flag else x * 2, backward
    ... ''', return_outputs_apart))
    def f_forward(x, flag):
        s = torch.sin(x)
        out = s if flag else x * 2
        return out, (s, s.clone() if s is out else None)
    <BLANKLINE>
    def f_backward(g, s, s_out):
        if s_out is not None:  # returned too: its derivative is this very rule
            s = s_out
        return g * s, None
    """
    perhaps = perhaps_outputs(pair)
    if not perhaps:
        return pair
    # what is not computed again has a derivative of its own: it is refused, or a constant
    again = {s.name for s in recompute_always(pair).saved if s.again == "recomputed"}
    perhaps &= again
    names = [s.name for s in pair.saved if s.name in perhaps and not facts_read(pair, s)]
    if len(pair.outputs) > 1 or pair.outputs[0].type.startswith("List["):
        saved = tuple(
            replace(s, again="refused", why=_WHY) if s.name in names else s for s in pair.saved
        )
        return replace(pair, saved=saved)
    if names and pair.outputs[0].name is None:
        pair, out = _named_output(pair)
    for name in names:
        kept = fresh(f"{name}_out", pair.taken)
        value = f"{name}.clone() if {name} is {pair.outputs[0].name or out} else None"
        extra = Saved(kept, "tensor", "Optional[Tensor]", "output", value=value)
        pair = _kept(pair, name, extra)
    return pair


def _named_output(pair: Pair) -> tuple[Pair, str]:
    """``out = ...`` in front of every return."""
    out = fresh("out", pair.taken)

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        assert isinstance(node.value, cst.Tuple)
        first, last = node.value.elements
        bind = cst.Assign([cst.AssignTarget(cst.Name(out))], standalone(first.value))
        named = node.value.with_changes(elements=[cst.Element(cst.Name(out)), last])
        return [bind, node.with_changes(value=named)]

    forward = replace_returns(pair.forward, rewrite)
    return replace(pair, forward=forward, taken=pair.taken | {out}), out


def _kept(pair: Pair, name: str, extra: Saved) -> Pair:
    """Keep ``extra`` too, and take it in place of ``name`` in backward where there is one."""
    kept = (*pair.saved, extra)
    before = [s.name for s in pair.saved]
    header = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(OUTPUT))
    body = cst.IndentedBlock([cst.parse_statement(f"{name} = {extra.name}")], header=header)
    test = cst.parse_expression(f"{extra.name} is not None")
    statement = from_node(cst.If(test, body), 0)
    values = {extra.name: extra.value or extra.name}
    return replace(
        pair,
        saved=kept,
        forward=handed_over(pair.forward, before, [s.name for s in kept], values),
        backward=(statement, *pair.backward),
        taken=pair.taken | {extra.name},
    )
