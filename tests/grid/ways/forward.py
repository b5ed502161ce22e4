"""Forward mode, alone and with reverse mode around it or inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..judge import Case, NotApplicable, filled, gradients, like, real, same, split
from .base import way


def _moved(case: Case, tangents: list[Tensor]) -> list[Tensor]:
    """What forward mode must give: the Jacobian of backward times the tangents."""
    outputs = case.pulled()[: len(case.smooth_outputs())]
    return split(case.jacobian() @ real(tangents), outputs)


def _tangents(outputs: Any) -> list[Tensor]:
    parts = [forward_ad.unpack_dual(t) for t in outputs]
    return [torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in parts]


@way("dual numbers")
def dual(case: Case) -> None:
    case.need("linear")
    tangents = like(case.tensors(), 3)
    want = _moved(case, tangents)
    for grad_mode in (True, False):
        with torch.set_grad_enabled(grad_mode), forward_ad.dual_level():
            given = [forward_ad.make_dual(t, d) for t, d in zip(case.tensors(), tangents)]
            got = _tangents(case.bind(case.f)(*given))
        same(got, want)


@way("one dual number among others")
def one_dual(case: Case) -> None:
    case.need("linear")
    for index in range(len(case.places)):
        tangents = [torch.zeros_like(t) for t in case.tensors()]
        tangents[index] = like(case.tensors(), 4)[index]
        want = _moved(case, tangents)
        with forward_ad.dual_level():
            given = case.tensors()
            given[index] = forward_ad.make_dual(given[index], tangents[index])
            got = _tangents(case.bind(case.f)(*given))
        same(got, want)


@way("jvp")
def jvp(case: Case) -> None:
    case.need("linear")
    tangents = like(case.tensors(), 3)
    want = _moved(case, tangents)
    outputs, got = torch.func.jvp(case.bind(case.f), tuple(case.tensors()), tuple(tangents))
    same(outputs, case.pulled()[: len(outputs)])
    same(got, want)


@way("jacfwd")
def jacfwd(case: Case) -> None:
    case.need("linear")
    _real(case)
    want = case.jacobian()
    places = tuple(range(len(case.places)))
    got = torch.func.jacfwd(case.bind(case.f), places)(*case.tensors())
    same([matrix(got, case.tensors())], [want])


def matrix(blocks: Any, tensors: list[Tensor]) -> Tensor:
    """The nested tuples of jacrev and jacfwd as one matrix."""
    rows = [
        torch.cat([b.reshape(-1, t.numel()) for b, t in zip(row, tensors)], 1) for row in blocks
    ]
    return torch.cat(rows)


def _real(case: Case) -> None:
    if any(t.is_complex() for t in case.tensors()):
        raise NotApplicable("complex")


def _want_reverse_over_forward(case: Case, tangents: list[Tensor], units: list[Tensor]) -> Any:
    """d <units, J t> / dx = d <J^T units, t> / dx."""

    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = case.bind(f)(*tensors)
        grads = gradients(outputs, tensors, units, create_graph=True)
        pairs = [(g, t) for g, t in zip(grads, tangents) if g is not None]
        total = sum((g.conj() * t).real.sum() for g, t in pairs)
        return filled(gradients([total], tensors, None), tensors)  # type: ignore[list-item]

    return case.want(run)


@way("reverse over forward, func")
def reverse_over_forward(case: Case) -> None:
    case.need("linear")
    _real(case)
    tangents = like(case.tensors(), 3)
    units = like(case.pulled()[: len(case.smooth_outputs())])
    want = _want_reverse_over_forward(case, tangents, units)

    def product(*tensors: Tensor) -> Any:
        _, moved = torch.func.jvp(case.bind(case.f), tensors, tuple(tangents))
        return sum((u * m).sum() for u, m in zip(units, moved))

    places = tuple(range(len(case.places)))
    same(torch.func.grad(product, places)(*case.tensors()), want)


@way("reverse over forward, dual numbers")
def reverse_over_dual(case: Case) -> None:
    case.need("linear")
    _real(case)
    tangents = like(case.tensors(), 3)
    units = like(case.pulled()[: len(case.smooth_outputs())])
    want = _want_reverse_over_forward(case, tangents, units)
    tensors = case.leaves()
    with forward_ad.dual_level():
        given = [forward_ad.make_dual(t, d) for t, d in zip(tensors, tangents)]
        moved = _tangents(case.bind(case.f)(*given))
        got = filled(gradients(moved, tensors, units), tensors)
    same(got, want)


def _forward_over_reverse(case: Case, create_graph: bool) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward() @ real(tangents), case.tensors())
    tensors = case.leaves()
    with forward_ad.dual_level():
        given = [forward_ad.make_dual(t, d) for t, d in zip(tensors, tangents)]
        outputs = case.bind(case.f)(*given)
        units = like(case.pulled()[: len(outputs)])
        grads = gradients(outputs, given, units, create_graph=create_graph)
        got = _tangents(filled(grads, given))
    same(got, want)


@way("forward over reverse, dual numbers")
def forward_over_reverse(case: Case) -> None:
    _forward_over_reverse(case, False)


@way("forward over reverse, create_graph")
def forward_over_reverse_graph(case: Case) -> None:
    _forward_over_reverse(case, True)


@way("forward over reverse, func")
def forward_over_grad(case: Case) -> None:
    _real(case)
    tangents = like(case.tensors(), 3)
    want = split(case.derivative_of_backward() @ real(tangents), case.tensors())
    outputs = case.pulled()[: len(case.smooth_outputs())]
    units = like(outputs)

    def pulled(*tensors: Tensor) -> Any:
        _, pullback = torch.func.vjp(case.bind(case.f), *tensors)
        return pullback(tuple(units))

    _, got = torch.func.jvp(pulled, tuple(case.tensors()), tuple(tangents))
    same(got, want)


@way("hessian")
def hessian(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    units = like(case.pulled()[: len(case.smooth_outputs())])

    def loss(*tensors: Tensor) -> Any:
        return sum((u * t).sum() for u, t in zip(units, case.bind(case.f)(*tensors)))

    places = tuple(range(len(case.places)))
    blocks = torch.func.hessian(loss, places)(*case.tensors())
    same([_square(blocks, case)], [want])


@way("hessian, reverse over reverse")
def hessian_reverse(case: Case) -> None:
    _real(case)
    want = case.derivative_of_backward()
    units = like(case.pulled()[: len(case.smooth_outputs())])

    def loss(*tensors: Tensor) -> Any:
        return sum((u * t).sum() for u, t in zip(units, case.bind(case.f)(*tensors)))

    places = tuple(range(len(case.places)))
    blocks = torch.func.jacrev(torch.func.jacrev(loss, places), places)(*case.tensors())
    same([_square(blocks, case)], [want])


def _square(blocks: Any, case: Case) -> Tensor:
    sizes = [t.numel() for t in case.tensors()]
    rows = [
        torch.cat([b.reshape(n, m) for b, m in zip(row, sizes)], 1) for row, n in zip(blocks, sizes)
    ]
    return torch.cat(rows)


@way("jvp under vmap")
def jvp_under_vmap(case: Case) -> None:
    case.need("linear")
    _real(case)
    want = case.jacobian()
    tensors = case.tensors()
    units = torch.eye(real(tensors).numel(), dtype=torch.double)

    def column(unit: Tensor) -> Any:
        tangents = tuple(split(unit, tensors))
        _, moved = torch.func.jvp(case.bind(case.f), tuple(tensors), tangents)
        return torch.cat([m.reshape(-1) for m in moved])

    same([torch.func.vmap(column, out_dims=1)(units)], [want])


@way("two dual levels of jvp")
def nested_jvp(case: Case) -> None:
    case.need("linear")
    _real(case)
    # d/dx (J t) s, from the derivative of backward for each unit output gradient
    tangents, others = like(case.tensors(), 3), like(case.tensors(), 5)

    def run(f: Callable[..., Any]) -> list[Tensor]:
        tensors = case.leaves()
        outputs = case.bind(f)(*tensors)
        found = []
        for output in outputs:
            row = []
            for place in range(output.numel()):
                unit = torch.zeros_like(output)
                unit.view(-1)[place] = 1
                grads = gradients([output], tensors, [unit], create_graph=True)
                total = sum((g * t).sum() for g, t in zip(grads, tangents) if g is not None)
                if not isinstance(total, Tensor) or not total.requires_grad:
                    row.append(torch.zeros((), dtype=torch.double))
                    continue
                again = filled(gradients([total], tensors, None, retain_graph=True), tensors)
                row.append(sum((a * s).sum() for a, s in zip(again, others)))  # type: ignore[arg-type]
            found.append(torch.stack(row).reshape(output.shape))
        return found

    want = case.want(run)

    def inner(*tensors: Tensor) -> Any:
        return torch.func.jvp(case.bind(case.f), tensors, tuple(tangents))[1]

    _, got = torch.func.jvp(inner, tuple(case.tensors()), tuple(others))
    same(got, want)
