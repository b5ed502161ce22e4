"""The eager form: one ``torch.autograd.Function``, as an expert would write it by hand."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

from ..asked import NEEDS
from ..effects import aliases
from ..infer import infer, is_tensor_tuple, types_after
from ..ir import Emitted, Pair, Saved, Stmt, replace
from ..names import fresh, walk, writes
from ..passes.recompute_intermediates import inputs_or_none
from ..passes.redoing import perhaps_outputs
from ..source import bindings
from ..syntax import (
    code,
    expression,
    listed,
    make,
    replace_returns,
    split_return,
    standalone,
    without_blank_lines,
)
from .layout import (
    Line,
    as_list,
    class_name,
    header,
    indented,
    module_text,
    own,
    parameters,
    statement_lines,
)

__all__ = [
    "all_needed",
    "as_tuple",
    "attribute",
    "emit_eager",
    "grads_as_list",
    "hidden",
    "input_aliases",
    "lists_refused",
    "materialised",
    "needs",
    "once_lines",
    "no_second_derivative",
    "objects_refused",
    "signature",
    "zero_gradient",
    "padded",
    "returned",
    "returned_list",
    "save_statements",
    "small_statement",
    "taken_grads",
    "tidy",
    "unpack_statements",
]

# attributes that FunctionCtx has already
_CTX = {"save_for_backward", "saved_tensors", "saved_variables", "saved_for_forward", "to_save"}
_CTX |= {"mark_dirty", "mark_non_differentiable", "mark_shared_storage", "dirty_tensors", "name"}
_CTX |= {"set_materialize_grads", "materialize_grads", "non_differentiable", "needs_input_grad"}
_CTX |= {"save_for_forward", "metadata", "next_functions", "register_hook", "apply", "apply_jvp"}
_CTX |= {"register_prehook", "maybe_clear_saved_tensors", "set_output_grad", "get_output_grad"}


def emit_eager(pair: Pair) -> Emitted:
    """The class whose ``apply`` runs the function with the user's gradient."""
    name = class_name(pair)
    ctx = fresh("ctx", pair.taken)
    forward = forward_lines(pair, ctx)
    backward = backward_lines(pair, ctx)
    lines = own(*header(pair), f"class {name}({pair.torch}.autograd.Function):")
    lines += indented(own("@staticmethod"), 4)
    lines += indented(signature("forward", [ctx, *parameters(pair)]), 4)
    lines += indented(forward, 8)
    lines += own("")
    lines += indented(_comment_lines(pair), 4)
    lines += indented(own("@staticmethod"), 4)
    head = signature("backward", [ctx, *taken_grads(pair), *hidden_grads(pair)])
    lines += indented(_with_header(head, pair), 4)
    lines += indented(backward, 8)
    return module_text("eager", pair, lines, (name,), len(hidden(pair)))


def signature(name: str, items: Sequence[str]) -> list[Line]:
    """The head of a method, broken where it is long."""
    return own(listed(f"def {name}(", items, "):", indent=4))


def _comment_lines(pair: Pair) -> list[Line]:
    return [Line(line.comment.value) for line in pair.comments if line.comment]


def _with_header(head: list[Line], pair: Pair) -> list[Line]:
    if pair.header is not None and pair.header.comment is not None:
        head[-1] = Line(f"{head[-1].text}  {pair.header.comment.value}")
    return head


# --- forward --------------------------------------------------------------------------------


