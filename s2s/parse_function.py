"""An ``autograd.Function`` class, read as the closure form: ``ctx`` is eliminated.

    class Swish(torch.autograd.Function):       def swish(x):
        @staticmethod                               s = torch.sigmoid(x)
        def forward(ctx, x):
            s = torch.sigmoid(x)                    def backward(grad_out):
            ctx.save_for_backward(x, s)    -->          return grad_out * s * (1 + x * (1 - s))
            return x * s
                                                    return x * s, backward
        @staticmethod
        def backward(ctx, grad_out):
            x, s = ctx.saved_tensors
            return grad_out * s * (1 + x * (1 - s))

What forward puts on ``ctx`` becomes a variable that backward captures; the closure is then compiled
like one that a user wrote. What has no such form is refused, with its line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from .check import mutated_inputs
from .classes.find import FunctionClass, Method, lookup
from .classes.inline import inlined, with_setup
from .classes.marks import mark, unmarked
from .classes.methods import Part, part_of
from .classes.plan import Plan, Problem, plan
from .classes.rewrite import backward_body, forward_body
from .errors import TransformError, diagnostic
from .ir import Diagnostic, Rule, Source, Span, lines_of, replace
from .names import fresh, mentioned, reads, returns_in, walk, writes
from .parse import falls_through, parse
from .source import bindings, functions_in, parse_text
from .syntax import code, renamed
from .vocabulary import SCRIPT_BUILTINS

__all__ = ["Closure", "as_function", "closure", "function_name", "marked_right", "spliced"]


@dataclass(frozen=True, slots=True)
class Closure:
    """The closure form of one class as text, at the indentation of the class.

    ``lines`` holds the line of the class's file that each line comes from, 0 for none.
    """

    cls: FunctionClass
    name: str
    text: str
    lines: tuple[int, ...]
    dirty: tuple[str, ...]  # the inputs that the class marks as changed
    cast: str = ""  # the text of custom_fwd's cast_inputs
    device: str = "cuda"  # whose autocast that is about


def closure(cls: FunctionClass, name: str = "") -> Closure:
    """The class as a decorated function with a nested backward.

    ``name`` is the function's, by default made of the class's. Raises TransformError with every use
    of ctx that has no closure form.
    """
    forward, backward = _parts(cls)
    name = name or function_name(cls)
    outside = _module_names(cls)
    made = plan(forward, backward, outside | {name})
    s2s = "s2s" if bindings(cls.tree).get("s2s") is None else _module_alias(cls)
    problems = [_problem(cls, forward, backward, problem) for problem in made.problems]
    problems += _odd_scope(cls, forward, backward)
    if problems:
        raise TransformError(problems)
    torch = _torch(cls)
    body = forward_body(forward, made, s2s, torch)
    rest = backward_body(backward, made, s2s, torch)
    inner = _nested(cls, backward, forward, made, rest)
    returns = _Return(cls, backward, made, s2s, _taken(forward, backward, made))
    body = _with_backward(body, inner, returns)
    if returns.problems:
        raise TransformError(returns.problems)
    text, lines = unmarked(_placed(cls, _function(cls, forward, made, name, s2s, body)))
    return Closure(cls, name, text, lines, made.dirty, forward.cast, forward.device)


def _placed(cls: FunctionClass, function: cst.FunctionDef) -> str:
    """The text of the function where the class stands, with the file's own indentation."""
    rows = lines_of(cls.text)
    before = rows[cls.node.lineno - 1][: cls.node.col_offset]
    within = rows[cls.node.body[-1].lineno - 1]
    unit = within[: len(within) - len(within.lstrip())].removeprefix(before)
    if cls.node.body[-1].lineno == cls.node.lineno or not unit:
        unit = "    "
    if not before:
        return cst.Module([function], default_indent=unit).code.strip("\n")
    nested = cst.If(cst.Name("True"), cst.IndentedBlock([function], indent=before))
    return cst.Module([nested], default_indent=unit).code.partition("\n")[2].strip("\n")


def _parts(cls: FunctionClass) -> tuple[Part, Part]:
    """Forward and backward with everything that takes ctx written out in them."""
    found: dict[str, Method] = {}
    for key in ("forward", "setup_context", "backward"):
        method = lookup(cls.order, key)
        if method is not None:
            found[key] = method
    missing = [key for key in ("forward", "backward") if key not in found]
    if missing:
        problem = diagnostic(
            "S2S221",
            cls.span(cls.node),
            f"{cls.name} has no {missing[0]} in this file",
            hint="give the class a forward and a backward in one file",
        )
        raise TransformError([problem])
    has_setup = "setup_context" in found
    parts = {key: part_of(cls, method, has_setup) for key, method in found.items()}
    parts = {key: inlined(cls, part, found[key].owner) for key, part in parts.items()}
    forward = parts["forward"]
    if has_setup:
        forward = with_setup(cls, forward, parts["setup_context"])
    return forward, parts["backward"]


