"""How much a function is to keep for backward: what its decorator says, read off the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import cast, get_args

from .errors import TransformError, diagnostic
from .ir import Diagnostic, Rule, Save, Source, Span, replace
from .source import decorated

__all__ = ["SAVES", "decorator_span", "with_options"]

SAVES: tuple[str, ...] = get_args(Save)


def with_options(
    rule: Rule, save: Save | None = None, recompute: Sequence[str] | None = None
) -> Rule:
    """The rule with ``save`` and ``recompute``; with what the decorator's text says where they are
    None. Raises TransformError (S2S220) where the text does not say what can be followed."""
    written: dict[str, object] = {}
    if save is None or recompute is None:
        problems: list[Diagnostic] = []
        for keyword, value in _keywords(rule.source):
            if (keyword.arg == "save" and save is None) or (
                keyword.arg == "recompute" and recompute is None
            ):
                problems += _problems(rule.source, keyword, value)
                written[keyword.arg] = value
        if problems:
            raise TransformError(problems)
    found = written.get("save", "all") if save is None else save
    names = written.get("recompute", ()) if recompute is None else recompute
    names = (names,) if isinstance(names, str) else tuple(cast(Sequence[str], names))
    return replace(rule, save=cast(Save, found), recompute=names)


def decorator_span(source: Source) -> Span:
    """The place of the decorator, or of the function where it is applied elsewhere."""
    for node in source.function.decorator_list:
        if decorated(node, source.tree):
            return source.span(node)
    return source.span(source.function)


def _keywords(source: Source) -> Iterator[tuple[ast.keyword, object]]:
    """The keywords of the decorator with their values; None for what is no literal."""
    for node in source.function.decorator_list:
        if isinstance(node, ast.Call) and decorated(node, source.tree):
            for keyword in node.keywords:
                try:
                    yield keyword, ast.literal_eval(keyword.value)
                except ValueError:
                    yield keyword, None


def _problems(source: Source, keyword: ast.keyword, value: object) -> Iterator[Diagnostic]:
    shown = ast.unparse(keyword.value)
    if value is None:
        yield diagnostic(
            "S2S220",
            source.span(keyword.value),
            f"the value of {keyword.arg} is not written here: {shown}",
            hint="the command reads the text and runs nothing: write the value out, or give it "
            "with --save or --recompute",
        )
    elif keyword.arg == "save" and value not in SAVES:
        yield diagnostic(
            "S2S220",
            source.span(keyword.value),
            f"save is one of {', '.join(SAVES)}, not {shown}",
            hint='write save="auto", or leave it out for "all"',
        )
    elif keyword.arg == "recompute" and not _are_names(value):
        yield diagnostic(
            "S2S220",
            source.span(keyword.value),
            f"recompute holds names of captured values, not {shown}",
            hint='write recompute=("name", "other")',
        )


def _are_names(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, (tuple, list)) and all(isinstance(v, str) for v in value)
