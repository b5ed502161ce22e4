"""The ways, one small function each. The order of the list is that of the table."""

from . import compiled, distributed, eager, forward, memory, nested, objects, scripted, transforms
from .base import WAYS, Way

__all__ = [
    "WAYS",
    "Way",
    "compiled",
    "distributed",
    "eager",
    "forward",
    "memory",
    "nested",
    "objects",
    "scripted",
    "transforms",
]