def _problem(cls: FunctionClass, forward: Part, backward: Part, problem: Problem) -> Diagnostic:
    part = forward if problem.method == "forward" else backward
    span = _span(cls, _line_of(part, getattr(problem.node, "lineno", 1)))
    return diagnostic(problem.code, span, f"{cls.name}: {problem.what}", hint=problem.hint)


def _line_of(part: Part, line: int) -> int:
    """The user's line of a line of a part's own text."""
    text = code(part.node.with_changes(decorators=(), leading_lines=()))
    rows = text.split("\n")
    current = 0
    for row in rows[:line]:
        found = re.match(r"\s*#@(\d+)$", row)
        current = int(found[1]) if found else current
    return current


def _span(cls: FunctionClass, line: int) -> Span:
    place = cls.line_span(line or cls.node.lineno)
    return replace(place, column=len(place.text) - len(place.text.lstrip()) + 1)


# --- names ----------------------------------------------------------------------------------


def function_name(cls: FunctionClass) -> str:
    """``swish_beta`` for ``SwishBeta``; another where the module or TorchScript has that name.

    A suffix that says what kind of thing it is goes: ``SwishFunction`` is ``swish``.
    """
    bare = re.sub(r"(Function|Func|Fn|_fn|_func|_function)$", "", cls.name.strip("_")) or cls.name
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()
    snake = re.sub(r"__+", "_", snake).strip("_") or "function"
    taken = _module_names(cls) | SCRIPT_BUILTINS | {"backward", "forward"}
    for one in (snake, f"{snake}_fn"):
        if one not in taken and one.isidentifier():
            return one
    return fresh(snake, taken)


def _module_names(cls: FunctionClass) -> set[str]:
    """What the class's own text may mean by a name from outside, and what its file binds."""
    names = set(bindings(cls.tree))
    for outer in cls.enclosing:
        names |= {n for s in getattr(outer, "body", []) for n in writes(s)}
        names |= {a.arg for a in walk(outer) if isinstance(a, ast.arg)}
    return names | {n.id for n in walk(cls.node) if isinstance(n, ast.Name)}


def _module_alias(cls: FunctionClass) -> str:
    binding = bindings(cls.tree)["s2s"]
    return "s2s" if binding.origin == "s2s" else fresh("s2s", _module_names(cls))


def _torch(cls: FunctionClass) -> str:
    """What the file calls torch."""
    return next((n for n, b in bindings(cls.tree).items() if b.origin == "torch"), "torch")


def _taken(forward: Part, backward: Part, made: Plan) -> set[str]:
    names = set(mentioned(forward.tree) | mentioned(backward.tree))
    variables = {*made.attributes.values(), *(made.slots or ()), made.listed}
    return names | variables | set(made.forward_names.values())


def _odd_scope(cls: FunctionClass, forward: Part, backward: Part) -> Iterator[Diagnostic]:
    """Names that mean something in a class body alone."""
    own = {n for s in cls.node.body for n in writes(s)}
    outside = set(bindings(cls.tree))
    method = lookup(cls.order, "forward")
    defaults = method.function.args.defaults if method else []
    for default in defaults:
        for name in reads(default):
            if name in own - outside:
                yield diagnostic(
                    "S2S223",
                    cls.span(default),
                    f"{cls.name}: a default reads {name} of the class body",
                    hint="write the value, or bind it outside the class",
                )
    for part in (forward, backward):
        for node in walk(part.tree):
            if isinstance(node, ast.Name) and node.id in ("super", "__class__"):
                yield diagnostic(
                    "S2S222",
                    _span(cls, _line_of(part, node.lineno)),
                    f"{cls.name}: {part.name} calls {node.id}, which a function has not",
                    hint="name the base class, and hand ctx over in a statement of its own",
                )


# --- the function ---------------------------------------------------------------------------


