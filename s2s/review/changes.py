"""What a change of a function means for its users, before any text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .canonical import same_program
from .claims import listed
from .facts import Facts, Gradient, Kept
from .versions import Version
from .words import summary

__all__ = ["Change", "changes", "forms_changed"]

_SHORT = 60  # of a formula that is shown in a sentence

Kind = Literal[
    "function",
    "compiles",
    "inputs",
    "outputs",
    "gradient",
    "kept",
    "form",
    "derivative",
    "warning",
    "text",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One sentence about a change. ``line`` is the new one, or the old where there is no new."""

    kind: Kind
    text: str
    line: int


def forms_changed(old: Version, new: Version) -> tuple[str, ...]:
    """The forms whose generated code is another program now."""
    before = dict(old.texts)
    return tuple(form for form, text in new.texts if not same_program(before.get(form, ""), text))


def changes(old: Version | None, new: Version | None) -> tuple[Change, ...]:
    """What is different, the gravest first; () where nothing of the generated code changed."""
    if old is None or new is None:
        return tuple(_alone(old, new))
    line = new.line
    if old.facts is None and new.facts is None:
        return ()
    if new.facts is None:
        first = new.problems[0]
        return (
            Change(
                "compiles", f"no longer compiles: {first.code} {first.message}", first.span.line
            ),
        )
    if old.facts is None:
        return (Change("compiles", f"compiles now; before: {old.problems[0].code}", line),)
    found = list(_compared(old, new, old.facts, new.facts))
    if old.name != new.name:
        found.insert(0, Change("function", f"renamed from {old.name}", line))
    differing = forms_changed(old, new)
    if not found and differing:
        names = " and ".join(differing)
        text = f"the generated code is written otherwise ({names}); what it means is the same"
        found.append(Change("text", text, line))
    return tuple(found)


def _alone(old: Version | None, new: Version | None) -> Iterator[Change]:
    one = new or old
    assert one is not None
    line = one.line
    text = "added" if new else "removed"
    if one.facts is not None:
        text += f": it {summary(one.facts)}" if new else ""
    elif new is None:
        text += f": it did not compile, {one.problems[0].code}"
    yield Change("function", text, line)
    if new and new.problems:
        first = new.problems[0]
        yield Change("compiles", f"does not compile: {_short(new)}", first.span.line)


def _short(version: Version) -> str:
    return f"{version.problems[0].code} {version.problems[0].message}"


def _compared(old: Version, new: Version, was: Facts, now: Facts) -> Iterator[Change]:
    line = new.line
    yield from _gradients(old, new, was, now)
    yield from _forward(old, new, line)
    yield from _claims(was, now, line)
    yield from _kept(old, new, was, now)
    yield from _signature(was, now, line)
    yield from _warnings(was, now, line)


# --- what is computed -----------------------------------------------------------------------------


def _gradients(old: Version, new: Version, was: Facts, now: Facts) -> Iterator[Change]:
    before, after = dict(old.backwards), dict(new.backwards)
    formulas = dict(old.formulas), dict(new.formulas)
    forward_before, forward_after = dict(old.forwards), dict(new.forwards)
    known = {g.input: g for g in was.gradients}
    places = {g.input: i for i, g in enumerate(was.gradients)}
    for index, gradient in enumerate(now.gradients):
        name = gradient.input
        if name not in known and len(was.gradients) == len(now.gradients):
            name = was.gradients[index].input  # the input has another name
        if name not in known:
            continue
        one = known[name]
        line = gradient.lines[0] if gradient.lines else now.span.line
        if (one.given == "never") != (gradient.given == "never"):
            had = "None now" if gradient.given == "never" else "no longer None"
            yield Change("gradient", f"gradient of {gradient.input} is {had}", line)
        elif formulas[0][name] == formulas[1][gradient.input]:
            pass
        elif before[name] != after[gradient.input]:
            yield Change("gradient", _changed(one, gradient), line)
        else:
            other = [n for n in gradient.needs if n in forward_after]
            other = [n for n in other if forward_before.get(n) != forward_after[n]]
            if other:
                verb = "is" if len(other) == 1 else "are"
                text = (
                    f"gradient of {gradient.input} changed: its formula is the same, but "
                    f"{listed(other)} {verb} computed otherwise"
                )
                yield Change("gradient", text, line)
        if name in places and gradient.guarded != one.guarded and gradient.given != "never":
            how = "only where it is asked for" if gradient.guarded else "in every backward"
            yield Change("gradient", f"gradient of {gradient.input} is computed {how} now", line)


def _changed(old: Gradient, new: Gradient) -> str:
    text = f"gradient of {new.input} changed"
    if old.text != new.text and max(len(old.text), len(new.text)) <= _SHORT:
        text += f": it was {old.text}, and is {new.text}"
    return text


