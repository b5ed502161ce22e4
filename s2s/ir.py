"""The values that carry a function through the pipeline.

``Rule`` is what the user wrote, ``Pair`` is what every form is printed from: a forward that
returns ``outputs, saved`` and a backward that takes ``gradients, saved``. All of it is frozen,
with tuples inside, so that a pass cannot change what an earlier stage still holds.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # calling what has been compiled takes these values, and no trees
    import libcst as cst

__all__ = [
    "CELLS",
    "LISTS",
    "Backward",
    "Capture",
    "Constant",
    "Diagnostic",
    "Emitted",
    "Interface",
    "Output",
    "Pair",
    "Param",
    "Rule",
    "Save",
    "Saved",
    "Source",
    "Span",
    "Stage",
    "Stmt",
    "lines_of",
    "replace",
]

CaptureKind = Literal["input", "output", "intermediate", "constant", "helper"]
ParamKind = Literal["positional-only", "positional", "variadic", "keyword-only", "keywords"]
LISTS = ("List[Tensor]", "List[Optional[Tensor]]")

# what `bind` in the text of the call form takes: the parts that loading fills in
CELLS = (
    "is_dynamo_compiling",
    "compiler",
    "is_fx_tracing",
    "is_tracing",
    "is_grad_enabled",
    "transforms_active",
    "autocast_active",
    "forward_ad",
    "Tensor",
    "s2s",
    "run",
    "apply",
)
Keep = Literal["tensor", "tensors", "plain", "either"]
Save = Literal["least", "auto", "all"]


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the user's file: line from 1, column from 1, and the text of that line."""

    file: str
    line: int
    column: int = 1
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: its code, where it is, what is wrong, and what to write instead."""

    code: str
    span: Span
    message: str
    hint: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stmt:
    """One statement: the lossless tree, the same statement for analysis, and the user's line.

    ``line`` is 0 for a statement that s2s wrote.
    """

    node: cst.BaseStatement
    tree: ast.stmt
    line: int = 0


@functools.lru_cache(maxsize=64)
def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a file, split once for all its functions."""
    return tuple(text.split("\n"))


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one file and the function of it that is compiled."""

    text: str
    file: str
    module: str
    qualname: str
    tree: ast.Module = field(repr=False)
    function: ast.FunctionDef | ast.AsyncFunctionDef = field(repr=False)
    enclosing: tuple[ast.stmt, ...] = field(repr=False)
    # where the text was rewritten: the text of the file, and its line for each line of ``text``
    user_text: str = field(default="", repr=False)
    user_lines: tuple[int, ...] = field(default=(), repr=False)
    dirty: tuple[str, ...] | None = None  # the inputs that a Function class marks as changed

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def in_class(self) -> bool:
        """The function is written directly in a class body."""
        return bool(self.enclosing) and isinstance(self.enclosing[-1], ast.ClassDef)

    def span(self, node: ast.AST) -> Span:
        """The place of a node of ``tree``."""
        place = self.line_span(self.line(node))
        if self.user_lines:
            return replace(place, column=len(place.text) - len(place.text.lstrip()) + 1)
        before = place.text.encode()[: getattr(node, "col_offset", 0)]
        return replace(place, column=len(before.decode(errors="replace")) + 1)

    def line(self, node: ast.AST) -> int:
        """The line of a node of ``tree`` in the user's file."""
        return self.user_line(getattr(node, "lineno", 1))

    def user_line(self, line: int) -> int:
        """The line in the user's file of a line of ``text``; the nearest above it."""
        if not self.user_lines or not line:
            return line
        return next((n for n in self.user_lines[line - 1 :: -1] if n), 1)

    def line_span(self, line: int) -> Span:
        """The place of a line of the user's file."""
        lines = lines_of(self.user_text or self.text)
        return Span(self.file, line, 1, lines[line - 1] if 0 < line <= len(lines) else "")


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. ``type`` is a TorchScript type name, or "" where nothing tells it."""

    name: str
    kind: ParamKind
    type: str
    annotation: str | None = None
    default: str | None = None
    bound: bool = False  # `self` or `cls`: takes no gradient slot
    assumed: bool = False  # nothing says what it is; read as a Tensor, as TorchScript does


@dataclass(frozen=True, slots=True)
class Constant:
    """A name of an enclosing function, or a global that holds data, read by the function.

    Enclosing names become explicit arguments of the lifted functions (``lifted``); a global is
    read where it stands, and its value kept for backward.
    """

    name: str
    type: str
    origin: str  # for a reader: "make_atan" or "the module"
    lifted: bool
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One returned value: its name where the return statements name one, its type."""

    name: str | None
    type: str
    differentiable: bool = True
    marked: bool = False  # `non_differentiable(y)`