def _nested(
    cls: FunctionClass,
    backward: Part,
    forward: Part,
    made: Plan,
    body: Sequence[cst.BaseStatement],
) -> cst.FunctionDef:
    """``def backward(grads):`` with the statements of the class's backward."""
    torch = _torch(cls)
    optional = None
    if not made.materialize:
        optional = cst.Annotation(cst.parse_expression(f"{torch}.Tensor | None"))
    params = backward.node.params
    positional = [*params.posonly_params, *params.params]
    skipped = len(positional) - (len(backward.params) - isinstance(params.star_arg, cst.Param))
    names = [p.name.value for p in positional[skipped:]]
    star = params.star_arg
    kept = [
        cst.Param(cst.Name(made.backward_names.get(name, name)), annotation=optional)
        for name in names
    ]
    given = cst.Parameters(
        kept,
        star_arg=star.with_changes(annotation=None) if isinstance(star, cst.Param) else star,
    )
    statements = [_counted(cls, forward, statement) for statement in body]
    statements = _ended(cls, statements, len(forward.params))
    if backward.grad:  # @torch.enable_grad()
        block = cst.IndentedBlock(statements)
        item = cst.WithItem(cst.parse_expression(f"{torch}.{backward.grad}()"))
        statements = [cst.With([item], block)]
    decorators = [d for d in backward.node.decorators if "once_differentiable" in code(d.decorator)]
    return backward.node.with_changes(
        name=cst.Name("backward"),
        params=given,
        returns=None,
        decorators=decorators,
        body=backward.node.body.with_changes(body=statements or [cst.parse_statement("pass")]),
    )


def _ended(
    cls: FunctionClass, body: list[cst.BaseStatement], inputs: int
) -> list[cst.BaseStatement]:
    """A backward that reaches its end returns None: one gradient, and an error for more."""
    tree = ast.parse("".join(map(code, body)) or "pass").body
    if not falls_through(tree):
        return body
    text = "return None"
    if inputs != 1:
        text = f'raise RuntimeError("backward of {cls.name} ends without gradients")'
    last = cst.parse_statement(text)
    assert isinstance(last, cst.BaseStatement)
    return [*body, last]


class _Count(cst.CSTTransformer):
    """As many gradients as forward has inputs: superfluous Nones go, as PyTorch lets them."""

    def __init__(self, params: Sequence[str], spare: int) -> None:
        self.count = len(params)
        self.spare = spare  # last parameters with a default that is no tensor

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        value = updated_node.value
        if value is None:
            return updated_node
        elements = list(value.elements) if isinstance(value, cst.Tuple) else [cst.Element(value)]
        if any(isinstance(e, cst.StarredElement) for e in elements):
            return updated_node
        single = not isinstance(value, cst.Tuple)
        if single and (self.count == 1 or not _is_one(value)):
            return updated_node
        while len(elements) > self.count and code(elements[-1].value).strip() == "None":
            elements.pop()
        missing = self.count - len(elements)
        if 0 < missing <= self.spare:
            elements += [cst.Element(cst.Name("None"))] * missing
        elif single or len(elements) == len(value.elements):  # type: ignore[attr-defined]
            return updated_node
        if len(elements) == 1:
            return updated_node.with_changes(value=elements[0].value)
        last = elements[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        tuple_ = value if isinstance(value, cst.Tuple) else cst.Tuple([], lpar=[], rpar=[])
        return updated_node.with_changes(value=tuple_.with_changes(elements=[*elements[:-1], last]))


def _is_one(value: cst.BaseExpression) -> bool:
    """Surely one gradient, not a tuple of them."""
    return isinstance(value, (cst.BinaryOperation, cst.UnaryOperation))


def _counted(cls: FunctionClass, forward: Part, statement: cst.BaseStatement) -> cst.BaseStatement:
    if isinstance(forward.node.params.star_arg, cst.Param):
        return statement
    arguments = forward.tree.args
    spare = 0
    for default in reversed(arguments.defaults):
        plain = isinstance(default, ast.Constant) and default.value is not None
        if not plain:
            break
        spare += 1
    changed = statement.visit(_Count(forward.params, spare))
    assert isinstance(changed, cst.BaseStatement)
    return changed


class _Return(cst.CSTTransformer):
    """``return y`` as ``return y, backward``, with what is marked non-differentiable."""

    def __init__(
        self, cls: FunctionClass, backward: Part, made: Plan, s2s: str, taken: set[str]
    ) -> None:
        self.cls = cls
        self.made = made
        self.s2s = s2s
        self.taken = taken
        self.grads = len(backward.params)
        self.star = isinstance(backward.node.params.star_arg, cst.Param)
        self.problems: list[Diagnostic] = []
        self.line = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        small = updated_node.body[0] if updated_node.body else None
        if not isinstance(small, cst.Return):
            return updated_node
        value = small.value or cst.Name("None")
        before: list[cst.BaseStatement] = []
        if isinstance(value, (cst.List, cst.Dict, cst.ListComp)):
            self._refuse(
                original_node,
                "forward returns a list or dict, which PyTorch passes on without a gradient",
                "return a tuple",
            )
        if isinstance(value, cst.Tuple):
            elements = [self._flat(e) for e in value.elements]
            comma = cst.Comma() if len(elements) == 1 else cst.MaybeSentinel.DEFAULT
            elements[-1] = elements[-1].with_changes(comma=comma)
            value = value.with_changes(
                elements=elements, lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
            )
        elif self.grads > 1 and not self.star:  # a tuple that was made elsewhere
            names = [fresh(f"output_{i}", self.taken) for i in range(self.grads)]
            targets = cst.Tuple([cst.Element(cst.Name(n)) for n in names], lpar=[], rpar=[])
            before.append(cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(targets)], value)]))
            value = cst.Tuple([cst.Element(cst.Name(n)) for n in names])
        else:
            value = self._flat(cst.Element(value)).value
        whole = cst.Tuple([cst.Element(value), cst.Element(cst.Name("backward"))], lpar=[], rpar=[])
        last = updated_node.with_changes(body=[cst.Return(whole)])
        if before:
            marks = [m for m in updated_node.leading_lines if m.comment]
            before[0] = before[0].with_changes(leading_lines=updated_node.leading_lines)
            last = last.with_changes(leading_lines=marks[-1:])
        return cst.FlattenSentinel([*before, last])

    def _flat(self, element: cst.BaseElement) -> cst.BaseElement:
        value = element.value
        if isinstance(value, cst.Name) and value.value in self.made.flat:
            call = cst.parse_expression(f"{self.s2s}.non_differentiable({value.value})")
            return element.with_changes(value=call)
        return element

    def _refuse(self, node: cst.SimpleStatementLine, what: str, hint: str) -> None:
        marks = [m.comment.value for m in node.leading_lines if m.comment]
        found = [int(m[2:]) for m in marks if m.startswith("#@")]
        span = _span(self.cls, found[-1] if found else 0)
        self.problems.append(diagnostic("S2S223", span, f"{self.cls.name}: {what}", hint=hint))


