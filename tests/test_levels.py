"""Forward mode of scripted, compiled and exported calls: that of the function itself.

The gradients are untrue, so that a derivative through the function's operations is another number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vmap

import s2s

Function = Callable[..., Any]


@s2s.autograd_script
def seven(x: Tensor, w: Tensor, power: int = 2) -> Any:
    y = torch.exp(x) * w
    s = torch.sigmoid(x)

    def backward(grad_y, grad_s):
        return 7 * grad_y * y + grad_s * s * x**power, 3 * grad_y * x, None

    return y, s * 2, backward


@s2s.autograd_script
def noisy(x: Tensor) -> Any:
    mask = torch.rand_like(x) > 0.5

    def backward(g):
        return 7 * g * mask

    return x * mask, backward


@torch.jit.script
def scripted(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return seven(x, w)


class Model(torch.nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Any:
        return seven(x, w)


X = torch.tensor([0.3, -0.7], dtype=torch.double)
W = torch.tensor([1.2, 0.4], dtype=torch.double)
T = torch.tensor([1.0, 2.0], dtype=torch.double)

PROGRAMS: dict[str, Function] = {
    "operator": lambda x, w: seven.op(x, w),  # type: ignore[attr-defined]
    "scripted": scripted,
    "exported": torch.export.export(Model(), (X, W)).module(),
}


def total(f: Function) -> Function:
    return lambda x, w: sum(o.sin().sum() for o in f(x, w))


WAYS: dict[str, Callable[[Function], Any]] = {
    "jvp": lambda f: jvp(f, (X, W), (T, T)),
    "jvp of one": lambda f: jvp(lambda x: f(x, W), (X,), (T,)),
    "jacfwd": lambda f: jacfwd(f, argnums=(0, 1))(X, W),
    "hessian": lambda f: hessian(total(f), argnums=(0, 1))(X, W),
    "reverse over forward": lambda f: jacrev(jacfwd(total(f)))(X, W),
    "value and gradient": lambda f: jvp(lambda x: grad_and_value(total(f))(x, W), (X,), (T,)),
    "vmap of jvp": lambda f: vmap(lambda t: jvp(f, (X, W), (t, T)))(torch.eye(2).double()),
    "jvp of vmap": lambda f: jvp(
        lambda x: vmap(f, in_dims=(0, None))(x, W), (torch.stack([X, T]),), (torch.stack([T, X]),)
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_call_through_the_operator_has_the_forward_mode_of_the_function(
    way: str, program: str
) -> None:
    close(WAYS[way](PROGRAMS[program]), WAYS[way](seven))


def without_a_rule(x: Tensor, w: Tensor) -> Any:
    return torch.exp(x) * w, torch.sigmoid(x) * 2


def on_seven(run: Callable[[Function], Any]) -> Any:
    """What ``run`` makes of the function, where PyTorch can do it at all: not in every version."""
    try:
        run(without_a_rule)
    except Exception as error:
        pytest.skip(f"PyTorch fails without a rule, too: {type(error).__name__}")
    return run(seven)


@pytest.mark.parametrize("way", ["jvp", "jacfwd", "hessian", "reverse over forward"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_forward_mode(way: str, backend: str) -> None:
    def compiled(f: Function) -> Any:
        torch._dynamo.reset()
        return torch.compile(lambda: WAYS[way](f), backend=backend, fullgraph=True)()

    close(on_seven(compiled), WAYS[way](seven))


def test_an_exported_jvp() -> None:
    def exported(f: Function) -> Any:
        class Pushed(torch.nn.Module):
            def forward(self, x: Tensor, t: Tensor) -> Any:
                return jvp(lambda x: f(x, W), (x,), (t,))

        return torch.export.export(Pushed(), (X, T)).module()(X, T)

    close(on_seven(exported), WAYS["jvp of one"](seven))


def test_a_dual_number_around_a_gradient() -> None:
    def pushed(f: Function) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(X, T)
            return forward_ad.unpack_dual(grad(total(f))(dual, W)).tangent

    close(pushed(scripted), pushed(seven))


def test_forward_over_forward_mode_is_refused_there_too() -> None:
    with pytest.raises(RuntimeError, match="seven: forward mode over forward mode"):
        jacfwd(jacfwd(lambda x: seven.op(x, W)))(X)  # type: ignore[attr-defined]


def test_random_draws_are_not_handed_to_it() -> None:
    with pytest.raises(RuntimeError, match="noisy: what it draws at random.* forward mode"):
        jvp(noisy.op, (X,), (T,))  # type: ignore[attr-defined]


def close(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted)
