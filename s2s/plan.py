"""What a function keeps for backward, as data: for people to read, and for `s2s explain` to print.

>>> from s2s.passes.example import lifted
>>> found = plan(lifted('''
... def swish(x):
...     s = torch.sigmoid(x)
...     def backward(g):
...         return g * (s * (1 + x * (1 - s)))
...     return x * s, backward
... ''', save="auto"))
>>> for kept in found.kept:
...     print(kept)
x: a saved tensor, 1 x
s: computed again from x: s = torch.sigmoid(x)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .infer import is_tensor
from .ir import Pair, Save, Saved, Stmt, replace
from .names import reads, walk, writes
from .passes.save_if_needed import asked_for
from .pipeline import stages
from .sizes import Size, given, size_of, sizes

__all__ = ["Kept", "Plan", "plan"]

How = Literal["tensor", "tensors", "plain", "size", "part", "again", "as output"]

_SAID: Mapping[How, str] = {
    "tensor": "a saved tensor",
    "tensors": "saved tensors",
    "plain": "a plain value",
    "size": "a plain value in place of the tensor",
    "part": "a saved tensor in place of the tuple",
    "again": "computed again",
    "as output": "a saved tensor, the output that is",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """How one value gets from forward to backward.

    ``how`` is "tensor", "tensors" (a list of them) or "plain" for what is kept as it is; "size"
    where only the shape, dtype or presence of a tensor is kept, "part" where one part of a tuple
    is, "as output" where an output is kept that is the same tensor; "again" for what backward
    computes again. ``value`` is the text of what is kept or computed, ``sources`` the names that
    this starts from. ``times`` are its bytes in multiples of the input ``of``, by rules of thumb
    where no shapes are given, None where nothing is known; ``bytes`` where shapes are given.
    ``when`` are the inputs of which one has to ask for a gradient for it to be kept; () means
    always. ``why`` says why it is kept, where that is not because backward reads it.
    """

    name: str
    how: How
    value: str
    sources: tuple[str, ...] = ()
    of: str = ""
    times: float | None = None
    bytes: int | None = None
    when: tuple[str, ...] = ()
    why: str = ""

    @property
    def is_tensor(self) -> bool:
        """Does memory of a tensor stay alive for it?"""
        return self.how not in ("plain", "size", "again")

    def __str__(self) -> str:
        text = f"{self.name}: {_SAID[self.how]}"
        if self.how == "again":
            text += f" from {', '.join(self.sources)}: {self.value}"
        elif self.how == "as output":
            text += f" {', '.join(self.sources)}, too"
        elif self.value != self.name:
            text += f" {self.value}"
        if self.bytes is not None:
            text += f", {self.bytes} bytes"
        elif self.times is not None and self.is_tensor:
            text += f", {self.times:.3g} {self.of}"
        if self.when:
            text += f", if {' or '.join(self.when)} requires grad"
        return text + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one function keeps. ``times`` is the sum of what is known, in multiples of the input
    ``of``; ``bytes`` is the sum where shapes are given."""

    name: str
    save: Save
    kept: tuple[Kept, ...]
    of: str
    times: float
    bytes: int | None
    notes: tuple[str, ...]


COMPILED = (
    "torch.compile's partitioner chooses anew what is kept, from forward and backward together, "
    "for calls and operator calls alike; torch.compiler.disable(f) keeps this plan, and "
    "torch._functorch.config.activation_memory_budget = 0 computes all again that it can"
)
TRANSFORMED = "under torch.func everything that can be computed again is"


