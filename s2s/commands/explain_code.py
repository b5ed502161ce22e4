"""``s2s explain-code``: what a code means, with an example."""

from __future__ import annotations

import sys
import textwrap

import click

from ..errors import is_warning
from .shared import EXIT_CODES, NoSuchThing

__all__ = ["explain_code"]


@click.command("explain-code", epilog=EXIT_CODES)
@click.argument("code", required=False)
def explain_code(code: str | None) -> None:
    """Print what a code means, a function that has it, and its corrected twin.

    Without CODE: every code, errors (S2S2.., S2S3..) and warnings (S2S1..).

    \b
    Examples:
      s2s explain-code
      s2s explain-code S2S202
    """
    from .. import codes, report
    from ..errors import CODES, WARNINGS

    if code is None:
        for number in sorted({**CODES, **WARNINGS}):
            kind = "warning" if is_warning(number) else "error"
            click.echo(f"{number}  {kind:<7}  {codes.meaning(number)}")
        return
    number = code.strip("[]").upper()
    number = number if number.startswith("S2S") else f"S2S{number}"
    if number not in codes.WHY:
        raise NoSuchThing(f"no code {code}; `s2s explain-code` lists them")
    kind = "warning" if is_warning(number) else "error"
    paragraph = click.wrap_text(codes.WHY[number], 88)
    click.echo(f"{number} ({kind}): {codes.meaning(number)}\n\n{paragraph}")
    for example in codes.examples(number):
        for title, text in ((example.title, example.wrong), ("Corrected:", example.corrected)):
            click.echo(f"\n{title}\n")
            shown = textwrap.indent(text, "    ") + "\n"
            if report.is_coloured(sys.stdout):
                report.print_coloured(shown)
            else:
                click.echo(shown, nl=False)
