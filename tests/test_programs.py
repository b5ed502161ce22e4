"""Random programs: what the compiled form gives is what the function as written gives."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import s2s
from programs import program
from s2s.reference import autograd_function

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # these gradients are arbitrary

Function = Callable[..., Any]
# seeds of programs that once came out different
FOUND = [110, 163, 195, 196, 10016, 10025, 10051, 10067, 10136, 10143, 10161, 10224]
FOUND += [30105, 40097, 214, 940, 1106, 1456]
CALLS = [(1, True, True, True), (2, False, True, False), (3, True, False, True)]


def load(text: str, name: str, decorator: Function) -> Function:
    """The function of a program, decorated, with its text where both decorators look for it."""
    text = text.replace("@s2s.autograd_script", "@decorator")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "programs", "decorator": decorator}
    exec(compile(text, name, "exec"), scope)
    made: Function = scope["f"]
    return made


def numbers(f: Function, k: int, flag: bool, on_x: bool, on_w: bool) -> tuple[list[Any], Any]:
    """Outputs and first derivatives, and the second ones, or None where they are refused."""
    torch.manual_seed(k)
    x = torch.randn(3, dtype=torch.double, requires_grad=on_x)
    w = torch.randn(3, dtype=torch.double, requires_grad=on_w)
    inputs = [t for t in (x, w) if t.requires_grad]
    out = f(x, w, k, flag)
    outputs: Sequence[Tensor] = out if isinstance(out, tuple) else (out,)
    loss = sum((o * c).sum() for o, c in zip(outputs, (1.3, 0.7)))
    first = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
    total = sum((g * g * c).sum() for g, c in zip(first, (1.1, 0.6)) if g is not None)
    second: Any = [torch.zeros_like(t) for t in inputs]
    if isinstance(total, Tensor) and total.requires_grad:
        try:
            found = torch.autograd.grad(total, inputs, allow_unused=True)
            second = [z if g is None else g for g, z in zip(found, second)]
        except RuntimeError as error:
            assert "second derivative" in str(error)
            second = None
    return [*outputs, *first], second


def compare(text: str, name: str, save: Any = "auto") -> None:
    reference = load(text, f"<reference {name}>", autograd_function)
    compiled = load(text, f"<compiled {name} {save}>", s2s.autograd_script(save=save))
    for call in CALLS:
        for a, b in zip(plain(compiled, *call[:2]), plain(reference, *call[:2]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        wanted, wanted_second = numbers(reference, *call)
        got, got_second = numbers(compiled, *call)
        for a, b in zip(got, wanted, strict=True):
            if a is None or b is None:
                assert a is b, s2s.source(compiled)
            else:
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        if got_second is not None and wanted_second is not None:
            torch.testing.assert_close(got_second, wanted_second, rtol=1e-8, atol=1e-11)


def plain(f: Function, k: int, flag: bool) -> list[Tensor]:
    """Outputs without gradients, and where the random numbers are then."""
    x, w = _inputs(k)
    with torch.no_grad():
        out = f(x, w, k, flag)
    return [*(out if isinstance(out, tuple) else (out,)), x, w, torch.get_rng_state()]


def seeded(seed: int) -> str:
    source = random.Random(seed)
    return program(lambda options: source.choice(list(options)))


@pytest.mark.parametrize("seed", FOUND)
@pytest.mark.parametrize("save", ["auto", "least", "all"])
def test_programs_that_once_differed(seed: int, save: str) -> None:
    compare(seeded(seed), f"seed {seed}", save)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    text = program(lambda options: data.draw(st.sampled_from(list(options))))
    save = data.draw(st.sampled_from(["auto", "least", "all"]))
    compare(text, f"drawn {hash(text)}", save)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6))
def test_random_programs_under_torch_compile(seed: int) -> None:
    torch._dynamo.reset()
    f = load(seeded(seed), f"<compile {seed}>", s2s.autograd_script)
    compiled = torch.compile(f, backend="eager")
    wanted, _ = numbers(f, 2, False, True, True)
    x, w = (t.detach().requires_grad_() for t in _inputs(2))
    out = compiled(x, w, 2, False)
    outputs = out if isinstance(out, tuple) else (out,)
    loss = sum((o * c).sum() for o, c in zip(outputs, (1.3, 0.7)))
    first = torch.autograd.grad(loss, (x, w), allow_unused=True)
    for a, b in zip([*outputs, *first], wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_programs_in_torchscript(start: int) -> None:
    refused = 0
    for seed in range(start, start + 10):
        f = load(seeded(seed), f"<scripted {seed}>", s2s.autograd_script)
        try:
            forward, backward = f.scripted.forward, f.scripted.backward
        except s2s.TransformError as error:
            assert "S2S301" in str(error)  # `sum` of a list of tensors, which it has not got
            refused += 1
            continue
        for k, flag, *_ in CALLS:
            x, w = (t.requires_grad_() for t in _inputs(k))
            torch.manual_seed(k)
            out = f(x, w, k, flag)
            outputs = out if isinstance(out, tuple) else (out,)
            grads = [torch.full_like(o, 1.3) for o in outputs]
            wanted = torch.autograd.grad(outputs, (x, w), grads, allow_unused=True)
            torch.manual_seed(k)
            found = forward(x.detach(), w.detach(), k, flag)
            saved: Any = ()
            if isinstance(found, tuple) and isinstance(found[-1], tuple):
                found, saved = found
            for a, b in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
                torch.testing.assert_close(a, b.detach())
            got = backward(*grads, *saved)
            for a, b in zip(got, wanted):
                zero = torch.zeros_like(x)
                torch.testing.assert_close(zero if a is None else a, zero if b is None else b)
    assert refused < 5


def _inputs(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(3, dtype=torch.double), torch.randn(3, dtype=torch.double)