def forward_lines(pair: Pair, ctx: str) -> list[Line]:
    """The body of forward: the user's statements, then saving, then the outputs."""

    def rewrite(node: cst.Return, _: int) -> list[cst.BaseSmallStatement]:
        outputs, handed = split_return(node)
        values = {s.name: code(h) for s, h in zip(pair.saved, handed)}
        before: list[str] = []
        names = [code(o) for o in outputs]
        several = bool(hidden(pair)) and len(names) > 1
        unnamed = any(o.marked and not n.isidentifier() for o, n in zip(pair.outputs, names))
        if several or unnamed:
            outputs = [cst.Name(fresh(f"out_{i}", pair.taken)) for i in range(len(names))]
            before = [f"{code(o)} = {n}" for o, n in zip(outputs, names)]
            if several:
                made = ", ".join(code(o) for o in outputs)
                before.append(f"{ctx}.shapes = [t.shape for t in ({made})]")
                options = '{"dtype": t.dtype, "device": t.device}'
                before.append(f"{ctx}.options = [{options} for t in ({made})]")
        marked = [code(o) for o, p in zip(outputs, pair.outputs) if p.marked]
        texts = [*before, *marks(pair, ctx, marked), *save_statements(pair, ctx, values)]
        small = [small_statement(text) for text in texts]
        if pair.list_output:
            outputs = [as_tuple(outputs[0])]
        # a value that is an output here goes through the user's rule: it is not hidden too
        extra = [_unless_output(pair, n, names) for n in hidden(pair)]
        everything = [*outputs, *map(expression, extra)]
        return [*small, returned(everything, pair.single and not hidden(pair))]

    body = replace_returns(pair.forward, rewrite)
    return own(*as_list(pair)) + statement_lines(tidy(body), needs_of(pair, ctx))


def needs_of(pair: Pair, ctx: str) -> dict[str, str]:
    """``needs_input_grad`` in a pair stands for what ctx has."""
    if pair.asks:
        return needs(pair, ctx)
    return {} if NEEDS in pair.taken else {NEEDS: f"{ctx}.{NEEDS}"}


def _unless_output(pair: Pair, name: str, outputs: Sequence[str]) -> str:
    """A hidden output; none where it is one of the outputs, maybe by another name."""
    if name in outputs:
        return "None"
    same = aliases(s.tree for s in pair.forward).get(name, frozenset())
    found = [n for n in outputs if n in same]
    test = " or ".join(f"{name} is {n}" for n in found)
    return f"None if {test} else {name}" if found else name


def as_tuple(value: cst.BaseExpression) -> cst.BaseExpression:
    """``tuple(value)``: a Function returns tuples only."""
    return cst.Call(cst.Name("tuple"), [cst.Arg(standalone(value))])


def small_statement(text: str) -> cst.BaseSmallStatement:
    """A statement of one line, to stand beside others."""
    node = make(text).node
    assert isinstance(node, cst.SimpleStatementLine)
    return node.body[0]


def returned(outputs: Sequence[cst.BaseExpression], single: bool) -> cst.Return:
    if single:
        return cst.Return(outputs[0])
    comma = cst.Comma() if len(outputs) == 1 else cst.MaybeSentinel.DEFAULT
    elements = [cst.Element(o) for o in outputs[:-1]] + [cst.Element(outputs[-1], comma=comma)]
    return cst.Return(cst.Tuple(elements, lpar=[], rpar=[]))


def returned_list(outputs: cst.BaseExpression, extra: Sequence[str]) -> cst.Return:
    """A tuple of outputs, as long as it is, with the extra ones behind."""
    value = cst.parse_expression(f"(*{code(outputs).strip()}, {', '.join(extra)})")
    return cst.Return(value)


def tidy(body: Sequence[Stmt]) -> list[Stmt]:
    """No blank line in front, or in front of what follows a removed ``def backward``."""
    done = list(body)
    for index, statement in enumerate(done):
        if index == 0 or statement.line == done[-1].line:
            done[index] = replace(statement, node=without_blank_lines(statement.node))
    return done


def marks(pair: Pair, ctx: str, marked: Sequence[str]) -> list[str]:
    """``mark_dirty`` and ``mark_non_differentiable`` for outputs that need it.

    ``marked`` are the outputs, as they are returned, that the user marks.
    """
    texts = []
    if pair.dirty:
        texts.append(f"{ctx}.mark_dirty({', '.join(pair.dirty)})")
    whole = [o for o in pair.outputs if o.type == "IntTensor" and not o.marked]
    flat = [o.name for o in whole if o.name]
    flat += marked
    if flat:
        texts.append(f"{ctx}.mark_non_differentiable({', '.join(flat)})")
    if hidden(pair) or pair.undefined:
        texts.append(f"{ctx}.set_materialize_grads(False)")
    return texts


