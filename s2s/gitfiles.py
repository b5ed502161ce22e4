"""The files of two revisions of a git repository, as bytes. Nothing is checked out or run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GitError", "Versions", "changed_files", "revisions"]

# no hook, driver or filter that a repository configures is run
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


class GitError(Exception):
    """Git is not there, or said no. The message is one line."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A file before and after: its path in both, and what it holds, None where it is not there."""

    old_path: str
    new_path: str
    old: bytes | None
    new: bytes | None


def revisions(given: Sequence[str]) -> tuple[str, str | None]:
    """Two commits from ``REV``, ``REV REV``, ``A..B`` or ``A...B`` (B, and where it left A).

    The second is None for the files as they are. Raises GitError.
    """
    names = list(given) or ["HEAD"]
    if len(names) == 1 and ".." in names[0]:
        three = "..." in names[0]
        first, _, second = names[0].partition("..." if three else "..")
        first, second = first or "HEAD", second or "HEAD"
        if three:
            last = _commit(second)
            return _git("merge-base", _commit(first), last).decode().strip(), last
        return _commit(first), _commit(second)
    if len(names) > 2:
        raise GitError(f"two revisions at most, not {len(names)}")
    return _commit(names[0]), _commit(names[1]) if len(names) == 2 else None


def _commit(name: str) -> str:
    try:
        text = _git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except GitError as error:
        if "single revision" in str(error):
            raise GitError(f"no such revision: {name}") from None
        raise
    return text.decode().strip()


def changed_files(old: str, new: str | None, paths: Sequence[str]) -> list[Versions]:
    """The Python files below ``paths`` that differ, in the order of their names; renamed ones are
    one. Raises GitError."""
    top = Path(os.fsdecode(_git("rev-parse", "--show-toplevel").rstrip(b"\n")))
    both = [old] if new is None else [old, new]
    options = ("--no-ext-diff", "--no-textconv", "--name-status", "-M", "-z")
    fields = _git("diff", *options, *both, "--", *paths).split(b"\0")
    found: list[tuple[str, str, str]] = []
    index = 0
    while index + 1 < len(fields):
        status = fields[index].decode()[:1]
        count = 2 if status in "RC" else 1
        names = [os.fsdecode(f) for f in fields[index + 1 : index + 1 + count]]
        found.append((status, names[0], names[-1]))
        index += 1 + count
    if new is None:
        others = _git(
            "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", *paths
        )
        found += [("A", os.fsdecode(f), os.fsdecode(f)) for f in others.split(b"\0") if f]
    made = [_read(top, old, new, *row) for row in found if row[2].endswith(".py")]
    return sorted(made, key=lambda v: v.new_path)


def _read(top: Path, old: str, new: str | None, status: str, first: str, last: str) -> Versions:
    before = None if status == "A" else _blob(old, first)
    after: bytes | None = None
    if status != "D":
        after = (top / last).read_bytes() if new is None else _blob(new, last)
    return Versions(_near(top, first), _near(top, last), before, after)


def _near(top: Path, name: str) -> str:
    """A path from the current folder, where that is below the repository's."""
    path = os.path.relpath(top / name)
    return name if path.startswith("..") else path


def _blob(revision: str, path: str) -> bytes:
    return _git("cat-file", "blob", f"{revision}:{path}")


def _git(*arguments: str) -> bytes:
    command = ["git", *_QUIET, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise GitError(f"git cannot be run: {error.strerror or error}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(lines[0].removeprefix("fatal: ") if lines else f"git {arguments[0]} failed")
    return done.stdout
