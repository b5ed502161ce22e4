"""Two processes that train together, on the CPU with gloo."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..judge import Case, filled, gradients, like, same
from .base import way

Net = Callable[[Any], nn.Module]
Work = Callable[[Case, int], list[Tensor]]
RANKS = 2


class Branches(nn.Module):
    """The function behind two trained shifts, each of them an output."""

    def __init__(self, case: Case, f: Any) -> None:
        super().__init__()
        x = case.tensors()[0]
        self.shift = nn.Parameter(torch.full_like(x, 0.125))
        self.other = nn.Parameter(torch.full_like(x, 0.25))
        self.run = case.first(f)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.run(x + self.shift), self.run(x + self.other)


def _data(case: Case, rank: int) -> Tensor:
    return case.tensors()[0] * (1.0 + 0.25 * rank)


def _expected(case: Case, both: bool) -> list[Tensor]:
    """The mean of the ranks' gradients, with the reference."""

    def run(f: Any) -> list[Tensor]:
        net = Branches(case, f)
        asked = list(net.parameters())
        rows = []
        for rank in range(RANKS):
            outputs = net(_data(case, rank))[: 1 + both]
            rows.append(filled(gradients(outputs, asked, like(outputs)), asked))
        return [torch.stack(grads).mean(0) for grads in zip(*rows)]

    return list(case.want(run))


def _together(case: Case, work: Work) -> list[list[Tensor]]:
    """What every rank found. Forked: the functions of the corpus are in no module to import."""
    context: Any = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        queue = context.Queue()
        given = (queue, case, work, f"file://{folder}/meet")
        children = [context.Process(target=_rank, args=(r, *given)) for r in range(RANKS)]
        for child in children:
            child.start()
        try:
            found = dict(queue.get(timeout=90) for _ in children)
        finally:
            for child in children:
                child.join(timeout=10)
                child.kill()
    for one in found.values():
        if isinstance(one, str):
            raise RuntimeError(one)
    return [[torch.from_numpy(a) for a in found[rank]] for rank in range(RANKS)]


def _rank(rank: int, queue: Any, case: Case, work: Work, meet: str) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=RANKS)
        queue.put((rank, [t.detach().numpy() for t in work(case, rank)]))
        dist.destroy_process_group()
    except Exception as error:
        queue.put((rank, f"{type(error).__name__}: {error}"))


def _backward(outputs: Any) -> None:
    torch.autograd.backward(list(outputs), like(outputs))


def _grads(net: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]


def _trained(case: Case, rank: int, unused: bool) -> list[Tensor]:
    net = Branches(case, case.f)
    parallel = DistributedDataParallel(net, find_unused_parameters=unused)
    _backward(parallel(_data(case, rank))[: 1 if unused else 2])
    return _grads(net)


@way("DistributedDataParallel, two processes", cost=1)
def parallel(case: Case) -> None:
    want = _expected(case, both=True)
    for found in _together(case, lambda c, rank: _trained(c, rank, unused=False)):
        same(found, want)


@way("DistributedDataParallel, an output is not used", cost=1)
def parallel_unused(case: Case) -> None:
    want = _expected(case, both=False)
    for found in _together(case, lambda c, rank: _trained(c, rank, unused=True)):
        same(found, want)


def _sharded(case: Case, rank: int) -> list[Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net: Any = Branches(case, case.f)
    fully_shard(net, mesh=init_device_mesh("cpu", (RANKS,)))
    _backward(net(_data(case, rank)))
    return [p.grad.full_tensor() for p in net.parameters()]


@way("fully_shard, two processes", cost=1)
def sharded(case: Case) -> None:
    want = _expected(case, both=True)
    for found in _together(case, _sharded):
        same(found, want)


def _spread(case: Case, rank: int) -> list[Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))

    def spread(t: Tensor) -> Any:
        return distribute_tensor(t.detach(), mesh, [Replicate()])

    tensors = [spread(t).requires_grad_() for t in case.tensors()]
    # the integer tensors and the numbers go in as they are: each rank has them
    outputs = case.bind(case.f)(*tensors)
    units = [spread(u) for u in like([t.to_local() for t in outputs])]
    grads = gradients(outputs, tensors, units)
    return [t.to_local() for t in (*outputs, *filled(grads, tensors))]


@way("DTensor, two processes", cost=1)
def spread(case: Case) -> None:
    want = case.pulled()
    for found in _together(case, _spread):
        same(found, want)