def needs(pair: Pair, ctx: str) -> dict[str, str]:
    """What the user's ``needs_input_grad`` stands for: one bool per input of theirs."""
    bound = sum(p.bound for p in pair.params)
    count = len(pair.params)
    spare = len(pair.arguments) > count
    part = f"[{bound or ''}:{count if spare else ''}]" if bound or spare else ""
    return {NEEDS: f"{ctx}.needs_input_grad{part}"}


def all_needed(pair: Pair, value: str = "True") -> list[str]:
    """``needs_input_grad`` where no ctx is there to ask."""
    alone = [p for p in pair.params if p.name != pair.listed and not p.bound]
    text = f"({value},) * {len(alone)}"
    if pair.listed:
        text = f"({value},) * ({len(alone)} + len({pair.listed}))"
    return [f"{NEEDS} = {text}"] if pair.asks else []


def save_statements(pair: Pair, ctx: str, values: dict[str, str]) -> list[str]:
    """``ctx.save_for_backward(...)`` for tensors, attributes for everything else."""
    tensors: list[str] = []
    texts: list[str] = []
    views = _views_of_outputs(pair)
    for saved in pair.saved:
        value = values.get(saved.name, saved.name)
        if saved.keep == "tensor":
            linked = saved.name in views
            tensors.append(_unlinked(value, views[saved.name]) if linked else value)
        elif saved.keep == "either":
            test = f"isinstance({value}, {pair.torch}.Tensor)"
            tensors.append(f"{value} if {test} else None")
            texts.append(f"{ctx}.{attribute(saved)} = None if {test} else {value}")
        elif saved.keep == "plain":
            texts.append(f"{ctx}.{attribute(saved)} = {value}")
    tensors += [f"*{s.name}" for s in _lists(pair)[:1]]
    for extra in _lists(pair)[:-1]:
        texts.append(f"{ctx}.{attribute(extra)} = len({extra.name})")
    tensors += [f"*{s.name}" for s in _lists(pair)[1:]]
    return [*([_saving(ctx, tensors)] if tensors else []), *texts]


def _saving(ctx: str, tensors: Sequence[str]) -> str:
    """``ctx.save_for_backward(...)``, with a line for each tensor where conditions fill it."""
    text = listed(f"{ctx}.save_for_backward(", tensors, ")")
    if "\n" not in text or not any(f"{NEEDS}[" in tensor for tensor in tensors):
        return text
    return "\n".join([f"{ctx}.save_for_backward(", *(f"    {t}," for t in tensors), ")"])


def _views_of_outputs(pair: Pair) -> dict[str, list[str]]:
    """Saved values that may be views of what forward returns, each with the outputs that it may be
    itself."""
    outputs = [o.name for o in pair.outputs if o.name]
    shared = aliases(s.tree for s in pair.forward)
    copied = inputs_or_none(pair)
    found: dict[str, list[str]] = {}
    for s in pair.saved:
        near = [name for name in outputs if name in shared.get(s.name, ())]
        plain = s.name not in {*outputs, *pair.arguments, *input_aliases(pair), *copied}
        if near and plain and not s.type.startswith("Optional"):
            if s.again in ("as is", "recomputed"):
                found[s.name] = near if s.name in perhaps_outputs(pair) else []
    return found


def _unlinked(value: str, outputs: Sequence[str]) -> str:
    """A view without its base: that may be an output, which keeps this node, which keeps the view.
    An output itself is known to autograd, which keeps no more than its values."""
    if not outputs:
        return f"{value}.detach()"
    same = " or ".join(f"{value} is {name}" for name in outputs)
    return f"{value} if {same} else {value}.detach()"


def input_aliases(pair: Pair) -> dict[str, str]:
    """``x_in = x`` in front of a forward that binds ``x`` again: another name of an input."""
    found: dict[str, str] = {}
    for statement in pair.forward:
        tree = statement.tree
        if statement.line or not isinstance(tree, ast.Assign):
            continue
        target, value = tree.targets[0], tree.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Name):
            if value.id in pair.arguments:
                found[target.id] = value.id
    return found


def _lists(pair: Pair) -> list[Saved]:
    return [s for s in pair.saved if s.keep == "tensors"]


def attribute(saved: Saved) -> str:
    """The attribute of ctx that holds a plain value."""
    return fresh(saved.name, _CTX)


