"""The same text for the same source, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = [*(ROOT / "tests" / "corpus").glob("*.py"), *(ROOT / "s2s" / "functions").glob("*.py")]

# the text side alone: no torch, nothing of the files is run
PRINT_ALL = """
import sys
from pathlib import Path
from s2s import pipeline
from s2s.emit.call import emit_call
from s2s.source import from_file

for name in sys.argv[1:]:
    for source in from_file(Path(name), Path(name).stem):
        pair = pipeline.lift(pipeline.read(source))
        for form in pipeline.FORMS:
            print(pipeline.emit(pair, form).text)
        print(emit_call(pair).text)
assert "torch" not in sys.modules
"""


def texts(seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRINT_ALL, *sorted(map(str, FILES))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hash_seed_changes_nothing() -> None:
    first = texts(0)
    assert first.count("torch.autograd.Function") > 2 * len(FILES)
    assert texts(1) == first
    assert texts(2) == first
