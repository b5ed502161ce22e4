"""Messages without formats: TorchScript prints values, but not ``!r``, ``=`` and ``:.3f``.

    raise ValueError(f"no wave {kind!r}")     -->   raise ValueError(f"no wave {kind}")
    assert n < 3, f"{type(x)}: {n=}"          -->   assert n < 3, f"{{type(x)}}: n={n}"

Only in ``raise``, ``assert``, ``print`` and ``warnings.warn``. A value that TorchScript has no
words for stands there as the text it is computed from.
"""

from __future__ import annotations

import ast

import libcst as cst

from ..ir import Pair
from ..syntax import code
from .rewriting import rewritten

__all__ = ["plain_messages"]


def plain_messages(pair: Pair) -> Pair:
    """Take conversions and formats out of f-strings that only tell the user something."""
    return rewritten(pair, lambda node: isinstance(node, ast.JoinedStr), _Messages())


class _Messages(cst.CSTTransformer):
    def leave_Raise(self, original_node: cst.Raise, updated_node: cst.Raise) -> cst.Raise:
        return cst.ensure_type(updated_node.visit(_Plain()), cst.Raise)

    def leave_Assert(self, original_node: cst.Assert, updated_node: cst.Assert) -> cst.Assert:
        if updated_node.msg is None:
            return updated_node
        message = updated_node.msg.visit(_Plain())
        return updated_node.with_changes(msg=message)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:
        call = updated_node.value
        if isinstance(call, cst.Call) and code(call.func) in ("print", "warnings.warn", "warn"):
            return cst.ensure_type(updated_node.visit(_Plain()), cst.Expr)
        return updated_node


class _Plain(cst.CSTTransformer):
    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.FormattedString:
        parts: list[cst.BaseFormattedStringContent] = []
        for part in updated_node.parts:
            parts += _spelled(part) if isinstance(part, cst.FormattedStringExpression) else [part]
        return updated_node.with_changes(parts=parts)


def _spelled(part: cst.FormattedStringExpression) -> list[cst.BaseFormattedStringContent]:
    before = part.whitespace_before_expression
    text = code(part.expression)
    named = cst.FormattedStringText(f"{text}=")
    if not _has_words(ast.parse(text.strip(), mode="eval").body):
        shown = "".join(text.replace("{", "{{").replace("}", "}}").split("\\"))
        return [cst.FormattedStringText(f"{{{{{shown}}}}}")]
    if part.conversion is None and part.format_spec is None and part.equal is None:
        return [part]
    plain = cst.FormattedStringExpression(part.expression, whitespace_before_expression=before)
    return [named, plain] if part.equal else [plain]


def _has_words(node: ast.expr) -> bool:
    """Does TorchScript print such a value, as far as its text tells?"""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr.startswith("__"):
            return False
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            if inner.func.id not in ("len", "list", "int", "float", "abs", "min", "max", "str"):
                return False
        if isinstance(inner, (ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Lambda)):
            return False
    return True