def hidden(pair: Pair) -> list[str]:
    """Values returned as extra outputs, so that autograd asks for their gradient where a second
    derivative would need it: that is where it raises."""
    if pair.list_output:  # how many there are is not known: refused instead, `lists_refused`
        return []
    return [s.name for s in pair.saved if s.again == "refused" and s.keep in ("tensor", "either")]


def objects_refused(pair: Pair, ctx: str) -> list[str]:
    """A kept object that is no tensor cannot be watched for a second derivative: it raises where
    one is prepared."""
    # a plain list of tensors is refused at the call
    kinds = "bool, int, float, str, list, tuple, type(None)"
    texts: list[str] = []
    for saved in pair.saved:
        if saved.again == "refused" and saved.keep not in ("tensor", "tensors"):
            test = f"not isinstance({ctx}.{attribute(saved)}, ({kinds}))"
            texts += _refused_when_prepared(pair, saved, test)
    return texts


def lists_refused(pair: Pair) -> list[str]:
    """The same for a list of tensors, once backward has it."""
    texts: list[str] = []
    for saved in pair.saved if pair.list_output else ():
        if saved.again == "refused" and saved.keep in ("tensor", "either"):
            texts += _refused_when_prepared(pair, saved, f"{saved.name} is not None")
    for saved in _lists(pair):
        if saved.again == "refused":
            texts += _refused_when_prepared(pair, saved, saved.name)
    return texts


def _refused_when_prepared(pair: Pair, saved: Saved, test: str) -> list[str]:
    message = (
        f"{pair.name}: with create_graph or function transforms backward would differentiate "
        f"through {saved.name}, which is not computed twice: {saved.why}"
    )
    return [
        f"if {pair.torch}.is_grad_enabled() and {test}:",
        f"    raise RuntimeError({message!r})",
    ]


def hidden_grads(pair: Pair) -> list[str]:
    """The names of the gradients of the hidden outputs."""
    return [fresh(f"grad_{name}", pair.taken) for name in hidden(pair)]


# --- backward -------------------------------------------------------------------------------


def backward_lines(pair: Pair, ctx: str) -> list[Line]:
    """The body of backward: taking apart what was saved, then the user's statements."""
    body = list(pair.backward)
    unpack, direct = unpack_statements(pair, ctx, body)
    direct |= needs_of(pair, ctx)
    body = list(replace_returns(body, lambda node, _: padded(pair, ctx, node)))
    lines = own(
        *raises(pair, ctx),
        *objects_refused(pair, ctx),
        *grads_as_list(pair),
        *unpack,
        *lists_refused(pair),
    )
    statements = statement_lines(_tidy_first(body), direct)
    return lines + (once_lines(pair, ctx, statements) if pair.once else statements)


def once_lines(pair: Pair, ctx: str, body: list[Line]) -> list[Line]:
    """Backward's statements without a graph, and gradients that raise if they are differentiated.

    PyTorch's own decorator hangs its error on nothing, so that ``autograd.grad`` passes it by; here
    it hangs on the output gradients and on all that was saved.
    """
    gradients, grads, once, kept, found = (
        fresh(n, pair.taken) for n in ("gradients", "grads", "Once", "kept", "found")
    )
    torch = pair.torch
    message = f"{pair.name}: no second derivative, its backward is marked once_differentiable"
    outer = ", ".join(f"*{g}" if pair.list_output else g for g in pair.grads)
    return [
        *own(f"def {gradients}():"),
        *indented(body, 4),
        *own(
            "",
            f"with {torch}.no_grad():",
            f"    {grads} = {gradients}()",
            f"if not {torch}.is_grad_enabled():",
            f"    return {grads}",
            "",
            f"class {once}({torch}.autograd.Function):  # whoever differentiates these is told",
            "    generate_vmap_rule = True",
            "",
            "    @staticmethod",
            "    def forward(count, *tensors):",
            "        return tuple(t.clone() for t in tensors[:count])",
            "",
            "    @staticmethod",
            "    def setup_context(ctx, inputs, output):",
            "        pass",
            "",
            "    @staticmethod",
            "    def backward(ctx, *_):",
            f"        raise RuntimeError({message!r})",
            "",
            f"{grads} = {grads} if isinstance({grads}, (tuple, list)) else ({grads},)",
            f"{kept} = [t for t in ({outer}, *{ctx}.saved_tensors) if t is not None]",
            f"{found} = [g for g in {grads} if g is not None]",
            f"{found} = iter({once}.apply(len({found}), *{found}, *{kept}))",
            f"return tuple(None if g is None else next({found}) for g in {grads})",
        ),
    ]


