"""What one cell of the grid is, and the arithmetic that the ways share.

A way is a function of a `Case` that compares what the function under test gives with what the
user's own backward gives, through the reference. It ends quietly (right), raises `Wrong`
(silently wrong), raises `NotApplicable` (the way says nothing about this function), or raises
anything else: the function under test has refused, which is an answer too. A tensor of nothing
but nan is a refusal: forward mode cannot tell beforehand whether a tangent will be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]

RIGHT, REFUSED, WRONG, EMPTY = "right", "refused", "silently wrong", "-"


class Wrong(AssertionError):
    """A number, or a None, that is not what the user's backward gives."""


class NotApplicable(Exception):
    """This way says nothing about this function."""


@dataclass(frozen=True)
class Case:
    """A function under test with its arguments, beside the reference of the same function."""

    name: str
    f: Function
    truth: Function
    args: tuple[Any, ...]
    flags: frozenset[str] = frozenset()
    module: str = ""  # where a fresh process finds the function
    attribute: str = ""
    scriptable: Any = None  # what scripted code calls, if not ``f``
    opener: str = ""  # what a fresh process runs before a saved program is loaded
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    # --- the arguments --------------------------------------------------------------------------

    @property
    def places(self) -> list[int]:
        """The positions of the tensors that may carry a gradient."""
        return [i for i, value in enumerate(self.args) if is_smooth(value)]

    def tensors(self) -> list[Tensor]:
        """Fresh copies of them, which ask for no gradient."""
        return [self.args[i].detach().clone() for i in self.places]

    def leaves(self, wanted: Sequence[bool] | None = None) -> list[Tensor]:
        """Fresh copies, of which some or all ask for a gradient."""
        return leaves(self.tensors(), wanted)

    def bind(self, f: Function) -> Function:
        """``f`` as a function of its differentiable tensors, to a tuple of differentiable ones."""
        args, places = list(self.args), self.places
        keep = self.smooth_outputs()

        def bound(*tensors: Tensor) -> tuple[Tensor, ...]:
            given = list(args)
            for place, tensor in zip(places, tensors):
                given[place] = tensor
            out = f(*given)
            outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
            return tuple(outputs[i] for i in keep)

        return bound

    def smooth_outputs(self) -> list[int]:
        """The positions of the differentiable outputs."""
        if "outputs" not in self.cache:
            with torch.no_grad():
                out = self.truth(*self.args)
            outputs = out if isinstance(out, (tuple, list)) else (out,)
            self.cache["outputs"] = [i for i, t in enumerate(outputs) if is_smooth(t)]
            self.cache["single"] = isinstance(out, Tensor)
        found: list[int] = self.cache["outputs"]
        return found

    def first(self, f: Function) -> Function:
        """``f`` as a function of its first tensor to its first output, the others held."""
        rest = self.tensors()[1:]
        bound = self.bind(f)
        return lambda x: bound(x, *rest)[0]

    def need(self, *flags: str) -> None:
        """This way is for functions with these flags alone."""
        for flag in flags:
            if flag not in self.flags:
                raise NotApplicable(f"not {flag}")

    # --- right numbers --------------------------------------------------------------------------

    def want(self, run: Callable[[Function], Any], key: str = "") -> Any:
        """The same computation with the reference; kept under ``key``."""
        if key and key in self.cache:
            return self.cache[key]
        try:
            found = run(self.truth)
        except Exception as error:
            raise NotApplicable(f"reference: {type(error).__name__}: {error}") from None
        if key:
            self.cache[key] = found
        return found

    def pulled(self) -> list[Tensor]:
        """Outputs and gradients, at random output gradients."""
        found: list[Tensor] = self.want(lambda f: pull(self.bind(f), self.leaves()), "pulled")
        return found

    def jacobian(self) -> Tensor:
        """The matrix whose rows the user's backward returns for unit output gradients."""
        found: Tensor = self.want(self._jacobian, "jacobian")
        return found

    def _jacobian(self, f: Function) -> Tensor:
        tensors = self.leaves()
        outputs = [t for t in self.bind(f)(*tensors)]
        rows = []
        for units in basis(outputs):
            grads = gradients(outputs, tensors, units, retain_graph=True)
            rows.append(real(filled(grads, tensors)))
        return torch.stack(rows)

    def derivative_of_backward(self) -> Tensor:
        """The matrix of d(backward at random output gradients) / d(inputs)."""
        found: Tensor = self.want(self._derivative_of_backward, "derivative_of_backward")
        return found

    def _derivative_of_backward(self, f: Function) -> Tensor:
        tensors = self.leaves()
        outputs = self.bind(f)(*tensors)
        grads = gradients(outputs, tensors, like(outputs), create_graph=True)
        entries = real(filled(grads, tensors))
        rows = []
        for entry in entries:
            if entry.requires_grad:
                row = gradients([entry], tensors, None, retain_graph=True)
                rows.append(real(filled(row, tensors)))
            else:
                rows.append(torch.zeros(real(tensors).numel(), dtype=torch.double))
        return torch.stack(rows).detach()


# --- tensors --------------------------------------------------------------------------------------


def is_smooth(value: object) -> bool:
    """A tensor of a dtype that autograd differentiates."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def leaves(tensors: Sequence[Tensor], wanted: Sequence[bool] | None = None) -> list[Tensor]:
    asks = [True] * len(tensors) if wanted is None else wanted
    return [t.detach().clone().requires_grad_(a) for t, a in zip(tensors, asks)]


def like(tensors: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """Random tensors of the same shapes and dtypes, the same for every dtype."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for t in tensors:
        wide = torch.cdouble if t.is_complex() else torch.double
        made.append(torch.randn(t.shape, generator=g, dtype=wide).to(t.dtype))
    return made


