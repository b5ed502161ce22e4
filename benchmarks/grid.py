"""``python -m benchmarks.grid``: is the gradient right, refused, or silently another one?

Functions x ways to run them (`tests/grid/`), for s2s and for the same functions written by hand as
``autograd.Function``s and as ``torch.library.custom_op``s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

import s2s

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from grid.judge import EMPTY, REFUSED, RIGHT, WRONG, Cell  # noqa: E402
from grid.peers import PARTS, STYLES  # noqa: E402
from grid.pool import Key, run_apart  # noqa: E402
from grid.run import FULL, OURS, SHORT, cells, summary  # noqa: E402
from grid.ways import WAYS  # noqa: E402

_NAME = re.compile(r"(?<=Error: )\w+: ")  # of the function, before a message of ours
_NUMBERS = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")


def _names(_: Any, __: Any, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


@click.command()
@click.option("--full", is_flag=True, help="Every function in every way: half an hour.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write every cell here.")
@click.option("--resume", is_flag=True, help="Go on with the run whose cells are in that file.")
@click.option("--functions", default="", callback=_names, help="Some, as swish,seven*.")
@click.option("--ways", multiple=True, help="One way or group; * stands for anything. Repeat it.")
@click.option(
    "--styles", default=",".join((OURS, *STYLES)), callback=_names, help="Some of s2s,ctx,..."
)
@click.option("--slow", is_flag=True, help="Show the slowest cells too.")
def main(
    full: bool,
    file: Path | None,
    resume: bool,
    functions: tuple[str, ...],
    ways: tuple[str, ...],
    styles: tuple[str, ...],
    slow: bool,
) -> None:
    """Run the grid; exit with 1 if s2s is silently wrong anywhere."""
    torch.set_num_threads(1)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what DDP and vmap say of the peers
    console = Console(highlight=False)
    start = time.perf_counter()
    keys = [
        (style, case.name, way.name)
        for style, case, way in cells(FULL if full else SHORT, functions, ways, styles)
    ]
    known = _read(file) if file is not None and resume else {}
    found = [known[key] for key in keys if key in known]
    with contextlib.ExitStack() as stack:
        rows = None
        if file is not None:
            rows = stack.enter_context(file.open("w"))
            rows.write(json.dumps(_versions()) + "\n")
            rows.writelines(json.dumps(dataclasses.asdict(c)) + "\n" for c in known.values())
            rows.flush()
        for cell in run_apart([key for key in keys if key not in known]):
            found.append(cell)
            if rows is not None:
                rows.write(json.dumps(dataclasses.asdict(cell)) + "\n")
                rows.flush()
            if console.is_terminal:
                at = f"{len(found)}/{len(keys)} {cell.style} {cell.function}: {cell.way}"
                console.print(f"{at}\x1b[K", end="\r")
    console.print(by_way(found, styles))
    console.print(totals(found, "all functions"))
    if len(styles) > 1:
        console.print(totals([c for c in found if c.function in PARTS], "the same functions"))
    for line in not_right([c for c in found if c.style == OURS]):
        console.print(line, markup=False, soft_wrap=True)
    if slow:
        for cell in sorted(found, key=lambda c: -c.seconds)[:30]:
            console.print(f"{cell.seconds:.1f} s {cell.style} {cell.function}: {cell.way}")
    seconds = time.perf_counter() - start
    console.print(f"{len(found)} cells in {seconds:.0f} s")
    sys.exit(any(c.style == OURS and c.outcome == WRONG for c in found))


def _versions() -> dict[str, str]:
    """The first line of a file of cells."""
    python = platform.python_version()
    return {"s2s": s2s.__version__, "torch": torch.__version__, "python": python}


def _read(file: Path) -> dict[Key, Cell]:
    """The cells of an earlier run; a line that was cut off is run again."""
    found = {}
    for line in file.read_text().splitlines()[1:] if file.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            cell = Cell(**json.loads(line))
            found[cell.style, cell.function, cell.way] = cell
    return found


def by_way(found: Sequence[Cell], styles: Sequence[str]) -> Table:
    """A line per way; for each style, right / refused / silently wrong of its functions."""
    table = Table(title="right / refused / silently wrong", title_justify="left")
    table.add_column("", no_wrap=True)
    for style in styles:
        table.add_column(style, justify="right")
    for way in WAYS:
        here = [c for c in found if c.way == way.name]
        if here:
            table.add_row(way.name, *(_counts(c for c in here if c.style == s) for s in styles))
    return table


def _counts(some: Iterable[Cell]) -> str:
    outcomes = [c.outcome for c in some]
    if not set(outcomes) - {EMPTY}:
        return ""
    right, refused, wrong = (outcomes.count(o) for o in (RIGHT, REFUSED, WRONG))
    return f"{right} / {refused} / " + (f"[bold red]{wrong}[/]" if wrong else "0")


def not_right(found: Sequence[Cell]) -> Iterator[str]:
    """Every cell that is refused or silently wrong, those of one way and one reason together."""
    together: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in found:
        if cell.outcome in (REFUSED, WRONG):
            alike = _NAME.sub("", _NUMBERS.sub("#", cell.why.replace(cell.function, "f")))
            together.setdefault((cell.outcome, cell.way, alike[:120]), []).append(cell)
    for (outcome, way, _), cells_ in sorted(together.items(), key=lambda item: item[0][0] != WRONG):
        names = ", ".join(c.function for c in cells_)
        yield f"{outcome}: {way}: {names}\n    {cells_[0].why}"


def totals(found: Sequence[Cell], what: str) -> Table:
    """A line per style."""
    table = Table(title=f"{what}, all ways", title_justify="left")
    table.add_column("")
    for outcome in (RIGHT, REFUSED, WRONG):
        table.add_column(outcome, justify="right")
    for style, counts in summary(found).items():
        table.add_row(style, *(str(counts[o]) for o in (RIGHT, REFUSED, WRONG)))
    return table


if __name__ == "__main__":
    main()
