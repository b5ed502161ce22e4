"""`s2s.testing.check`: it passes what is right, and fails what is not, for the reason it says."""

from __future__ import annotations

import math
from typing import Any, List, Optional

import pytest
import torch
from torch import Tensor

import cases
import s2s
from cases import Sample, flag, samples
from s2s import functions
from s2s.testing import FORMS, Line, Report, check, undecorated

# what the corpus says of a function, and `check` therefore does not find right
FAILS = {
    "clip_gradient": {"backward is linear"},
    "implicit_root": {"gradgradcheck"},  # its backward detaches: the second derivative is zero
}


@pytest.fixture
def x() -> Tensor:
    return torch.tensor([[0.5, -0.25], [1.75, -0.75]], dtype=torch.double)


def failed(report: Report) -> List[str]:
    return [line.what for line in report.of("failed")]


# --- what is right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", samples(), ids=str)
def test_the_corpus(sample: Sample) -> None:
    args, keywords = sample.arguments()
    surrogate = not flag(sample.name, "TRUE_GRADIENT")
    report = check(sample.f(), *args, surrogate=surrogate, raise_exception=False, **keywords)
    assert set(failed(report)) == FAILS.get(sample.name, set()), str(report)
    refused = {line.what for line in report.of("refused")}
    assert not refused & {"pair", "gradcheck"}, str(report)


def ramp(v: Tensor, slope: float = 1.0) -> Tensor:
    """The integral of a triangle."""
    inside = torch.clamp(v, -1 / slope, 1 / slope)
    return inside - slope * inside * inside.abs() / 2


SMOOTH: List[Any] = [
    (functions.atan, (2.0,), lambda v, slope: torch.atan(math.pi / 2 * slope * v) / math.pi),
    (functions.fast_sigmoid, (25.0,), lambda v, slope: v / (1 + slope * v.abs())),
    (functions.triangle, (1.0,), ramp),
    (functions.sigmoid, (4.0,), lambda v, slope: torch.sigmoid(slope * v)),
    (functions.round_ste, (), lambda v: v),
    (functions.sign, (), lambda v: v.clamp(-1, 1)),
    (functions.clamp, (-1.0, 1.0), lambda v, low, high: v),
    (functions.gradient_reversal, (0.5,), lambda v, alpha: -alpha * v),
    (functions.scale_gradient, (0.5,), lambda v, scale: scale * v),
]


@pytest.mark.parametrize(("f", "rest", "smooth"), SMOOTH, ids=lambda v: getattr(v, "__name__", ""))
def test_surrogates_are_the_derivatives_of_smooth_functions(
    f: Any, rest: Any, smooth: Any, x: Tensor
) -> None:
    report = check(f, x, *rest, surrogate=True, smooth=smooth)
    assert report and not report.of("refused")


def test_single_precision_keywords_and_none(x: Tensor) -> None:
    weight = torch.ones(3, 2)
    report = check(functions.linear, x.float(), weight=weight, bias=None, forms=["eager", "func"])
    assert report.ok and not report.of("refused"), str(report)


def test_the_random_state_is_left_alone(x: Tensor) -> None:
    before = torch.get_rng_state()
    check(functions.swish, x, forms=["eager"])
    assert torch.equal(before, torch.get_rng_state())


def test_inputs_are_left_alone(x: Tensor) -> None:
    kept = x.clone().requires_grad_()
    check(functions.swish, kept)
    assert kept.grad is None and torch.equal(kept, x)


# --- what is wrong ----------------------------------------------------------------------------------


@s2s.autograd_script
def untrue(x: Tensor):
    def backward(g):
        return 7 * g * x

    return x * x, backward


def test_an_untrue_gradient_fails_gradcheck_alone(x: Tensor) -> None:
    with pytest.raises(AssertionError, match="FAILED  gradcheck") as caught:
        check(untrue, x)
    assert "ok      eager" in str(caught.value)
    report = check(untrue, x, raise_exception=False)
    assert failed(report) == ["gradcheck", "gradcheck, forward mode"]  # the second is its own
    assert check(untrue, x, surrogate=True)
    wrong = check(untrue, x, surrogate=True, smooth=lambda x: 3 * x * x, raise_exception=False)
    assert failed(wrong) == ["backward is that of smooth"]
    assert check(untrue, x, surrogate=True, smooth=lambda x: 3.5 * x * x)


@s2s.autograd_script
def mixes_rows(x: Tensor):
    def backward(g):
        return g - g.mean(0)

    return x * 1, backward


@s2s.autograd_script
def clipped(x: Tensor):
    def backward(g):
        return g.clamp(-0.1, 0.1)

    return x * 1, backward


@s2s.autograd_script
def dead(x: Tensor, y: Tensor):
    def backward(g):
        return g, 0 * g

    return x + y, backward


@s2s.autograd_script
def forgets(x: Tensor, y: Tensor):
    def backward(g):
        return g, None

    return x + y, backward


