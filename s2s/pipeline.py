"""The order of everything, on one screen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from .captures import captures, constants
from .check import check
from .emit.eager import emit_eager
from .emit.func import emit_func
from .emit.op import emit_op
from .emit.torchscript import emit_torchscript
from .errors import TransformError
from .ir import Emitted, Pair, Rule, Save, Source, Stage
from .options import with_options
from .parse import parse
from .passes.drop_recomputed import drop_recomputed
from .passes.guard_gradients import guard_gradients
from .passes.in_place import in_place
from .passes.lift_backward import lift_backward
from .passes.lift_helpers import lift_helpers
from .passes.match_to_if import match_to_if
from .passes.name_parts import name_parts
from .passes.optional_captures import optional_captures
from .passes.plain_forward import plain_forward
from .passes.plain_messages import plain_messages
from .passes.plain_sequences import plain_sequences
from .passes.plain_statements import plain_statements
from .passes.plain_values import plain_values
from .passes.recompute_intermediates import recompute_always, recompute_intermediates
from .passes.return_outputs_apart import return_outputs_apart
from .passes.save_if_needed import save_if_needed
from .passes.save_less import save_less
from .passes.save_outputs import save_outputs
from .passes.save_parts import save_parts
from .passes.save_sizes import save_own_sizes, save_sizes
from .passes.unnest_walrus import unnest_walrus
from .passes.unroll_comprehensions import unroll_comprehensions
from .verify import verify

__all__ = ["FORMS", "emit", "lift", "printed", "read", "stages"]

Pass = Callable[[Pair], Pair]

# what each form does to the lifted pair, in this order
FORMS: Mapping[str, tuple[Pass, ...]] = {
    "eager": (
        save_parts,
        save_outputs,
        save_own_sizes,  # before it: a shape is not worth computing again
        name_parts,  # before it: for what it may choose from
        save_less,
        recompute_intermediates,  # after it: of what is kept
        save_sizes,  # after it: a tensor that a second derivative needs is kept
        drop_recomputed,  # after them: they look at the statements of forward
        guard_gradients,
        save_if_needed,  # behind it: it reads what each guarded gradient needs
        in_place,  # last: the others take a value that was made for one that stays
    ),
    "torchscript": (
        match_to_if,  # first: the others look into its cases as statements
        plain_values,  # before unnest_walrus: it writes some
        unnest_walrus,
        plain_messages,
        unroll_comprehensions,
        plain_statements,
        plain_sequences,
        lift_helpers,
        optional_captures,  # last: lifted helpers show which captures an arm hands over
    ),
    "func": (save_parts, save_outputs, return_outputs_apart, recompute_always),
    "op": (plain_forward, in_place),
}


def read(source: Source, save: Save | None = None, recompute: Sequence[str] | None = None) -> Rule:
    """The rule of one function, or TransformError with all its problems.

    ``save`` and ``recompute`` are the decorator's; where they are None its text says them.
    """
    rule = with_options(parse(source), save, recompute)
    problems = check(rule)
    if problems:
        raise TransformError(problems)
    return rule


def lift(rule: Rule) -> Pair:
    """The lifted pair that every form starts from."""
    pair = lift_backward(rule, captures(rule), constants(rule))
    return verify(pair, "lift_backward")


@functools.lru_cache(maxsize=16)  # of one function, whoever asks: the emitters, the reviews
def stages(pair: Pair, form: str) -> tuple[Stage, ...]:
    """The pair after the lowering and after each pass of a form."""
    done = [Stage("lift_backward", pair)]
    for step in FORMS[form]:
        made = step(pair)
        pair = pair if made is pair else verify(made, step.__name__)
        done.append(Stage(step.__name__, pair))
    return tuple(done)


def emit(
    pair: Pair,
    form: str,
    types: Mapping[str, str] | None = None,
    literals: Mapping[str, str] | None = None,
) -> Emitted:
    """One form of a lifted pair as text. ``types`` and ``literals`` are for "torchscript"."""
    return printed(stages(pair, form)[-1].pair, form, types, literals)


def printed(
    final: Pair,
    form: str,
    types: Mapping[str, str] | None = None,
    literals: Mapping[str, str] | None = None,
) -> Emitted:
    """The text of a pair that has been through the passes of a form."""
    if form == "torchscript":
        return emit_torchscript(final, types, literals)
    return {"eager": emit_eager, "func": emit_func, "op": emit_op}[form](final)
