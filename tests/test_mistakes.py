"""The mutation test: it is repeatable, and s2s notices what the hand-written class does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import mistakes

SOME = ("swish", "linear", "perturbed", "huber")


@pytest.fixture(scope="module")
def subjects() -> tuple[mistakes.Subject, ...]:
    return mistakes.subjects(SOME)


@pytest.fixture(scope="module")
def outcomes(subjects: tuple[mistakes.Subject, ...]) -> list[mistakes.Outcome]:
    return [mistakes.tried(mutant) for mutant in mistakes.mutants(subjects, 0, 21)]


def test_the_same_seed_makes_the_same_mistakes(subjects: tuple[mistakes.Subject, ...]) -> None:
    def made(seed: int) -> list[tuple[str, str, str, str | None]]:
        found = mistakes.mutants(subjects, seed, 60)
        return [(m.kind, m.where, m.closure, m.written_out) for m in found]

    assert made(1) == made(1) != made(2)
    assert {kind for kind, *_ in made(1)} == set(mistakes.KINDS)


def test_a_mistake_changes_the_text_in_both_forms(subjects: tuple[mistakes.Subject, ...]) -> None:
    for mutant in mistakes.mutants(subjects, 0, 60):
        right = mistakes.text_of(mutant.subject.closure)
        assert mutant.closure != right, mutant.where
        assert mutant.written_out != mistakes.text_of(mutant.subject.written_out), mutant.where


def test_each_kind_is_noticed_at_least_as_often_as_by_the_class(
    outcomes: list[mistakes.Outcome],
) -> None:
    rows = mistakes.summary(outcomes)
    assert [row["kind"] for row in rows] == [*dict.fromkeys(o.kind for o in outcomes), "all"]
    for row in rows:
        assert set(row["s2s"]) == set(mistakes.S2S_STAGES)
        assert set(row["class"]) == set(mistakes.CLASS_STAGES)
        assert sum(row["s2s"].values()) == row["mistakes"]
        assert sum(row["class"].values()) == row["compared"] <= row["mistakes"]
        missed = row["s2s"]["never"]
        also = row["class"]["never"] + row["mistakes"] - row["compared"]
        assert missed <= also, row["kind"]
    everything = rows[-1]
    assert everything["mistakes"] + everything["equivalent"] == 21
    assert everything["s2s"]["error"] > everything["class"]["definition"]


def test_the_command_writes_every_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = mistakes.subjects(("swish",))
    monkeypatch.setattr(mistakes, "subjects", lambda: few)
    file = tmp_path / "mistakes.json"
    result = CliRunner().invoke(mistakes.main, ["--count", "5", "--json", str(file)])
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert set(report) == {"s2s", "torch", "seed", "table", "mistakes"}
    assert len(report["mistakes"]) == 5
    assert set(report["mistakes"][0]) == {f.name for f in dataclasses.fields(mistakes.Outcome)}