def _with_backward(
    body: Sequence[cst.BaseStatement], backward: cst.FunctionDef, returns: _Return
) -> list[cst.BaseStatement]:
    """The nested backward in front of the first statement that returns."""
    done: list[cst.BaseStatement] = []
    placed = False
    for statement in body:
        if not placed and _returns(statement):
            done.append(_spaced(backward) if done else backward)
            statement = _spaced(statement)
            placed = True
        changed = statement.visit(returns)
        done += changed.nodes if isinstance(changed, cst.FlattenSentinel) else [changed]  # type: ignore[list-item]
    return done if placed else [*done, backward]


def _returns(statement: cst.BaseStatement) -> bool:
    return bool(returns_in(ast.parse(code(statement)).body)) if _may_return(statement) else False


def _may_return(statement: cst.BaseStatement) -> bool:
    if isinstance(statement, cst.SimpleStatementLine):
        return bool(statement.body) and isinstance(statement.body[0], cst.Return)
    return not isinstance(statement, (cst.FunctionDef, cst.ClassDef))


def _spaced(statement: cst.BaseStatement) -> cst.BaseStatement:
    """One blank line in front."""
    lines = [m for m in getattr(statement, "leading_lines", ()) if m.comment]
    return statement.with_changes(leading_lines=[cst.EmptyLine(indent=False), *lines])


