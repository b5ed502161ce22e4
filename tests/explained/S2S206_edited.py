"""A file that was edited after it was imported."""

import runpy
import tempfile
from pathlib import Path

import torch

import s2s


def refused():
    file = Path(tempfile.mkdtemp()) / "edited.py"
    file.write_text("def double(x):\n    return 2 * x, lambda g: 2 * g\n")
    module = runpy.run_path(str(file))
    file.write_text("def double(x):\n    return x + x, lambda g: g + g\n")
    double = s2s.autograd_script(module["double"])  # S2S206 here

    return double


def corrected():
    file = Path(tempfile.mkdtemp()) / "edited.py"
    file.write_text("def double(x):\n    return 2 * x, lambda g: 2 * g\n")
    file.write_text("def double(x):\n    return x + x, lambda g: g + g\n")
    module = runpy.run_path(str(file))  # read again after the edit
    double = s2s.autograd_script(module["double"])

    return double


def inputs():
    return (torch.tensor([0.5, -1.5], dtype=torch.double),)
