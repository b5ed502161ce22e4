"""``python -m benchmarks.classes``: the ``autograd.Function`` classes of published packages.

``--download`` fetches the packages below, at these versions, into a folder with an environment of
their own. None of their code is part of this repository. Every class is converted with
``s2s.from_function`` and compared with itself, see `class_compare`: the gradient must be the same,
right where the class's is wrong, or an error. One process per package, and results are kept in the
folder: what was stopped goes on where it was. ``--own-tests`` runs ``s2s convert`` over the files
of some of them instead, and the packages' own tests before and after, see `class_tests`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

import s2s

from .class_compare import AT_CALL, EQUAL, IN_PLACE, NOT_RUN, SECOND, VALUES
from .class_tests import SUITES, TEST_REQUIREMENTS, tested, unpacked
from .class_worker import BROKEN, NOT_IMPORTED, REFUSED, Row

__all__ = ["PACKAGES", "main", "table"]

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "advertorch": "0.2.3",
    "auto-gptq": "0.7.1",
    "bitsandbytes": "0.50.2",
    "botorch": "0.18.1",
    "brevitas": "0.13.4",
    "colossalai": "0.5.0",
    "compressai": "1.2.8",
    "dalle-pytorch": "1.6.6",
    "deepinv": "0.5.0",
    "deepspeed": "0.19.8",
    "e3nn": "0.6.0",
    "entmax": "1.3",
    "fairscale": "0.4.13",
    "fairseq": "0.12.2",
    "flash-linear-attention": "0.6.0",
    "gpytorch": "1.15.2",
    "kornia": "0.9.0",
    "liger-kernel": "0.8.5",
    "linear-operator": "0.6.1",
    "megatron-core": "0.16.1",
    "memcnn": "1.5.2",
    "mmcv-lite": "2.2.0",
    "monai": "1.6.1",
    "nerfacc": "0.5.3",
    "neural-compressor": "3.10",
    "nncf": "3.4.0",
    "nni": "3.0",
    "norse": "1.0.0",
    "optimum-quanto": "0.2.7",
    "peft": "0.21.2",
    "pytorch-optimizer": "4.1.0",
    "pytorch-revgrad": "0.2.0",
    "pytorch-wavelets": "1.3.0",
    "qpth": "0.0.18",
    "qtorch": "0.3.0",
    "reformer-pytorch": "1.4.4",
    "revtorch": "0.2.4",
    "sinabs": "3.1.3",
    "snntorch": "1.0.0",
    "sparsemax": "0.1.9",
    "speechbrain": "1.1.2",
    "spikingjelly": "2.0.0",
    "theseus-ai": "0.2.3",
    "timm": "1.0.31",
    "torch-geometric": "2.8.1",
    "torchao": "0.18.0",
    "torchdiffeq": "0.2.5",
    "torchkbnufft": "1.5.2",
    "torchquantum": "0.1.8",
    "torchsde": "0.2.6",
    "x-transformers": "2.31.10",
}
# what the packages import, so that most of their modules load; the rest is stood in for
REQUIREMENTS = (
    "accelerate==1.15.0",
    "beartype==0.23.1",
    "certifi==2026.10.19.post1",
    "charset-normalizer==3.5.3",
    "dependencies==2.0.1",
    "einops==0.8.2",
    "hf-xet==1.8.0",
    "huggingface-hub==0.36.0",
    "HyperPyYAML==1.2.3",
    "jaxtyping==0.3.11",
    "msgspec==0.23.0",
    "multipledispatch==1.0.0",
    "mypy_extensions==1.2.0",
    "numpy==2.4.6",
    "omegaconf==2.4.0",
    "opt-einsum-fx==0.1.4",
    "opt_einsum==3.4.0",
    "packaging==26.4",
    "pandas==3.1.1",
    "pillow==13.0.0",
    "psutil==7.2.2",
    "pyre-extensions==0.0.32",
    "pyro-api==0.1.2",
    "pyro-ppl==1.9.2",
    "python-dateutil==4.0.0",
    "PyWavelets==1.9.0",
    "PyYAML==6.0.4",
    "regex==2026.11.19",
    "requests==2.34.2",
    "ruamel.yaml==0.18.17",
    "ruamel.yaml.clib==0.2.15",
    "safetensors==0.8.0",
    "scipy==1.17.1",
    "tokenizers==0.22.1",
    "tqdm==4.70.1",
    "transformers==4.57.1",
    "typer==0.29.2",
    "typing-inspect==0.9.0",
    "tzdata==2026.6",
    "urllib3==2.8.0",
    "wadler_lindig==0.1.8",
)
SOURCES = ("deepspeed", "norse", "qpth", "theseus-ai")  # a newer version than their wheel
SILENT = (VALUES, SECOND, IN_PLACE)
PACKAGE_SECONDS = 1800


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--download", is_flag=True, help="Fetch what is missing in FOLDER (a temporary one).")
@click.option("--package", "some", multiple=True, help="This one alone. Repeat it.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write every class here.")
@click.option("--jobs", default=1, show_default=True, help="Packages at a time.")
@click.option("--again", is_flag=True, help="Forget the results that the folder holds.")
@click.option("--own-tests", is_flag=True, help="Convert files; run the packages' own tests.")
def main(
    folder: Path | None,
    download: bool,
    some: tuple[str, ...],
    file: Path | None,
    jobs: int,
    again: bool,
    own_tests: bool,
) -> None:
    """Convert and compare; exit with 1 if a class differs without a word, or a test does."""
    if folder is None:
        if not download:
            raise click.UsageError("name a FOLDER that was downloaded to, or give --download")
        folder = Path(tempfile.mkdtemp(prefix="classes-"))
    known = SUITES if own_tests else PACKAGES
    unknown = set(some) - set(known)
    if unknown:
        raise click.BadParameter(f"not known: {', '.join(unknown)}", param_hint="--package")
    names = some or tuple(known)
    folder = folder.absolute()
    console = Console(highlight=False)
    if download:
        console.print(f"downloading to {folder}")
        fetch(folder, names)
        if own_tests:
            fetch_tests(folder, names)
    places = [_sources(folder, n) if own_tests else folder / "packages" / n for n in names]
    missing = [str(place) for place in places if not place.is_dir()]
    if missing:
        raise click.UsageError(f"no {', '.join(missing)}; give --download")
    if own_tests:
        sys.exit(_own_tests(folder, names, console))
    results = folder / "results" / _version()
    results.mkdir(parents=True, exist_ok=True)
    for name in names if again else ():
        (results / f"{name}.jsonl").unlink(missing_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        for name in pool.map(lambda name: _run(folder, name, results), names):
            if console.is_terminal:
                console.print(f"{name}\x1b[K", end="\r")
    rows = [row for name in names for row in _rows(results / f"{name}.jsonl")]
    console.print(table(rows))
    for line in told(rows):
        console.print(line, markup=False, soft_wrap=True)
    if file is not None:
        about = {"s2s": s2s.__version__, "torch": torch.__version__}
        about["python"] = platform.python_version()
        kept = [vars(row) for row in rows]
        file.write_text(json.dumps(about | {"packages": PACKAGES, "classes": kept}, indent=1))
    sys.exit(any(row.outcome in SILENT for row in rows))


# --- downloading -------------------------------------------------------------------------------


def fetch(folder: Path, names: Sequence[str]) -> None:
    """The environment and the packages, what is there already left alone."""
    python = _environment(folder)
    for name in names:
        place = folder / "packages" / name
        if place.is_dir():
            continue
        with tempfile.TemporaryDirectory() as loaded:
            wanted = [f"{name}=={PACKAGES[name]}", "--no-deps", "--no-build-isolation"]
            wanted += ["--no-binary", ":all:"] if name in SOURCES else []
            _pip(python, "download", *wanted, "--dest", loaded)
            (archive,) = Path(loaded).iterdir()
            _unpack(archive, place)


def fetch_tests(folder: Path, names: Sequence[str]) -> None:
    """What runs the packages' tests, the packages that they import, and the sources with tests."""
    python = _environment(folder)
    _pip(python, "install", *TEST_REQUIREMENTS)
    fetch(folder, [other for name in names for other in SUITES[name].beside])
    for name in names:
        place = _sources(folder, name)
        if place.is_dir():
            continue
        with tempfile.TemporaryDirectory() as loaded:
            wanted = [f"{name}=={PACKAGES[name]}", "--no-deps", "--no-build-isolation"]
            _pip(python, "download", *wanted, "--no-binary", ":all:", "--dest", loaded)
            (archive,) = Path(loaded).iterdir()
            unpacked(archive, place)