def plan(pair: Pair, shapes: Mapping[str, Sequence[int]] | None = None) -> Plan:
    """What the eager form of a lifted pair keeps.

    ``shapes`` are those of its inputs, of float32, for exact bytes.
    """
    done = stages(pair, "eager")
    final = done[-1].pair
    known = _input_sizes(pair, shapes or {})
    found = sizes([s.tree for s in (*pair.forward, *final.forward)], known)
    unit = next(iter(known.values()), given("x"))
    kept = [_saved(pair, final, s, found, bool(shapes)) for s in final.saved]
    kept = [_replaced(k, {stage.name: stage.pair for stage in done}) for k in kept]
    kept += [_again(s) for s in _redone(pair, final)]
    total = sum(k.times or 0 for k in kept)
    exact = sum(k.bytes or 0 for k in kept) if shapes else None
    of = next(iter(known), "")
    if exact is not None and unit.bytes:
        total = exact / unit.bytes
    return Plan(pair.name, pair.save, tuple(kept), of, total, exact, (COMPILED, TRANSFORMED))


def _input_sizes(pair: Pair, shapes: Mapping[str, Sequence[int]]) -> dict[str, Size]:
    tensors = [p.name for p in pair.params if is_tensor(p.type)]
    return {name: given(name, shapes.get(name)) for name in tensors}


def _saved(pair: Pair, final: Pair, saved: Saved, found: Mapping[str, Size], exact: bool) -> Kept:
    """What one saved value of the final pair is."""
    asked = asked_for(saved)
    value = saved.name if asked else saved.value or saved.name
    tree = ast.parse(value, mode="eval").body
    size = size_of(tree, found) if saved.keep in ("tensor", "either") else None
    how: How = saved.keep if saved.keep != "either" else "tensor"
    if saved.keep == "plain" and saved.value is not None:
        how = "size"
    return Kept(
        saved.name,
        how,
        value,
        of=size.of if size else "",
        times=_times(size, found),
        bytes=round(size.bytes) if size and exact else None,
        when=tuple(pair.arguments[i] for i in asked),
        why=_why(pair, saved),
    )


def _replaced(kept: Kept, done: Mapping[str, Pair]) -> Kept:
    """A part in place of a tuple, an output in place of another name for it."""
    before, parts, outputs = (
        {s.name for s in done[step].saved}
        for step in ("lift_backward", "save_parts", "save_outputs")
    )
    if kept.name in parts - before:
        statements = [s.tree for s in done["save_parts"].forward if kept.name in writes(s.tree)]
        values = [ast.unparse(t.value) for t in statements if isinstance(t, ast.Assign)]
        return replace(kept, how="part", value=values[0] if values else kept.value, why="")
    if kept.name in outputs - parts:
        links = {n for s in done["save_parts"].forward for n in _same(s.tree, kept.name)}
        return replace(kept, how="as output", sources=tuple(sorted(links & parts)), why="")
    return kept


def _same(tree: ast.stmt, name: str) -> tuple[str, ...]:
    """The other name, where a statement gives one value two."""
    if isinstance(tree, ast.Assign) and isinstance(tree.value, ast.Name):
        names = {tree.value.id, *writes(tree)}
        return tuple(names - {name}) if name in names else ()
    return ()


def _times(size: Size | None, found: Mapping[str, Size]) -> float | None:
    if size is None or size.of not in found:
        return None
    return size.bytes / found[size.of].bytes if found[size.of].bytes else 0.0


def _why(pair: Pair, saved: Saved) -> str:
    if saved.again in ("refused", "constant"):
        return f"never computed twice: {saved.why}"
    own = saved.value is None or asked_for(saved)
    if own and saved.name not in {s.name for s in pair.saved}:
        return "what is computed again starts from it"
    return ""


def _redone(pair: Pair, final: Pair) -> list[Stmt]:
    """Statements of forward that backward runs in any case."""
    own = {n for s in pair.saved for n in [s.name]} - {s.name for s in final.saved}
    return [
        s
        for s in final.backward
        if isinstance(s.tree, (ast.Assign, ast.AnnAssign)) and set(writes(s.tree)) & own
    ]


def _again(statement: Stmt) -> Kept:
    names = writes(statement.tree)
    value = ast.unparse(statement.tree)
    called = {n.func.id for n in walk(statement.tree) if _is_called(n)}  # type: ignore[attr-defined]
    sources = tuple(n for n in reads(statement.tree) if n not in called and n != "torch")
    return Kept(names[0], "again", value, sources, times=0.0)


def _is_called(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
