"""``python -m benchmarks``: every benchmark as a table, and as JSON for comparing two commits."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

import s2s

from .calls import FORWARD, FORWARD_GRAD, calls, sized
from .decoration import decoration
from .measure import Row, steady_memory
from .memory import memory
from .peers import BY_HAND, PLAIN, S2S
from .scripted import scripted

BENCHMARKS: dict[str, Callable[[bool, str], Iterator[Row]]] = {
    "calls": calls,
    "memory": memory,
    "scripted": scripted,
    "decoration": decoration,
}
# what must hold: the case, what s2s is compared with, and the target
SUBJECT = sized("swish", 8)
TARGETS = ((FORWARD, PLAIN, 1.15), (FORWARD_GRAD, BY_HAND, 0.9))


@click.command()
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write every row here.")
@click.option("--quick", is_flag=True, help="Few rounds and small inputs: a look, no measurement.")
@click.option(
    "--only", default="", metavar="NAME", help="calls, memory, scripted, decoration; calls:swish."
)
def main(file: Path | None, quick: bool, only: str) -> None:
    """Time s2s beside the other ways to write a custom gradient, on one thread."""
    name, _, part = only.partition(":")
    if name and name not in BENCHMARKS:
        raise click.BadParameter(f"one of {', '.join(BENCHMARKS)}", param_hint="--only")
    torch.set_num_threads(1)
    steady_memory()
    console = Console()
    rows: list[Row] = []
    for one in [name] if name else BENCHMARKS:
        found = list(BENCHMARKS[one](quick, part))
        for subject in dict.fromkeys(row.subject for row in found):
            console.print(table(f"{one}: {subject}", [r for r in found if r.subject == subject]))
        rows += found
    for line in figures(rows):
        console.print(line, highlight=False, soft_wrap=True)
    if file is not None:
        about = {"s2s": s2s.__version__, "torch": torch.__version__}
        about["python"] = platform.python_version()
        file.write_text(
            json.dumps(about | {"rows": [dataclasses.asdict(r) for r in rows]}, indent=1)
        )


def table(title: str, rows: Sequence[Row]) -> Table:
    """A line per contender, a column per case; beside each value its ratio to the bold one."""
    cases = list(dict.fromkeys(row.case for row in rows))
    made = Table(title=f"{title} ({rows[0].unit})", title_justify="left")
    made.add_column("", no_wrap=True)
    for case in cases:
        made.add_column(case, justify="right")
    for contender in dict.fromkeys(row.contender for row in rows):
        cells = {row.case: _cell(row) for row in rows if row.contender == contender}
        made.add_row(contender, *(cells.get(case, "") for case in cases))
    return made


def _cell(row: Row) -> str:
    value = f"{row.value:.3g}" if row.value < 1000 else f"{row.value:.0f}"
    if row.ratio is None:
        return value
    return (
        f"[bold]{value}[/]  {'':>5}"
        if row.contender == row.baseline
        else f"{value}  {row.ratio:>5.2f}"
    )


def figures(rows: Sequence[Row]) -> Iterator[str]:
    """The two ratios that this package promises, as they came out."""
    found = {row.case: row for row in rows if row.subject == SUBJECT and row.contender == S2S}
    for case, baseline, target in TARGETS:
        row = found.get(case)
        if row is not None and row.ratio is not None and row.paired is not None:
            shown = f"{row.ratio:.3f} of medians, {row.paired:.3f} paired"
            yield f"{SUBJECT}, {case}: {S2S} / {baseline} = {shown} (target <= {target})"


if __name__ == "__main__":
    main()
