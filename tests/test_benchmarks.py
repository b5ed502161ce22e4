"""The benchmarks run and say what they measured. How fast anything is, is not tested."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import class_tests
from benchmarks.calls import arguments
from benchmarks.memory import saved_bytes
from benchmarks.peers import peers

ROOT = Path(__file__).parent.parent


def test_a_quick_run_writes_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--quick", "--json", str(file)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*command, "--only", "calls:swish"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert set(report) == {"s2s", "torch", "python", "rows"}
    found = {(row["case"], row["contender"]): row for row in report["rows"]}
    cases = {"forward", "forward, no_grad", "forward, grad", "forward + backward"}
    ways = {"plain", "s2s", "by hand", "setup_context", "closure on ctx", "custom_op", "built-in"}
    asking = ("forward, grad", "forward + backward")
    with_grad = {(case, way) for case in asking for way in ("checkpoint", "by hand, node alone")}
    assert set(found) == {(case, way) for case in cases for way in ways} | with_grad
    for row in report["rows"]:
        assert (row["benchmark"], row["subject"], row["unit"]) == ("calls", "swish, 8 floats", "us")
        for key in ("value", "ratio", "paired"):
            assert math.isfinite(row[key]) and row[key] > 0
        if row["contender"] == row["baseline"]:
            assert row["ratio"] == row["paired"] == 1
    shown = [line for line in done.stdout.splitlines() if line.startswith("│ swish, 8 floats")]
    assert len(shown) == 1 and len(re.findall(r"\d\.\d\d", shown[0])) == 10


def test_the_saved_bytes_are_those_that_hooks_see() -> None:
    args = arguments("swish", 4096, True)
    assert saved_bytes(peers("swish", True)["s2s"], args) == 4096 * 4
    assert saved_bytes(peers("swish", True)["plain"], args) == 2 * 4096 * 4
    kept = arguments("linear, frozen x", 4096, True)
    assert [t.requires_grad for t in kept] == [False, True, True]


SLOPE = """import torch


class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 7 * g * x
"""
OWN_TEST = """import torch
from tiny.ops import Slope


def test_slope():
    x = torch.ones(2, requires_grad=True)
    Slope.apply(x).sum().backward()
    assert x.grad.tolist() == [7, 7]


def test_is_a_class():
    assert issubclass(Slope, torch.autograd.Function)
"""


def test_a_packages_own_tests_are_compared_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("__init__", ""), ("ops", SLOPE), ("test_ops", OWN_TEST)):
        path = tmp_path / "tiny" / "tiny" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setitem(class_tests.SUITES, "tiny", class_tests.Suite(("tiny",)))
    found = class_tests.tested("tiny", tmp_path / "tiny", Path(sys.executable), tmp_path)
    assert (found.classes, found.converted, found.back) == (1, 0, 0)
    assert "tiny/test_ops.py:12 has issubclass(Slope, torch.autograd.Function)" in found.left[0]
    assert found.passed() == (2, 2, 2) and not list(found.different())
    path.write_text(OWN_TEST.partition("\n\n\ndef test_is")[0])
    found = class_tests.tested("tiny", tmp_path / "tiny", Path(sys.executable), tmp_path)
    assert (found.classes, found.converted, found.back, found.left) == (1, 1, 1, ())
    assert found.passed() == (1, 1, 1)


def test_a_test_that_comes_out_otherwise_is_told() -> None:
    stages = ({"a": "passed", "b": "passed"}, {"a": "passed"}, {"a": "failure", "b": "passed"})
    found = class_tests.Tested("tiny", 1, 1, (), 1, stages)
    assert list(found.different()) == [
        "tiny b: passed before, gone after",
        "tiny a: passed before, failure after the way back",
    ]
