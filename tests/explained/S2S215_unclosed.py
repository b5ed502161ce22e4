"""A file with a bracket that is not closed."""

import runpy
import tempfile
from pathlib import Path

import torch

import s2s
from s2s.source import from_file


def refused():
    file = Path(tempfile.mkdtemp()) / "model.py"
    file.write_text("def double(x):\n    return (2 * x, lambda g: 2 * g\n")
    from_file(file, "model")  # S2S215 here: what `s2s check model.py` does first


def corrected():
    file = Path(tempfile.mkdtemp()) / "model.py"
    file.write_text("def double(x):\n    return (2 * x, lambda g: 2 * g)\n")
    from_file(file, "model")
    double = s2s.autograd_script(runpy.run_path(str(file))["double"])

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
