"""Spiking neurons in a scripted loop over time: exact gradients, and a network that learns."""

import math
from typing import List, Tuple

import torch
from torch import Tensor, nn

from s2s.functions import atan


def lif(current: Tensor, beta: float, slope: float) -> Tensor:
    """Leaky integrate and fire, threshold 1, reset by subtraction. (time, *) to spikes."""
    v = torch.zeros_like(current[0])
    spikes: List[Tensor] = []
    for t in range(current.shape[0]):
        v = beta * v + current[t]
        z = atan(v - 1.0, slope)
        v = v - z
        spikes.append(z)
    return torch.stack(spikes)


def by_hand(
    current: List[float], weights: List[float], beta: float, slope: float
) -> Tuple[List[float], List[float]]:
    """The spikes of one neuron, and the gradient of sum(weights * spikes) for each current."""
    before_reset, spikes, v = [], [], 0.0
    for i in current:
        v = beta * v + i
        before_reset.append(v)
        spikes.append(1.0 if v > 1 else 0.0)
        v -= spikes[-1]
    grads, grad_v = [], 0.0
    for v, w in zip(reversed(before_reset), reversed(weights)):
        surrogate = slope / 2 / (1 + (math.pi / 2 * slope * (v - 1)) ** 2)
        grad_v += (w - grad_v) * surrogate
        grads.append(grad_v)
        grad_v *= beta
    return spikes, grads[::-1]


def test_gradient_through_time_equals_the_recursion() -> None:
    scripted = torch.jit.script(lif)
    generator = torch.Generator().manual_seed(0)
    current = torch.rand(25, 4, dtype=torch.double, generator=generator).requires_grad_()
    weights = torch.randn(25, 4, dtype=torch.double, generator=generator)
    for slope in (2.0, 5.0, 2.0):
        spikes = scripted(current, 0.9, slope)
        (grad,) = torch.autograd.grad((weights * spikes).sum(), current)
        assert 0 < spikes.sum() < spikes.numel()
        for n in range(4):
            want = by_hand(current[:, n].tolist(), weights[:, n].tolist(), 0.9, slope)
            assert spikes[:, n].tolist() == want[0]
            want_grad = torch.tensor(want[1], dtype=torch.double)
            torch.testing.assert_close(grad[:, n], want_grad, rtol=1e-12, atol=1e-14)


class Network(nn.Module):
    """Spike trains (time, batch, 16) -> spike counts of two output neurons (batch, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 12)
        self.out = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        spikes = lif(self.hidden(x), 0.8, 2.0)
        return lif(self.out(spikes), 0.8, 2.0).sum(0)


def rate_patterns(batch: int, generator: torch.Generator) -> Tuple[Tensor, Tensor]:
    """Noisy spike trains of 15 steps; each class fires more in its own half of the channels."""
    label = torch.randint(2, (batch,), generator=generator)
    first_half = torch.arange(16) < 8
    rate = torch.where(first_half == (label[:, None] == 0), 0.45, 0.2)
    return torch.rand(15, batch, 16, generator=generator).lt(rate).float(), label


def test_a_scripted_network_learns_to_tell_rates_apart() -> None:
    # both layers end in spikes: every weight is reached through a surrogate gradient alone
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = torch.jit.script(Network())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses: List[float] = []
    for _ in range(40):
        x, label = rate_patterns(64, generator)
        loss = nn.functional.cross_entropy(network(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    x, label = rate_patterns(500, generator)
    accuracy = (network(x).argmax(1) == label).double().mean().item()
    assert losses[-1] < losses[0] / 3
    assert accuracy > 0.9
