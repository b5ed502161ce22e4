"""The facts of a function in words: what a table, a page and a comment in a review say alike."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .claims import listed
from .facts import Choice, Facts, Gradient, Kept

__all__ = [
    "gradient_why",
    "kept_how",
    "kept_what",
    "kept_why",
    "memory",
    "place",
    "size",
    "summary",
]

_KINDS = {"helper": "nested function"}


def place(facts: Facts) -> str:
    """``file:line``, the file as it is seen from the current folder where that is shorter."""
    file = facts.span.file
    near = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{near if len(near) < len(file) else file}:{facts.span.line}"


def summary(facts: Facts) -> str:
    """One line: how much is kept, and what does not hold."""
    tensors = facts.tensors
    kept = f"keeps {_counted(len(tensors), 'tensor')}"
    names = f" ({', '.join(k.name for k in tensors)})" if tensors else ""
    missing = [f"no {f.name} form" for f in facts.forms if not f.exists]
    missing += [f"no {c.what}" for c in facts.derivatives if c.holds == "no"]
    return "; ".join([kept + names, *missing])


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def memory(facts: Facts) -> Iterator[tuple[str, str]]:
    """The bytes that are kept in all, and those that another choice of ``save`` would keep."""
    if not facts.choices:
        return
    own, *others = facts.choices
    different = [c for c in others if (c.tensors, c.again) != (own.tensors, own.again)]
    if own.tensors or different:
        for choice in (own, *different):
            yield f'save="{choice.save}"{", chosen" if choice is own else ""}', _choice(choice)
    if own.again:
        yield "torch.compile", COMPILED


COMPILED = (
    "chooses anew, from forward and backward together, for calls and operator calls alike; "
    "torch.compiler.disable(f) keeps this choice, and "
    "torch._functorch.config.activation_memory_budget = 0 computes all again that it can"
)


def _choice(choice: Choice) -> str:
    """``2 x + 1 w; computes s again``."""
    large = [(of, times) for of, times in choice.sizes if times > 1 / 32]
    parts = [f"{times:.3g} {of}" for of, times in large]
    if len(large) < len(choice.sizes) or not choice.tensors:
        parts.append("something small" if choice.tensors else "nothing")
    parts += [f"{name}, of unknown size" for name in choice.unknown]
    text = " + ".join(parts)
    return f"{text}; computes {listed(choice.again)} again" if choice.again else text


def kept_what(kept: Kept) -> str:
    """What a kept value is: its kind, its type, and where it is bound."""
    if kept.kind == "branch":
        return "number of the backward that the call returned"
    kind = f"constant of {kept.origin}" if kept.origin else _KINDS.get(kept.kind, kept.kind)
    type_ = "" if kept.kind == "helper" else f" {kept.type or 'of unknown type'},"
    where = f" line {kept.line}" if kept.line else ""
    return f"{kind},{type_}{where}".rstrip(",")


def kept_how(kept: Kept) -> str:
    """How it comes from forward to backward, and its size."""
    if kept.how == "code":
        return "written again in backward"
    how = "saved tensor, or plain value" if kept.how == "either" else kept.how
    parts = f" {', '.join(kept.parts)}" if kept.parts else ""
    return ", ".join([how + parts, *([size(kept)] if size(kept) else [])])


def size(kept: Kept) -> str:
    """Its bytes beside those of an input: ``as large as x``, ``1/4 of x``, ``small``."""
    if not kept.is_tensor or kept.times is None:
        return ""
    if kept.times <= 1 / 32:
        return "small"
    if kept.times == 1:
        return "" if kept.of == kept.name else f"as large as {kept.of}"
    if kept.times in (0.5, 0.25, 0.125):
        return f"1/{round(1 / kept.times)} of {kept.of}"
    return f"{kept.times:.3g} times {kept.of}"


def kept_why(kept: Kept) -> str:
    """Who reads it, and what a second derivative does with it."""
    parts: list[str] = []
    if kept.kind == "branch":
        parts.append("to choose between the backwards")
    if kept.needed_for:
        parts.append(f"for the gradient of {listed(kept.needed_for)}{_lines(kept)}")
    if kept.shape_for:
        where = "" if kept.needed_for else _lines(kept)
        parts.append(f"its shape for the gradient of {listed(kept.shape_for)}{where}")
    if kept.read and not parts:
        parts.append(f"read by backward{_lines(kept)}")
    if kept.redo:
        parts.append(f"to compute {listed(kept.redo)} again")
    if kept.how == "computed again":
        parts.append(f"from {listed(kept.sources)} in every backward: `{kept.value}`")
    if kept.when:
        parts.append(f"kept only if {' or '.join(kept.when)} requires grad")
    if kept.again == "recomputed":
        parts.append(f"second derivative: computed again from {listed(kept.sources)}")
    elif kept.again == "constant":
        parts.append(f"second derivative: a constant, `{kept.why}` is not run twice")
    elif kept.again == "refused":
        parts.append(f"no second derivative through it: `{kept.why}` is not run twice")
    if kept.start_of:
        parts.append(f"second derivative: the start of {listed(kept.start_of)}")
    return "; ".join(parts)


def _lines(kept: Kept) -> str:
    plural = "s" if len(kept.read) > 1 else ""
    return f" (line{plural} {', '.join(map(str, kept.read))})" if kept.read else ""


def gradient_why(gradient: Gradient) -> str:
    """What a gradient needs, or why there is none."""
    if gradient.given == "never":
        plain = gradient.type not in ("", "Tensor", "Optional[Tensor]")
        return f"none: {gradient.type} takes no gradient" if plain else "none: backward gives None"
    shapes = [f"the shape of {name}" for name in gradient.shapes]
    needs = [*gradient.output_grads, *gradient.needs, *shapes]
    text = f"needs {listed(needs)}" if needs else "needs nothing"
    if gradient.given == "sometimes":
        text += "; None in some cases"
    if gradient.guarded:
        text += "; computed only if asked for"
    return text
