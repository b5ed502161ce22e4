"""Which forms of a function exist, and what holds of its derivatives, each with why.

What can be said without running the function: a form that is refused here is refused at run time
too; one that is not may still be, by values that only a call shows.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import pipeline
from ..check import mutated_inputs
from ..effects import carries_gradient, doing, not_linear, without_grad
from ..emit.op import schema, without_schema
from ..infer import infer, is_plain
from ..ir import Pair, Rule, Saved
from ..names import children, is_none, reads, walk, writes
from ..source import bindings
from ..vocabulary import BOOLEAN, FLAGS, LIKE, METADATA, SIZES
from .scriptable import obstacles

__all__ = ["Claim", "Form", "derivatives", "forms", "listed", "value_read"]

_ONCE = "backward is marked once_differentiable"
_AS_READ = "as far as can be read without running it"


@dataclass(frozen=True, slots=True)
class Form:
    """One form: does it exist, why (not), and the line that prevents it (0: none)."""

    name: str
    exists: bool
    why: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What holds of the derivatives: "yes", "no", or "partly" with the condition."""

    what: Literal["second derivative", "forward mode", "vmap"]
    holds: Literal["yes", "partly", "no"]
    why: str
    line: int = 0


def forms(rule: Rule, pair: Pair) -> tuple[Form, ...]:
    """The forms in the order of the README."""
    return (
        Form("eager", True, "one torch.autograd.Function, for every normal call"),
        _torchscript(pair),
        _func(rule, pair),
        _op(rule, pair),
    )


def _torchscript(pair: Pair) -> Form:
    found = obstacles(pair)
    if found:
        return Form("torchscript", False, found[0].what, found[0].line)
    return Form("torchscript", True, f"a typed pair that compiles, {_AS_READ}")


def _func(rule: Rule, pair: Pair) -> Form:
    prevented = _no_transforms(rule, pair)
    if prevented:
        return Form("func", False, *prevented)
    return Form("func", True, "for torch.func, vmap and forward mode")


def _op(rule: Rule, pair: Pair) -> Form:
    signature = schema(pair)
    if signature is not None:
        return Form("op", True, f"torch.ops.s2s.{signature}")
    if pair.dirty:
        line = _line_of_change(rule)
        return Form("op", False, f"{', '.join(pair.dirty)} is changed in place", line)
    odd = without_schema(pair)
    what = f"no type in an operator's schema for {', '.join(odd)}" if odd else "of its outputs"
    return Form("op", False, what, rule.source.line(rule.source.function))


def _line_of_change(rule: Rule) -> int:
    return min((rule.source.line(n) for n in mutated_inputs(rule).values()), default=0)


# --- derivatives ----------------------------------------------------------------------------------


def derivatives(rule: Rule, pair: Pair) -> tuple[Claim, ...]:
    """Second derivatives, forward mode and vmap."""
    return _second(rule, pair), _forward_mode(rule, pair), _vmap(rule, pair)


def _second(rule: Rule, pair: Pair) -> Claim:
    what: Literal["second derivative"] = "second derivative"
    if rule.once:
        return Claim(what, "no", _ONCE, rule.source.user_line(rule.backwards[0].line))
    final = pipeline.stages(pair, "eager")[-1].pair
    saved = final.saved
    refused = [s for s in saved if s.again == "refused"]
    if refused:
        first = refused[0]
        return Claim(
            what, "no", f"through {first.name}: {_kept_because(first)}", _bound(rule, first)
        )
    again = [s.name for s in saved if s.again == "recomputed" and s.name != pair.branch]
    constant = [s for s in saved if s.again == "constant"]
    parts = [f"{_are(again)} computed again from the inputs"] if again else []
    redone = {n for s in final.backward for n in writes(s.tree)} - {s.name for s in saved}
    always = [s.name for s in pair.saved if s.name in redone]
    parts += [f"{_are(always)} computed again in every backward"] if always else []
    flat = [s.name for s in saved if s.again == "as is" and _is_flat(rule, pair, s)]
    parts += [f"{_are(flat)} kept: a value without derivative"] if flat else []
    parts += [f"{s.name} is kept as a constant, {_kept_because(s)}" for s in constant]
    if not again and not always and not constant and not _reads_inputs(rule, pair):
        parts = ["and zero: no gradient depends on the value of an input"]
    if not parts:
        parts = ["backward reads the inputs and outputs themselves, which autograd follows"]
    cut = sorted(_cut_off(rule))
    if cut:
        return Claim(what, "partly", cut[0][1], cut[0][0])
    return Claim(what, "yes", "; ".join(parts))


