"""The shape of the package: who may import whom, and passes that leave their input alone."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst
import pytest

from s2s import pipeline
from s2s.ir import Pair, Source
from s2s.source import from_file

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "s2s"

# A module imports from the lines above its own, and from its own package. The first that needs
# torch is `reference`; from there on everything may.
LAYERS = (
    ("ir", "names", "vocabulary", "cache", "cut"),
    ("errors", "syntax", "flow", "report", "sizes", "gitfiles"),
    ("source", "codes", "context"),
    ("infer", "locate", "options"),
    ("sharing", "identity", "asked"),
    ("effects", "parse"),
    ("captures",),
    ("check",),
    ("classes",),
    ("parse_function",),
    ("warn",),
    ("passes", "verify"),
    ("emit",),
    ("tracebacks",),
    ("pipeline", "interface", "load", "passes.example"),
    ("plan", "generated", "prepare", "convert"),
    ("review",),
    ("pages",),
    ("dynamo", "outside"),
    ("private",),
    ("casting",),
    ("reference", "operator", "levels", "scripted", "inductor", "deferred", "runtime"),
    ("decorator", "testing"),
    ("functions",),
    ("commands",),
    ("cli",),
    ("__main__", "s2s"),
)
TORCH_SIDE = (
    "casting",
    "dynamo",
    "outside",
    "private",
    "reference",
    "operator",
    "levels",
    "scripted",
    "inductor",
    "deferred",
    "runtime",
    "decorator",
    "testing",
    "functions",
)
WITH_TORCH = (*TORCH_SIDE, "load")


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name inside it."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__") or "s2s"
        found[name] = ast.parse(path.read_text())
    return found


MODULES = modules()


def imports(name: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, and whether for type checkers alone: "torch", "s2s.ir"..."""
    tree = MODULES[name]
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = ["s2s", *name.split(".")] if name != "s2s" else ["s2s"]
    is_package = (PACKAGE / name.replace(".", "/")).is_dir() or name == "s2s"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = node.level - is_package
            base = package[: len(package) - up] if node.level else []
            inside = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            names = [inside] if node.module else [f"{inside}.{a.name}" for a in node.names]
            yield from ((n, node in typing_only) for n in names)


def layer(name: str) -> int:
    first = name.split(".")[0]
    for place in (name, first):
        for index, names in enumerate(LAYERS):
            if place in names:
                return index
    raise AssertionError(f"s2s/{first}.py has no place in LAYERS: say what it may import")


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name: str) -> None:
    for imported, typing_only in imports(name):
        if not imported.startswith("s2s.") or typing_only:
            continue
        other = imported.removeprefix("s2s.")
        if not (PACKAGE / other.replace(".", "/")).is_dir() and other not in MODULES:
            continue  # a name of the package itself, `from . import __version__`
        same_package = other.split(".")[0] == name.split(".")[0]
        torch_side = layer(name) == layer(other) and name in WITH_TORCH
        assert layer(other) < layer(name) or same_package or torch_side, (
            f"s2s.{name} imports s2s.{other}"
        )


@pytest.mark.parametrize("name", MODULES)
def test_torch_is_imported_by_the_torch_side_alone(name: str) -> None:
    wants = any(imported.split(".")[0] == "torch" for imported, _ in imports(name))
    assert not wants or name.split(".")[0] in WITH_TORCH


def test_reading_and_printing_never_loads_torch() -> None:
    code = "import s2s, s2s.pipeline, s2s.emit.call, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_only_load_compiles_and_runs_text() -> None:
    for name, tree in MODULES.items():
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        # source compares code, and a traceback entry is made by a line that fails
        allowed = {"source": {"compile"}} | dict.fromkeys(
            ("load", "tracebacks"), {"exec", "compile"}
        )
        assert called & {"exec", "eval", "compile"} <= allowed.get(name, set()), name


# --- passes ---------------------------------------------------------------------------------------


def pairs() -> list[Pair]:
    files = [*(ROOT / "tests" / "corpus").glob("*.py"), PACKAGE / "functions" / "layers.py"]
    sources = [s for file in sorted(files) for s in from_file(file, file.stem)]
    return [pipeline.lift(pipeline.read(source)) for source in sources]


PAIRS = pairs()


def test_reading_a_function_again_gives_the_same_pair() -> None:
    for first, again in zip(PAIRS, pairs(), strict=True):
        assert digest(first.forward) == digest(again.forward), first.name
        assert digest(first.backward) == digest(again.backward), first.name


def digest(value: Any) -> Any:
    """All that a value holds, as text."""
    if isinstance(value, cst.CSTNode):
        return cst.Module([]).code_for_node(value)
    if isinstance(value, ast.AST):
        return ast.dump(value, include_attributes=True)
    if isinstance(value, Source):
        return id(value)
    if dataclasses.is_dataclass(value):
        return [digest(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, (tuple, list)):
        return [digest(item) for item in value]
    return repr(sorted(value) if isinstance(value, frozenset) else value)


def test_passes_leave_the_users_tree_alone() -> None:
    before = [digest(pair.source.tree) for pair in PAIRS]
    for pair in PAIRS:
        for form in pipeline.FORMS:
            pipeline.stages(pair, form)
    assert [digest(pair.source.tree) for pair in PAIRS] == before


@pytest.mark.parametrize("form", pipeline.FORMS)
def test_passes_return_a_new_pair_and_leave_the_old_one_alone(form: str) -> None:
    for pair in PAIRS:
        for step in pipeline.FORMS[form]:
            before = digest(pair)
            after = step(pair)
            assert digest(pair) == before, f"{step.__name__} changed {pair.name}"
            pair = after


@pytest.mark.parametrize("form", pipeline.FORMS)
def test_text_and_tree_of_a_statement_say_the_same(form: str) -> None:
    for pair in PAIRS:
        for stage in pipeline.stages(pair, form):
            for statement in (*stage.pair.forward, *stage.pair.backward):
                text = cst.Module([]).code_for_node(statement.node)
                (tree,) = ast.parse(text).body
                assert ast.dump(tree) == ast.dump(statement.tree), (pair.name, stage.name, text)


@pytest.mark.parametrize("form", pipeline.FORMS)
def test_every_form_is_valid_python_with_a_line_map(form: str) -> None:
    for pair in PAIRS:
        emitted = pipeline.emit(pair, form)
        tree = ast.parse(emitted.text)
        defined = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        assert set(emitted.names) <= defined
        assert len(emitted.lines) >= emitted.text.count("\n")
        assert max(emitted.lines) <= pair.source.text.count("\n") + 1


@pytest.mark.parametrize("form", pipeline.FORMS)
def test_the_line_map_leads_back_to_the_users_line(form: str) -> None:
    for pair in PAIRS:
        emitted = pipeline.emit(pair, form)
        users = [line.strip() for line in pair.source.text.split("\n")]
        for text, line in zip(map(str.strip, emitted.text.split("\n")), emitted.lines):
            if line and users.count(text) == 1 and not text.startswith("#"):
                assert users[line - 1] == text, pair.name


def test_every_random_operator_of_pytorch_is_known() -> None:
    """A draw that is taken for arithmetic would be made twice: another mask in the gradient."""
    import torch

    from s2s.vocabulary import RANDOM

    tagged = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            if torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags:
                tagged.add(name)
    assert len(tagged) > 30
    assert tagged <= RANDOM, sorted(tagged - RANDOM)