def _tidy_first(body: list[Stmt]) -> list[Stmt]:
    if body:
        first = body[0]
        body = [Stmt(without_blank_lines(first.node), first.tree, first.line), *body[1:]]
    return body


def taken_grads(pair: Pair) -> list[str]:
    """The output gradients as backward's parameters: any number of them for a list of outputs."""
    return [f"*{pair.grads[0]}"] if pair.list_output else list(pair.grads)


def grads_as_list(pair: Pair) -> list[str]:
    """The list that the user's backward takes apart."""
    return [f"{pair.grads[0]} = list({pair.grads[0]})"] if pair.list_output else []


def raises(pair: Pair, ctx: str) -> list[str]:
    """The second derivative of what cannot be computed again is an error."""
    texts: list[str] = []
    refused = [s for s in pair.saved if s.again == "refused" and s.keep in ("tensor", "either")]
    for saved, grad in zip(refused, hidden_grads(pair)):
        message = no_second_derivative(pair, saved)
        texts += [f"if {grad} is not None:", f"    raise RuntimeError({message!r})"]
    if refused:
        nones = ", ".join(["None"] * len(pair.slots))
        test = " and ".join(f"{g} is None" for g in pair.grads)
        texts += [f"if {test}:", f"    return {nones}"]
        if len(pair.grads) > 1 and not pair.undefined:
            texts += materialised(pair, ctx)
    return texts


def no_second_derivative(pair: Pair, saved: Saved) -> str:
    """What is said where a second derivative would go through a value that is only kept."""
    return (
        f"{pair.name}: no second derivative through {saved.name}, "
        f"which is not computed twice: {saved.why}"
    )


def materialised(pair: Pair, ctx: str) -> list[str]:
    """Zeros for undefined gradients, which ``set_materialize_grads(False)`` leaves to us."""
    return [
        f"if {grad} is None:\n    {grad} = {zero_gradient(pair, ctx, index)}"
        for index, grad in enumerate(pair.grads)
    ]


def zero_gradient(pair: Pair, ctx: str, index: int) -> str:
    """Zeros like an output, from what was noted of it."""
    return f"{pair.torch}.zeros({ctx}.shapes[{index}], **{ctx}.options[{index}])"


def unpack_statements(
    pair: Pair, ctx: str, body: Sequence[Stmt]
) -> tuple[list[str], dict[str, str]]:
    """How backward gets the saved values: one unpacking, and ``ctx.eps`` where it is read.

    The second result says what stands for these names: ``{"eps": "ctx.eps"}``.
    """
    direct: dict[str, str] = {}
    tensors = [s.name for s in pair.saved if s.keep in ("tensor", "either")]
    texts: list[str] = []
    lists = _lists(pair)
    targets = tensors + [f"*{s.name}" for s in lists[:1]]
    if len(lists) == 1 and not tensors:
        variadic = any(p.kind == "variadic" and p.name == lists[0].name for p in pair.params)
        value = f"{ctx}.saved_tensors"
        texts.append(f"{lists[0].name} = {value if variadic else f'list({value})'}")
    elif len(targets) == 1:
        texts.append(f"({targets[0]},) = {ctx}.saved_tensors")
    elif targets:
        names = ", ".join(targets)
        text = f"{names} = {ctx}.saved_tensors"
        texts.append(text if len(text) <= 92 else listed("(", targets, f") = {ctx}.saved_tensors"))
    for index, saved in enumerate(lists[:-1]):
        following = lists[index + 1].name
        count = f"{ctx}.{attribute(saved)}"
        texts.append(f"{saved.name}, {following} = {saved.name}[:{count}], {saved.name}[{count}:]")
    texts += [f"{s.name} = tuple({s.name})" for s in lists if is_tensor_tuple(s.type)]
    for saved in pair.saved:
        value = f"{ctx}.{attribute(saved)}"
        if saved.keep == "either":
            texts += [f"if {saved.name} is None:", f"    {saved.name} = {value}"]
        elif saved.keep == "plain":
            if _read_directly(saved.name, body):
                direct[saved.name] = value
            else:
                texts.append(f"{saved.name} = {value}")
    return texts, direct


