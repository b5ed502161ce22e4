"""A sample of the grid: s2s gives the user's gradient, or an error, in every way to run it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from grid.judge import REFUSED, RIGHT, WRONG, Case, NotApplicable, Wrong, judge, same
from grid.peers import PARTS, STYLES, peers
from grid.run import OURS, TINY, cells, run, summary
from grid.subjects import CORPUS, UNTRUE, subjects
from grid.ways import WAYS
from grid.ways.eager import eager

sys.path.insert(0, str(Path(__file__).parents[1]))


def test_nothing_is_silently_wrong() -> None:
    found = list(run(cells(TINY, styles=[OURS])))
    wrong = [f"{c.function}, {c.way}: {c.why}" for c in found if c.outcome == WRONG]
    assert not wrong, "\n".join(wrong)
    counts = summary(found)[OURS]
    assert counts[RIGHT] > 10 * counts[REFUSED]
    # every way of the sample is right for some function, but for those that PyTorch itself lacks
    never = {c.way for c in found} - {c.way for c in found if c.outcome == RIGHT}
    assert never <= LACKING


# PyTorch has no functionalize rule for autograd.Function, and symbolic_trace cannot follow a
# function that looks at its inputs; forward mode has no form inside scripted or compiled code
LACKING = {
    "functionalize",
    "fx.symbolic_trace",
    "jit.script, dual numbers",
    "compile(jvp)",
    "unused outputs",  # of functions with several outputs alone
}


def test_the_grid_sees_a_rule_that_is_dropped() -> None:
    """The ways can fail: each of the untrue functions with PyTorch's own derivative in place."""
    for name in UNTRUE:
        case = subjects()[name]
        dropped = Case(name, PARTS[name].forward, case.truth, case.args, case.flags)
        outcomes = Counter(
            judge(way.run, dropped)[0]
            for way in WAYS
            if way.cost == 0 and way.group in ("eager", "forward", "transforms", "scripted")
        )
        assert outcomes[WRONG] > 35, outcomes
        assert outcomes[RIGHT] <= 8, outcomes


def test_the_peers_are_right_in_plain_eager_calls() -> None:
    for style in STYLES:
        for name, case in peers(style).items():
            assert judge(eager, case) == (RIGHT, ""), (style, name)


def test_known_holes_of_the_peers_show() -> None:
    """What PyTorch does to hand-written code; where it mends this, the README has to say so."""
    found = {
        (style, way): cell.outcome
        for style, way in [
            ("ctx", "second derivative"),
            ("ctx", "export not strict, trained"),
            ("setup_context", "compile(func.grad)"),
            ("custom_op", "jvp"),
        ]
        for cell in run(cells(TINY, ["seven_saved"], [way], [style]))
    }
    assert set(found.values()) == {WRONG}, found


def test_judge() -> None:
    case = subjects()["seven"]

    def raises(error: BaseException) -> object:
        def way(_: Case) -> None:
            raise error

        return judge(way, case)[0]

    assert raises(Wrong("x")) == WRONG
    assert raises(NotApplicable("x")) == "-"
    assert raises(AssertionError("x")) == REFUSED
    with pytest.raises(Wrong, match=r"\[1, 1\] for \[1, 2\]"):
        same(torch.ones(2), torch.tensor([1.0, 2.0]))
    with pytest.raises(Wrong, match="2 values for 1"):
        same([torch.ones(2)] * 2, [torch.ones(2)])


def test_names_are_unique_and_the_sample_is_wide() -> None:
    assert len({w.name for w in WAYS}) == len(WAYS) > 90
    assert len(subjects()) >= 30 and len(CORPUS) >= 15
    full = {(c.name, w.name) for _, c, w in cells((99, 99, 99, 99), styles=[OURS])}
    assert len(full) == len(subjects()) * len(WAYS)


def test_the_command(tmp_path: Path) -> None:
    from benchmarks.grid import main

    file = tmp_path / "cells.json"
    arguments = ["--functions", "seven*", "--ways", "eager", "--json", str(file)]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "right / refused / silently wrong" in result.output
    rows = json.loads(file.read_text())["cells"]
    assert {r["style"] for r in rows} == {OURS, *STYLES}
    assert all(r["outcome"] == RIGHT for r in rows if r["style"] == OURS and r["why"] == "")
