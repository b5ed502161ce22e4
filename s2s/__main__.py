"""``python -m s2s``: the command, from a checkout or an environment without scripts."""

from .cli import main

main()
