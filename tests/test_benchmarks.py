"""The benchmarks run and say what they measured. How fast anything is, is not tested."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_quick_run_writes_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--quick", "--json", str(file)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*command, "--only", "calls:swish"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert set(report) == {"s2s", "torch", "python", "rows"}
    found = {(row["case"], row["contender"]): row for row in report["rows"]}
    cases = {"forward", "forward, no_grad", "forward, grad", "forward + backward"}
    ways = {"plain", "s2s", "by hand", "setup_context", "closure on ctx", "custom_op", "built-in"}
    assert set(found) == {(case, way) for case in cases for way in ways}
    for row in report["rows"]:
        assert (row["benchmark"], row["subject"], row["unit"]) == ("calls", "swish, 8 floats", "us")
        for key in ("value", "ratio", "paired"):
            assert math.isfinite(row[key]) and row[key] > 0
        if row["contender"] == row["baseline"]:
            assert row["ratio"] == row["paired"] == 1
    # the two ratios that are promised stand at the end
    figures = [line for line in done.stdout.splitlines() if "(target <=" in line]
    assert [line.split(" = ")[0] for line in figures] == [
        "swish, 8 floats, forward: s2s / plain",
        "swish, 8 floats, forward, grad: s2s / by hand",
    ]