@s2s.autograd_script
def wavers(x: Tensor):
    positive = bool((x > 0).any())

    def backward(g):
        return g if positive else None

    return x * 1, backward


def test_what_a_surrogate_may_not_do(x: Tensor) -> None:
    def failures(f: Any, *inputs: Tensor) -> List[str]:
        return failed(check(f, *inputs, surrogate=True, forms=["eager"], raise_exception=False))

    assert failures(mixes_rows, x) == ["backward keeps rows apart"]
    assert failures(clipped, x) == ["backward is linear"]
    assert failures(dead, x, x) == ["every input has a gradient"]
    assert failures(wavers, x) == ["None where it was None"]
    assert failures(forgets, x, x) == []
    report = check(forgets, x, x, surrogate=True, forms=[])
    assert Line("every input has a gradient", "ok", "None for y") in report.lines


def test_a_form_that_disagrees_fails(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrue, "backward", lambda g, x: g * x)
    report = check(untrue, x, surrogate=True, raise_exception=False)
    assert failed(report) == ["pair"]
    assert "gradient 0" in report.of("failed")[0].why


def test_what_is_refused_is_listed_with_the_reason() -> None:
    @s2s.autograd_script
    def scaled(x: Tensor, by: object):
        def backward(g):
            return g * by.factor, None  # type: ignore[attr-defined]

        return x * by.factor, backward  # type: ignore[attr-defined]

    class By:
        factor = 2.0

    report = check(scaled, torch.ones(2, dtype=torch.double), By())
    lines = {line.what: line for line in report.of("refused")}
    assert set(lines) == {"op", "script"}
    assert "by: object" in lines["op"].why
    assert "refused op" in str(report)


def test_an_error_in_a_plain_call_fails(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    from s2s import testing

    def broken(case: Any, f: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(testing, "_agree", broken)
    report = check(functions.swish, x, raise_exception=False)
    assert failed(report) == ["eager"] and "out of order" in str(report)
    assert [line.what for line in report.of("refused")] == ["op", "script"]


# --- usage --------------------------------------------------------------------------------------------


def test_wrong_usage(x: Tensor) -> None:
    with pytest.raises(TypeError, match="not decorated"):
        check(torch.sin, x)
    with pytest.raises(ValueError, match="one of eager, op"):
        check(functions.swish, x, forms=["fast"])
    with pytest.raises(ValueError, match="carry a gradient"):
        check(functions.round_ste, torch.ones(2, dtype=torch.long))
    with pytest.raises(ValueError, match="surrogate=True"):
        check(functions.swish, x, smooth=torch.sigmoid)


def test_forms_choose(x: Tensor) -> None:
    for form in FORMS:
        report = check(functions.swish, x, forms=[form])
        named = [line.what for line in report.lines if not line.what.startswith("grad")]
        assert named and all(what.startswith(form) for what in named)


# --- the function as it was written ---------------------------------------------------------------------


def make(scale: float) -> Any:
    @s2s.autograd_script
    def scaled(x: Tensor, *, extra: Optional[float] = None):
        """Its docstring."""

        def backward(g):
            return g * scale, None

        return x * scale + (extra or 0.0), backward

    return scaled


class Owner:
    def __init__(self) -> None:
        self.__factor = 3.0

    @s2s.autograd_script
    def scale(self, x):
        factor = self.__factor

        def backward(g):
            return g * factor

        return x * factor, backward


def test_undecorated_is_the_users_function(x: Tensor) -> None:
    for scale in (2.0, 5.0):
        plain = undecorated(make(scale))
        out, backward = plain(x, extra=1.0)
        assert torch.equal(out, x * scale + 1)
        assert torch.equal(backward(x)[0], x * scale)
        assert plain.__doc__ == "Its docstring." and plain.__name__ == "scaled"
    out, backward = undecorated(Owner.scale)(Owner(), x)
    assert torch.equal(out, 3 * x) and torch.equal(backward(x), 3 * x)
    assert check(Owner().scale, x, forms=["eager", "func", "pair"])


def test_every_function_of_the_corpus_is_made_again() -> None:
    for name in cases.NAMES:
        for number, f in enumerate(cases.functions(name)):
            sample = Sample(name, number, 0)
            want = sample.bind(cases.functions(name, "plain")[number])(*sample.tensors())
            plain = undecorated(f)
            owner = getattr(f, "__self__", None)

            def forward(*args: Any, plain: Any = plain, owner: Any = owner, **keywords: Any) -> Any:
                *outputs, _ = plain(*(() if owner is None else (owner,)), *args, **keywords)
                return outputs[0] if len(outputs) == 1 else tuple(outputs)

            got = sample.bind(forward)(*sample.tensors())
            for one, other in zip(got, want, strict=True):
                torch.testing.assert_close(one, other, equal_nan=True)
