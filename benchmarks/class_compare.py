"""Is a converted ``torch.autograd.Function`` the same function? Values, gradients and manners.

`compare` runs two callables on the same inputs in many ways and says where they differ without a
word. What the second may do that the first does not: raise, or be right where the first is wrong.
Right is told by the first gradient on untouched inputs, and by its numeric derivative.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "AT_CALL",
    "EQUAL",
    "Fixed",
    "IN_PLACE",
    "NOT_RUN",
    "SECOND",
    "VALUES",
    "Verdict",
    "compare",
    "runs",
]

EQUAL, VALUES, SECOND, IN_PLACE = "equal", "values", "second derivative", "in-place change"
NOT_RUN, AT_CALL = "not run", "refused at the call"

Call = Callable[..., Any]
Example = Sequence[Any]


@dataclass
class Verdict:
    """What `compare` found. ``outcome`` is the worst of all checks; ``why`` tells the first
    difference of that kind. The rest names checks: in which ours is right where the original is
    wrong, raises where the original does not, and is as wrong as the original."""

    outcome: str = EQUAL
    why: str = ""
    mended: list[str] = field(default_factory=list)
    loud: list[str] = field(default_factory=list)
    both_wrong: list[str] = field(default_factory=list)
    checks: int = 0

    def differs(self, kind: str, why: str) -> None:
        order = (EQUAL, SECOND, IN_PLACE, VALUES)
        if order.index(kind) > order.index(self.outcome):
            self.outcome, self.why = kind, why


@dataclass(frozen=True)
class Fixed:
    """A floating point tensor of an example that never requires grad."""

    tensor: Tensor


@dataclass(frozen=True)
class Raised:
    """An exception, in place of a result."""

    what: str


# --- one run -----------------------------------------------------------------------------------


@dataclass
class Run:
    """Inputs of their own for one call: ``leaves`` to differentiate, ``fed`` to give."""

    leaves: list[Tensor]
    fed: list[Any]
    outputs: Any = None

    def tensors(self) -> list[Tensor]:
        return [t for t in _flat(self.fed) if isinstance(t, Tensor)]

    def smooth(self) -> list[Tensor]:
        """The outputs that have a gradient."""
        return [o for o in _flat(self.outputs) if isinstance(o, Tensor) and o.requires_grad]


def _start(example: Example, wanted: Callable[[int], bool], leaf: bool = False) -> Run:
    """Copies of the inputs; the n-th tensor with a gradient requires it where it is wanted."""
    leaves: list[Tensor] = []
    count = 0

    def copied(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Fixed):
            return value.tensor.detach().clone()
        if isinstance(value, Tensor):
            made = value.detach().clone(memory_format=torch.preserve_format)
            if not (made.is_floating_point() or made.is_complex()):
                return made
            wants, count = wanted(count), count + 1
            made.requires_grad_(wants)
            leaves.append(made)
            return made.clone() if wants and not leaf else made
        if isinstance(value, list | tuple) and type(value) in (list, tuple, torch.Size):
            return type(value)(copied(v) for v in value)
        if type(value) is dict:
            return {k: copied(v) for k, v in value.items()}
        return value

    return Run(leaves, [copied(v) for v in example])


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _flat(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _flat(inner)
    else:
        yield value


def _seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(number)


def _call(call: Call, run: Run) -> Run:
    _seed(1)
    run.outputs = call(*run.fed)
    return run


def _cotangents(run: Run, graph: bool = False) -> list[Tensor]:
    torch.manual_seed(2)
    made = [torch.randn_like(o.detach()) for o in run.smooth()]
    return [m.requires_grad_(graph) for m in made]


def _gradients(run: Run, cotangents: Sequence[Tensor], **keywords: Any) -> list[Tensor | None]:
    wanted = [leaf for leaf in run.leaves if leaf.requires_grad]
    outputs = run.smooth()
    if not outputs or not wanted:
        return []
    _seed(3)
    return list(
        torch.autograd.grad(outputs, wanted, list(cotangents), allow_unused=True, **keywords)
    )


def _every(_: int) -> bool:
    return True


def _none(_: int) -> bool:
    return False


# --- what is compared of a run -----------------------------------------------------------------


def _values(value: Any) -> Any:
    """Copies, so that later changes in place are not seen."""
    if isinstance(value, Tensor):
        return value.detach().clone() if not value.is_sparse else value.detach().to_dense()
    if isinstance(value, list | tuple):
        return [_values(v) for v in value]
    return value


def _outputs(run: Run) -> Any:
    """Everything that a caller sees of the outputs, and of the inputs afterwards."""
    inputs = run.tensors()
    before: list[Tensor] = []

    def seen(value: Any) -> Any:
        if isinstance(value, Tensor):
            about = {
                "dtype": str(value.dtype),
                "shape": tuple(value.shape),
                "requires_grad": value.requires_grad,
                "is input": [i for i, t in enumerate(inputs) if t is value],
                "shares memory with input": [i for i, t in enumerate(inputs) if _shares(value, t)],
                "shares memory with output": [i for i, t in enumerate(before) if _shares(value, t)],
                "type": type(value).__name__,
                "values": _values(value),
            }
            before.append(value)
            return about
        if isinstance(value, list | tuple):
            return [type(value).__name__, *(seen(v) for v in value)]
        if isinstance(value, dict):
            return {str(k): seen(v) for k, v in value.items()}
        return value

    return {"outputs": seen(run.outputs), "inputs afterwards": [_values(t) for t in inputs]}


def _shares(one: Tensor, other: Tensor) -> bool:
    try:
        return one.numel() > 0 and (
            one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        )
    except (RuntimeError, NotImplementedError):  # a sparse tensor has no storage
        return one is other


def _difference(ours: Any, theirs: Any, where: str = "") -> str:
    """The first place in which two results differ, or nothing."""
    if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
        return _tensor_difference(ours, theirs, where)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return f"{where}: {sorted(ours)} for {sorted(theirs)}"
        found = (_difference(ours[k], theirs[k], f"{where} {k}".strip()) for k in ours)
        return next(filter(None, found), "")
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{where}: {_short(ours)} for {_short(theirs)}"
        found = (
            _difference(a, b, f"{where} {i}".strip()) for i, (a, b) in enumerate(zip(ours, theirs))
        )
        return next(filter(None, found), "")
    if type(ours) is not type(theirs):
        return f"{where}: {_short(ours)} for {_short(theirs)}"
    try:
        same = bool(ours == theirs) or ours is theirs or (ours != ours and theirs != theirs)
    except Exception:
        same = type(ours) is type(theirs)
    plain = isinstance(ours, int | float | str | tuple | type(None))
    return f"{where}: {_short(ours)} for {_short(theirs)}" if not same and plain else ""


def _tensor_difference(ours: Tensor, theirs: Tensor, where: str) -> str:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{where}: {_short(ours)} for {_short(theirs)}"
    if _close(ours, theirs):
        return ""
    return f"{where}: {_short(ours)} for {_short(theirs)}"


def _close(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    if not (ours.is_floating_point() or ours.is_complex()):
        return torch.equal(ours, theirs)
    loose = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-5}
    tolerance = loose.get(ours.dtype, 2e-2 if ours.dtype.itemsize < 4 else 1e-5)
    wide = torch.complex128 if ours.is_complex() or theirs.is_complex() else torch.float64
    return torch.allclose(
        ours.to(wide), theirs.to(wide), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        numbers = ", ".join(f"{v:.4g}" for v in value.detach().flatten()[:3].tolist())
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} [{numbers}...]"
    return str(value)[:100]


# --- the ways to run ---------------------------------------------------------------------------

Way = Callable[[Call], Any]


def _attempt(way: Way, call: Call) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return way(call)
        except Exception as error:
            return Raised(f"{type(error).__name__}: {error}")


def _forward(example: Example, wanted: Callable[[int], bool], leaf: bool = False) -> Way:
    return lambda call: _outputs(_call(call, _start(example, wanted, leaf)))


def _no_grad(example: Example) -> Way:
    def way(call: Call) -> Any:
        run = _start(example, _every)
        with torch.no_grad():
            return _outputs(_call(call, run))

    return way


def _backward(example: Example, wanted: Callable[[int], bool], only: int | None = None) -> Way:
    """Gradients, of all outputs or of one alone."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, wanted))
        outputs, cotangents = run.smooth(), _cotangents(run)
        if only is not None:
            run.outputs, cotangents = outputs[only : only + 1], cotangents[only : only + 1]
        return {"gradient": _values(_gradients(run, cotangents))}

    return way


