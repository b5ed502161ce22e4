"""How functions look to Dynamo, said without the seconds that importing it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["constant_for_dynamo", "untraced"]

F = TypeVar("F", bound=Callable[..., Any])


def constant_for_dynamo(fn: F) -> F:
    """``torch._dynamo.assume_constant_result``: what it returns is taken as it is, once a trace."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


def untraced(fn: F) -> F:
    """The function, to run as it is with all that it calls.

    In the eager part of a program, between two graphs, Dynamo looks at every function that is
    called. Compiling text, for one, is not for it.
    """
    eval_frame: Any = torch._C._dynamo.eval_frame
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)  # here, and in what it calls
    eval_frame.set_code_exec_strategy(fn.__code__, strategy)
    return fn
