"""One package of ``benchmarks/classes.py``: import its classes, convert them, compare them.

``python -m benchmarks.class_worker FOLDER PACKAGE RESULTS [MODULE:CLASS]...`` appends a line of
JSON per class to RESULTS and goes on after the last one there. A module that is missing is stood in
for by one whose every attribute is a stub: what imports it then imports, and what calls it fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.machinery
import inspect
import json
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import s2s
from s2s.errors import TransformError

from .class_compare import NOT_RUN, compare, runs
from .class_inputs import guess
from .class_recipes import MAKERS, RECIPES, SETUPS
from .class_source import Found, classes_in

__all__ = ["Row", "main", "tried"]

REFUSED, BROKEN, NOT_IMPORTED = "refused", "broken", "not imported"
IMPORT_SECONDS, CLASS_SECONDS = 150, 60


@dataclass
class Row:
    """What came of one class. ``outcome`` is one of class_compare's, "refused" with the code and
    message, "broken" where converting failed in another way, or "not imported"."""

    package: str
    module: str
    qualname: str
    path: str
    line: int
    has_rule: bool
    only_torch: bool
    foreign: tuple[str, ...]
    outcome: str = ""
    why: str = ""
    reached: str = ""
    checks: int = 0
    mended: tuple[str, ...] = ()
    loud: tuple[str, ...] = ()
    both_wrong: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.module}:{self.qualname}"


# --- importing ---------------------------------------------------------------------------------


class _StubType(type):
    """A class of which everything can be asked, and which can be inherited from and called."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name not in ("__version__",):
            raise AttributeError(name)
        return "0.0.0" if name == "__version__" else _stub(name)

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        if STUBS.frozen:
            raise RuntimeError(f"{cls.__name__} is of a module that is not here")
        if cls.__dict__.get("stub") and len(args) == 1 and not keywords:
            if inspect.isroutine(args[0]) or inspect.isclass(args[0]):
                return args[0]  # a decorator
        return super().__call__() if not cls.__dict__.get("stub") else _stub(cls.__name__)

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__
    __lt__ = __le__ = __gt__ = __ge__ = lambda cls, other: False


def _stub(name: str) -> Any:
    return _StubType(name, (), {"stub": True, "__init__": lambda self, *a, **k: None})


class _Stubs:
    """Makes the modules that were found missing."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.frozen = False  # from then on a call of a stub fails

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == stub or name.startswith(f"{stub}.") for stub in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "0.0.0"
        module.__getattr__ = _module_attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _module_attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _stub(name)


STUBS = _Stubs()


def imported(found: Found, folder: Path) -> type:
    """The class object. Raises ImportError with the reason where there is none."""
    if STUBS not in sys.meta_path:
        sys.meta_path.append(STUBS)  # type: ignore[arg-type]
    module = _imported_module(found.module, folder)
    maker = MAKERS.get(f"{found.module}:{found.qualname}")
    if maker is not None:
        return maker(module)
    made: Any = module
    for part in found.qualname.split("."):
        if part == "<locals>":
            raise ImportError(f"made by a function, {found.qualname.partition('.<locals>')[0]}")
        made = getattr(made, part, None)
    if not (isinstance(made, type) and issubclass(made, torch.autograd.Function)):
        raise ImportError(f"{found.module} has no {found.qualname} here")
    return made


def _imported_module(name: str, folder: Path) -> types.ModuleType:
    reason = ""
    for bare in (False, True):
        for _ in range(60):
            try:
                if bare:
                    _bare_parents(name, folder)
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                reason = str(error)
                missing = error.name or ""
                if not missing or missing in STUBS.names:
                    break
                STUBS.names.add(missing)
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {error}"
                break
        _forget(name.split(".")[0])
    raise ImportError(reason)


def _forget(root: str) -> None:
    for name in [n for n in sys.modules if n == root or n.startswith(f"{root}.")]:
        del sys.modules[name]


def _bare_parents(name: str, folder: Path) -> None:
    """The packages around a module without what their ``__init__`` does."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])
        if parent in sys.modules:
            continue
        module = types.ModuleType(parent)
        module.__path__ = [str(folder.joinpath(*parts[:end]))]
        module.__spec__ = importlib.machinery.ModuleSpec(parent, None, is_package=True)
        module.__version__ = "0.0.0"
        module.__getattr__ = _module_attribute  # type: ignore[method-assign]
        sys.modules[parent] = module


