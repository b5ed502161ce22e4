"""The Function classes that a user names on the command line. Nothing is imported or run."""

from __future__ import annotations

from ..locate import Module, Target, named, offers, origins
from ..source import parse_text, text_in
from .find import FunctionClass, classes_in

__all__ = ["classes", "classes_of"]


def classes_of(
    module: Module, content: bytes | None = None, shown: str = ""
) -> tuple[FunctionClass, ...]:
    """The Function classes of a file, in the order of the text; ``shown`` is the file's name in
    what is said of them.

    Raises TransformError where the file cannot be read.
    """
    text = text_in(module.path, content, shown)
    return classes_in(text, shown or str(module.path), module.name, parse_text(text))


def classes(target: Target) -> tuple[FunctionClass, ...]:
    """The Function classes that a target names; none where it names something else.

    A class that the module imports is looked for where it comes from, and a package that has none
    itself stands for those that it imports from its own modules, as with functions.

    Raises LocateError where the name may be that of several, and TransformError where the file
    cannot be read.
    """
    module = target.module
    own = classes_of(module)
    if target.name:
        return named(module, own, target.name) or _imported(module, target.name)
    if own or not module.is_package:
        return own
    found = [cls for name in offers(module) for cls in _imported(module, name)]
    return tuple({(cls.file, cls.node.lineno): cls for cls in found}.values())


def _imported(module: Module, name: str) -> tuple[FunctionClass, ...]:
    """The class that a module has under ``name`` by importing it."""
    for home, there in origins(module, name):
        try:
            found = tuple(cls for cls in classes_of(home) if cls.qualname == there)
        except SyntaxError:
            return ()
        if found:
            return found
    return ()
