"""What s2s calls of PyTorch that is not public and that not every version has under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import _symbolic_trace

from .dynamo import constant_for_dynamo

__all__ = ["CACHED_CASTS_ARE_DETACHED", "is_exporting", "is_fx_tracing", "original_backend"]


@constant_for_dynamo
def is_exporting() -> bool:
    """Is ``torch.export`` at work? To the Dynamo of some older versions it always is."""
    return torch.compiler.is_exporting()


def original_backend(compiler: Any) -> Any:
    """The backend that was given to ``torch.compile``, of what Dynamo has made of it."""
    for name in ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable"):  # now, in 2.8
        if hasattr(compiler, name):
            return getattr(compiler, name)
    return None


def _flag() -> bool:
    return bool(_symbolic_trace._is_fx_tracing_flag)


# Is ``torch.fx.symbolic_trace`` at work? ``torch.fx``'s own answer to that warns. Each thread has
# its own from PyTorch 2.14 on
is_fx_tracing: Callable[[], bool] = getattr(_symbolic_trace, "_get_is_fx_tracing", _flag)


# Is a weight that autocast has cast under ``no_grad``, as forward of a Function runs, a constant
# to all that it is cast for afterwards? To try it out takes a millisecond of every import
CACHED_CASTS_ARE_DETACHED = torch.__version__ < "2.11"