def _read_directly(name: str, body: Sequence[Stmt]) -> bool:
    """Read once or twice, never rebound, not from an inner function: ``ctx.name`` will do."""
    count = 0
    for statement in body:
        if name in writes(statement.tree):
            return False
        for node in walk(statement.tree):
            if isinstance(node, ast.Name) and node.id == name:
                count += 1
                if not isinstance(node.ctx, ast.Load):
                    return False
            inner = isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef))
            if inner and any(isinstance(n, ast.Name) and n.id == name for n in walk(node)):
                return False
            if isinstance(node, ast.arg) and node.arg == name:
                return False
    return count <= 2


def padded(pair: Pair, ctx: str, node: cst.Return) -> list[cst.BaseSmallStatement]:
    """The returned gradients in the order of forward's arguments, ``None`` where there is no slot.

    A list of gradients, for a list of tensors, is spread out at the end.
    """
    value = node.value
    if value is None:
        return [cst.Return(cst.parse_expression(", ".join(["None"] * len(pair.slots))))]
    if isinstance(value, cst.List):
        value = cst.Tuple(value.elements, lpar=[], rpar=[])
        node = cst.Return(value)
    if isinstance(value, (cst.Name, cst.Call, cst.ListComp)) and sum(pair.slots) > 1:
        if _is_list(pair, value):
            value = as_tuple(value)
            node = cst.Return(value)
    as_taken = pair.listed is None or any(p.kind == "variadic" for p in pair.params)
    if all(pair.slots) and as_taken:
        return [node]
    names = [p.name for p in pair.params if not p.bound]
    before: list[cst.BaseSmallStatement] = []
    if len(names) == 1 and not isinstance(value, cst.Tuple):
        given: dict[str, cst.BaseElement] = {names[0]: cst.Element(standalone(value))}
        if any(p.kind == "variadic" for p in pair.params):
            given = {names[0]: cst.StarredElement(standalone(value))}
    elif isinstance(value, cst.Tuple) and len(value.elements) == len(names):
        given = dict(zip(names, value.elements))
    else:
        whole = fresh("grads", pair.taken)
        before = [small_statement(f"{whole} = {code(cst.Return(value)).strip()[7:]}")]
        given = {n: cst.Element(cst.parse_expression(f"{whole}[{i}]")) for i, n in enumerate(names)}
    elements: list[cst.BaseElement] = []
    for name in pair.arguments:
        element = given.get(name, cst.Element(cst.Name("None")))
        if name == pair.listed and not isinstance(element, cst.StarredElement):
            element = cst.StarredElement(_spread(pair, ctx, element.value))
        elements.append(_comma_free(element))
    return [*before, cst.Return(cst.Tuple(elements, lpar=[], rpar=[]))]


def _is_list(pair: Pair, value: cst.BaseExpression) -> bool:
    """Does backward return its gradients in a list?"""
    trees = [s.tree for s in pair.backward]
    start = {s.name: s.type for s in pair.saved} | dict.fromkeys(pair.grads, "Tensor")
    found = bindings(pair.source.tree)
    tree = ast.parse(code(value).strip(), mode="eval").body
    return infer(tree, types_after(trees, start, found), found).startswith("List[")


def _spread(pair: Pair, ctx: str, value: cst.BaseExpression) -> cst.BaseExpression:
    """The gradients of a list; a bare ``None`` as one None for each of its tensors."""
    if isinstance(value, cst.Name) and value.value == "None":
        count = f"(len({ctx}.needs_input_grad) - {len(pair.arguments) - 1})"
        return cst.parse_expression(f"[None] * {count}")
    return standalone(value)


def _comma_free(element: cst.BaseElement) -> cst.BaseElement:
    return element.with_changes(comma=cst.MaybeSentinel.DEFAULT)