@dataclass(frozen=True, slots=True)
class Capture:
    """A name that ``backward`` reads and ``forward`` binds, or finds outside."""

    name: str
    kind: CaptureKind
    line: int
    type: str = ""

    def __repr__(self) -> str:
        return f"{self.name}: {self.kind}@{self.line}"


@dataclass(frozen=True, slots=True)
class Backward:
    """One nested ``backward``: a ``def`` or a lambda, as a list of statements that return."""

    name: str
    params: tuple[str, ...]
    body: tuple[Stmt, ...]
    line: int
    tree: ast.FunctionDef | ast.Lambda = field(repr=False)
    comments: tuple[cst.EmptyLine, ...] = ()
    header: cst.TrailingWhitespace | None = None
    early: tuple[str, ...] = ()  # names that hold the defaults of its parameters


@dataclass(frozen=True, slots=True)
class Rule:
    """What the user wrote, before any change."""

    source: Source
    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    backwards: tuple[Backward, ...]
    outputs: tuple[Output, ...]
    single: bool  # `return y, backward`: one tensor, not a tuple of one
    container: str  # "list", "tuple" of any length, or the keys of a dict, with spaces
    types: tuple[tuple[str, str], ...]  # of every name, after the body has run
    locals: frozenset[str]
    once: bool = False  # backward is marked once_differentiable
    undefined: bool = False  # an output gradient may be None: no zeros in its place
    dirty: tuple[str, ...] | None = None  # inputs marked as changed in place; None: those that are
    save: Save = "all"  # how much is kept for backward, and how much computed again
    recompute: tuple[str, ...] = ()  # captured names that are computed again in any case


@dataclass(frozen=True, slots=True)
class Saved:
    """One value kept between forward and backward, and how.

    ``keep`` is "tensor" (saved tensor), "tensors" (a list of them), "plain" (an attribute of
    ctx), or "either" where the type is known only at run time. ``again`` says what a second
    derivative does with it.
    """

    name: str
    keep: Keep
    type: str
    again: Literal["as is", "recomputed", "constant", "refused", "output"] = "as is"
    why: str = ""
    value: str | None = None  # what forward hands over under this name, if not that name


class _Called:
    """How forward is called: what a pair and its interface can both be asked."""

    __slots__ = ()
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    outputs: tuple[Output, ...]
    single: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """What forward takes: the user's parameters, the names it reads outside, and last the
        tensors of a list, as many as there are."""
        listed = self.listed
        alone = [p.name for p in self.params if p.name != listed]
        lifted = [c.name for c in self.constants if c.lifted]
        return (*alone, *lifted, *([listed] if listed else []))

    @property
    def listed(self) -> str | None:
        """The parameter that holds any number of tensors: ``*ts``, or a list of them."""
        for param in self.params:  # Dynamo, which reads this, knew `next` of a default late
            if param.type in LISTS:
                return param.name
        return None

    def params_of(self, type_: str) -> tuple[int, ...]:
        """The positions among ``arguments`` of the parameters of a type."""
        wanted = {p.name for p in self.params if p.type == type_ and not p.bound}
        return tuple(i for i, name in enumerate(self.arguments) if name in wanted)

    @property
    def slots(self) -> tuple[bool, ...]:
        """For each argument of forward: does backward return a gradient for it?"""
        own = {p.name for p in self.params if not p.bound}
        return tuple(name in own for name in self.arguments)

    @property
    def scripted_order(self) -> tuple[Param, ...]:
        """The parameters that the function for TorchScript takes by position."""
        by_name = [p for p in self.params if p.kind == "keyword-only" and p.default is not None]
        return (*(p for p in self.params if p.kind != "keyword-only"), *by_name)

    @property
    def list_output(self) -> bool:
        """The only output is a list of tensors, as long as it happens to be."""
        return self.single and self.outputs[0].type in LISTS