def _sources(folder: Path, name: str) -> Path:
    """Where the files of a package are that its tests stand beside."""
    return folder / ("sources" if SUITES[name].archive else "packages") / name


def _environment(folder: Path) -> Path:
    place = folder / "environment"
    python = place / "bin" / "python"
    wanted = [f"torch=={torch.__version__.partition('+')[0]}", "setuptools", str(ROOT)]
    done, asked = place / "done", "\n".join([wanted[0], *REQUIREMENTS, _text("pyproject.toml")])
    if not done.exists() or done.read_text() != asked:
        venv.create(place, with_pip=True)
        _pip(python, "install", *wanted)  # s2s for what it needs; the one here is what runs
        _pip(python, "install", "--no-deps", *REQUIREMENTS)  # none of them brings another torch
        done.write_text(asked)
    return python


def _text(name: str) -> str:
    return (ROOT / name).read_text()


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "-q", *arguments], check=True)


def _unpack(archive: Path, place: Path) -> None:
    """The Python files, and what says which version it is. Nothing is built."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wanted = [n for n in wheel.namelist() if n.endswith(".py") or ".dist-info/" in n]
            wheel.extractall(place, wanted)
        return
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            inner = Path(*Path(member.name).parts[1:])
            stream = source.extractfile(member) if inner.suffix == ".py" else None
            if stream is not None and ".." not in inner.parts:
                (place / inner).parent.mkdir(parents=True, exist_ok=True)
                (place / inner).write_bytes(stream.read())


# --- running -----------------------------------------------------------------------------------


def _version() -> str:
    """Of s2s and of what compares: results of other code are not taken for these."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.glob("s2s/**/*.py"), *ROOT.glob("benchmarks/class_*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _run(folder: Path, name: str, results: Path) -> str:
    """One package in a process of its own; a class that kills it is passed over the next time."""
    python = folder / "environment" / "bin" / "python"
    file, log = results / f"{name}.jsonl", results / f"{name}.log"
    command = [python, "-W", "ignore", "-m", "benchmarks.class_worker"]
    offline = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    offline["TORCHDYNAMO_DISABLE"] = "1"  # what a package compiles runs as it is written
    environment = os.environ | offline | {"PYTHONPATH": str(ROOT)}
    for _ in range(4):
        with log.open("w") as output:
            try:
                done = subprocess.run(
                    [*command, folder / "packages", name, file],
                    env=environment,
                    cwd=results,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=PACKAGE_SECONDS,
                )
            except subprocess.TimeoutExpired:
                continue
        if not done.returncode:
            break
    return name


