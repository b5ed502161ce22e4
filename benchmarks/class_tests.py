"""A package's own tests before `s2s convert`, after it, and after the way back.

Part of ``python -m benchmarks.classes``. The sources of a package are copied, tested, converted in
place, all files of them, tested, converted back to classes, and tested again. Each test must come
out alike three times.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.classes.find import classes_in
from s2s.source import parse_text

__all__ = ["SUITES", "TEST_REQUIREMENTS", "Suite", "Tested", "tested", "unpacked"]

ROOT = Path(__file__).parent.parent
TEST_REQUIREMENTS = ("pytest==9.2.0", "setuptools==80.9.0")  # pkg_resources went after that
STAGE_SECONDS = 900


@dataclass(frozen=True)
class Suite:
    """The tests that go through the classes of a package, as arguments of pytest.

    ``archive`` is False where the wheel holds the tests; ``beside`` are packages that it imports.
    """

    tests: tuple[str, ...]
    archive: bool = True
    beside: tuple[str, ...] = ()


SUITES: dict[str, Suite] = {
    "entmax": Suite(("entmax",), archive=False),
    "gpytorch": Suite(
        (
            "test/functions",
            "test/kernels/test_rbf_kernel.py",
            "test/kernels/test_matern_kernel.py",
        ),
        beside=("linear-operator",),
    ),
    "linear-operator": Suite(("test/functions",)),
    "memcnn": Suite(("memcnn/models", "--ignore=memcnn/models/tests/test_amp.py")),  # torchvision
    "norse": Suite(("norse/torch/functional",)),
    "pytorch-wavelets": Suite(
        tuple(
            f"tests/test_{name}.py"
            for name in ("dwt", "dwt1d", "dwt_grad", "dtcwt_grad", "scatnet_bwd")
        )
    ),
    "sparsemax": Suite(("tests",)),
}

Outcomes = dict[str, str]  # of each test: "passed", "skipped", "failure" or "error"


@dataclass(frozen=True)
class Tested:
    """What came of one package: its classes, and the outcomes of its tests at the three stages."""

    package: str
    classes: int
    converted: int
    left: tuple[str, ...]  # why the others are left as they are, as the command says it
    back: int  # functions that became classes again
    stages: tuple[Outcomes, Outcomes, Outcomes]

    def passed(self) -> tuple[int, ...]:
        return tuple(sum(o == "passed" for o in stage.values()) for stage in self.stages)

    def different(self) -> Iterator[str]:
        """The tests that do not come out as they did before."""
        before, *others = self.stages
        for when, stage in zip(("after", "after the way back"), others):
            for name in sorted({*before, *stage}):
                was, now = before.get(name, "gone"), stage.get(name, "gone")
                if was != now:
                    yield f"{self.package} {name}: {was} before, {now} {when}"


def unpacked(archive: Path, place: Path) -> None:
    """All files of a wheel or a source archive, data of the tests among them."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(place)
        return
    with tempfile.TemporaryDirectory() as loaded:
        with tarfile.open(archive) as source:
            source.extractall(loaded, filter="data")
        (top,) = Path(loaded).iterdir()
        shutil.copytree(top, place)


def tested(package: str, source: Path, python: Path, packages: Path) -> Tested:
    """Test, convert, test, convert back and test a copy of a package's sources.

    ``packages`` is the folder of the packages that others import.
    """
    suite = SUITES[package]
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / package
        shutil.copytree(source, tree)
        run = _Run(python, tree, tuple(packages / name for name in suite.beside))
        before = run.outcomes(suite.tests)
        files = {path: _classes(path) for path in _modules(tree)}
        said: list[str] = []
        for path in (path for path, count in files.items() if count):
            said += run.convert(path, "--keep-names")
        remaining = sum(_classes(path) for path in files)
        after = run.outcomes(suite.tests)
        written = [path for path in files if "autograd_script" in path.read_text()]
        for path in written:
            said += run.convert(path, "--to", "function")
        back = sum(_classes(path) for path in files) - remaining
        stages = (before, after, run.outcomes(suite.tests))
    count = sum(files.values())
    return Tested(package, count, count - remaining, tuple(said), back, stages)


def _modules(tree: Path) -> list[Path]:
    """The package's files, without those of its tests."""
    found = []
    for path in sorted(tree.rglob("*.py")):
        parts = path.relative_to(tree).parts
        of_tests = any(p in ("test", "tests") or p.startswith("test_") for p in parts)
        if not of_tests and b"Function" in path.read_bytes():
            found.append(path)
    return found


def _classes(path: Path) -> int:
    text = path.read_text()
    return len(classes_in(text, str(path), path.stem, parse_text(text)))


@dataclass(frozen=True)
class _Run:
    """Commands over a copy of a package's sources, each in a process of its own."""

    python: Path
    tree: Path
    beside: tuple[Path, ...]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        alone = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        paths = os.pathsep.join(map(str, (self.tree, ROOT, *self.beside)))
        return subprocess.run(
            [self.python, "-m", *command],
            env=os.environ | alone | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=self.tree,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STAGE_SECONDS,
        )

    def convert(self, path: Path, *options: str) -> list[str]:
        """Convert a file in place. What the command leaves as it is, and why."""
        done = self.run("s2s", "convert", path, "--in-place", *options)
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise RuntimeError(f"s2s convert {path}:\n{done.stderr}")
        place = str(path.relative_to(self.tree))
        rows = done.stderr.replace(f"{self.tree}/", "").splitlines()
        return [r for r in rows if r.startswith(place) and ": note: " not in r]

    def outcomes(self, tests: Sequence[str]) -> Outcomes:
        """What comes of each test."""
        report = self.tree.parent / "report.xml"
        report.unlink(missing_ok=True)
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        options += [f"--junitxml={report}"]
        done = self.run("pytest", *options, *tests)
        if not report.exists():
            raise RuntimeError(
                f"pytest in {self.tree}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        found: Outcomes = {}
        for case in ElementTree.parse(report).iter("testcase"):
            bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            found[f"{case.get('classname')}::{case.get('name')}"] = bad[0] if bad else "passed"
        return found