# --- one class ---------------------------------------------------------------------------------


class OutOfTime(BaseException):
    """Not an Exception, so that nothing that is being compared catches it."""


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def from_class(cls: type) -> Callable[..., Any]:
    return s2s.from_function(cls)  # type: ignore[attr-defined, no-any-return]


def tried(
    package: str, found: Found, folder: Path, convert: Callable[[type], Callable[..., Any]]
) -> Row:
    """Convert one class and compare what came out with the class."""
    row = Row(
        package, **{k: v for k, v in dataclasses.asdict(found).items()}, only_torch=found.only_torch
    )
    start = time.perf_counter()
    try:
        STUBS.frozen = False
        with _limit(IMPORT_SECONDS):
            cls = imported(found, folder)
        STUBS.frozen = True
        with _limit(CLASS_SECONDS):
            _convert_and_compare(row, cls, convert)
    except ImportError as error:
        row.outcome, row.why = NOT_IMPORTED, str(error)[:300]
    except OutOfTime:
        row.outcome = row.outcome or NOT_RUN
        row.why = row.why or "out of time"
    row.seconds = round(time.perf_counter() - start, 2)
    return row


def _convert_and_compare(
    row: Row, cls: type, convert: Callable[[type], Callable[..., Any]]
) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = convert(cls)
    except TransformError as error:
        row.outcome, row.why = REFUSED, f"{error.code} {error.diagnostics[0].message}"
        return
    except Exception as error:
        row.outcome, row.why = BROKEN, f"{type(error).__name__}: {error}"[:300]
        return
    row.outcome, row.why = NOT_RUN, "out of time"
    example, row.reached = _example(row, cls)
    if not row.reached:
        row.why = "no inputs found on which it runs"
        return
    verdict = compare(cls.apply, ours, example)  # type: ignore[attr-defined]
    row.outcome, row.why, row.checks = verdict.outcome, verdict.why[:600], verdict.checks
    row.mended, row.loud = tuple(verdict.mended), tuple(line[:300] for line in verdict.loud)
    row.both_wrong = tuple(verdict.both_wrong)


def _example(row: Row, cls: type) -> tuple[list[Any], str]:
    recipe = RECIPES.get(row.name)
    if recipe is not None:
        example = recipe()
        return example, runs(cls.apply, example)  # type: ignore[attr-defined]
    return guess(cls) or ([], "")


# --- one package -------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    folder, package, results = Path(arguments[0]), arguments[1], Path(arguments[2])
    only = set(arguments[3:])
    torch.set_num_threads(1)
    # memory that a class leaves as it found it is filled alike, and is no difference
    torch.use_deterministic_algorithms(True, warn_only=True)
    _alone()
    here = folder / package
    sys.path.insert(0, str(here))
    sys.path += [str(p) for p in sorted(folder.iterdir()) if p.is_dir() and p != here]
    with contextlib.suppress(Exception):
        SETUPS.get(package, lambda: None)()
    done = _names_in(results)
    begun = results.with_suffix(".begun")
    for found in classes_in(here):
        name = f"{found.module}:{found.qualname}"
        if name in done or (only and name not in only):
            continue
        if begun.exists() and begun.read_text() == name:  # the last try died here
            row = Row(package, **dataclasses.asdict(found), only_torch=found.only_torch)
            row.outcome, row.why = NOT_RUN, "the process died"
        else:
            begun.write_text(name)
            row = tried(package, found, here, from_class)
        with results.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(row), default=str) + "\n")
    begun.unlink(missing_ok=True)


def _alone() -> None:
    """A process group of one, so that collectives of the default group run."""
    if torch.distributed.is_available():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


def _names_in(results: Path) -> set[str]:
    if not results.exists():
        return set()
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {f"{row['module']}:{row['qualname']}" for row in rows}


if __name__ == "__main__":
    main(sys.argv[1:])