@dataclass(frozen=True, slots=True)
class Pair(_Called):
    """The lifted function: forward returns ``outputs, (saved...)``, backward takes both apart."""

    name: str
    source: Source = field(repr=False)
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    outputs: tuple[Output, ...]
    single: bool
    container: str
    forward: tuple[Stmt, ...]
    grads: tuple[str, ...]
    backward: tuple[Stmt, ...]
    saved: tuple[Saved, ...]
    imports: tuple[str, ...]
    torch: str
    taken: frozenset[str]  # names that generated code may not use
    dirty: tuple[str, ...] = ()
    comments: tuple[cst.EmptyLine, ...] = ()
    header: cst.TrailingWhitespace | None = None
    branch: str | None = None  # the saved number of the backward that a call returned
    helpers: tuple[Stmt, ...] = ()  # functions in front of forward, for TorchScript
    once: bool = False
    undefined: bool = False
    changed: tuple[str, ...] = ()  # inputs that forward changes in place, marked or not
    asks: bool = False  # the text reads needs_input_grad
    save: Save = "all"
    recompute: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Emitted:
    """One form as text. ``lines`` holds the user's line for each line of it, 0 for our own, and
    ``source`` the user's file."""

    form: str
    text: str
    file: str
    names: tuple[str, ...]
    lines: tuple[int, ...] = ()
    extra: int = 0  # values that the class returns behind the outputs, for autograd alone
    source: str = ""

    def users_line(self, number: int) -> int:
        """The user's line for a line of the text, or for the nearest one above that has one."""
        return next((line for line in reversed(self.lines[:number]) if line), 0)


@dataclass(frozen=True, slots=True)
class Interface(_Called):
    """What it takes to call a compiled function: what is not in the texts, and no trees."""

    name: str
    torch: str
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    outputs: tuple[Output, ...]
    single: bool
    dirty: tuple[str, ...]
    saved: tuple[str, ...]
    unclear: tuple[tuple[str, str], ...]  # saved, perhaps on ctx: the names, the attributes there
    watched: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]  # outside values: attribute paths
    cls: str  # the name of the eager class
    operator: str  # its name in torch.ops.s2s
    written: str  # a digest of what the user wrote: another function, another operator
    schema: str | None
    positional: tuple[str, ...]  # of the operator's arguments
    by_name: tuple[str, ...]
    fresh: bool  # the outputs surely share no memory with anything
    overlap: bool  # one output may be another one's memory, or a view of it
    warnings: tuple[Diagnostic, ...] = ()
    unbound: tuple[str, ...] = ()  # names that the file does not bind: builtins, or mistakes

    def handed_over(self, literals: Collection[str]) -> tuple[str, ...]:
        """What the TorchScript form hands from forward to backward: not what it writes down."""
        known = {c.name for c in self.constants if c.literal is not None}
        return tuple(name for name in self.saved if name not in known and name not in literals)


@dataclass(frozen=True, slots=True)
class Stage:
    """A named step of the pipeline and the pair after it."""

    name: str
    pair: Pair
