"""torch.func: vmap in its shapes, grad and jacrev, per-sample gradients, make_fx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import s2s

from ..judge import Case, NotApplicable, Wrong, filled, gradients, leaves, like, pull, same
from .base import way
from .forward import _real, matrix

SCALES = (1.0, 1.125, 0.75)


def _each(case: Case, batch: list[Tensor], f: Callable[..., Any]) -> list[Tensor]:
    """Outputs and gradients of each row, stacked."""
    rows = [pull(case.bind(f), leaves([t[i] for t in batch])) for i in range(len(SCALES))]
    return [torch.stack(values) for values in zip(*rows)]


def _batch(case: Case) -> list[Tensor]:
    return [torch.stack([t * s for s in SCALES]) for t in case.tensors()]


@way("vjp")
def pullback(case: Case) -> None:
    want = case.pulled()
    outputs, pulled = vjp(case.bind(case.f), *case.tensors())
    same([*outputs, *pulled(tuple(like(outputs)))], want)


@way("func.grad")
def func_grad(case: Case) -> None:
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = like(want[:count])

    def loss(*tensors: Tensor) -> Any:
        parts = [(u.conj() * t).real.sum() for u, t in zip(units, case.bind(case.f)(*tensors))]
        return torch.stack(parts).sum()

    same(grad(loss, tuple(range(len(case.places))))(*case.tensors()), want[count:])


@way("func.grad of grad")
def grad_of_grad(case: Case) -> None:
    _real(case)

    def run(f: Callable[..., Any]) -> list[Tensor]:
        (x,) = leaves(case.tensors()[:1])
        out = case.first(f)(x)
        (g,) = gradients([out], [x], like([out]), create_graph=True)
        return filled(gradients([g.square().sum()], [x], None), [x])  # type: ignore[union-attr]

    want = case.want(run)
    x = case.tensors()[0]
    (unit,) = like([case.first(case.truth)(x)])

    def inner(x: Tensor) -> Tensor:
        return (unit * case.first(case.f)(x)).sum()

    same([grad(lambda x: grad(inner)(x).square().sum())(x)], want)


@way("jacrev")
def reverse_jacobian(case: Case) -> None:
    _real(case)
    want = case.jacobian()
    places = tuple(range(len(case.places)))
    got = jacrev(case.bind(case.f), places)(*case.tensors())
    same([matrix(got, case.tensors())], [want])


@way("vmap")
def over_batch(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    got = vmap(case.bind(case.f))(*batch)
    same(got, want[: len(got)])


@way("vmap with in_dims and out_dims")
def other_dims(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    moved = [t.movedim(0, -1) for t in batch]
    got = vmap(case.bind(case.f), in_dims=-1, out_dims=-1)(*moved)
    same([t.movedim(-1, 0) for t in got], want[: len(got)])


@way("vmap over one input")
def one_input(case: Case) -> None:
    count = len(case.places)
    batch, fixed = _batch(case), case.tensors()
    for index in range(count):
        mixed = [
            t if i == index else s.expand(len(SCALES), *s.shape)
            for i, (t, s) in enumerate(zip(batch, fixed))
        ]
        want = case.want(lambda f, m=mixed: _each(case, m, f))  # type: ignore[misc]
        given = [t if i == index else s for i, (t, s) in enumerate(zip(batch, fixed))]
        dims = tuple(0 if i == index else None for i in range(count))
        got = vmap(case.bind(case.f), in_dims=dims)(*given)
        same(got, want[: len(got)])


@way("vmap in vmap")
def nested_vmap(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    twice = [torch.stack([t, t]) for t in batch]
    got = vmap(vmap(case.bind(case.f)))(*twice)
    same(got, [torch.stack([t, t]) for t in want[: len(got)]])


@way("vmap of vjp")
def vmap_of_vjp(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    units = tuple(like([t[0] for t in want[: len(case.smooth_outputs())]]))

    def pulled(*tensors: Tensor) -> Any:
        outputs, pullback = vjp(case.bind(case.f), *tensors)
        return (*outputs, *pullback(units))

    same(vmap(pulled)(*batch), want)


@way("backward through vmap")
def backward_through_vmap(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    asked = leaves(batch)
    outputs = vmap(case.bind(case.f))(*asked)
    units = [torch.stack([u] * len(SCALES)) for u in like([t[0] for t in outputs])]
    same([*outputs, *filled(gradients(outputs, asked, units), asked)], want)


@way("vmap with chunk_size")
def chunks(case: Case) -> None:
    batch = _batch(case)
    want = case.want(lambda f: _each(case, batch, f))
    got = vmap(case.bind(case.f), chunk_size=2)(*batch)
    same(got, want[: len(got)])


@way("vmap, randomness same and different")
def randomness(case: Case) -> None:
    """Each row, or all rows together, draw a factor in front of the function."""
    _real(case)
    batch = _batch(case)
    units = tuple(like([case.first(case.truth)(batch[0][0])]))

    def row(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            drawn = torch.rand_like(tensors[0]) + 0.5
            first, *rest = tensors

            def scaled(x: Tensor) -> Tensor:
                return case.bind(f)(x * drawn, *rest)[0]

            out, pulled = vjp(scaled, first)
            return drawn, out, pulled(units[0])[0]

        return run

    for flag in ("same", "different"):
        drawn, *got = vmap(row(case.f), randomness=flag)(*batch)
        if bool((drawn[0] == drawn[1]).all()) != (flag == "same"):
            raise RuntimeError("vmap drew otherwise")

        def by_hand(f: Callable[..., Any], drawn: Tensor = drawn) -> list[Tensor]:
            rows = []
            for i, (first, *rest) in enumerate(zip(*batch)):
                (x,) = leaves([first])
                out = case.bind(f)(x * drawn[i], *rest)[0]
                rows.append([out, *filled(gradients([out], [x], units), [x])])
            return [torch.stack(values) for values in zip(*rows)]

        same(got, case.want(by_hand))
    try:
        vmap(row(case.f), randomness="error")(*batch)
    except RuntimeError:
        return
    raise Wrong("drew under randomness='error'")


class Scaled(nn.Module):
    """The function with a trained factor in front, so that every function has a parameter."""

    def __init__(self, f: Any, case: Case) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((), 1.25, dtype=torch.double))
        self.shift = nn.Parameter(torch.zeros_like(case.tensors()[0]))
        self.run = case.first(f)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x * self.scale + self.shift)


@way("per-sample gradients")
def per_sample(case: Case) -> None:
    _real(case)
    (batch, *_) = _batch(case)

    def by_hand(f: Callable[..., Any]) -> list[Tensor]:
        net = Scaled(f, case)
        rows = []
        for x in batch:
            out = net(x)
            rows.append(
                filled(
                    gradients([out], list(net.parameters()), like([out])), list(net.parameters())
                )
            )
        return [torch.stack(values) for values in zip(*rows)]

    want = case.want(by_hand)
    net = Scaled(case.f, case)
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    (unit,) = like([case.first(case.truth)(case.tensors()[0])])

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return (unit * functional_call(net, parameters, (x,))).sum()

    got = vmap(grad(loss), in_dims=(None, 0))(parameters, batch)
    same([got["scale"], got["shift"]], want)


@way("ensemble of parameters")
def ensemble(case: Case) -> None:
    if len(case.places) < 2:
        raise NotApplicable("one input")
    x, *rest = case.tensors()
    stacked = [torch.stack([t * s for s in SCALES]) for t in rest]
    mixed = [x.expand(len(SCALES), *x.shape), *stacked]
    want = case.want(lambda f: _each(case, mixed, f))
    units = tuple(like([t[0] for t in want[: len(case.smooth_outputs())]]))

    def pulled(*tensors: Tensor) -> Any:
        _, pullback = vjp(case.bind(case.f), *tensors)
        return pullback(units)

    got = vmap(pulled, in_dims=(None, *[0] * len(rest)))(x, *stacked)
    same(got, want[len(units) :])


@way("make_fx of backward", cost=1)
def traced_backward(case: Case) -> None:
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = like(want[:count])

    def whole(*tensors: Tensor) -> Any:
        asked = [t.detach().requires_grad_() for t in tensors]
        outputs = case.bind(case.f)(*asked)
        grads = torch.autograd.grad(outputs, asked, units, allow_unused=True)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, asked)]

    graph = make_fx(whole)(*case.tensors())
    same(graph(*case.tensors()), want[count:])


@way("make_fx of func.grad", cost=1)
def traced_grad(case: Case) -> None:
    want = case.pulled()
    count = len(case.smooth_outputs())
    units = tuple(like(want[:count]))

    def pulled(*tensors: Tensor) -> Any:
        _, pullback = vjp(case.bind(case.f), *tensors)
        return pullback(units)

    same(make_fx(pulled)(*case.tensors())(*case.tensors()), want[count:])


@way("functionalize")
def functionalized(case: Case) -> None:
    want = case.pulled()
    outputs, pulled = vjp(torch.func.functionalize(case.bind(case.f)), *case.tensors())
    same([*outputs, *pulled(tuple(like(outputs)))], want)


@way("linearize", cost=1)
def linearized(case: Case) -> None:
    case.need("linear")
    _real(case)
    from .forward import _moved

    tangents = like(case.tensors(), 3)
    want = _moved(case, tangents)
    _, push = torch.func.linearize(case.bind(case.f), *case.tensors())
    same(push(*tangents), want)


def _captured(case: Case) -> Any:
    """A function that is made inside a transform and reads a tensor of it from outside itself."""
    if not hasattr(case.f, "__s2s__"):
        raise NotApplicable("s2s alone")

    def loss(w: Tensor, x: Tensor) -> Tensor:
        @s2s.autograd_script
        def scaled(x: Tensor) -> Any:
            def backward(g: Tensor) -> Any:
                return 7 * g * w

            return x * w, backward

        return case.first(case.f)(scaled(x)).sum()

    return loss


@way("a traced tensor is captured, grad")
def captured_grad(case: Case) -> None:
    _real(case)
    loss = _captured(case)
    x = case.tensors()[0]
    got = grad(loss)(torch.full_like(x, 1.25), x)
    raise Wrong(f"gradient {got.reshape(-1)[0]:.4g} of a tensor that the rule does not know")


@way("a traced tensor is captured, jvp")
def captured_jvp(case: Case) -> None:
    _real(case)
    case.need("linear")
    loss = _captured(case)
    x = case.tensors()[0]
    w = torch.full_like(x, 1.25)
    _, got = torch.func.jvp(lambda w: loss(w, x), (w,), (torch.ones_like(w),))
    raise Wrong(f"tangent {got:.4g} of a tensor that the rule does not know")


@way("a traced tensor is captured, vmap")
def captured_vmap(case: Case) -> None:
    """Each row captures its own: the gradients of the others show that it is no constant of all."""
    _real(case)
    loss = _captured(case)
    x = case.tensors()[0]
    weights = torch.stack([torch.full_like(x, s) for s in SCALES])

    def by_hand(f: Callable[..., Any]) -> list[Tensor]:
        rows = []
        for w in weights:
            (leaf,) = leaves([x])
            (between,) = leaves([x * w])
            out = case.first(f)(between).sum()
            (g,) = filled(gradients([out], [between], None), [between])
            rows.append(7 * g * w + 0 * leaf.detach())
        return [torch.stack(rows)]

    want = case.want(by_hand)
    same([vmap(grad(loss, 1), in_dims=(0, None))(weights, x)], want)
