"""``python -m benchmarks``: one table, and JSON beside it for comparing two commits."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

import s2s

from .calls import BOTH, FORWARD_GRAD, NO_GRAD, calls
from .decoration import decoration
from .measure import Row, steady_memory
from .memory import memory
from .peers import (
    BARE,
    BUILT_IN,
    BY_HAND,
    CHECKPOINT,
    COMPILED,
    CPP,
    CUSTOM_OP,
    NAIVE,
    PLAIN,
    S2S,
    SETUP,
)
from .scripted import SCRIPTED_S2S, scripted

BENCHMARKS: dict[str, Callable[[bool, str, Collection[str]], Iterator[Row]]] = {
    "calls": calls,
    "memory": memory,
    "scripted": scripted,
    "decoration": decoration,
}


@click.command()
@click.option(
    "--json",
    "file",
    type=click.Path(path_type=Path),
    default=Path("benchmarks.json"),
    show_default=True,
    help="Write every row here.",
)
@click.option("--quick", is_flag=True, help="A minute: 8 floats, few subjects and rounds.")
@click.option(
    "--only", default="", metavar="NAME", help="calls, memory, scripted, decoration; calls:swish."
)
@click.option("--details", is_flag=True, help="A table per subject, with all ways side by side.")
@click.option("--compile", is_flag=True, help="torch.compile beside the rest: many minutes more.")
@click.option("--cpp", is_flag=True, help="A C++ Function beside the rest, of swish alone.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the figures: x.svg, x.png.")
def main(
    file: Path,
    quick: bool,
    only: str,
    details: bool,
    compile: bool,
    cpp: bool,
    plot: Path | None,
) -> None:
    """Time s2s beside the other ways to write a custom gradient, on one thread."""
    name, _, part = only.partition(":")
    if name and name not in BENCHMARKS:
        raise click.BadParameter(f"one of {', '.join(BENCHMARKS)}", param_hint="--only")
    torch.set_num_threads(1)
    steady_memory()
    slow = [which for which, wanted in ((COMPILED, compile), (CPP, cpp)) if wanted]
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 160)  # no column is cut off in a file
    rows: list[Row] = []
    for one in [name] if name else BENCHMARKS:
        found = list(BENCHMARKS[one](quick, part, slow))
        for subject in dict.fromkeys(row.subject for row in found) if details else ():
            console.print(table(f"{one}: {subject}", [r for r in found if r.subject == subject]))
        rows += found
    if any(row.benchmark in COMPARED for row in rows):
        console.print(summary(rows))
    for line in figures(rows):
        console.print(line, highlight=False, soft_wrap=True)
    about = {"s2s": s2s.__version__, "torch": torch.__version__}
    about["python"] = platform.python_version()
    shown = about | {"rows": [dataclasses.asdict(row) for row in rows]}
    file.write_text(json.dumps(shown, indent=1) + "\n")
    if plot is not None:
        from .plot import draw

        draw(rows, plot)


COMPARED = ("calls", "scripted")
# of the summary: what is compared, in which case, with whom
COLUMNS = (
    ("no grad: / plain", NO_GRAD, PLAIN),
    ("forward: / by hand", FORWARD_GRAD, BY_HAND),
    ("/ node alone", FORWARD_GRAD, BARE),
    ("both: / by hand", BOTH, BY_HAND),
    ("/ setup_context", BOTH, SETUP),
    ("/ closure on ctx", BOTH, NAIVE),
    ("/ custom_op", BOTH, CUSTOM_OP),
    ("/ plain", BOTH, PLAIN),
    ("/ checkpoint", BOTH, CHECKPOINT),
    ("/ built-in", BOTH, BUILT_IN),
    ("/ compiled", BOTH, COMPILED),
    ("/ C++", BOTH, CPP),
)


def summary(rows: Sequence[Row]) -> Table:
    """The time that s2s takes, over that of each other way, in the same rounds."""
    paired = {
        (row.subject, row.case, row.contender): row.paired
        for row in rows
        if row.benchmark in COMPARED and row.paired is not None
    }
    present = {(case, contender) for _, case, contender in paired}
    columns = [c for c in COLUMNS if c[1:] in present]
    made = Table(title="time of s2s / time of the other way", title_justify="left")
    for head in ("", *(title for title, _, _ in columns)):
        made.add_column(head, justify="right" if head else "left", no_wrap=not head)
    for subject in dict.fromkeys(subject for subject, _, _ in paired):
        cells = [ratio(paired, subject, case, other) for _, case, other in columns]
        made.add_row(subject, *cells)
    return made


def ratio(paired: Mapping[tuple[str, str, str], float], subject: str, case: str, other: str) -> str:
    """s2s over another way: in a scripted loop where there is one."""
    ours = paired.get((subject, case, SCRIPTED_S2S)) or paired.get((subject, case, S2S))
    theirs = paired.get((subject, case, other))
    return f"{ours / theirs:.2f}" if ours and theirs else ""


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
    """What has one figure alone: importing, decorating, and the memory of a call."""
    for row in rows:
        if row.benchmark == "decoration":
            yield f"{row.subject}, {row.case}, {row.contender}: {row.value:.3g} {row.unit}"
    for row in rows:
        if row.benchmark == "memory" and row.contender == S2S:
            plain = next(
                r.value
                for r in rows
                if (r.subject, r.case, r.contender) == (row.subject, row.case, PLAIN)
            )
            shown = f"{row.value:.2f} {row.unit}, {plain:.2f} {PLAIN}"
            yield f"{row.subject}, {row.case}: {shown}"


if __name__ == "__main__":
    main()
