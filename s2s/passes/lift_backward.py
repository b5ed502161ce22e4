"""The one lowering: backward comes out of the closure, and what it captured is handed over.

    def swish(x):                          def swish_forward(x):
        s = torch.sigmoid(x)                   s = torch.sigmoid(x)
        def backward(grad_out):      -->       return x * s, (x, s)
            return grad_out * s * x
        return x * s, backward             def swish_backward(grad_out, x, s):
                                               return grad_out * s * x

Where a function can return one of several backwards, each is numbered, forward hands over the
number, and the lifted backward branches on it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence

import libcst as cst

from ..asked import NEEDS, bare_needs, reads_needs, unmark
from ..captures import helpers_of
from ..check import changed_captures, differentiable_slots, mutated_inputs
from ..flow import bound_at_returns
from ..identity import linked, same_tensor
from ..infer import is_plain, is_tensor, is_tensor_tuple
from ..ir import LISTS, Backward, Capture, Constant, Keep, Output, Pair, Rule, Saved, Stmt, replace
from ..names import fresh, mentioned, of_kind, outputs_in, reads, returns_in, walk, writes
from ..parse import nested_nodes, values_of
from ..source import Binding, bindings
from ..syntax import (
    block,
    code,
    from_node,
    make,
    rename,
    replace_returns,
    standalone,
    without_blank_lines,
)
from .unnest_walrus import unnested

__all__ = ["keep_for", "lift_backward"]


def lift_backward(
    rule: Rule, captures: tuple[Capture, ...], constants: tuple[Constant, ...]
) -> Pair:
    """The forward and backward of ``rule`` as two functions of their arguments alone.

    >>> from s2s.passes.example import after
    >>> print(after('''
    ... def swish(x):
    ...     s = torch.sigmoid(x)
    ...     def backward(grad_out):
    ...         return grad_out * s * x
    ...     return x * s, backward
    ... '''))
    def swish_forward(x):
        s = torch.sigmoid(x)
        return x * s, (x, s)
    <BLANKLINE>
    def swish_backward(grad_out, x, s):
        return grad_out * s * x
    """
    kept = [c for c in captures if c.kind != "helper"]
    names = [c.name for c in kept]
    taken = _all_names(rule)
    branch = fresh("branch", taken) if _needs_branch(rule) else None
    saved = tuple(Saved(c.name, keep_for(c.type), c.type) for c in kept)
    if branch:
        saved = (Saved(branch, "plain", "int"), *saved)
    forward = _forward(rule, [s.name for s in saved], branch)
    forward = _bound_before_returns(forward, taken)
    forward = _tensors_apart(forward, taken, bindings(rule.source.tree))
    forward = (*_unbound_first(rule, captures), *forward)
    taken |= {n for s in forward for n in writes(s.tree)}
    helpers = _helper_statements(rule, captures)
    outer = set(names) | {c.name for c in captures}
    if reads_needs([s.tree for b in rule.backwards for s in b.body], bindings(rule.source.tree)):
        outer.add(NEEDS)  # a local of that name is another thing
    grads, bodies = _bodies(rule, outer)
    backward = (*helpers, *(_branches(bodies, branch) if branch else bodies[0]))
    only = rule.backwards[0]
    found = bindings(rule.source.tree)
    asks = reads_needs([s.tree for s in (*forward, *backward)], found)
    if asks:
        forward = tuple(bare_needs(s, found) for s in forward)
        backward = tuple(bare_needs(s, found) for s in backward)
    imports, torch_name = _imports(rule, forward, backward, grads)
    changed_inputs = tuple(
        dict.fromkeys((*mutated_inputs(rule), *(rule.dirty or ()), *changed_captures(rule)))
    )
    return Pair(
        name=rule.name,
        source=rule.source,
        params=rule.params,
        constants=constants,
        outputs=_outputs(rule, forward),
        single=rule.single,
        container=rule.container,
        forward=forward,
        grads=grads,
        backward=backward,
        saved=saved,
        imports=imports,
        torch=torch_name,
        taken=frozenset(taken | {torch_name}),
        dirty=changed_inputs if rule.dirty is None else rule.dirty,
        changed=changed_inputs,
        once=rule.once,
        undefined=rule.undefined,
        asks=asks,
        branch=branch,
        comments=() if branch else only.comments,
        header=None if branch else only.header,
        save=rule.save,
        recompute=rule.recompute,
    )


def keep_for(type_: str) -> Keep:
    """How a value of a type is kept for backward."""
    if is_tensor(type_):
        return "tensor"
    if type_ in LISTS or is_tensor_tuple(type_):
        return "tensors"
    return "plain" if is_plain(type_) else "either"


def _all_names(rule: Rule) -> set[str]:
    return set(mentioned(rule.source.function)) | set(rule.locals)


def _needs_branch(rule: Rule) -> bool:
    """Is there a choice between backwards, or one that stands where it cannot just be dropped?"""
    if len(rule.backwards) > 1:
        return True
    tree = rule.backwards[0].tree
    for value in map(_last, returns_in([s.tree for s in rule.body])):
        if isinstance(value, ast.Name) and set(values_of(rule.body, value.id)) != {tree}:
            return True  # it goes by another name too
    if isinstance(tree, ast.FunctionDef):
        return False
    for statement in rule.body:
        if isinstance(statement.tree, (ast.Assign, ast.AnnAssign)):
            if statement.tree.value is tree:
                targets = getattr(statement.tree, "targets", [None])
                return len(targets) > 1 or not isinstance(targets[0], (ast.Name, type(None)))
            if any(n is tree for n in walk(statement.tree)):
                return True
    return False


# --- forward --------------------------------------------------------------------------------


class _Lift(cst.CSTTransformer):
    """Takes the backwards out of forward, or puts their numbers in their place."""

    def __init__(self, numbers: Mapping[cst.CSTNode, int], tags: Mapping[str, str]) -> None:
        self.numbers = numbers
        self.tags = tags  # the variable that holds the number, for each name of several backwards

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if original_node not in self.numbers:
            return updated_node
        tag = self.tags.get(original_node.name.value)
        if tag is None:
            return cst.RemoveFromParent()
        comments = [line for line in original_node.leading_lines if line.comment]
        number = make(f"{tag} = {self.numbers[original_node]}").node
        return number.with_changes(leading_lines=comments)

    def leave_Lambda(
        self, original_node: cst.Lambda, updated_node: cst.Lambda
    ) -> cst.BaseExpression:
        if original_node not in self.numbers:
            return updated_node
        return cst.Integer(str(self.numbers[original_node]))

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body = list(updated_node.body)
        if not body:
            return updated_node.with_changes(body=[make("pass").node])
        if any(node in self.numbers for node in original_node.body):
            last = body[-1]  # what followed the def stands alone now
            if isinstance(last, cst.BaseStatement):
                body[-1] = without_blank_lines(last)
        return updated_node.with_changes(body=body)


def _forward(rule: Rule, saved: list[str], branch: str | None) -> tuple[Stmt, ...]:
    """The body with the backwards gone and ``outputs, (saved...)`` returned."""
    nodes = nested_nodes(rule.body)
    numbers = {nodes[b.tree]: i for i, b in enumerate(rule.backwards)}
    trees = {b.tree for b in rule.backwards}
    tags = _tags(rule, branch)
    visitor = _Lift(numbers, tags)
    body: list[Stmt] = []
    for statement in rule.body:
        tree = statement.tree
        if not any(n in trees for n in walk(tree)):
            body.append(statement)
            continue
        name = tree.name if isinstance(tree, ast.FunctionDef) else ""
        dropped = tree in trees if isinstance(tree, ast.FunctionDef) else branch is None
        if dropped and name not in tags and _only_binds(tree, trees):
            continue
        changed = statement.node.visit(visitor)
        assert isinstance(changed, cst.BaseStatement)
        if isinstance(tree, ast.Return):  # its tree is replaced below
            body.append(replace(statement, node=changed))
        else:
            body.append(from_node(changed, statement.line))
    alone = {b.name: i for i, b in enumerate(rule.backwards) if b.name not in tags}
    found = bindings(rule.source.tree)
    return replace_returns(
        body, lambda node, _: [_returned(node, saved, branch, tags, alone, found)]
    )


def _tags(rule: Rule, branch: str | None) -> dict[str, str]:
    """Names of backwards that need a variable for their number.

    A name that stands for one ``def`` and is returned as it is needs none: its number is
    written at the return.
    """
    if branch is None:
        return {}
    count: dict[str, int] = {}
    for backward in rule.backwards:
        count[backward.name] = count.get(backward.name, 0) + 1
    returned = [_last(r) for r in returns_in([s.tree for s in rule.body])]
    trees = {b.tree for b in rule.backwards}
    for value in returned:
        if not isinstance(value, ast.Name) or set(values_of(rule.body, value.id)) - trees:
            return {name: name for name in count}  # another name for it, or a choice
    several = [name for name in count if count[name] > 1]
    return {name: branch if len(several) == 1 else name for name in several}


def _last(node: ast.Return) -> ast.expr:
    assert isinstance(node.value, ast.Tuple)
    return node.value.elts[-1]


def _only_binds(tree: ast.stmt, trees: set[ast.FunctionDef | ast.Lambda]) -> bool:
    """``def backward`` or ``backward = lambda ...``: nothing else happens there."""
    return tree in trees or (isinstance(tree, (ast.Assign, ast.AnnAssign)) and tree.value in trees)


def _returned(
    node: cst.Return,
    saved: list[str],
    branch: str | None,
    tags: Mapping[str, str],
    alone: Mapping[str, int],
    found: dict[str, Binding],
) -> cst.Return:
    """``return outputs, backward`` as ``return outputs, (saved...)``."""
    assert isinstance(node.value, cst.Tuple)
    *outputs, last = [element.value for element in node.value.elements]
    outputs = [unmark(o, found) for o in outputs]
    if len(outputs) == 1:
        value = _unpacked(standalone(outputs[0]))
        if isinstance(value, cst.Tuple) and not value.lpar:
            value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    else:
        value = cst.Tuple([cst.Element(standalone(o)) for o in outputs])
    if isinstance(value, cst.Tuple):
        bare = [e.with_changes(value=unmark(e.value, found)) for e in value.elements]
        value = value.with_changes(elements=_distinct(bare))
    kept: list[cst.BaseExpression] = [cst.Name(name) for name in saved]
    if branch:
        kept[0] = last
        if isinstance(last, cst.Name) and last.value in tags:
            kept[0] = cst.Name(tags[last.value])
        elif isinstance(last, cst.Name) and last.value in alone:
            kept[0] = cst.Integer(str(alone[last.value]))
    handed = cst.Tuple([cst.Element(k) for k in kept])
    return cst.Return(cst.Tuple([cst.Element(value), cst.Element(handed)], lpar=[], rpar=[]))


def _bound_before_returns(forward: tuple[Stmt, ...], taken: set[str]) -> tuple[Stmt, ...]:
    """``return (s := f(x)) * x, ...`` as ``s = f(x)`` and ``return s * x, ...``: what computes
    values again looks at the statements of forward, not at what is returned."""
    if not any(writes(node) for node in returns_in([s.tree for s in forward])):
        return forward

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        assert isinstance(node.value, cst.Tuple)
        outputs, saved = node.value.elements
        before, value = unnested(outputs.value)
        if _bound_in(value):  # not in front of all that is done before
            several = isinstance(value, cst.Tuple)
            values = [e.value for e in value.elements] if isinstance(value, cst.Tuple) else [value]
            names: list[cst.BaseExpression] = []
            for index, part in enumerate(values):
                rest = [n for v in values[index + 1 :] for n in _bound_in(v)]
                if isinstance(part, cst.NamedExpr) and code(part.target) not in rest:
                    name, part = cst.ensure_type(part.target, cst.Name), part.value
                else:
                    name = cst.Name(fresh(f"out_{index}", taken))
                before.append(cst.Assign([cst.AssignTarget(name)], standalone(part)))
                names.append(name)
            value = cst.Tuple([cst.Element(name) for name in names]) if several else names[0]
        first = outputs.with_changes(value=value)
        return [*before, node.with_changes(value=node.value.with_changes(elements=[first, saved]))]

    return replace_returns(forward, rewrite)


def _bound_in(value: cst.BaseExpression) -> tuple[str, ...]:
    return writes(ast.parse(code(standalone(value)).strip()))


def _tensors_apart(
    forward: tuple[Stmt, ...], taken: set[str], found: dict[str, Binding]
) -> tuple[Stmt, ...]:
    """``return y, z`` as ``return y, z.detach() if z is y else z`` where the two may be one tensor:
    autograd has one place for it, and would take the gradient of the last one for both."""
    trees = [s.tree for s in forward]
    if all(len(outputs_in(node)) < 2 for node in returns_in(trees)):
        return forward
    groups = linked(trees, found)

    def tensors(value: cst.BaseExpression) -> set[str]:
        tree = ast.parse(code(standalone(value)).strip(), mode="eval").body
        return {n for name in same_tensor(tree, found) for n in groups.get(name, {name})}

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        assert isinstance(node.value, cst.Tuple)
        first, saved = node.value.elements
        if not isinstance(first.value, cst.Tuple):
            return [node]
        values = [e.value for e in first.value.elements]
        held = [tensors(v) for v in values]
        same = [[j for j in range(i) if held[i] & held[j]] for i in range(len(held))]
        if not any(same):
            return [node]
        names = [
            v.value if isinstance(v, cst.Name) else fresh(f"out_{i}", taken)
            for i, v in enumerate(values)
        ]
        before = [
            cst.Assign([cst.AssignTarget(cst.Name(name))], standalone(value))
            for name, value in zip(names, values)
            if not isinstance(value, cst.Name)
        ]
        made = [cst.Element(_unless(name, [names[j] for j in js])) for name, js in zip(names, same)]
        outputs = first.with_changes(value=first.value.with_changes(elements=made))
        return [
            *before,
            node.with_changes(value=node.value.with_changes(elements=[outputs, saved])),
        ]

    return replace_returns(forward, rewrite)


def _unless(name: str, others: Sequence[str]) -> cst.BaseExpression:
    """The tensor; another one of its memory where it is one of the others."""
    test = " or ".join(f"{name} is {other}" for other in others)
    return cst.parse_expression(f"{name}.detach() if {test} else {name}" if test else name)


def _outputs(rule: Rule, forward: Sequence[Stmt]) -> tuple[Output, ...]:
    """The outputs by the names that the lifted forward returns them by."""
    if not any(writes(node) for node in returns_in([s.tree for s in rule.body])):
        return rule.outputs
    rows = [_names_of(node) for node in returns_in([s.tree for s in forward])]
    if any(len(row) != len(rule.outputs) for row in rows):
        return tuple(replace(o, name=None) for o in rule.outputs)
    found = [names[0] if len(set(names)) == 1 else None for names in zip(*rows)]
    return tuple(replace(o, name=name) for o, name in zip(rule.outputs, found))


def _names_of(node: ast.Return) -> list[str | None]:
    return [v.id if isinstance(v, ast.Name) else None for v in outputs_in(node)]


def _distinct(elements: Sequence[cst.BaseElement]) -> list[cst.BaseElement]:
    """Autograd has one place per tensor: one that is returned twice is another the second time."""
    seen: set[str] = set()
    found: list[cst.BaseElement] = []
    for element in elements:
        if isinstance(element.value, cst.Name):
            name = element.value.value
            if name in seen:
                element = element.with_changes(value=cst.parse_expression(f"{name}.detach()"))
            seen.add(name)
        found.append(element)
    return found


def _unpacked(value: cst.BaseExpression) -> cst.BaseExpression:
    """The tensors of a returned list or dict as a tuple: the caller gets them put back."""
    if isinstance(value, cst.List):
        elements: list[cst.BaseElement] = list(value.elements)
    elif isinstance(value, cst.Dict):
        elements = [cst.Element(e.value) for e in value.elements if isinstance(e, cst.DictElement)]
    else:
        return value
    if len(elements) == 1:
        elements = [cst.Element(elements[0].value, comma=cst.Comma())]
    return cst.Tuple(elements)


def _unbound_first(rule: Rule, captures: tuple[Capture, ...]) -> tuple[Stmt, ...]:
    """``s = None`` for captures that some way to a return leaves unbound."""
    params = {p.name for p in rule.params}
    marks = [b.tree for b in rule.backwards] if len(rule.backwards) == 1 else []
    ends = bound_at_returns([s.tree for s in rule.body], params, marks)
    bound = frozenset.intersection(*ends) if ends else frozenset()
    own = [c for c in captures if c.kind in ("output", "intermediate")]
    nothing = {"tensors": "[]"}  # an empty list of tensors can be kept like any other
    return tuple(
        make(f"{c.name} = {nothing.get(keep_for(c.type), 'None')}")
        for c in own
        if c.name not in bound | params
    )


# --- backward -------------------------------------------------------------------------------


def _helper_statements(rule: Rule, captures: tuple[Capture, ...]) -> tuple[Stmt, ...]:
    """The definitions of nested helpers that backward calls, in the order of forward."""
    wanted = {c.name for c in captures if c.kind == "helper"}
    known = helpers_of(rule)
    return tuple(s for s in rule.body if any(n in wanted and n in known for n in writes(s.tree)))


def _bodies(rule: Rule, outer: set[str]) -> tuple[tuple[str, ...], list[tuple[Stmt, ...]]]:
    """The output gradients' names, and each backward's body with its names made distinct."""
    first = rule.backwards[0]
    positions = differentiable_slots(first, rule)
    taken = _all_names(rule)
    grads = [""] * len(rule.outputs)
    for name, position in zip(first.params, positions):
        grads[position] = fresh(name, taken) if name in outer else name
    for index, name in enumerate(grads):
        if not name:
            grads[index] = fresh("_", set(grads) | taken)
    return tuple(grads), [_body(rule, b, tuple(grads), outer) for b in rule.backwards]


def _body(
    rule: Rule, backward: Backward, grads: tuple[str, ...], outer: set[str]
) -> tuple[Stmt, ...]:
    positions = differentiable_slots(backward, rule)
    names = {
        name: grads[position]
        for name, position in zip(backward.params, positions)
        if name != grads[position]
    }
    taken = _all_names(rule) | set(grads)
    local = {n for s in backward.body for n in writes(s.tree)} - set(backward.params)
    for name in sorted(local):
        if name in outer or name in set(grads) - set(backward.params):
            names[name] = fresh(name, taken)
    if not names:
        return backward.body
    return tuple(rename(s, names) for s in backward.body)


def _branches(bodies: Sequence[tuple[Stmt, ...]], branch: str) -> tuple[Stmt, ...]:
    """``if branch == 0: ... elif ...``, one arm a backward."""
    otherwise: cst.If | cst.Else = cst.Else(block(bodies[-1]))
    if len(bodies) == 1:
        return bodies[0]
    for number in range(len(bodies) - 2, -1, -1):
        test = cst.parse_expression(f"{branch} == {number}")
        otherwise = cst.If(test, block(bodies[number]), orelse=otherwise)
    assert isinstance(otherwise, cst.If)
    line = bodies[0][0].line if bodies[0] else 0
    return (from_node(otherwise, line),)


# --- what the text needs ----------------------------------------------------------------------


def _imports(
    rule: Rule, forward: Sequence[Stmt], backward: Sequence[Stmt], grads: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """The import statements that the lifted functions need, and what torch is called there."""
    found = bindings(rule.source.tree)
    spelled = [
        name
        for name, b in found.items()
        if b.kind == "import" and b.origin == "torch" and name not in rule.locals
    ]
    taken = set(rule.locals) | {n for n, b in found.items() if b.origin != "torch"}
    name = ("torch" if "torch" in spelled else spelled[0]) if spelled else fresh("torch", taken)
    first = "import torch" if name == "torch" else f"import torch as {name}"
    read = {n for s in (*forward, *backward) for n in reads(s.tree)}
    own = set(rule.locals)
    statements = {
        b.statement: None
        for n, b in found.items()
        if n in read and n not in own and b.kind == "import" and b.statement != first
    }
    inner = {n for b in rule.backwards for s in b.body for n in writes(s.tree)}
    inner |= {n.arg for n in of_kind(rule.source.function, ast.arg)}
    outside = {*own, *inner, *found, *grads}
    unknown = [n for n in read if n not in outside and not hasattr(builtins, n)]
    if unknown:  # they can only come from a star import
        for statement in rule.source.tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                statements[ast.unparse(statement)] = None
    return (first, *statements), name
