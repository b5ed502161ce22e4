"""Custom gradients for PyTorch, written once as a closure and compiled to readable Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functions as functions
    from .context import needs_input_grad, non_differentiable
    from .decorator import autograd_script, from_function, source
    from .errors import GradientWarning, TransformError
    from .reference import autograd_function

__all__ = [
    "GradientWarning",
    "TransformError",
    "autograd_function",
    "autograd_script",
    "from_function",
    "needs_input_grad",
    "non_differentiable",
    "source",
]
__version__ = "0.1.0"

# Where the public names live. Each is imported when it is first asked for, so that the command,
# which only reads files, does not wait for torch.
_HOMES = {
    "GradientWarning": "errors",
    "TransformError": "errors",
    "autograd_function": "reference",
    "autograd_script": "decorator",
    "from_function": "decorator",
    "needs_input_grad": "context",
    "non_differentiable": "context",
    "source": "decorator",
}

# The submodule `source` is imported here, where its name in this package can be freed for the
# function: an import later on would put the module in the function's place.
importlib.import_module(f"{__name__}.source")
globals().pop("source", None)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name == "functions":
        value = importlib.import_module(f"{__name__}.functions")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "functions"})
