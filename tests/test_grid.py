"""A sample of the grid: s2s gives the user's gradient, or an error, in every way to run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from grid.judge import REFUSED, RIGHT, WRONG, Case, NotApplicable, Wrong, judge, same
from grid.peers import PARTS, STYLES, peers
from grid.pool import run_apart
from grid.run import OURS, TINY, cells, run, summary
from grid.subjects import CORPUS, UNTRUE, subjects
from grid.ways import WAYS
from grid.ways.eager import eager

sys.path.insert(0, str(Path(__file__).parents[1]))


# PyTorch has no functionalize rule for autograd.Function, and symbolic_trace cannot follow a
# function that looks at its inputs
LACKING = {
    "functionalize",
    "fx.symbolic_trace",
    "checkpoint inside func.grad",
    "jit.trace of func.grad",
    "compile of a scripted call",
    "export of func.grad, not strict",
    "export of func.grad, strict",
    "export of vjp, not strict",
    "export of vjp, strict",
    "export of vmap of grad",
    "make_fx symbolic of vjp",
    "second derivative of compile, aot_eager",
    "two dual levels of jvp",
    "jit.save, load without the function's module",  # nothing defines its operator
    # what a tensor of an enclosing transform would need is a parameter of its own
    "a traced tensor is captured, grad",
    "a traced tensor is captured, jvp",
}


def test_nothing_is_silently_wrong() -> None:
    found = list(run(cells(TINY, styles=[OURS])))
    wrong = [c for c in found if c.outcome == WRONG]
    assert not wrong, "\n".join(f"{c.function}, {c.way}: {c.why}" for c in wrong)
    counts = summary(found)[OURS]
    assert counts[RIGHT] > 10 * counts[REFUSED]
    # every way of the sample is right for some function, but for those that PyTorch itself lacks
    never = {c.way for c in found if c.outcome == REFUSED}
    never -= {c.way for c in found if c.outcome == RIGHT}
    assert never <= LACKING


# what these compare is no gradient: values, shapes, memory, zero gradients
NOT_THE_RULE = {
    "no grad",
    "zero and missing gradients",
    "empty",
    "vmap",
    "vmap with in_dims and out_dims",
    "vmap over one input",
    "vmap in vmap",
    "vmap with chunk_size",
    "saved_tensors_hooks see every saved tensor",
    "outputs and inputs die without gc",
    "saved tensors die with backward",
    "fake tensors",
    "meta tensors",
}


def test_every_way_sees_a_rule_that_is_dropped() -> None:
    """The ways can fail: the untrue functions with PyTorch's own derivative in place of theirs."""
    blind = set()
    for way in (w for w in WAYS if w.cost == 0 or w.group == "distributed"):
        outcomes = set()
        for name in UNTRUE if way.cost == 0 else UNTRUE[:1]:
            case = subjects()[name]
            dropped = Case(name, PARTS[name].forward, case.truth, case.args, case.flags)
            outcomes.add(judge(way.run, dropped)[0])
        if RIGHT in outcomes and WRONG not in outcomes:
            blind.add(way.name)
    assert blind == NOT_THE_RULE


class Careless(torch.autograd.Function):
    """Everything on ctx: what ``save_for_backward`` is there for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.y = torch.tanh(x) * 1.5
        ctx.x = x
        return ctx.y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return 7 * g * ctx.y + 0 * ctx.x


def test_the_ways_about_memory_see_tensors_on_ctx() -> None:
    case = subjects()["seven_out"]
    careless = Case(case.name, Careless.apply, case.truth, case.args, case.flags)
    seen = {
        way.name for way in WAYS if way.group == "memory" and judge(way.run, careless)[0] == WRONG
    }
    assert seen >= {
        "saved_tensors_hooks see every saved tensor",
        "no live tensors after 200 rounds without gc",
        "outputs and inputs die without gc",
        "saved tensors die with backward",
    }


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
            ("setup_context", "second derivative of compile, eager backend"),
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

    file = tmp_path / "cells.jsonl"

    def rows(*arguments: str) -> list[dict[str, Any]]:
        given = ["--ways", "eager", "--json", str(file), *arguments]
        result = CliRunner().invoke(main, given, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert "right / refused / silently wrong" in result.output
        about, *found = map(json.loads, file.read_text().splitlines())
        assert about["torch"] == torch.__version__
        return found

    first = rows("--functions", "seven")
    assert {r["style"] for r in first} == {OURS, *STYLES}
    assert all(r["outcome"] == RIGHT for r in first if r["style"] == OURS and r["why"] == "")
    # a run that is cut off goes on where it was, to the line
    file.write_text(file.read_text()[:-20])
    again = rows("--functions", "seven,seven_out", "--resume")
    assert again[: len(first) - 1] == first[:-1]
    assert (
        len({(r["style"], r["function"], r["way"]) for r in again}) == len(again) == 2 * len(first)
    )


def test_a_cell_that_gives_no_answer_does_not_stop_the_run() -> None:
    keys = [(OURS, "seven", "eager"), (OURS, "seven", "no grad")]
    found = list(run_apart(keys, patience=0.01))
    assert [(c.outcome, c.why) for c in found] == [(REFUSED, "no answer in 0.01 seconds")] * 2