def _function(
    cls: FunctionClass,
    forward: Part,
    made: Plan,
    name: str,
    s2s: str,
    body: list[cst.BaseStatement],
) -> cst.FunctionDef:
    params = forward.node.params
    if params.star_kwarg is not None:  # `apply` takes no keywords
        keywords = params.star_kwarg.name.value
        body = [_parsed(f"{keywords} = {{}}"), *body]
        params = params.with_changes(star_kwarg=None)
    if len(forward.params) < len([*params.posonly_params, *params.params]) + isinstance(
        params.star_arg, cst.Param
    ):
        if params.posonly_params:
            params = params.with_changes(posonly_params=params.posonly_params[1:])
        else:
            params = params.with_changes(params=params.params[1:])
    renamed_params = params
    if made.forward_names:
        changed = renamed(params, made.forward_names)
        assert isinstance(changed, cst.Parameters)
        renamed_params = changed
    text = ast.get_docstring(cls.node, clean=False)
    if text:  # one of forward's own follows as a statement, and says what it said
        body = [*_docstring(cls), *body]
    options = f"(cast_inputs={forward.cast})" if forward.cast else ""
    decorators = [cst.Decorator(cst.parse_expression(f"{s2s}.autograd_script{options}"))]
    if cls.enclosing and isinstance(cls.enclosing[-1], ast.ClassDef):
        decorators.insert(0, cst.Decorator(cst.Name("staticmethod")))
    place = mark(cls.node.lineno)
    return cst.FunctionDef(
        name=cst.Name(name),
        params=renamed_params,
        body=cst.IndentedBlock(body),
        decorators=decorators,
        leading_lines=[place],
        lines_after_decorators=[place],
    )


def _parsed(text: str) -> cst.BaseStatement:
    node = cst.parse_statement(text)
    assert isinstance(node, cst.BaseStatement)
    return node


def _docstring(cls: FunctionClass) -> list[cst.BaseStatement]:
    """The class's own, as it is written."""
    node = cls.node.body[0]
    rows = lines_of(cls.text)[node.lineno - 1 : node.end_lineno]
    text = "\n".join([rows[0].lstrip(), *rows[1:]])
    return [_parsed(text)]


def as_function(cls: FunctionClass) -> Source:
    """A class as the source of the decorated closure that it is compiled as.

    Its places are the class's. Raises TransformError where the class has no such form.
    """
    made = closure(cls)
    source = spliced(cls, made)
    problems = marked_right(parse(source), made)
    if problems:
        raise TransformError(problems)
    return source


# --- into the file --------------------------------------------------------------------------


def spliced(cls: FunctionClass, made: Closure) -> Source:
    """The file with the closure in place of the class, as the source of that function.

    Places in it lead to the user's file.
    """
    rows = lines_of(cls.text)
    first = min([cls.node.lineno, *(d.lineno for d in cls.node.decorator_list)])
    last = cls.node.end_lineno or first
    if cls.node in cls.tree.body:  # at the end of the file, so that the rest need not be read again
        text = "\n".join([*rows[: first - 1], *[""] * (last - first + 1), *rows[last:], made.text])
        lines = (*range(1, len(rows) + 1), *made.lines)
        alone = ast.parse("\n" * len(rows) + made.text).body
        tree = ast.Module([*(s for s in cls.tree.body if s is not cls.node), *alone], [])
        first = len(rows) + 1
    else:
        text = "\n".join([*rows[: first - 1], made.text, *rows[last:]])
        lines = (*range(1, first), *made.lines, *range(last + 1, len(rows) + 1))
        tree = parse_text(text)
    function, enclosing = next(
        (f, e) for f, e in functions_in(tree) if f.name == made.name and f.lineno >= first
    )
    names = [*cls.qualname.split(".")[:-1], made.name]
    return Source(
        text=text,
        file=cls.file,
        module=cls.module,
        qualname=".".join(names),
        tree=tree,
        function=function,
        enclosing=enclosing,
        user_text=cls.text,
        user_lines=lines,
        dirty=made.dirty,
    )


def marked_right(rule: Rule, made: Closure) -> tuple[Diagnostic, ...]:
    """mark_dirty must name the inputs that forward changes in place."""
    changed = set(mutated_inputs(rule))
    marked = set(made.dirty)
    span = _span(made.cls, made.cls.node.lineno)
    problems = []
    if made.cast:
        problems.append(
            diagnostic(
                "S2S223",
                span,
                f"{made.cls.name} casts its inputs under the autocast of {made.device} alone",
                hint=f"write the closure form with `cast_inputs={made.cast}`, which casts under "
                "that of every device",
            )
        )
    for name in sorted(changed - marked):
        problems.append(
            diagnostic(
                "S2S224",
                span,
                f"forward of {made.cls.name} changes its input {name} in place without mark_dirty",
                hint=f"call ctx.mark_dirty({name}), or work on {name}.clone()",
            )
        )
    for name in sorted(marked - changed):
        problems.append(
            diagnostic(
                "S2S224",
                span,
                f"forward of {made.cls.name} marks {name} as changed in place, and no statement "
                "that can be seen changes it",
                hint="change it in forward itself, or leave mark_dirty out",
            )
        )
    return tuple(problems)
