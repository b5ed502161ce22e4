"""The command ``s2s``. It reads files; unless a flag says so, nothing of theirs is run.

Each command is a module of ``commands``. What takes time to import (rich for colours, torch for
``--with-torch``) is imported by the commands that need it, where they need it.
"""

from __future__ import annotations

import sys

import click

from . import __version__
from .commands.check import check
from .commands.convert import convert
from .commands.diff import diff
from .commands.dump import dump
from .commands.explain import explain
from .commands.explain_code import explain_code
from .commands.report import report
from .commands.shared import EXIT_CODES
from .commands.tutorial import tutorial

__all__ = ["main"]


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="s2s", message="%(prog)s %(version)s")
def commands() -> None:
    """Custom gradients for PyTorch: see what is generated, find what is wrong.

    Files are read, not imported, and torch is not needed.

    \b
    Examples:
      s2s dump model.py:swish    what the function swish is compiled to
      s2s check src tests        every problem in two folders
      s2s explain model.py       what each function keeps, and what holds of its gradient
      s2s diff main -- src       what a change does to the generated code
      s2s report src -o review   pages to read source and generated code side by side
      s2s convert ops.py --diff  autograd.Function classes as functions with a nested backward
      s2s explain-code S2S202    what a code means, with an example
      s2s tutorial               from a function to a compiled model, in five minutes
    """


for command in (dump, check, diff, explain, report, convert, explain_code, tutorial):
    commands.add_command(command)


def main() -> None:
    """The entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a comment in another script, a terminal in ASCII
            stream.reconfigure(errors="backslashreplace")
    commands(prog_name="s2s")
