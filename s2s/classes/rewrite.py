"""A plan carried out: forward and backward with variables in place of ``ctx``."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from ..syntax import assigned, code, renamed
from .inline import is_docstring
from .methods import Part
from .plan import SAVED, Plan

__all__ = ["backward_body", "forward_body"]

_DROPPED = ("mark_non_differentiable", "mark_dirty", "set_materialize_grads", "save_for_forward")


def forward_body(forward: Part, plan: Plan, s2s: str, torch: str) -> list[cst.BaseStatement]:
    """Forward's statements; the returns are still to be paired with backward."""
    node = renamed(forward.node, plan.forward_names)
    changed = node.visit(_Variables(forward.ctx, plan, s2s, torch, in_forward=True))
    assert isinstance(changed, cst.FunctionDef)
    first: list[cst.BaseStatement] = []
    if plan.listed and not plan.sure:
        first.append(cst.SimpleStatementLine([_tensors(plan.listed, "[]", torch)]))
    first += [_assign(flag, "False") for flag in plan.flags.values()]
    body = _statements(changed)
    at = 1 if body and is_docstring(body[0]) else 0
    return [*body[:at], *first, *body[at:]]


def backward_body(backward: Part, plan: Plan, s2s: str, torch: str) -> list[cst.BaseStatement]:
    """Backward's statements, reading variables of forward."""
    node = renamed(backward.node, plan.backward_names)
    changed = node.visit(_Variables(backward.ctx, plan, s2s, torch, in_forward=False))
    assert isinstance(changed, cst.FunctionDef)
    return _statements(changed)


def _statements(node: cst.FunctionDef) -> list[cst.BaseStatement]:
    assert isinstance(node.body, cst.IndentedBlock)
    return [s for s in node.body.body if isinstance(s, cst.BaseStatement)]


def _assign(name: str, value: str) -> cst.SimpleStatementLine:
    target = cst.AssignTarget(cst.Name(name))
    return cst.SimpleStatementLine([cst.Assign([target], cst.parse_expression(value))])


def _tensors(name: str, value: str, torch: str) -> cst.AnnAssign:
    """A list of saved tensors, with its type: what is in it may not tell."""
    annotation = cst.Annotation(cst.parse_expression(f"list[{torch}.Tensor | None]"))
    return cst.AnnAssign(cst.Name(name), annotation, cst.parse_expression(value))