def _expanded(example: Example) -> Way:
    """The gradient of a sum, which PyTorch makes of one number."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        cotangents = [torch.ones((), dtype=o.dtype).expand(o.shape) for o in run.smooth()]
        return {"gradient": _values(_gradients(run, cotangents))}

    return way


def _cotangents_after(example: Example) -> Way:
    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        cotangents = _cotangents(run)
        _gradients(run, cotangents)
        return {"gradient given": _values(cotangents)}

    return way


def _twice(example: Example, retain: bool) -> Way:
    """The second of two backwards over one forward."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        cotangents = _cotangents(run)
        _gradients(run, _copies(cotangents), retain_graph=retain)
        return {"gradient": _values(_gradients(run, cotangents, retain_graph=retain))}

    return way


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [t.clone() for t in tensors]


def _two_calls(example: Example) -> Way:
    """The backward of a call after another call with other values."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        other = _start(example, _every)
        with torch.no_grad():
            for leaf in other.tensors():
                if leaf.is_floating_point():
                    leaf.mul_(0.9)
        with contextlib.suppress(Exception):
            _call(call, other)
        return {"gradient": _values(_gradients(run, _cotangents(run)))}

    return way


def _changed(example: Example, what: str, index: int) -> Way:
    """Gradients after an input or an output was changed in place, unseen by autograd."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        cotangents = _cotangents(run)
        some = run.tensors() if what == "input" else list(_tensors(run.outputs))
        _change(some[index])
        return {"gradient": _values(_gradients(run, cotangents))}

    return way


