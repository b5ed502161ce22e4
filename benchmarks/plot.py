"""The figures as a picture: time against size, and bytes kept against the activation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .calls import BOTH, sized
from .measure import Row
from .peers import BUILT_IN, BY_HAND, COMPILED, CUSTOM_OP, PLAIN, S2S, SETUP

__all__ = ["draw"]

SIZES = (8, 4096, 1 << 20)
TIMED = (S2S, BY_HAND, SETUP, CUSTOM_OP, PLAIN, COMPILED)
KEPT = (S2S, PLAIN, BUILT_IN)
SUBJECT = "swish"
ACTIVATIONS = ("swish", "mish", "hard_mish", "gelu_tanh", "spike")


def draw(rows: Sequence[Row], file: Path) -> None:
    """Both pictures side by side. Needs matplotlib: ``pip install -e '.[bench]'``."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "s2s"  # the same file for the same figures
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    values = {(row.subject, row.case, row.contender): row.value for row in rows}
    for way in TIMED:
        points = [(n, values.get((sized(SUBJECT, n), BOTH, way))) for n in SIZES]
        known = [(n, value) for n, value in points if value is not None]
        if known:
            bold = {"linewidth": 2.5, "zorder": 3} if way == S2S else {"linewidth": 1.2}
            left.plot(*zip(*known), marker="o", markersize=4, label=way, **bold)
    left.set(xscale="log", yscale="log", xlabel="floats", ylabel="microseconds")
    left.set_title(f"{SUBJECT}: forward + backward")
    left.legend(fontsize=8)
    width = 0.8 / len(KEPT)
    kept = {(row.case, row.contender): row.value for row in rows if row.subject.startswith("saved")}
    for place, way in enumerate(KEPT):
        found = [(i, kept.get((a, way))) for i, a in enumerate(ACTIVATIONS)]
        bars = [(i + (place - 1) * width, value) for i, value in found if value is not None]
        if bars:
            right.bar(*zip(*bars), width=width, label=way)
    right.set_xticks(range(len(ACTIVATIONS)), ACTIVATIONS)
    right.set(ylabel="x bytes of the input")
    right.set_title("kept for backward")
    right.legend(fontsize=8)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
