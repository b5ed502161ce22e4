"""The ready functions: values, gradients, what they keep, and the same inside scripted code."""

import math
from typing import Any, Callable, List, Optional, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from s2s.functions import (
    atan,
    clamp,
    fast_sigmoid,
    gelu_tanh,
    gradient_reversal,
    hard_mish,
    layer_norm,
    linear,
    mish,
    round_ste,
    scale_gradient,
    sigmoid,
    sign,
    swish,
    triangle,
)

Function = Callable[..., Any]

# close to a corner of hard_mish, but on none of its, a triangle's or a straight-through window's
POINTS = [-5.0, -2.05, -1.95, -0.6, -0.2, 0.3, 0.8, 1.7, 4.0]


def points(dtype: torch.dtype = torch.double) -> Tensor:
    return torch.tensor(POINTS, dtype=dtype, requires_grad=True)


def gradient(f: Function, x: Tensor, *args: Any) -> Tensor:
    """The gradient at x for grad_outs 1, 2, 3, ..., so that a dropped grad_out shows."""
    y = f(x, *args)
    grad_out = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    return torch.autograd.grad(y, x, grad_out)[0]


def kept(f: Function, *args: Any) -> List[Tensor]:
    """The tensors that a call saves for backward."""
    saved: List[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        f(*args)
    return saved


def same_memory(tensors: List[Tensor], *expected: Tensor) -> bool:
    return [t.data_ptr() for t in tensors] == [t.data_ptr() for t in expected]


# activations ------------------------------------------------------------------------------------

ACTIVATIONS: List[Tuple[Function, Function]] = [
    (swish, F.silu),
    (mish, F.mish),
    (hard_mish, lambda x: x / 2 * torch.clamp(x + 2, 0, 2)),
    (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("f", "plain"), ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activation_equals_plain_torch(f: Function, plain: Function, dtype: torch.dtype) -> None:
    x = points(dtype)
    assert f(x).dtype is dtype
    torch.testing.assert_close(f(x), plain(x))
    torch.testing.assert_close(gradient(f, x), gradient(plain, x))


@pytest.mark.parametrize(("f", "plain"), ACTIVATIONS)
def test_activation_derivatives_are_true(f: Function, plain: Function) -> None:
    assert torch.autograd.gradcheck(f, points())
    assert torch.autograd.gradgradcheck(f, points())


@pytest.mark.parametrize(("f", "plain"), ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_activation_is_sound_far_out(f: Function, plain: Function, dtype: torch.dtype) -> None:
    x = torch.tensor([-100.0, -45.0, 45.0, 100.0], dtype=dtype, requires_grad=True)
    torch.testing.assert_close(f(x), torch.tensor([0, 0, 45, 100], dtype=dtype))
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, torch.tensor([0, 0, 1, 1], dtype=dtype))
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.zeros_like(x))


@pytest.mark.parametrize(("f", "plain"), ACTIVATIONS)
def test_activation_keeps_only_its_input(f: Function, plain: Function) -> None:
    x = points()
    assert same_memory(kept(f, x), x)


def test_hard_mish_at_its_corners() -> None:
    x = torch.tensor([-2.0, 0.0], requires_grad=True)
    assert gradient(hard_mish, x).tolist() == [0.0, 2.0]


# surrogate spikes -------------------------------------------------------------------------------

SPIKES: List[Tuple[Function, float, Callable[[float, float], float]]] = [
    (atan, 2.0, lambda v, k: (k / 2) / (1 + (math.pi * k * v / 2) ** 2)),
    (fast_sigmoid, 25.0, lambda v, k: (1 + k * abs(v)) ** -2),
    (triangle, 1.0, lambda v, k: max(0.0, 1 - k * abs(v))),
    (sigmoid, 4.0, lambda v, k: k / (2 * math.cosh(k * v / 2)) ** 2),
]


@pytest.mark.parametrize(("f", "default", "derivative"), SPIKES)
def test_spike_is_the_heaviside_step(
    f: Function, default: float, derivative: Callable[[float, float], float]
) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        z = f(torch.tensor([-1.0, 0.0, 1e-3, 2.0], dtype=dtype))
        assert z.dtype is dtype
        assert z.tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(("f", "default", "derivative"), SPIKES)
def test_spike_gradient_is_the_documented_one(
    f: Function, default: float, derivative: Callable[[float, float], float]
) -> None:
    values = [-3.0, -0.7, -0.1, 0.0, 0.2, 1.5]
    for args in [(), (0.5,), (7.0,)]:
        slope = args[0] if args else default
        v = torch.tensor(values, dtype=torch.double, requires_grad=True)
        want = [(i + 1) * derivative(u, slope) for i, u in enumerate(values)]
        torch.testing.assert_close(gradient(f, v, *args), torch.tensor(want, dtype=torch.double))


@pytest.mark.parametrize(("f", "default", "derivative"), SPIKES)
def test_spike_is_sound_far_out_and_keeps_only_v(
    f: Function, default: float, derivative: Callable[[float, float], float]
) -> None:
    v = torch.tensor([-100.0, 100.0, -1e30, 1e30], requires_grad=True)
    torch.testing.assert_close(gradient(f, v), torch.zeros(4), atol=1e-3, rtol=0)
    assert same_memory(kept(f, v), v)


# straight-through, reversal, scale --------------------------------------------------------------


def test_round_ste() -> None:
    x = points()
    assert torch.equal(round_ste(x), torch.round(x))
    assert gradient(round_ste, x).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert kept(round_ste, x) == []


def test_sign_passes_the_gradient_within_one() -> None:
    x = torch.tensor([-1.5, -1.0, -0.5, 0.0, 1.0, 1.1], requires_grad=True)
    assert sign(x).tolist() == [-1, -1, -1, 0, 1, 1]
    assert gradient(sign, x).tolist() == [0, 2, 3, 4, 5, 0]
    assert [(t.dtype, t.shape) for t in kept(sign, x)] == [(torch.bool, x.shape)]


def test_clamp_passes_the_gradient_outside_too() -> None:
    x = points()
    assert torch.equal(clamp(x, -0.5, 1.0), torch.clamp(x, -0.5, 1.0))
    assert gradient(clamp, x, -0.5, 1.0).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert kept(clamp, x, -0.5, 1.0) == []


@pytest.mark.parametrize(
    ("f", "args", "factor"),
    [
        (gradient_reversal, (), -1.0),
        (gradient_reversal, (0.25,), -0.25),
        (scale_gradient, (0.1,), 0.1),
        (scale_gradient, (0.0,), 0.0),
    ],
)
def test_identity_with_another_gradient(
    f: Function, args: Tuple[float, ...], factor: float
) -> None:
    x = points()
    assert torch.equal(f(x, *args), x)
    want = factor * torch.arange(1, 10, dtype=torch.double)
    torch.testing.assert_close(gradient(f, x, *args), want)
    torch.testing.assert_close(gradient(f, x * 1, *args), want)  # not only for a leaf
    assert kept(f, x, *args) == []


# layers -----------------------------------------------------------------------------------------

ROWS = [(), (4,), (2, 3), (0,)]
SUBSETS = [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]


def seeded(*shape: int, grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.double, generator=generator).requires_grad_(grad)


def check_same_gradients(
    f: Function, plain: Function, inputs: Tuple[Optional[Tensor], ...]
) -> None:
    torch.testing.assert_close(f(*inputs), plain(*inputs))
    asked = [t for t in inputs if t is not None and t.requires_grad]
    grad_out = torch.randn_like(plain(*inputs))
    got = torch.autograd.grad(f(*inputs), asked, grad_out)
    torch.testing.assert_close(got, torch.autograd.grad(plain(*inputs), asked, grad_out))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("grads", SUBSETS)
def test_linear_equals_plain_torch(rows: Tuple[int, ...], grads: Tuple[bool, bool, bool]) -> None:
    x, weight = seeded(*rows, 5, grad=grads[0]), seeded(3, 5, grad=grads[1])
    check_same_gradients(linear, F.linear, (x, weight, seeded(3, grad=grads[2])))
    if grads[0] or grads[1]:
        check_same_gradients(linear, F.linear, (x, weight, None))


def test_linear_derivatives_are_true() -> None:
    for rows in ((), (4,), (2, 3)):
        inputs = (seeded(*rows, 5), seeded(3, 5), seeded(3))
        assert torch.autograd.gradcheck(linear, inputs)
        assert torch.autograd.gradgradcheck(linear, inputs)
        assert torch.autograd.gradgradcheck(linear, inputs[:2])


def test_linear_keeps_its_input_and_weight() -> None:
    x, weight, bias = seeded(4, 5), seeded(3, 5), seeded(3)
    assert same_memory(kept(linear, x, weight, bias), x, weight)


@pytest.mark.parametrize("rows", [(4,), (2, 3)])
@pytest.mark.parametrize("grads", SUBSETS)
def test_layer_norm_equals_plain_torch(
    rows: Tuple[int, ...], grads: Tuple[bool, bool, bool]
) -> None:
    x = seeded(*rows, 5, grad=grads[0])
    inputs = (x, seeded(5, grad=grads[1]), seeded(6, grad=grads[2])[:5])
    check_same_gradients(layer_norm, lambda x, w, b: F.layer_norm(x, (5,), w, b), inputs)


def test_layer_norm_takes_eps() -> None:
    x, weight, bias = seeded(4, 5), seeded(5), seeded(5)
    want = F.layer_norm(x, (5,), weight, bias, 0.5)
    torch.testing.assert_close(layer_norm(x, weight, bias, 0.5), want)
    torch.testing.assert_close(layer_norm(x, weight, bias, eps=0.5), want)


def test_layer_norm_derivatives_are_true() -> None:
    for rows in ((4,), (2, 3)):
        inputs = (seeded(*rows, 5), seeded(5), seeded(5))
        assert torch.autograd.gradcheck(layer_norm, inputs)
        assert torch.autograd.gradgradcheck(layer_norm, inputs)


# inside scripted code ---------------------------------------------------------------------------


def call_activations(x: Tensor) -> List[Tensor]:
    return [swish(x), mish(x), hard_mish(x), gelu_tanh(x)]


def call_spikes(x: Tensor) -> List[Tensor]:
    return [atan(x), fast_sigmoid(x, 5.0), triangle(x, 0.5), sigmoid(x, slope=2.0)]


def call_steps(x: Tensor) -> List[Tensor]:
    return [round_ste(x), sign(x), clamp(x, -0.5, 1.0)]


def call_identities(x: Tensor) -> List[Tensor]:
    return [gradient_reversal(x), gradient_reversal(x, 0.5), scale_gradient(x, 3.0)]


def each_gradient(f: Callable[[Tensor], List[Tensor]]) -> List[Tuple[Tensor, Tensor]]:
    """Every output of f, with the gradient that it alone gives."""
    x = points()
    grad_out = torch.arange(1, 10, dtype=x.dtype)
    return [(y, torch.autograd.grad(y, x, grad_out)[0]) for y in f(x)]


@pytest.mark.parametrize("f", [call_activations, call_spikes, call_steps, call_identities])
def test_scripted_calls_have_the_same_gradient(f: Callable[[Tensor], List[Tensor]]) -> None:
    scripted = torch.jit.script(f)
    for _ in range(3):  # TorchScript specialises after the first runs
        for got, want in zip(each_gradient(scripted), each_gradient(f)):
            torch.testing.assert_close(got, want)


def call_layers(x: Tensor, weight: Tensor, bias: Optional[Tensor], gain: Tensor) -> Tensor:
    y: Tensor = layer_norm(linear(x, weight, bias), gain, gain, 1e-3)
    return y


@pytest.mark.parametrize("with_bias", [True, False])
def test_scripted_layers_have_the_same_gradient(with_bias: bool) -> None:
    scripted = torch.jit.script(call_layers)
    inputs = (seeded(2, 4, 5), seeded(3, 5), seeded(3) if with_bias else None, seeded(3))
    for _ in range(3):
        check_same_gradients(scripted, call_layers, inputs)