def _is_flat(rule: Rule, pair: Pair, saved: Saved) -> bool:
    """A tensor that forward makes, and that has no derivative: a mask, a rounding, a draw."""
    outputs = {o.name for o in rule.outputs}
    made = any(saved.name in writes(s.tree) for s in pair.forward)
    return made and saved.keep != "plain" and saved.name not in outputs


def _cut_off(rule: Rule) -> Iterator[tuple[int, str]]:
    """Places where backward itself makes a value a constant to autograd."""
    for backward in rule.backwards:
        for node in walk(backward.tree):
            if without_grad(node):
                yield rule.source.line(node), "what backward does without grad is a constant"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "detach":
                    yield rule.source.line(node), f"`{ast.unparse(node)}` is a constant to autograd"
            elif isinstance(node, ast.Attribute) and node.attr == "data":
                yield rule.source.line(node), f"`{ast.unparse(node)}` is a constant to autograd"


def _kept_because(saved: Saved) -> str:
    return f"`{saved.why}` cannot be run twice" if not saved.why.startswith("it ") else saved.why


def _bound(rule: Rule, saved: Saved) -> int:
    return next((s.line for s in rule.body if saved.name in writes(s.tree)), 0)


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def _are(names: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _reads_inputs(rule: Rule, pair: Pair) -> bool:
    """May a gradient depend on the value of an input, through what backward captured?"""
    carrying = {p.name for p in rule.params if not is_plain(p.type) and not p.bound}
    for statement in pair.forward:
        for node in walk(statement.tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For)):
                value = node.iter if isinstance(node, ast.For) else node.value
                if value is not None and carries_gradient(value, carrying):
                    carrying |= set(writes(node))
    carrying &= {s.name for s in pair.saved if s.keep != "plain"}
    bodies = [s.tree for s in pair.backward]
    return any(value_read(s, carrying) for s in bodies)


def value_read(tree: ast.AST, names: Collection[str]) -> bool:
    """Is the value of one of the names read, and not its shape, dtype or presence alone?

    >>> value_read(ast.parse("g.expand(x.shape) if b is None else x.size(0)"), {"x", "b"})
    False
    """
    if isinstance(tree, ast.Name):
        return tree.id in names and isinstance(tree.ctx, ast.Load)
    if isinstance(tree, ast.Attribute) and tree.attr in METADATA:
        return False
    if isinstance(tree, ast.Compare) and any(is_none(c) for c in tree.comparators):
        return False
    parts: Sequence[ast.AST] = children(tree)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute):
        if tree.func.attr in {*SIZES, *FLAGS, "size"}:
            parts = [*tree.args, *tree.keywords]
        elif tree.func.attr in LIKE:
            parts = [tree.func.value]
    return any(value_read(part, names) for part in parts)