def _rows(file: Path) -> list[Row]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [Row(**json.loads(line)) for line in lines]


def _own_tests(folder: Path, names: Sequence[str], console: Console) -> bool:
    """Print a line per package, and what is left as it is. Does a test come out otherwise?"""
    python = folder / "environment" / "bin" / "python"
    made = Table(title=OWN_TESTS, title_justify="left", padding=(0, 1, 0, 0), box=None)
    for column in (
        "",
        "classes",
        "converted",
        "back",
        "passed before",
        "after",
        "after the way back",
    ):
        made.add_column(column, justify="right" if column else "left")
    lines: list[str] = []
    different = False
    for name in names:
        found = tested(name, _sources(folder, name), python, folder / "packages")
        shown = (found.classes, found.converted, found.back, *found.passed())
        made.add_row(name, *map(str, shown))
        changed = list(found.different())
        different = different or bool(changed)
        lines += changed + [f"{name} {line}" for line in found.left]
    console.print(made)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    return different


# --- what is printed ---------------------------------------------------------------------------

COLUMNS: dict[str, tuple[str, ...]] = {
    "equal": (EQUAL,),
    "not run": (NOT_RUN,),
    "refused": (REFUSED, BROKEN),
    "at call": (AT_CALL,),
    "no import": (NOT_IMPORTED,),
    "values": (VALUES,),
    "second": (SECOND,),
    "in place": (IN_PLACE,),
}
OWN_TESTS = """\
Function classes of packages' files converted by `s2s convert`, and back to classes; and how many of
their own tests pass, which must be the same ones each time"""
TITLE = """\
classes with forward and backward, and of these those that use only torch: converted and equal;
converted, not run here; refused, when converting or at the call; not imported here; and silently
different, in values, second derivatives, or after a change in place"""


