"""The eager class is there when a function is decorated, and its text compiled when it is used."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s

TEXT = """
import torch
import s2s


@s2s.autograd_script
def seven(x):
    def backward(g):
        return 7 * g

    return torch.sin(x), backward
"""

Function = Callable[..., Any]


@pytest.fixture
def seven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Function:
    """A function that nothing has looked at."""
    path = tmp_path / "somewhere.py"
    path.write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "somewhere", raising=False)
    function: Function = importlib.import_module("somewhere").seven
    return function


def grad(f: Function) -> list[float]:
    x = torch.zeros(2, requires_grad=True)
    f(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def is_compiled(f: Any) -> bool:
    return isinstance(vars(f.Function)["forward"], staticmethod)


def test_nothing_is_compiled_before_a_gradient_is_asked_for(seven: Function) -> None:
    seven(torch.zeros(2))
    copy.deepcopy(seven), s2s.source(seven)
    assert not is_compiled(seven)
    assert grad(seven) == [7, 7]
    assert is_compiled(seven)


def test_who_looks_finds_functions(seven: Any) -> None:
    assert inspect.signature(seven.Function.backward).parameters.keys() == {"ctx", "g"}
    assert inspect.getsource(seven.Function.forward) in s2s.source(seven)
    assert seven.Function.__module__ == seven.Function.forward.__module__ == "somewhere"
    assert seven.Function.forward is seven.Function.forward


def test_a_subclass_inherits_it(seven: Any) -> None:
    class Doubled(seven.Function):  # type: ignore[misc]
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return 2 * seven.Function.backward(ctx, grad)

    assert grad(Doubled.apply) == [14, 14]
    assert grad(seven) == [7, 7]


def test_threads_that_call_first_at_once(seven: Function) -> None:
    start, found = threading.Barrier(4), []

    def call() -> None:
        start.wait()
        found.append(grad(seven))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[7, 7]] * 4


@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_dynamo_may_be_the_first_to_call(seven: Function, backend: str) -> None:
    compiled = torch.compile(lambda x: seven(x) * 1, backend=backend, fullgraph=True)
    assert grad(compiled) == [7, 7]


def test_scripted_code_may_be_the_first_to_call(seven: Function) -> None:
    def scripted(x: Tensor) -> Tensor:
        return torch.ops.s2s.somewhere_seven(x)

    assert grad(torch.jit.script(scripted)) == [7, 7]