def _tensors(value: Any) -> Iterator[Tensor]:
    return (t for t in _flat(value) if isinstance(t, Tensor))


def _change(tensor: Tensor) -> None:
    alias = tensor.detach()  # of the same version counter
    if alias.dtype == torch.bool:
        alias.logical_not_()
    elif alias.is_floating_point() or alias.is_complex():
        alias.mul_(0.5).add_(0.25)
    else:
        alias.zero_()


def _changed_with_grad(example: Example, index: int) -> Way:
    """Gradients through an output that is changed in place as part of the graph."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        run.smooth()[index].mul_(1)
        return {"gradient": _values(_gradients(run, _cotangents(run)))}

    return way


def _inner(run: Run, cotangents: Sequence[Tensor], create_graph: bool) -> Tensor | None:
    """A number made of the first gradients."""
    found = [g for g in _gradients(run, cotangents, create_graph=create_graph) if g is not None]
    generator = torch.Generator().manual_seed(4)
    parts = [
        (g.to_dense() if g.is_sparse else g)
        * torch.rand(g.shape, generator=generator, dtype=torch.float64).to(g.dtype)
        for g in found
    ]
    sums = [torch.view_as_real(p).sum() if p.is_complex() else p.sum() for p in parts]
    return sum(sums, torch.zeros(())) if sums else None


def _second(example: Example) -> Way:
    """The derivative of the first gradients by each input and by the gradients given."""

    def way(call: Call) -> Any:
        run = _call(call, _start(example, _every))
        cotangents = _cotangents(run, graph=True)
        by = [*run.leaves, *cotangents]
        number = _inner(run, cotangents, create_graph=True)
        if number is None or not number.requires_grad:
            return [torch.zeros_like(t).detach() for t in by]
        _seed(5)
        number.backward()  # not `grad`, which would not come past where an error is put off
        return [torch.zeros_like(t).detach() if t.grad is None else t.grad for t in by]

    return way


# f'(0) from f at these multiples of the step, to the fourth order
_STENCIL = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def _numeric(example: Example, call: Call, finer: bool = False) -> tuple[list[Tensor | None], bool]:
    """The same by central differences of the first gradient, None where it costs too much; and
    whether all is computed in float64."""

    def number(changed: int, position: int, step: float) -> float:
        run = _start(example, _every)
        if changed < len(run.leaves):
            values = [t.detach().clone() for t in run.leaves]
            values[changed].view(-1)[position] += step
            run = _start(_replaced(example, values), _every)
        run = _call(call, run)
        cotangents = _cotangents(run)
        if changed >= len(run.leaves):
            cotangents[changed - len(run.leaves)].view(-1)[position] += step
        found = _inner(run, cotangents, create_graph=False)
        return 0.0 if found is None else float(found)

    run = _call(call, _start(example, _every))
    by = [*run.leaves, *_cotangents(run)]
    if sum(t.numel() for t in by) > 400:
        return [None] * len(by), False
    exact = all(t.dtype == torch.float64 for t in [*by, *_tensors(run.outputs)] if _is_float(t))
    step = (1e-3 if exact else 2e-2) / (50 if finer else 1)
    made: list[Tensor | None] = []
    for which, tensor in enumerate(by):
        if tensor.is_complex() or not tensor.is_contiguous():
            made.append(None)
            continue
        slopes = [
            sum(w * number(which, i, k * step) for k, w in _STENCIL) / step
            for i in range(tensor.numel())
        ]
        made.append(torch.tensor(slopes, dtype=tensor.dtype).reshape(tensor.shape))
    return made, exact


def _replaced(value: Any, values: list[Tensor]) -> Any:
    """The example with other values in its floating point tensors, in order."""
    if isinstance(value, Tensor):
        return values.pop(0) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)([_replaced(v, values) for v in value])
    if type(value) is dict:
        return {k: _replaced(v, values) for k, v in value.items()}
    return value


# --- the judgement -----------------------------------------------------------------------------


def runs(call: Call, example: Example) -> str:
    """ "backward", "forward" or "" for how far a function gets on these inputs."""
    forward = _attempt(_forward(example, _every), call)
    if isinstance(forward, Raised):
        return ""
    backward = _attempt(_backward(example, _every), call)
    if isinstance(backward, Raised) or all(g is None for g in backward["gradient"]):
        return "forward"
    return "backward"


def compare(original: Call, ours: Call, example: Example) -> Verdict:
    """Run both in every way. ``example`` is not changed."""
    verdict = Verdict()
    for way in (_forward(example, _every), _backward(example, _every)):
        again = [_attempt(way, original) for _ in range(2)]
        if not any(isinstance(one, Raised) for one in again) and _difference(*again):
            return Verdict(NOT_RUN, "the class itself gives other values every time")
    probe = _attempt(lambda call: _call(call, _start(example, _every)), original)
    run = _start(example, _every) if isinstance(probe, Raised) else probe
    clean = _attempt(_backward(example, _every), original)
    for name, way, right in _plain_ways(example, run, clean):
        _judge(verdict, VALUES, name, way, original, ours, right)
    for name, way in _in_place_ways(example, run):
        _judge(verdict, IN_PLACE, name, way, original, ours, clean)
    _judge_second(verdict, example, original, ours)
    for name, odd in _odd(example):
        forward, backward = _forward(odd, _every), _backward(odd, _every)
        _judge(verdict, VALUES, f"{name}, forward", forward, original, ours)
        if name == "an input too few" and not isinstance(_attempt(forward, original), Raised):
            continue  # forward has a default; that backward may count the inputs is for apply alone
        right = _of_rounded(example, odd, original) if name.endswith("of integers") else None
        _judge(verdict, VALUES, f"{name}, backward", backward, original, ours, right)
    needed = [line for line in verdict.loud if line.partition(":")[0] in ("forward", "backward")]
    if verdict.outcome == EQUAL and needed:
        verdict.outcome, verdict.why = AT_CALL, needed[0]
    return verdict


def _of_rounded(example: Example, odd: Example, original: Call) -> Any:
    """The gradients of the other inputs, where one is rounded and keeps its dtype."""
    (index,) = [i for i, (a, b) in enumerate(zip(example, odd)) if a is not b]
    given = list(example)
    given[index] = odd[index].to(example[index].dtype)
    found = _attempt(_backward(given, _every), original)
    if not isinstance(found, Raised):
        del found["gradient"][len(_start(example[:index], _every).leaves)]
    return found


def _plain_ways(example: Example, run: Run, clean: Any) -> Iterator[tuple[str, Way, Any]]:
    """Ways, and what is right in them where the class raises though it has a gradient."""
    yield "forward", _forward(example, _every), None
    yield "forward without requires_grad", _forward(example, _none), None
    yield "forward of leaves", _forward(example, _every, leaf=True), None
    yield "no_grad", _no_grad(example), None
    yield "backward", _backward(example, _every), None
    yield "backward of a sum", _expanded(example), None
    if len(run.leaves) > 1:
        for i in range(len(run.leaves)):
            alone = (lambda i: lambda n: n == i)(i)  # noqa: B023
            yield f"only input {i} requires grad, forward", _forward(example, alone), None
            one = clean
            if not isinstance(clean, Raised):
                one = {"gradient": clean["gradient"][i : i + 1]}
            yield f"only input {i} requires grad", _backward(example, alone), one
    outputs = run.smooth() if run.outputs is not None else []
    if len(outputs) > 1:
        for i in range(len(outputs)):
            yield f"only output {i}", _backward(example, _every, i), None
    yield "two backwards with retain_graph", _twice(example, retain=True), clean
    yield "backward after another call", _two_calls(example), clean


def _in_place_ways(example: Example, run: Run) -> Iterator[tuple[str, Way]]:
    yield "two backwards without retain_graph", _twice(example, retain=False)
    yield "gradients given, after backward", _cotangents_after(example)
    for i in range(len(run.tensors())):
        yield f"input {i} changed in place", _changed(example, "input", i)
    if run.outputs is None:
        return
    for i in range(len(list(_tensors(run.outputs)))):
        yield f"output {i} changed in place", _changed(example, "output", i)
    for i in range(len(run.smooth())):
        yield f"output {i} changed in place in the graph", _changed_with_grad(example, i)


def _judge(
    verdict: Verdict,
    kind: str,
    name: str,
    way: Way,
    original: Call,
    ours: Call,
    clean: Any = None,
) -> None:
    verdict.checks += 1
    theirs, found = _attempt(way, original), _attempt(way, ours)
    if isinstance(found, Raised):
        if not isinstance(theirs, Raised):
            verdict.loud.append(f"{name}: {found.what}")
        return
    if name.startswith("gradients given"):
        clean = _untouched(found, clean)
    right = clean is not None and not isinstance(clean, Raised) and not _difference(found, clean)
    if isinstance(theirs, Raised):
        if right:
            verdict.mended.append(name)
        else:
            verdict.differs(kind, f"{name}: no error, for {theirs.what[:200]}")
        return
    difference = _difference(found, theirs)
    if not difference:
        if kind == IN_PLACE and clean is not None and not right:
            verdict.both_wrong.append(name)
    elif kind == IN_PLACE and right:
        verdict.mended.append(name)
    elif not _difference(theirs, _attempt(way, original)):  # or it is never twice the same
        verdict.differs(kind, f"{name}: {difference}")


def _untouched(found: Any, clean: Any) -> Any:
    """The gradients given as they were made, where there are some."""
    if isinstance(clean, Raised):
        return clean
    torch.manual_seed(2)
    return {"gradient given": [torch.randn_like(t) for t in found["gradient given"]]}


def _judge_second(verdict: Verdict, example: Example, original: Call, ours: Call) -> None:
    name = "second derivative"
    verdict.checks += 1
    theirs, found = _attempt(_second(example), original), _attempt(_second(example), ours)
    if isinstance(found, Raised):
        if not isinstance(theirs, Raised):
            verdict.loud.append(f"{name}: {found.what}")
        return
    if isinstance(theirs, Raised):
        same = [False] * len(found)
    else:
        same = [_close(a, b) for a, b in zip(found, theirs)]
    numeric, right = _told_right(example, original, found, finer=False)
    if not all(s or r for s, r in zip(same, right)):  # the coarse step may have crossed a kink
        numeric, finely = _told_right(example, original, found, finer=True)
        right = [a or b for a, b in zip(right, finely)]
    wrong = [i for i in range(len(found)) if not same[i] and not right[i]]
    if wrong and not isinstance(theirs, Raised):
        i = wrong[0]
        truth = f", numeric {_short(numeric[i])}" if numeric[i] is not None else ""
        verdict.differs(SECOND, f"{name} {i}: {_short(found[i])} for {_short(theirs[i])}{truth}")
    elif wrong:
        verdict.differs(SECOND, f"{name}: no error, for {theirs.what[:200]}")
    elif not all(same):
        verdict.mended.append(name)
    elif not all(r or n is None for r, n in zip(right, numeric)):
        verdict.both_wrong.append(name)


def _told_right(
    example: Example, original: Call, found: Sequence[Tensor], finer: bool
) -> tuple[list[Tensor | None], list[bool]]:
    """The numeric derivatives, None where there is none, and which of ours they confirm."""
    told = _attempt(lambda call: _numeric(example, call, finer), original)
    if isinstance(told, Raised):
        return [None] * len(found), [False] * len(found)
    numeric, exact = told
    exact = exact and not finer  # float32 inside shows in what a small step tells
    return numeric, [n is not None and _near(a, n, exact) for a, n in zip(found, numeric)]


def _near(one: Tensor, other: Tensor, exact: bool) -> bool:
    size = float(other.detach().abs().max()) if other.numel() else 0.0
    tolerance, around = (1e-6, 1e-6 * max(size, 1)) if exact else (2e-2, 2e-2 * size + 1e-6)
    return torch.allclose(one.to(other.dtype), other, rtol=tolerance, atol=around)


def _odd(example: Example) -> Iterator[tuple[str, list[Any]]]:
    """Inputs that a function may refuse."""
    given = list(example)
    if given:
        yield "an input too few", given[:-1]
    yield "an input too many", [*given, None]
    for i, value in enumerate(given):
        if isinstance(value, Tensor):
            others = {"of shape [7, 11]": torch.ones(7, 11, dtype=value.dtype), "None": None}
            if value.is_floating_point():
                others["of integers"] = value.detach().round().long()
            for what, other in others.items():
                yield f"input {i} {what}", [*given[:i], other, *given[i + 1 :]]