class _Variables(cst.CSTTransformer):
    """``ctx.a`` as the variable for it; saving and unpacking as assignments, or nothing."""

    def __init__(self, ctx: str, plan: Plan, s2s: str, torch: str, in_forward: bool) -> None:
        self.ctx = ctx
        self.plan = plan
        self.s2s = s2s
        self.torch = torch
        self.in_forward = in_forward

    def _attribute(self, node: cst.CSTNode) -> str | None:
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            if self.ctx and node.value.value == self.ctx:
                return node.attr.value
        return None

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        name = self._attribute(original_node)
        if name is None:
            return updated_node
        if name in SAVED:
            return self._saved()
        if name == "needs_input_grad":
            return cst.parse_expression(f"{self.s2s}.needs_input_grad")
        variable = self.plan.attributes.get(name)
        return cst.Name(variable) if variable else updated_node

    def _saved(self) -> cst.BaseExpression:
        slots = self.plan.slots
        if slots is None:
            return cst.parse_expression(f"tuple({self.plan.listed})")
        comma = "," if len(slots) == 1 else ""
        return cst.parse_expression(f"({', '.join(self._starred(slots))}{comma})")

    def _starred(self, slots: Sequence[str]) -> list[str]:
        if not self.plan.starred:
            return list(slots)
        return [*slots[:-1], f"*{slots[-1]}"]

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """``ctx.saved_tensors[0]`` is the variable."""
        slots = self.plan.slots
        if self._attribute(original_node.value) in SAVED and slots and not self.plan.starred:
            try:
                index = ast.literal_eval(code(original_node.slice[0]))
                return cst.Name(slots[index])
            except (ValueError, IndexError, TypeError, SyntaxError):
                return updated_node
        return updated_node

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        """``ctx is not None``: there is one."""
        if not isinstance(original_node.left, cst.Name) or original_node.left.value != self.ctx:
            return updated_node
        if len(original_node.comparisons) != 1 or not self.ctx:
            return updated_node
        other = original_node.comparisons[0]
        if code(other.comparator).strip() != "None":
            return updated_node
        return cst.Name(str(isinstance(other.operator, cst.IsNot)))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """``hasattr(ctx, "a")`` and ``getattr(ctx, "a", None)``."""
        func = original_node.func
        if not isinstance(func, cst.Name) or func.value not in ("hasattr", "getattr"):
            return updated_node
        arguments = [a.value for a in updated_node.args]
        if len(arguments) < 2 or code(arguments[0]) != self.ctx:
            return updated_node
        name = str(ast.literal_eval(code(arguments[1])))
        known = self.plan.attributes.get(name)
        flag = self.plan.flags.get(name)
        test = flag or str(known is not None)
        if func.value == "hasattr":
            return cst.Name(test)
        if flag is None:
            default = arguments[2] if len(arguments) > 2 else updated_node
            return cst.Name(known) if known else default
        other = code(arguments[2]) if len(arguments) > 2 else "None"
        return cst.parse_expression(f"({known} if {flag} else {other})")

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        before = original_node.body[0] if original_node.body else None
        after = updated_node.body[0] if updated_node.body else None
        if isinstance(before, cst.Expr) and isinstance(before.value, cst.Call):
            name = self._attribute(before.value.func)
            if name == "save_for_backward":
                assert isinstance(after, cst.Expr) and isinstance(after.value, cst.Call)
                return self._lines(updated_node, self._saves(after.value))
            if name in _DROPPED:
                return self._lines(updated_node, [])
        if isinstance(before, cst.Del):
            return self._lines(updated_node, self._deletes(before))
        if isinstance(before, cst.Assign) and isinstance(after, cst.Assign):
            if self._attribute(before.value) in SAVED and len(before.targets) == 1:
                target = after.targets[0].target
                if isinstance(target, (cst.Tuple, cst.List)) and self.plan.slots is None:
                    value = cst.Name(self.plan.listed)
                    return self._lines(updated_node, [after.with_changes(value=value)])
                if isinstance(target, (cst.Tuple, cst.List)):
                    taken = self._taken(target)
                    if taken is not None:
                        return self._lines(updated_node, taken)
            if _is_itself(after):
                return self._lines(updated_node, self._flags(before))
            flags = self._flags(before)
            if flags:
                return self._lines(updated_node, [after, *flags])
        return updated_node

    def _deletes(self, node: cst.Del) -> list[cst.BaseSmallStatement]:
        """``del ctx.a`` gives memory back early: nothing here, autograd frees what it keeps."""
        target = node.target
        several = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
        kept = [one for one in several if self._attribute(one) is None]
        if len(kept) == len(several):
            return [node]
        return [cst.Del(one) for one in kept]  # type: ignore[arg-type]

    def _lines(
        self, line: cst.SimpleStatementLine, small: Sequence[cst.BaseSmallStatement]
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        """The line with other statements; a comment in front of it stays with the first."""
        if not small:
            return cst.RemoveFromParent()
        marks = [m for m in line.leading_lines if m.comment and m.comment.value[:2] == "#@"]
        made = [cst.SimpleStatementLine([s], leading_lines=marks) for s in small]
        made[0] = made[0].with_changes(leading_lines=line.leading_lines)
        made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
        return cst.FlattenSentinel(made)

    def _flags(self, assign: cst.Assign) -> list[cst.BaseSmallStatement]:
        """``has_a = True`` behind what sets ``ctx.a``."""
        if not self.in_forward:
            return []
        set_here = [self._attribute(t.target) for t in assign.targets]
        flags = [self.plan.flags[n] for n in set_here if n in self.plan.flags]
        return [cst.Assign([cst.AssignTarget(cst.Name(f))], cst.Name("True")) for f in flags]

    def _saves(self, call: cst.Call) -> list[cst.BaseSmallStatement]:
        slots = self.plan.slots
        if slots is None:
            items = ", ".join(f"{a.star}{code(a.value)}" for a in call.args)
            return [_tensors(self.plan.listed, f"[{items}]", self.torch)]
        made: list[cst.BaseSmallStatement] = []
        for slot, argument in zip(slots, call.args):
            value = argument.value
            if isinstance(value, cst.Name) and value.value == slot:
                continue
            if argument.star:
                made.append(_tensors(slot, f"[*{code(value)}]", self.torch))
                continue
            made.append(cst.Assign([cst.AssignTarget(cst.Name(slot))], value))
        return made

    def _taken(self, target: cst.Tuple | cst.List) -> list[cst.BaseSmallStatement] | None:
        """``a, b = ctx.saved_tensors`` one by one, for names that are not the variables."""
        slots = self.plan.slots or ()
        if len(slots) != len(target.elements):
            return None
        made: list[cst.BaseSmallStatement] = []
        for index, (slot, element) in enumerate(zip(slots, target.elements)):
            starred = isinstance(element, cst.StarredElement)
            last = index == len(slots) - 1
            if starred != (self.plan.starred and last):
                return None
            if code(element.value).strip() == slot:
                continue
            value = cst.parse_expression(f"[*{slot}]" if starred else slot)
            if code(element.value).strip("_"):
                made.append(assigned(element.value, value))
        return made


def _is_itself(node: cst.Assign) -> bool:
    """``a = a``, which is left of ``a = ctx.a``."""
    target = node.targets[0].target
    if len(node.targets) != 1 or not isinstance(target, cst.Name):
        return False
    return isinstance(node.value, cst.Name) and node.value.value == target.value
