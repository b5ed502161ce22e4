"""The func form: the Function that ``torch.func``, ``vmap`` and forward-mode AD use.

Forward mode needs no rule of its own: backward is linear in the output gradients, so the
derivative along tangents is the transpose of backward.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from ..effects import aliases, may_share, not_linear
from ..ir import Emitted, Pair, Saved, replace
from ..names import fresh, writes
from ..passes.redoing import perhaps_outputs
from ..passes.save_sizes import may_be_none
from ..syntax import code, listed, replace_returns, returning, split_return
from .eager import (
    all_needed,
    as_tuple,
    grads_as_list,
    input_aliases,
    lists_refused,
    materialised,
    needs,
    no_second_derivative,
    objects_refused,
    once_lines,
    padded,
    returned,
    returned_list,
    save_statements,
    signature,
    taken_grads,
    tidy,
    unpack_statements,
    zero_gradient,
)
from .layout import (
    Line,
    as_list,
    class_name,
    header,
    indented,
    module_text,
    own,
    parameters,
    statement_lines,
)

__all__ = ["emit_func", "extra_outputs"]


def emit_func(pair: Pair) -> Emitted:
    """The class with ``setup_context``, ``generate_vmap_rule`` and ``jvp``.

    ``pair`` comes from ``recompute_always``. What that could not compute again is an extra output.
    """
    name = class_name(pair, "Func")
    ctx = fresh("ctx", pair.taken)
    handed = [s.name for s in pair.saved]
    pair = replace(pair, saved=tuple(s for s in pair.saved if s.again != "recomputed"))
    extra = extra_outputs(pair)
    lines = own(*header(pair), f"class {name}({pair.torch}.autograd.Function):")
    lines += indented(own("generate_vmap_rule = True", "", "@staticmethod"), 4)
    lines += indented(signature("forward", parameters(pair)), 4)
    lines += indented(_forward(pair, extra, handed), 8)
    lines += indented(own("", "@staticmethod", _setup_head(pair, ctx)), 4)
    lines += indented(own(*_setup(pair, extra, ctx)), 8)
    lines += indented(own("", "@staticmethod"), 4)
    grads = [*taken_grads(pair), *_extra_grads(pair, extra)]
    lines += indented(signature("backward", [ctx, *grads]), 4)
    lines += indented(_backward(pair, ctx, extra), 8)
    lines += indented(own("", "@staticmethod", f"def jvp({ctx}, *tangents):"), 4)
    lines += indented(_jvp(pair, ctx, extra), 8)
    return module_text("func", pair, lines, (name,), len(extra_outputs(pair)))


def extra_outputs(pair: Pair) -> list[Saved]:
    """Saved values that are no input, no output and no constant: forward returns them too."""
    bound = {n for s in pair.forward for n in writes(s.tree)}  # an input that is bound again
    inputs = {name for name in pair.arguments if name not in bound}
    outside = {*inputs, *(c.name for c in pair.constants), *input_aliases(pair)}
    outputs = {o.name for o in pair.outputs}
    return [
        s
        for s in pair.saved
        if s.name not in outside and s.name not in outputs and s.again != "recomputed"
    ]


def _extra_grads(pair: Pair, extra: Sequence[Saved]) -> list[str]:
    if not extra:
        return []
    named = any(s.again in ("refused", "output") for s in extra)
    return [fresh(f"grad_{s.name}", pair.taken) for s in extra] if named else ["*_"]


def _forward(pair: Pair, extra: Sequence[Saved], handed_names: Sequence[str]) -> list[Line]:
    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        outputs, handed = split_return(node)
        values = dict(zip(handed_names, handed))
        if pair.list_output:
            outputs = [as_tuple(outputs[0])]
        else:  # forward mode wants no views of the inputs
            outputs = [_cloned(o) if _may_be_input(pair, o) else o for o in outputs]
        names = {o.value for o in outputs if isinstance(o, cst.Name)}
        everything = [
            *outputs,
            *(_extra_value(pair, s, values, names) for s in extra),
        ]
        if pair.list_output and extra:
            return [returned_list(outputs[0], [code(e).strip() for e in everything[1:]])]
        return [returned(everything, pair.single and not extra)]

    body = statement_lines(tidy(replace_returns(pair.forward, rewrite)))
    return own(*as_list(pair), *all_needed(pair)) + body


def _extra_value(
    pair: Pair, saved: Saved, values: Mapping[str, cst.BaseExpression], outputs: set[str]
) -> cst.BaseExpression:
    """What forward returns for a kept value: not a second time what is an output already."""
    shown = saved.again == "refused" and saved.name in perhaps_outputs(pair)
    if saved.name in outputs and not shown:
        return cst.Name("None")
    value = values.get(saved.name, cst.Name(saved.name))
    alone = not _may_be_input(pair, value) and not shown
    if saved.keep != "tensor" or saved.again == "output" or alone:
        return value
    if may_be_none(pair, saved):
        return cst.IfExp(
            test=cst.Comparison(
                _operand(value), [cst.ComparisonTarget(cst.Is(), cst.Name("None"))]
            ),
            body=cst.Name("None"),
            orelse=_cloned(value),
        )
    return _cloned(value)


def _may_be_input(pair: Pair, value: cst.BaseExpression) -> bool:
    """May an output be an input, or a view of one?"""
    body = [s.tree for s in pair.forward]
    tree = ast.parse(code(value).strip(), mode="eval").body
    shared = aliases(body)
    names = {a for n in may_share(tree) for a in shared.get(n, {n})}
    return bool(names & set(pair.arguments))


def _cloned(value: cst.BaseExpression) -> cst.BaseExpression:
    return cst.Call(cst.Attribute(_operand(value), cst.Name("clone")))


def _operand(value: cst.BaseExpression) -> cst.BaseExpression:
    simple = isinstance(value, (cst.Name, cst.Call, cst.Attribute, cst.Subscript))
    if simple or value.lpar:
        return value
    return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _setup_head(pair: Pair, ctx: str) -> str:
    names = [ctx, *(fresh(name, pair.taken) for name in ("inputs", "output"))]
    return f"def setup_context({', '.join(names)}):"


def _setup(pair: Pair, extra: Sequence[Saved], ctx: str) -> list[str]:
    inputs, output = (fresh(name, pair.taken) for name in ("inputs", "output"))
    texts = [_taken_apart(pair.arguments, inputs, pair)]
    texts += [f"{alias} = {name}" for alias, name in input_aliases(pair).items()]
    outputs, taken = _named_outputs(pair, extra, output)
    texts += taken
    flat = [n for n, o in zip(outputs, pair.outputs) if o.type == "IntTensor"]
    kept = [s for s in extra if s.again not in ("refused", "output") and s.keep == "tensor"]
    flat += [s.name for s in kept if not may_be_none(pair, s)]
    maybe = [s.name for s in kept if may_be_none(pair, s)]
    if maybe:
        flat.append(f"*[t for t in {_tuple(maybe)} if t is not None]")
    if flat:
        texts.append(f"{ctx}.mark_non_differentiable({', '.join(flat)})")
    if extra or pair.undefined:
        texts.append(f"{ctx}.set_materialize_grads(False)")
    saves = save_statements(pair, ctx, {})
    texts += saves
    texts += [
        s.replace("save_for_backward", "save_for_forward", 1)
        for s in saves
        if "save_for_backward" in s
    ]
    every = outputs[0] if pair.list_output else _tuple(outputs)
    texts.append(f"{ctx}.shapes = [t.shape for t in {every}]")
    texts.append(f'{ctx}.options = [{{"dtype": t.dtype, "device": t.device}} for t in {every}]')
    return texts


def _named_outputs(pair: Pair, extra: Sequence[Saved], output: str) -> tuple[list[str], list[str]]:
    """Names for the outputs in setup_context, and the statements that bind them."""
    outputs = [o.name or f"out_{i}" for i, o in enumerate(pair.outputs)]
    outputs = [n if n not in pair.arguments else f"{n}_out" for n in outputs]
    for index, name in enumerate(outputs):  # one that is returned twice
        if name in outputs[:index]:
            outputs[index] = fresh(name, set(pair.taken) | set(outputs))
    if pair.single and not extra:
        if outputs[0] in {s.name for s in pair.saved}:
            return outputs, [f"{outputs[0]} = {output}"]
        return [output], []
    star = "*" if pair.list_output else ""
    if star:
        return outputs, [f"{outputs[0]} = {output}[: len({output}) - {len(extra)}]"] + [
            f"{s.name} = {output}[{i - len(extra)}]" for i, s in enumerate(extra)
        ]
    return outputs, [_targets([*outputs, *(s.name for s in extra)]) + f" = {output}"]


def _taken_apart(names: Sequence[str], what: str, pair: Pair) -> str:
    targets = [f"*{n}" if n == pair.listed else n for n in names]
    return _targets(targets) + f" = {what}"


def _targets(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _tuple(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def _backward(pair: Pair, ctx: str, extra: Sequence[Saved]) -> list[Line]:
    texts: list[str] = []
    for saved, grad in zip(extra, _extra_grads(pair, extra)):
        if saved.again == "refused":
            texts += [
                f"if {grad} is not None:",
                f"    raise RuntimeError({no_second_derivative(pair, saved)!r})",
            ]
        elif saved.again == "output":  # the same tensor: the gradients add up
            (whole,) = pair.grads
            texts += [
                f"if {grad} is not None:",
                f"    {whole} = {grad} if {whole} is None else {whole} + {grad}",
            ]
    if extra:
        test = " and ".join(f"{g} is None" for g in pair.grads)
        count = ", ".join(["None"] * len(pair.slots))
        texts += [f"if {test}:", f"    return {count}"]
        if len(pair.grads) > 1 and not pair.undefined:
            texts += materialised(pair, ctx)
    unpack, direct = unpack_statements(pair, ctx, pair.backward)
    if pair.asks:
        direct |= needs(pair, ctx)
    body = replace_returns(pair.backward, lambda node, _: padded(pair, ctx, node))
    lines = own(
        *texts,
        *objects_refused(pair, ctx),
        *grads_as_list(pair),
        *unpack,
        *lists_refused(pair),
    )
    statements = statement_lines(body, direct)
    return lines + (once_lines(pair, ctx, statements) if pair.once else statements)


def _jvp(pair: Pair, ctx: str, extra: Sequence[Saved]) -> list[Line]:
    """The transpose of backward, along the tangents that are given."""
    unpack, direct = unpack_statements(pair, ctx, pair.backward)
    body = replace_returns(pair.backward, lambda node, _: _as_tuple(pair, ctx, node))
    taken = set(pair.taken)
    pullback, linear, grads, transpose, given, out = (
        fresh(name, taken)
        for name in ("pullback", "linear", "grads", "transpose", "given", "out_tangents")
    )
    smooth = [i for i, o in enumerate(pair.outputs) if o.type != "IntTensor"]
    if pair.once:
        message = f"{pair.name} has no forward mode: its backward is marked once_differentiable"
        return own(f"raise RuntimeError({message!r})")
    bent = not_linear(pair.grads, [s.tree for s in pair.backward])
    if bent is not None:
        message = (
            f"{pair.name} has no forward mode: its backward is not linear in the output "
            f"gradients ({bent})"
        )
        return own(f"raise RuntimeError({message!r})")
    if not smooth:
        return own("return " + ", ".join(["None"] * (len(pair.outputs) + len(extra))))
    names = [f"grad_{i}" for i in smooth] if len(smooth) > 1 else ["grad_out"]
    every = [zero_gradient(pair, ctx, i) for i in range(len(pair.grads))]
    for index, name in zip(smooth, names):
        every[index] = name
    zeros = [zero_gradient(pair, ctx, i) for i in smooth]
    torch = pair.torch
    if pair.list_output:
        names, every = ["*grads_out"], ["list(grads_out)"]
        zeros = [f"*[{torch}.zeros(s, **o) for s, o in zip({ctx}.shapes, {ctx}.options)]"]
    value = f"{torch}.zeros_like(t) if g is None else g"
    inner = [
        f"pairs = zip({pullback}({', '.join(every)}), tangents, strict=True)",
        f"return tuple({value} for g, t in pairs if t is not None)",
    ]
    lines = own("# backward is linear in the output gradients: forward mode is its transpose")
    unpack = [*all_needed(pair), *unpack]
    lines += own(*unpack, *([""] if unpack else []))
    lines += own(f"def {pullback}({', '.join(pair.grads)}):")
    lines += indented(statement_lines(body, direct), 4)
    lines += own("", f"def {linear}({', '.join(names)}):")
    lines += indented(own(*inner), 4)
    lines += own(
        "",
        listed(f"{grads}, {transpose} = {torch}.func.vjp(", [linear, *zeros], ")"),
        f"{given} = [t for t in tangents if t is not None]",
        f"{given} = [t.expand(g.shape).to(g.dtype) for g, t in zip({grads}, {given})]",
    )
    if pair.list_output and not extra:
        return lines + own(f"return {transpose}(tuple({given}))")
    if len(smooth) == 1 and len(every) == 1 and not extra:
        return lines + own(f"return {transpose}(tuple({given}))[0]")
    lines += own(f"{out} = {transpose}(tuple({given}))")
    results = [f"{out}[{smooth.index(i)}]" if i in smooth else "None" for i in range(len(every))]
    if pair.list_output:
        results = [f"*{out}"]
    for saved in extra:
        if saved.again == "output":
            results.append(f"None if {saved.name} is None else {results[0]}")
        else:
            results.append(_extra_tangent(pair, saved))
    return lines + own(returning(results))


def _extra_tangent(pair: Pair, saved: Saved) -> str:
    """The tangent of an extra output: none, or nan where a second derivative would be wrong."""
    nan = f'{pair.torch}.full_like({saved.name}, float("nan"))'
    smooth = f"{saved.name}.is_floating_point() or {saved.name}.is_complex()"
    if saved.keep == "tensor":
        there = f"{saved.name} is not None and " if may_be_none(pair, saved) else ""
        text = f"{nan} if {there}({smooth}) else None"
        return text if saved.again == "refused" else "None"
    if saved.keep != "either":
        return "None"
    test = f"isinstance({saved.name}, {pair.torch}.Tensor) and ({smooth})"
    zero = f"{pair.torch}.zeros_like({saved.name})"
    return f"{nan if saved.again == 'refused' else zero} if {test} else None"


def _as_tuple(pair: Pair, ctx: str, node: cst.Return) -> list[cst.BaseSmallStatement]:
    """Returned gradients as a tuple with an entry for every argument."""
    *before, last = padded(pair, ctx, node)
    assert isinstance(last, cst.Return)
    if pair.arguments == (pair.listed,) and not isinstance(last.value, cst.Tuple):
        return [*before, last]  # *tensors alone: the user's backward returns a tuple
    if len(pair.slots) == 1 and not isinstance(last.value, cst.Tuple) and last.value:
        last = cst.Return(cst.Tuple([cst.Element(last.value, comma=cst.Comma())]))
    return [*before, last]