def _forward(old: Version, new: Version, line: int) -> Iterator[Change]:
    if dict(old.forwards).get("") != dict(new.forwards).get(""):
        yield Change("outputs", "forward computes its output otherwise", line)


def _claims(was: Facts, now: Facts, line: int) -> Iterator[Change]:
    before = {c.what: c for c in was.derivatives}
    for claim in now.derivatives:
        one = before[claim.what]
        if one.holds == claim.holds:
            continue
        place = claim.line or line
        if claim.holds == "no":
            yield Change("derivative", f"{claim.what} no longer available: {claim.why}", place)
        elif one.holds == "no" and claim.holds == "yes":
            yield Change("derivative", f"{claim.what} available now", place)
        else:
            holds = "holds" if claim.holds == "yes" else "holds only partly"
            text = f"{claim.what} {holds} now: {claim.why}"
            yield Change("derivative", text, place)
    forms = {f.name: f for f in was.forms}
    for form in now.forms:
        if form.exists and not forms[form.name].exists:
            yield Change("form", f"has a form {form.name} now", line)
        elif not form.exists and forms[form.name].exists:
            text = f"no form {form.name} any more: {form.why}"
            yield Change("form", text, form.line or line)


# --- what is kept ---------------------------------------------------------------------------------


def _kept(old: Version, new: Version, was: Facts, now: Facts) -> Iterator[Change]:
    line = now.span.line
    before, after = {k.name: k for k in was.tensors}, {k.name: k for k in now.tensors}
    same = dict(_renamed(old, new))
    added = [n for n in after if n not in before and n not in same]
    gone = [n for n in before if n not in after and n not in same.values()]
    if added:
        extra = "one more tensor" if len(added) == 1 else f"{len(added)} more tensors"
        place = after[added[0]].line or line
        yield Change("kept", f"saves {extra}: {listed(added)}", place)
    if gone:
        every = {k.name: k for k in now.kept}
        for name in gone:
            how = f": {_instead(every[name])}" if name in every else ""
            yield Change("kept", f"no longer saves the tensor {name}{how}", line)
    for name in after:
        if name in before and after[name].again != before[name].again:
            yield from _again(after[name], line)
        elif name in before and after[name].times != before[name].times:
            yield from _resized(before[name], after[name], line)


def _renamed(old: Version, new: Version) -> Iterator[tuple[str, str]]:
    """Captures that are what others were under another name: the new name, and the old."""
    before, after = dict(old.forwards), dict(new.forwards)
    texts = {text: name for name, text in before.items() if name not in after}
    for name, text in after.items():
        if name not in before and text in texts:
            yield name, texts[text]


def _instead(kept: Kept) -> str:
    """What has become of a value that was kept as a tensor."""
    return {
        "shape only": "only its shape",
        "code": "its code is written again",
        "computed again": "every backward computes it again",
        "plain value": "it is a plain value now",
    }[kept.how]


def _again(kept: Kept, line: int) -> Iterator[Change]:
    said = {
        "as is": "is kept as it is in a second derivative",
        "recomputed": f"is computed again in a second derivative, from {listed(kept.sources)}",
        "constant": f"is a constant in a second derivative: `{kept.why}` is not run twice",
    }
    if kept.again in said:  # one that is refused is said of the derivatives
        yield Change("kept", f"{kept.name} {said[kept.again]}", kept.line or line)


def _resized(old: Kept, new: Kept, line: int) -> Iterator[Change]:
    if old.times and new.times and (old.of, old.times) != (new.of, new.times):
        text = f"{new.name} is kept with {new.times:.3g} times {new.of}, before {old.times:.3g}"
        yield Change("kept", text, new.line or line)


# --- the outside ----------------------------------------------------------------------------------


def _signature(was: Facts, now: Facts, line: int) -> Iterator[Change]:
    before, after = was.signature.partition("(")[2], now.signature.partition("(")[2]
    if before != after:
        text = f"inputs are ({after} now, before ({before}"
        yield Change("inputs", text, line)
    if len(was.outputs) != len(now.outputs):
        text = f"returns {len(now.outputs)} outputs now, before {len(was.outputs)}"
        yield Change("outputs", text, line)


def _warnings(was: Facts, now: Facts, line: int) -> Iterator[Change]:
    before = {(w.code, w.message) for w in was.warnings}
    after = {(w.code, w.message) for w in now.warnings}
    for warning in now.warnings:
        if (warning.code, warning.message) not in before:
            text = f"new warning {warning.code}: {warning.message}"
            yield Change("warning", text, warning.span.line)
    for warning in was.warnings:
        if (warning.code, warning.message) not in after:
            yield Change("warning", f"warning {warning.code} is gone: {warning.message}", line)
