"""A pair as it stands between two passes: two plain functions, to read while a pass is at work."""

from __future__ import annotations

import os

from ..asked import NEEDS
from ..ir import Emitted, Pair, Saved
from ..names import reads
from ..syntax import listed
from .eager import tidy
from .layout import Line, header, indented, module_text, own, parameters, statement_lines

__all__ = ["emit_pair"]


def emit_pair(pair: Pair) -> Emitted:
    """``<name>_forward``, which returns outputs and saved values, and ``<name>_backward``.

    What is saved stands above them, with how it is kept and what a second derivative does with it.
    """
    names = [f"{pair.name}_forward"]
    source = pair.source
    place = f"{os.path.basename(source.file)}:{source.line(source.function)}"
    lines = own(*header(pair), f"# {source.qualname}, {place}", *map(_about, pair.saved))
    taken = parameters(pair)
    if any(NEEDS in reads(s.tree) for s in pair.forward):
        taken += ["*", NEEDS]  # there may be defaults in front of it
    lines += own(listed(f"def {names[0]}(", taken, "):", indent=0))
    lines += indented(statement_lines(tidy(pair.forward)), 4)
    if pair.backward:
        names.append(f"{pair.name}_backward")
        given = [*pair.grads, *(s.name for s in pair.saved)]
        if any(NEEDS in reads(s.tree) for s in pair.backward):
            given.append(NEEDS)
        lines += own("", "")
        lines += [Line(line.comment.value) for line in pair.comments if line.comment]
        lines += own(listed(f"def {names[1]}(", given, "):", indent=0))
        lines += indented(statement_lines(tidy(pair.backward)), 4)
    return module_text("pair", pair, lines, names)


def _about(saved: Saved) -> str:
    """``# saves s: Tensor, as a saved tensor; recomputed for a second derivative``."""
    kept = {
        "tensor": "a saved tensor",
        "tensors": "saved tensors",
        "plain": "an attribute of ctx",
        "either": "a saved tensor, or an attribute of ctx where it is none",
    }[saved.keep]
    again = "" if saved.again == "as is" else f"; for a second derivative: {saved.again}"
    why = f", {saved.why}" if saved.why else ""
    return f"# saves {saved.name}: {saved.type or 'unknown'}, as {kept}{again}{why}"