def table(rows: Sequence[Row]) -> Table:
    """A line per package: of its classes with a rule / of those that use only torch."""
    made = Table(title=TITLE, title_justify="left", padding=(0, 1, 0, 0), box=None)
    made.add_column("", no_wrap=True)
    for column in ("classes", *COLUMNS):
        made.add_column(column, justify="right", no_wrap=True)
    whole = [row for row in rows if row.has_rule]
    packages = list(dict.fromkeys(row.package for row in whole))
    for package in packages:
        made.add_row(package, *_cells([r for r in whole if r.package == package]))
    made.add_section()
    made.add_row(f"{len(packages)} packages", *_cells(whole))
    return made


def _cells(rows: Sequence[Row]) -> Iterator[str]:
    for outcomes in ((), *COLUMNS.values()):
        some = [r for r in rows if not outcomes or r.outcome in outcomes]
        pure = sum(r.only_torch for r in some)
        yield f"{len(some)} / {pure}" if some else ""


def told(rows: Sequence[Row]) -> Iterator[str]:
    """The share that converts, what differs, and the reasons of what is refused."""
    whole = [row for row in rows if row.has_rule]
    for what, some in (
        ("that use only torch", [r for r in whole if r.only_torch]),
        ("in all", whole),
    ):
        read = [r for r in some if r.outcome != NOT_IMPORTED]
        converted = [r for r in read if r.outcome not in (REFUSED, AT_CALL, BROKEN)]
        if read:
            share = f"{len(converted)} of {len(read)} convert, {len(converted) / len(read):.1%}"
            yield f"classes {what}: {share}"
    compared = [r for r in whole if r.checks]
    yield f"compared: {len(compared)} classes in {sum(r.checks for r in compared)} checks"
    for what, key in (("second derivatives", "second"), ("changes in place", "")):
        mended = [r for r in compared if any(_is_second(m) == bool(key) for m in r.mended)]
        yield f"right where the class is silently wrong or raises, {what}: {len(mended)} classes"
    for row in rows:
        if row.outcome in (*SILENT, BROKEN):
            yield f"{row.outcome}: {row.package} {row.path}:{row.line} {row.qualname}: {row.why}"
    yield from _reasons([r for r in whole if r.outcome in (REFUSED, AT_CALL)])


def _is_second(check: str) -> bool:
    return check.startswith("second")


def _reasons(refused: Sequence[Row]) -> Iterator[str]:
    together: dict[str, list[Row]] = {}
    for row in refused:
        name = re.escape(row.qualname.rpartition(".")[2])
        alike = re.sub(r"`.*?`|\(.*?\)|\b\d+\b", "..", re.sub(name, "f", row.why))
        together.setdefault(alike[:80], []).append(row)
    for why, some in sorted(together.items(), key=lambda item: -len(item[1])):
        first = f"{some[0].package} {some[0].path}:{some[0].line}"
        yield f"refused {len(some)}: {why} (as {first})"


if __name__ == "__main__":
    main()