def gradients(
    outputs: Sequence[Tensor], tensors: Sequence[Tensor], units: Any, **options: Any
) -> list[Tensor | None]:
    """`autograd.grad` where some outputs or inputs may have nothing to do with each other."""
    asked = [t for t in tensors if t.requires_grad]
    pairs = [(t, None if units is None else u) for t, u in zip(outputs, units or outputs)]
    pairs = [(t, u) for t, u in pairs if t.requires_grad]
    if not pairs:
        return [None] * len(asked)
    reached, given = zip(*pairs)
    cotangents = None if units is None else list(given)
    return list(torch.autograd.grad(reached, asked, cotangents, allow_unused=True, **options))


def filled(grads: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Zeros for None."""
    asked = [t for t in tensors if t.requires_grad]
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, asked)]


def pull(f: Function, tensors: Sequence[Tensor], seed: int = 0, **options: Any) -> list[Tensor]:
    """The outputs, then the gradients of the tensors that ask for one."""
    outputs = f(*tensors)
    grads = gradients(outputs, tensors, like(outputs, seed), **options)
    return [*(t.detach() for t in outputs), *filled(grads, tensors)]


def second(f: Function, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a random combination of the gradients, for inputs and output gradients."""
    tensors = leaves(tensors)
    outputs = f(*tensors)
    units = leaves(like(outputs))
    grads = gradients(outputs, tensors, units, create_graph=True)
    grads = [g for g in grads if g is not None and g.requires_grad]
    return filled(gradients(grads, [*tensors, *units], like(grads, 1)), [*tensors, *units])


def third(f: Function, tensors: Sequence[Tensor]) -> list[Tensor]:
    tensors = leaves(tensors)
    outputs = f(*tensors)
    grads = gradients(outputs, tensors, like(outputs), create_graph=True)
    grads = [g for g in grads if g is not None and g.requires_grad]
    again = gradients(grads, tensors, like(grads, 1), create_graph=True)
    again = [g for g in again if g is not None and g.requires_grad]
    return filled(gradients(again, tensors, like(again, 2)), tensors)


def real(tensors: Sequence[Tensor]) -> Tensor:
    """All entries in one row of real numbers."""
    parts = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    return torch.cat([p.reshape(-1) for p in parts])


def split(row: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The reverse of `real`."""
    found, start = [], 0
    for t in tensors:
        size = t.numel() * (2 if t.is_complex() else 1)
        part = row[start : start + size]
        start += size
        found.append(
            torch.view_as_complex(part.reshape(*t.shape, 2).contiguous())
            if t.is_complex()
            else part.reshape(t.shape)
        )
    return found


def basis(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Every unit direction in the space of these tensors."""
    for index, tensor in enumerate(tensors):
        for place in range(tensor.numel()):
            for unit in (1, 1j) if tensor.is_complex() else (1,):
                units = [torch.zeros_like(t) for t in tensors]
                units[index].view(-1)[place] = unit
                yield units


# --- comparing ------------------------------------------------------------------------------------

TOLERANCES = {
    torch.double: (1e-8, 1e-9),
    torch.cdouble: (1e-8, 1e-9),
    torch.float: (1e-4, 1e-5),
    torch.cfloat: (1e-4, 1e-5),
    torch.half: (1e-2, 2e-3),
    torch.bfloat16: (5e-2, 2e-2),
}


def same(got: Any, want: Any, what: str = "", tolerance: tuple[float, float] | None = None) -> None:
    """Raise `Wrong` unless all numbers, shapes and dtypes agree."""
    ours = [got] if isinstance(got, Tensor) else list(got)
    theirs = [want] if isinstance(want, Tensor) else list(want)
    if len(ours) != len(theirs):
        raise Wrong(f"{what} {len(ours)} values for {len(theirs)}")
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if one is None or other is None:
            one = torch.zeros_like(other) if one is None else one
            other = torch.zeros_like(one) if other is None else other
        if one.numel() and bool(one.isnan().all()) and not bool(other.isnan().any()):
            raise RuntimeError(f"{what} value {number}: nan in place of a number".strip())
        rtol, atol = tolerance or TOLERANCES.get(other.dtype, (0.0, 0.0))
        try:
            torch.testing.assert_close(
                one.detach(), other.detach(), rtol=rtol, atol=atol, equal_nan=True
            )
        except AssertionError as error:
            shown = f"{_shown(one)} for {_shown(other)}"
            first = str(error).splitlines()[0]
            raise Wrong(f"{what} value {number}: {shown} ({first})".strip()) from None


def must(condition: Any, why: str) -> None:
    if not condition:
        raise Wrong(why)


def _shown(t: Tensor) -> str:
    flat = t.detach().reshape(-1)[:3].tolist()
    shown = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in flat)
    dots = ", ..." if math.prod(t.shape) > 3 else ""
    return f"[{shown}{dots}]"


# --- a cell ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One function in one way."""

    style: str
    function: str
    way: str
    outcome: str
    why: str = ""
    seconds: float = 0.0


def judge(run: Callable[[Case], None], case: Case) -> tuple[str, str]:
    """Run a way; say what came out, and why."""
    try:
        run(case)
    except Wrong as error:
        return WRONG, str(error)
    except NotApplicable as error:
        return EMPTY, str(error)
    except Exception as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    return RIGHT, ""