def _no_transforms(rule: Rule, pair: Pair) -> tuple[str, int] | None:
    """Why function transforms cannot take the function at all."""
    if pair.dirty:
        return f"{', '.join(pair.dirty)} is changed in place", _line_of_change(rule)
    for node in walk(rule.source.function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "requires_grad_":
                why = f"function transforms refuse `{ast.unparse(node)}`"
                return why, rule.source.line(node)
    return None


def _forward_mode(rule: Rule, pair: Pair) -> Claim:
    what: Literal["forward mode"] = "forward mode"
    prevented = _no_transforms(rule, pair)
    if prevented:
        return Claim(what, "no", *prevented)
    if rule.once:
        return Claim(what, "no", _ONCE, rule.source.user_line(rule.backwards[0].line))
    bent = not_linear(pair.grads, [s.tree for s in pair.backward])
    if bent is not None:
        why = f"`{bent}` is not linear in the output gradient, so backward has no transpose"
        return Claim(what, "no", why, _line_of_text(rule, bent))
    return Claim(what, "yes", "the transpose of backward, which is linear in the output gradients")


def _line_of_text(rule: Rule, text: str) -> int:
    """The line of backward where an expression stands."""
    for backward in rule.backwards:
        for node in walk(backward.tree):
            if isinstance(node, ast.expr) and ast.unparse(node) == text:
                return rule.source.line(node)
    return rule.backwards[0].line


def _vmap(rule: Rule, pair: Pair) -> Claim:
    prevented = _no_transforms(rule, pair)
    if prevented:
        return Claim("vmap", "no", *prevented)
    asked = sorted((rule.source.line(n), why) for n, why in _depends_on_values(rule))
    if asked:
        return Claim("vmap", "no", asked[0][1], asked[0][0])
    found = bindings(rule.source.tree)
    local = set(rule.locals) | {p.name for p in rule.params}
    lifted = {b.tree for b in rule.backwards}
    for statement in rule.body:
        if statement.tree not in lifted and doing(statement.tree, found, local) == "random":
            why = 'it draws at random: vmap asks for randomness="different" or "same"'
            return Claim("vmap", "partly", why, statement.line)
    return Claim("vmap", "yes", f"PyTorch makes the rule from the func form, {_AS_READ}")


def _depends_on_values(rule: Rule) -> Iterator[tuple[ast.AST, str]]:
    """Places where Python asks for the value of a tensor: a batch has none."""
    types = dict(rule.types)
    for backward in rule.backwards:
        types |= dict.fromkeys(backward.params, "Tensor")
    found = bindings(rule.source.tree)

    def is_tensor(node: ast.expr) -> bool:
        return infer(node, types, found) in ("Tensor", "IntTensor")

    for node in walk(rule.source.function):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and is_tensor(node.test):
            yield node, f"`{ast.unparse(node.test)}` decides by the value of a tensor"
        elif isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if isinstance(func, ast.Attribute) and name in ("item", "tolist", "numpy"):
                if is_tensor(func.value):
                    yield node, f"`{ast.unparse(node)}` asks for the value of a tensor"
            elif isinstance(func, ast.Name) and name in ("bool", "float", "int"):
                if name not in rule.locals and node.args and is_tensor(node.args[0]):
                    yield node, f"`{ast.unparse(node)}` asks for the value of a tensor"
            elif name in ("nonzero", "masked_select", "unique", "unique_consecutive"):
                yield node, f"the shape of `{ast.unparse(node)}` depends on values"
        elif isinstance(node, ast.Subscript) and _is_mask(node.slice, rule):
            yield node, f"the shape of `{ast.unparse(node)}` depends on values"


def _is_mask(node: ast.expr, rule: Rule) -> bool:
    """Is an index a bool tensor, by the text?"""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_mask(node.operand, rule)
    if isinstance(node, ast.Name):
        values = [
            s.tree.value
            for s in rule.body
            if isinstance(s.tree, ast.Assign) and node.id in writes(s.tree)
        ]
        return (
            len(values) == 1 and not isinstance(values[0], ast.Name) and _is_mask(values[0], rule)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in BOOLEAN
    tensors = {n for n, t in rule.types if t == "Tensor"}
    return isinstance(node, ast.Compare) and bool(tensors & set(reads(node)))
