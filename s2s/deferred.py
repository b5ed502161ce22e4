"""A class whose text is compiled when one of its methods is first looked at.

Python takes longer to compile the text of a class than s2s takes for all the rest of a decoration
that the cache answers, and many a function of a library is never called. The class itself is there
from the start, since ``f.Function`` is; what it does comes with the first call that asks for a
gradient, or with whoever else looks: ``inspect``, Dynamo, a subclass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["deferred"]

_METHODS = ("forward", "backward")


def deferred(
    name: str, module: str, make: Callable[[], type[torch.autograd.Function]]
) -> type[torch.autograd.Function]:
    """The class that ``make`` gives, made at the first look at its forward or backward."""
    body: dict[str, Any] = {key: _Method(make) for key in _METHODS}
    made: type[torch.autograd.Function] = type(
        name, (torch.autograd.Function,), {"__module__": module, **body}
    )
    return made


class _Method:
    """Stands in a class for a static method, and puts it in its own place.

    Two threads that look at once both make the class, and what one of them puts in stays good:
    no lock is needed, which a forked process might find locked.
    """

    def __init__(self, make: Callable[[], type[torch.autograd.Function]]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = vars(self._make())
        for key in _METHODS:
            setattr(self._owner, key, made[key])
        return made[self._name].__get__(instance, owner)
