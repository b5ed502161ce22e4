"""A long run in a process of its own: one that hangs or dies costs one cell, and is replaced."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .judge import REFUSED, Cell
from .peers import peers
from .run import LIMIT, OURS, run
from .subjects import subjects
from .ways import WAYS

__all__ = ["Key", "run_apart"]

Key = tuple[str, str, str]  # style, function, way
ROUND = 250  # cells of one process: what the compilers keep of each is given back with it


def run_apart(keys: Sequence[Key], patience: float = 2 * LIMIT) -> Iterator[Cell]:
    """Judge every cell; one that gives no answer for ``patience`` seconds is refused."""
    rest = list(keys)
    context: Any = multiprocessing.get_context("spawn")
    while rest:
        here, there = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(there, rest[:ROUND]))
        worker.start()
        there.close()
        start = time.monotonic()
        try:
            for key in rest[:ROUND]:
                if not here.poll(patience):
                    why = f"no answer in {patience:g} seconds"
                    yield Cell(*key, REFUSED, why, time.monotonic() - start)
                    rest.pop(0)
                    break
                try:
                    cell = here.recv()
                except EOFError:
                    worker.join(10)
                    why = f"the process ended with exit code {worker.exitcode}"
                    yield Cell(*key, REFUSED, why, time.monotonic() - start)
                    rest.pop(0)
                    break
                yield cell
                rest.pop(0)
                start = time.monotonic()
        finally:
            worker.kill()
            worker.join()
            here.close()


def _work(pipe: Any, keys: Sequence[Key]) -> None:
    import torch

    torch.set_num_threads(1)
    ways = {w.name: w for w in WAYS}

    def chosen() -> Iterator[Any]:
        for style, function, way in keys:
            known = subjects() if style == OURS else peers(style)
            yield style, known[function], ways[way]

    for cell in run(chosen()):
        pipe.send(cell)
    pipe.close()
