"""``s2s tutorial``: from a closure to a reviewed, scripted, compiled model."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["TEXT", "tutorial"]

TEXT = Path(__file__).parent.parent / "tutorial.md"


@click.command()
def tutorial() -> None:
    """Print a walk of five minutes, from writing a function to a compiled model.

    \b
    Example:
      s2s tutorial | less
    """
    click.echo(TEXT.read_text("utf-8"), nl=False)
