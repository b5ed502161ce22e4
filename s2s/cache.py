"""Generated text, kept in a folder from one process to the next.

An entry is a JSON object in a file named after its key, behind a line with its checksum. The key is
a digest of everything that the entry depends on, so that no entry is ever out of date: another
text, another version or another option is another key. Whatever is wrong with the folder or with
a file in it, nothing is read there, and what was asked for is made anew.

``S2S_CACHE_DIR`` names the folder, by default the user's own cache folder; ``S2S_CACHE=0`` turns
it off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import stat
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["digest", "folder", "read", "versions", "write"]

LIMIT = 64 << 20  # bytes in the folder; what was not used for the longest time goes first
DAY, HOUR = 24 * 3600, 3600
_SWEEP_EVERY = 500  # writes of one process


def digest(*parts: str) -> str:
    """One name for several texts.

    >>> digest("a", "bc") == digest("ab", "c")
    False
    """
    sizes = " ".join(str(len(part)) for part in parts)
    return hashlib.sha256("".join((sizes, "\n", *parts)).encode("utf-8", "replace")).hexdigest()


@functools.cache
def versions() -> str:
    """What writes the text: this package and libcst as they are installed, and Python.

    Files count by size and time of change, as they do for Python's own bytecode.
    """
    found = find_spec("libcst")
    files = sorted(_files(Path(__file__).parent))
    if found is not None and found.origin is not None:
        files.append(found.origin)
    return "\n".join([sys.version, *(_state(file) for file in files)])


def _files(package: Path) -> Iterator[str]:
    for place in (package, package / "classes", package / "emit", package / "passes"):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            yield from (entry.path for entry in entries if entry.name.endswith(".py"))


def _state(file: str) -> str:
    try:
        found = os.stat(file)
    except OSError:  # in an archive
        return file
    return f"{file} {found.st_size} {found.st_mtime_ns}"


# --- the folder ---------------------------------------------------------------------------------


def folder() -> str | None:
    """The folder as the environment names it now; None where there is none to be used."""
    if os.environ.get("S2S_CACHE", "") == "0":
        return None
    path = os.environ.get("S2S_CACHE_DIR") or _default()
    return path if _is_safe(path) else None


@functools.cache
def _default() -> str:
    from platformdirs import user_cache_dir

    return user_cache_dir("s2s", appauthor=False)


@functools.cache
def _is_safe(path: str) -> bool:
    """Made if need be. What others can write to is not used: its text would be run."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    others = os.name == "posix" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others or (os.name == "posix" and found.st_uid != os.geteuid()):
        why = "can be written to by others" if others else "belongs to another user"
        warnings.warn(
            f"s2s keeps no generated text in {path}, which {why}: `chmod go-w` it, name another "
            "folder in S2S_CACHE_DIR, or set S2S_CACHE=0",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


# --- entries ------------------------------------------------------------------------------------


def read(key: str) -> dict[str, Any] | None:
    """The entry of a key, or None. A damaged one counts as none."""
    place = folder()
    if place is None or not key:
        return None
    try:
        with open(os.path.join(place, f"{key}.json"), "rb") as file:
            checksum, text = file.read().split(b"\n", 1)
            if hashlib.sha256(text).hexdigest().encode() != checksum:
                return None
            found = json.loads(text)
            if time.time() - os.fstat(file.fileno()).st_mtime > DAY:
                os.utime(file.name)  # in use
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write(key: str, entry: Any) -> None:
    """Keep an entry, whole or not at all. Where it cannot be kept, nothing happens.

    It is a dict or a dataclass, and so is what it holds: ``read`` gives dicts.
    """
    place = folder()
    if place is None or not key:
        return
    text = json.dumps(entry, separators=(",", ":"), default=_fields).encode()
    name = os.path.join(place, f"{key}.json")
    part = f"{name}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        with open(part, "xb", opener=_private) as file:
            file.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        os.replace(part, name)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        return
    count = _written[place] = _written.get(place, -1) + 1
    if count % _SWEEP_EVERY == 0:  # the first one of a process among them
        _sweep(place)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


_written: dict[str, int] = {}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sweep(place: str) -> None:
    """Hold the folder to its limit, and clear away what a killed process left behind."""
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if entry.name.endswith(".json"):
                    found.append((about.st_mtime, about.st_size, entry.path))
                elif entry.name.endswith(".part") and time.time() - about.st_mtime > HOUR:
                    os.unlink(entry.path)
    total = sum(size for _, size, _ in found)
    if total <= LIMIT:
        return
    for _, size, path in sorted(found):  # the oldest first, down to three quarters
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= LIMIT * 3 // 4:
            break


versions()  # as the modules are that are being imported now, not as they may be edited later on
