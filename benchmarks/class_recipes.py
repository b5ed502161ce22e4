"""Inputs that cannot be guessed, and how to get at classes that are made inside functions.

Keys are ``module:class``. Only facts about what the functions take stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .class_compare import Fixed

__all__ = ["MAKERS", "RECIPES", "SETUPS"]


def noise(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def definite(size: int = 4) -> Tensor:
    made = noise(size, size, seed=3)
    return made @ made.T + size * torch.eye(size, dtype=torch.float64)


def distance(x: Tensor, y: Tensor) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).pow(2).sum(-1).add(1e-3).sqrt()


def _dense(*after: Any) -> list[Any]:
    """Arguments of linear_operator's functions: how to make the operator, ..., its matrix."""
    from linear_operator.operators import DenseLinearOperator  # type: ignore[import-not-found]

    return [DenseLinearOperator(definite()).representation_tree(), *after, definite()]


def _spline() -> list[Any]:
    knots, low, high = 7, torch.tensor([-3.0]), torch.tensor([3.0])
    bounds = [Fixed(t.double()) for t in (low, high)]
    return [noise(2, 3, 1, 2, 2), noise(3, knots), *bounds, knots, torch.tensor([0, 7, 14])]


def _statistics() -> list[Any]:
    x = noise(4, 3, 2, 2)
    mean = x.mean((0, 2, 3), keepdim=True)
    scale = x.var((0, 2, 3), keepdim=True).rsqrt()
    count = torch.tensor(16)
    return [x, noise(3), noise(3), True, Fixed(mean), Fixed(scale), count, None]


def _streams() -> list[Any]:
    from fairscale.nn.pipe.stream import CPUStream  # type: ignore[import-not-found]

    return [CPUStream, CPUStream, noise(4, 3), noise(2)]


class _Radon:
    """Half a turn, in place of a projection."""

    theta = (0.0, 1.0)

    def __call__(self, x: Tensor, **_: Any) -> Tensor:
        return x.flip(-1, -2)


class _Block:
    """A reversible block of two halves."""

    def __call__(self, x: Tensor, **_: Any) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a, b + a.sin()], -1)

    def backward_pass(self, y: Tensor, dy: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        a, b = y.chunk(2, -1)
        da, db = dy.chunk(2, -1)
        return torch.cat([a, b - a.sin()], -1), torch.cat([da + db * a.cos(), db], -1)


RECIPES: dict[str, Callable[[], list[Any]]] = {
    "dalle_pytorch.reversible:_ReversibleFunction": lambda: [noise(2, 4), [_Block()], [{}]],
    "deepinv.models.deal:QuadraticSplineFunc": _spline,
    "deepinv.physics.functional.radon:ApplyRadon": lambda: [
        noise(1, 1, 4, 4), _Radon(), _Radon(), False
    ],
    "fairscale.experimental.nn.sync_batchnorm:_SyncBatchNormFunction": _statistics,
    "fairscale.nn.pipe.copy:Copy": _streams,
    "fairscale.nn.pipe.copy:Wait": _streams,
    "fla.layers.utils:IndexPutFirstAxis": lambda: [noise(3, 4), torch.tensor([2, 0, 4]), 5],
    "gpytorch.functions.matern_covariance:MaternCovariance": lambda: [
        Fixed(noise(4, 2)), Fixed(noise(3, 2, seed=1)), noise(1, 1).exp(), 1.5, distance
    ],
    "gpytorch.functions.rbf_covariance:RBFCovariance": lambda: [
        Fixed(noise(4, 2)),
        Fixed(noise(3, 2, seed=1)),
        noise(1, 1).exp(),
        lambda x, y: distance(x, y) ** 2,
    ],
    "gpytorch.variational.natural_variational_distribution:_NaturalToMuVarSqrt": lambda: [
        noise(4), -definite()
    ],
    "kornia.losses.focal:_TargetLogSoftmax": lambda: [
        noise(2, 3, 4), torch.randint(0, 3, (2, 1, 4)), torch.ones(2, 1, 4, dtype=torch.bool)
    ],
    "linear_operator.functions._inv_quad:InvQuad": lambda: _dense(noise(4, 2)),
    "linear_operator.functions._matmul:Matmul": lambda: _dense(noise(4, 2)),
    "linear_operator.functions._solve:Solve": lambda: _dense(False, noise(4, 2)),
    "linear_operator.functions._sqrt_inv_matmul:SqrtInvMatmul": lambda: _dense(
        noise(4, 2), noise(2, 4)
    ),
    "linear_operator.functions._diagonalization:Diagonalization": lambda: _dense(
        torch.device("cpu"), torch.float64, torch.Size([4, 4]), 4, torch.Size([])
    ),
    "linear_operator.functions._root_decomposition:RootDecomposition": lambda: _dense(
        4, torch.float64, torch.device("cpu"), torch.Size([]), torch.Size([4, 4]), True, True, None
    ),
}  # fmt: skip


def _made_by_apply(apply: Any) -> type:
    return apply.__self__  # type: ignore[no-any-return]


MAKERS: dict[str, Callable[[ModuleType], type]] = {
    "advertorch.bpda:BPDAWrapper._create_func_forward_only.<locals>.Func": lambda m: (
        m.BPDAWrapper._create_func_forward_only(torch.round)
    ),
    "advertorch.bpda:BPDAWrapper._create_func_forwardsub.<locals>.Func": lambda m: (
        m.BPDAWrapper._create_func_forwardsub(torch.round, torch.sin)
    ),
    "advertorch.bpda:BPDAWrapper._create_func_backward.<locals>.Func": lambda m: (
        m.BPDAWrapper._create_func_backward(torch.round, lambda x, g: (7 * g[0],))
    ),
    "brevitas.core.function_wrapper.stochastic_round:"
    "stochastic_round_ste_fn.<locals>.StochasticRoundSteFn": lambda m: _made_by_apply(
        m.stochastic_round_ste_fn(None)
    ),
    "deepinv.physics.forward:adjoint_function.<locals>.Adjoint": lambda m: _made_by_apply(
        m.adjoint_function(lambda x: 3 * x, (4, 3), "cpu", torch.float64)
    ),
}


def _fairscale() -> None:
    from fairscale.nn.model_parallel import initialize  # type: ignore[import-not-found]

    initialize.initialize_model_parallel(1)


def _megatron() -> None:
    from megatron.core import parallel_state  # type: ignore[import-not-found]

    parallel_state.initialize_model_parallel(1)


# what a package wants to be told first, in a process group of one
SETUPS: dict[str, Callable[[], None]] = {"fairscale": _fairscale, "megatron-core": _megatron}
