"""`check`: does a decorated function give its gradient everywhere, and is it the one you meant?

Beside PyTorch's own two. `torch.autograd.gradcheck` compares one gradient with finite differences:
it says nothing about a straight-through or surrogate gradient, which is untrue on purpose, and it
sees one way to call the function. `torch.library.opcheck` looks at how an operator is registered,
and at no number that its backward returns. `check` runs every form of the function against the
function as it was written, and then asks of the gradient what can be asked: that it is the
derivative, or, with ``surrogate=True``, that it is linear, keeps batch rows apart, reaches every
input, and is the derivative of a smooth function that you name.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.utils import _pytree as pytree

from . import load, operator
from .ir import Emitted
from .reference import autograd_function
from .runtime import Compiled

__all__ = ["FORMS", "Line", "Report", "check", "undecorated"]

FORMS = ("eager", "op", "script", "func", "pair")
_Function = Callable[..., Any]
_BATCH = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at. ``why`` says what was refused, or how the numbers differ."""

    what: str
    outcome: Literal["ok", "refused", "failed", "note"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found; ``str(report)`` is for a reader, ``report.ok`` for a program."""

    name: str
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """Nothing failed. What is refused is no failure: it is an error, and no wrong number."""
        return not self.of("failed")

    def of(self, outcome: str) -> tuple[Line, ...]:
        """The lines with one outcome."""
        return tuple(line for line in self.lines if line.outcome == outcome)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        counts = [
            f"{len(self.of(o))} {o}" for o in ("ok", "refused", "failed") if self.of(o) or o == "ok"
        ]
        rows = [f"{self.name}: {', '.join(counts)}"]
        for line in self.lines:
            mark = {"note": "", "failed": "FAILED"}.get(line.outcome, line.outcome)
            rows.append(f"  {mark:<8}{line.what}".rstrip())
            rows += [f"            {row}" for row in line.why.splitlines() if row.strip()]
        return "\n".join(rows)


def check(
    f: _Function,
    *inputs: Any,
    surrogate: bool = False,
    smooth: _Function | None = None,
    forms: Sequence[str] | None = None,
    raise_exception: bool = True,
    **keywords: Any,
) -> Report:
    """Run every form of ``f`` at these inputs against the function as it was written.

    ``f`` is decorated with ``autograd_script``; ``inputs`` and ``keywords`` are what it is called
    with. Gradients are asked for every floating point or complex tensor among them.

    ``forms`` are some of "eager", "op" (the operator), "script" (a call in TorchScript), "func"
    (vjp, grad, jvp and vmap) and "pair" (``f.forward`` and ``f.backward``); all by default. Each
    must give the outputs and gradients of the undecorated function under `autograd_function`.

    Then the gradient itself, in float64. By default it must be the derivative: `gradcheck`,
    `gradgradcheck`, and `gradcheck` in forward mode. With ``surrogate=True`` it need not be;
    instead

    * backward is linear in its output gradients;
    * where forward keeps the rows of a batch apart, backward does so too;
    * no gradient is zero everywhere (``None`` is: it says that none is wanted);
    * which gradients are None does not depend on the values;
    * with ``smooth``, a plain differentiable function of the same inputs, backward equals its
      derivative.

    >>> import torch
    >>> from s2s.functions import swish, triangle
    >>> x = torch.tensor([[0.5, -0.25], [2.0, -0.75]], dtype=torch.double)
    >>> print(check(swish, x))
    swish: 11 ok
      ok      eager
      ok      eager, backward twice
      ok      op
      ok      script
      ok      func: vjp and grad
      ok      func: jvp
      ok      func: vmap
      ok      pair
      ok      gradcheck
      ok      gradgradcheck
      ok      gradcheck, forward mode
    >>> def ramp(v):  # the integral of a triangle
    ...     v = v.clamp(-1, 1)
    ...     return 0.5 + v - v * v.abs() / 2
    >>> check(triangle, x, surrogate=True, smooth=ramp, forms=["eager"]).ok
    True
    >>> report = check(triangle, x, forms=["eager"], raise_exception=False)
    >>> [line.what for line in report.of("failed")]
    ['gradcheck', 'gradcheck, forward mode']

    Raises:
        AssertionError: something failed; the message is the report. With ``raise_exception=False``
            the report is returned all the same. What a form refuses is listed and is no failure,
            but for an error in a plain call.
        TypeError: ``f`` is not decorated with ``autograd_script``.
        ValueError: no input can carry a gradient, or a form is unknown.
    """
    case = _Case(f, inputs, keywords)
    chosen = FORMS if forms is None else tuple(forms)
    for form in chosen:
        if form not in FORMS:
            raise ValueError(f"a form is one of {', '.join(FORMS)}, not {form!r}")
    if smooth is not None and not surrogate:
        raise ValueError("`smooth` is what a surrogate gradient is compared with: surrogate=True")
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        parts = [_FORM[form](case) for form in FORMS if form in chosen]
        parts.append(_surrogate(case, smooth) if surrogate else _derivative(case))
        report = Report(case.name, tuple(itertools.chain.from_iterable(parts)))
    if raise_exception and not report.ok:
        raise AssertionError(str(report))
    return report


def undecorated(f: _Function) -> _Function:
    """The function as it was written, made again from its source: it returns its backward.

    It shares the module and the variables of enclosing functions with ``f``.
    """
    compiled = getattr(f, "__s2s__", None)
    if not isinstance(compiled, Compiled):
        raise TypeError(f"{f!r} is not decorated with autograd_script")
    source = compiled.rule.source
    bare = copy.deepcopy(source.function)
    bare.decorator_list = []
    bare.args.defaults = []
    bare.args.kw_defaults = [None] * len(bare.args.kwonlyargs)
    tree: ast.stmt = bare
    if source.in_class:  # for names such as self.__weight
        tree = ast.ClassDef(source.enclosing[-1].name, [], [], [tree], [])  # type: ignore[attr-defined]
    arguments = ast.arguments([], [ast.arg(n) for n in compiled.cells], None, [], [], None, [])
    last = ast.Return(ast.Name(getattr(tree, "name", "")))
    maker = ast.FunctionDef("make", arguments, [tree, last], [])
    text = ast.unparse(ast.fix_missing_locations(ast.Module([maker], [])))
    emitted = Emitted("plain", text, f"<s2s plain {source.name}>", ("make",))
    made = load.load(emitted, compiled.scope, compiled.pair.torch, lazy=True)["make"]
    made = made(*[None] * len(compiled.cells))
    if source.in_class:
        made = vars(made)[source.name]
    cells = dict(zip(made.__code__.co_freevars, made.__closure__ or ())) | dict(compiled.cells)
    closure = tuple(cells[name] for name in made.__code__.co_freevars)
    positional, keywords = compiled.defaults
    found = types.FunctionType(made.__code__, compiled.scope, source.name, positional, closure)
    found.__kwdefaults__ = keywords
    found.__module__, found.__doc__ = f.__module__, f.__doc__
    return found


# --- one function at some inputs ------------------------------------------------------------------


class _Case:
    """The function, its reference, and its inputs taken apart."""

    def __init__(self, f: _Function, args: Sequence[Any], keywords: dict[str, Any]) -> None:
        self.f = f
        owner = getattr(f, "__self__", None)
        self.owner = () if owner is None else (owner,)  # a bound method
        plain = undecorated(f)
        self.compiled: Compiled = f.__s2s__  # type: ignore[attr-defined]
        reference = autograd_function(_flat(plain) if self.compiled.pair.container else plain)
        self.truth: _Function = lambda *a, **k: reference(*self.owner, *a, **k)
        self.name = self.compiled.pair.name
        self.leaves, self.spec = pytree.tree_flatten((tuple(args), keywords))
        self.places = [i for i, leaf in enumerate(self.leaves) if _is_smooth(leaf)]
        if not self.places:
            raise ValueError(f"no input of {self.name} is a tensor that can carry a gradient")
        self.tensors = [self.leaves[i].detach().clone() for i in self.places]

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What ``f`` is called with, with these tensors in place."""
        if self.compiled.pair.changed:  # a leaf cannot be changed in place
            tensors = [t.clone() for t in tensors]
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        args, keywords = pytree.tree_unflatten(leaves, self.spec)
        return args, keywords

    def bind(self, f: _Function) -> _Function:
        """``f`` as a function of its differentiable tensors; a tuple of differentiable outputs."""

        def bound(*tensors: Tensor) -> tuple[Tensor, ...]:
            if not torch._C._are_functorch_transforms_active():  # vmap refuses to seed
                torch.manual_seed(0)
            args, keywords = self.arguments(tensors)
            return tuple(filter(_is_smooth, pytree.tree_leaves(f(*args, **keywords))))

        return bound

    def in_order(self, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """Every argument by name, with the defaults."""
        bound = inspect.signature(self.f).bind(*args, **keywords)
        bound.apply_defaults()
        return dict(bound.arguments)

    def double(self) -> list[Tensor]:
        """The tensors in double precision, asking for a gradient."""
        wide = [torch.cdouble if t.is_complex() else torch.double for t in self.tensors]
        return [t.to(d, copy=True).requires_grad_() for t, d in zip(self.tensors, wide)]

    def labels(self) -> list[str]:
        """A name for each differentiable tensor: its parameter."""
        marked, marks = list(self.leaves), [object() for _ in self.places]
        for place, mark in zip(self.places, marks):
            marked[place] = mark
        args, keywords = pytree.tree_unflatten(marked, self.spec)
        found: dict[int, str] = {}
        for name, value in self.in_order(args, keywords).items():
            inside = pytree.tree_leaves(value)
            for number, leaf in enumerate(inside):
                found[id(leaf)] = f"{name}[{number}]" if value is not leaf else name
        return [found.get(id(mark), "?") for mark in marks]


def _flat(plain: _Function) -> _Function:
    """The function with the tensors of the list or dict that it returns as its outputs."""

    @functools.wraps(plain)
    def listed(*args: Any, **keywords: Any) -> Any:
        *outputs, backward = plain(*args, **keywords)
        return (*pytree.tree_leaves(outputs), backward)

    return listed


def _is_smooth(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _leaves(tensors: Sequence[Tensor], wanted: Sequence[bool] | None = None) -> list[Tensor]:
    asks = [True] * len(tensors) if wanted is None else wanted
    return [t.detach().clone().requires_grad_(a) for t, a in zip(tensors, asks)]


def _like(tensors: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """Random tensors of the same shapes and dtypes."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for t in tensors:
        wide = torch.cdouble if t.is_complex() else torch.double
        made.append(torch.randn(t.shape, generator=g, dtype=wide).to(t.device, t.dtype))
    return made


def _pull(
    f: _Function, tensors: Sequence[Tensor], seed: int = 0, keep: bool = False
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Outputs, and the gradients of the tensors that ask for one."""
    outputs = list(f(*tensors))
    asked = [t for t in tensors if t.requires_grad]
    reached = [t for t in outputs if t.requires_grad]
    units = [u for u, t in zip(_like(outputs, seed), outputs) if t.requires_grad]
    grads: Sequence[Tensor | None] = [None] * len(asked)
    if reached:
        grads = torch.autograd.grad(reached, asked, units, retain_graph=keep, allow_unused=True)
    return outputs, list(grads)


def _dot(one: Sequence[Tensor | None], other: Sequence[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.double)
    for a, b in zip(one, other):
        if a is not None:
            total = total + (a.detach().conj() * b.detach()).sum().real.double()
    return total


def _same(got: Sequence[Tensor | None], want: Sequence[Tensor | None], what: str) -> None:
    """Raise AssertionError where numbers differ. None stands for zeros."""
    assert len(got) == len(want), f"{len(got)} {what}s for {len(want)}"
    for number, (one, other) in enumerate(zip(got, want)):
        if one is None and other is None:
            continue
        known = one if one is not None else other
        assert known is not None
        one = torch.zeros_like(known) if one is None else one
        other = torch.zeros_like(known) if other is None else other
        tolerance: dict[str, Any] = {}
        if known.dtype not in (torch.double, torch.cdouble):
            rtol, atol = torch.testing._comparison.default_tolerances(known)
            tolerance = {"rtol": 10 * rtol, "atol": 10 * atol}
        torch.testing.assert_close(
            one.detach(),
            other.detach(),
            equal_nan=True,
            msg=lambda text, n=number: f"{what} {n}: {text}",  # type: ignore[misc]
            **tolerance,
        )


def _line(what: str, run: Callable[[], str | None], must_run: bool = False) -> Line:
    """Run one check: an AssertionError is a failure, any other exception a refusal, which is a
    failure too where there is nothing to refuse."""
    try:
        why = run()
    except (AssertionError, GradcheckError) as error:
        return Line(what, "failed", _short(str(error)))
    except Exception as error:  # whatever a form raises, it has refused
        why = _short(f"{type(error).__name__}: {error}")
        return Line(what, "failed" if must_run else "refused", why)
    return Line(what, "ok", why or "")


def _short(text: str) -> str:
    """The first lines of a message."""
    rows = [row.rstrip() for row in text.splitlines() if row.strip()]
    return "\n".join(rows[:6])


# --- the forms ------------------------------------------------------------------------------------


def _choices(count: int) -> Iterator[tuple[bool, ...]]:
    """Which inputs ask for a gradient: every choice of few, or all and each alone of many."""
    if count <= 4:
        yield from (c for c in itertools.product((True, False), repeat=count) if any(c))
    else:
        yield (True,) * count
        yield from (tuple(i == j for j in range(count)) for i in range(count))


def _agree(case: _Case, f: _Function) -> None:
    """Outputs and gradients, for every choice of inputs."""
    for wanted in _choices(len(case.tensors)):
        want = _pull(case.bind(case.truth), _leaves(case.tensors, wanted))
        got = _pull(case.bind(f), _leaves(case.tensors, wanted))
        _same(got[0], want[0], "output")
        _same(got[1], want[1], "gradient")


def _eager(case: _Case) -> list[Line]:
    def twice() -> None:
        tensors = _leaves(case.tensors)
        outputs = [t for t in case.bind(case.f)(*tensors) if t.requires_grad]
        units = _like(outputs)
        first = torch.autograd.grad(outputs, tensors, units, retain_graph=True, allow_unused=True)
        again = torch.autograd.grad(outputs, tensors, units, allow_unused=True)
        _same(again, first, "gradient")

    return [
        _line("eager", lambda: _agree(case, case.f), must_run=True),
        _line("eager, backward twice", twice, must_run=True),
    ]


def _op(case: _Case) -> list[Line]:
    compiled = case.compiled

    def call(*args: Any, **keywords: Any) -> Any:
        given = case.in_order(args, keywords)
        bound = [p.name for p in compiled.pair.params if p.bound]
        given |= dict(zip(bound, case.owner))
        for constant in compiled.pair.constants:
            if constant.lifted:
                given[constant.name] = compiled.constant(constant.name)
        listed = compiled.pair.listed
        alone = [given[name] for name in compiled.pair.arguments if name != listed]
        return operator.call(compiled, [*alone, *(given[listed] if listed else ())])

    return [_line("op", lambda: _agree(case, call))]


def _script(case: _Case) -> list[Line]:
    def run() -> None:
        scripted = _scripted(case)
        for _ in range(3):  # TorchScript optimizes what it has seen run
            _agree(case, scripted)

    return [_line("script", run)]


def _scripted(case: _Case) -> _Function:
    """A scripted function that calls ``f`` with these arguments."""
    args, keywords = pytree.tree_unflatten(case.leaves, case.spec)
    names = [*(f"a{i}" for i in range(len(args))), *keywords]
    values = [*args, *keywords.values()]
    shown = ", ".join(f"{n}: {_annotation(v)}" for n, v in zip(names, values))
    passed = ", ".join([*names[: len(args)], *(f"{k}={k}" for k in keywords)])
    function = case.f  # noqa: F841  # the text's `function`: CompilationUnit looks here
    unit = torch.jit.CompilationUnit(f"def call({shown}):\n    return function({passed})\n")
    call: _Function = unit.call
    return lambda *given, **named: call(*given, **named)


def _annotation(value: object) -> str:
    if isinstance(value, list):
        return f"List[{_annotation(value[0]) if value else 'Tensor'}]"
    names = {type(None): "Optional[Tensor]", torch.dtype: "torch.dtype", torch.device: "Device"}
    return "Tensor" if isinstance(value, Tensor) else names.get(type(value), type(value).__name__)


def _func(case: _Case) -> list[Line]:
    f, truth = case.bind(case.f), case.bind(case.truth)
    tensors = tuple(case.tensors)

    def reverse() -> None:
        want = _pull(truth, _leaves(tensors))
        torch.manual_seed(0)
        outputs, pullback = torch.func.vjp(f, *tensors)  # type: ignore[misc]
        _same(outputs, want[0], "output")
        units = _like(outputs)
        _same(pullback(tuple(units)), want[1], "gradient")

        def loss(*tensors: Tensor) -> Tensor:
            weighed = [(u.conj() * t).real.sum() for u, t in zip(units, f(*tensors))]
            return torch.stack(weighed).sum()

        torch.manual_seed(0)
        grads = torch.func.grad(loss, tuple(range(len(tensors))))(*tensors)
        _same(grads, want[1], "gradient")

    def forward() -> None:
        if not _is_linear(case):
            raise RuntimeError("backward is not linear in its output gradients: no forward mode")
        for seed in range(3):
            tangents = tuple(_like(tensors, 10 + seed))
            torch.manual_seed(0)
            _, moved = torch.func.jvp(f, tensors, tangents)  # type: ignore[misc]
            outputs, grads = _pull(truth, _leaves(tensors), seed)
            _same([_dot(_like(outputs, seed), moved)], [_dot(grads, tangents)], "product")

    def over_batches() -> None:
        batch = [torch.stack([t, t * 1.125, t * 0.875]) for t in tensors]
        each = [[t[i] for t in batch] for i in range(_BATCH)]
        alone = [_pull(truth, _leaves(one)) for one in each]
        want = [torch.stack(row) for row in zip(*(outputs for outputs, _ in alone))]
        _same(torch.func.vmap(f)(*batch), want, "output")

        units = tuple(_like(alone[0][0]))

        def pulled(*tensors: Tensor) -> Any:
            outputs, pullback = torch.func.vjp(f, *tensors)  # type: ignore[misc]
            return pullback(units)

        grads = torch.func.vmap(pulled)(*batch)
        for number, row in enumerate(zip(*(grads for _, grads in alone))):
            filled = [torch.zeros_like(tensors[number]) if g is None else g for g in row]
            _same([grads[number]], [torch.stack(filled)], f"gradient {number} of row")

    return [
        _line("func: vjp and grad", reverse),
        _line("func: jvp", forward),
        _line("func: vmap", over_batches),
    ]


def _pair(case: _Case) -> list[Line]:
    def run() -> None:
        args, keywords = case.arguments(case.tensors)
        torch.manual_seed(0)
        params = case.compiled.pair.params
        given = case.in_order(args, keywords)
        values = [given[p.name] for p in params if not p.bound]
        if any(p.kind == "variadic" for p in params):
            values = [*values[:-1], *values[-1]]
        outputs, saved = case.f.forward(*case.owner, *values)  # type: ignore[attr-defined]
        outputs = pytree.tree_leaves(outputs)
        want = _pull(case.bind(case.truth), _leaves(case.tensors))
        smooth = list(filter(_is_smooth, outputs))
        _same(smooth, want[0], "output")
        units = iter(_like(smooth))
        ups = [next(units) if _is_smooth(t) else torch.zeros_like(t) for t in outputs]
        grads = case.f.backward(*ups, *saved)  # type: ignore[attr-defined]
        grads = list(grads) if isinstance(grads, (tuple, list)) else [grads]
        got = _slots(values, grads)
        for number, (one, tensor) in enumerate(zip(got, case.tensors)):
            if one is not None:
                got[number] = one.sum_to_size(tensor.shape).to(tensor.dtype)
        _same(got, want[1], "gradient")

    return [_line("pair", run)]


def _slots(values: Sequence[Any], grads: Sequence[Any]) -> list[Tensor | None]:
    """The gradients of the differentiable tensors among the values, in order."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)) and len(grads) != 1:
        grads = [grads]
    found: list[Tensor | None] = []
    for value, grad in zip(values, grads):
        if isinstance(value, (tuple, list)) and not isinstance(grad, Tensor):
            found += _slots(value, [None] * len(value) if grad is None else list(grad))
        elif _is_smooth(value):
            found.append(grad)
    return found


_FORM: dict[str, Callable[[_Case], list[Line]]] = {
    "eager": _eager,
    "op": _op,
    "script": _script,
    "func": _func,
    "pair": _pair,
}


# --- the gradient ---------------------------------------------------------------------------------


def _derivative(case: _Case) -> list[Line]:
    """Against finite differences."""
    f = case.bind(case.f)
    tensors = case.double()
    fast = sum(t.numel() for t in tensors) > 100

    def asking(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t for t in f(*tensors))

    def first() -> None:
        torch.autograd.gradcheck(asking, tensors, fast_mode=fast)

    def second() -> None:
        torch.autograd.gradgradcheck(asking, tensors, fast_mode=fast)

    def forward() -> None:
        torch.autograd.gradcheck(
            asking, tensors, fast_mode=fast, check_forward_ad=True, check_backward_ad=False
        )

    return [
        _line("gradcheck", first),
        _line("gradgradcheck", second),
        _line("gradcheck, forward mode", forward),
    ]


def _surrogate(case: _Case, smooth: _Function | None) -> list[Line]:
    """What can be asked of a gradient that is not the derivative."""
    lines = [
        _line("backward is linear", lambda: _linear(case)),
        _line("backward keeps rows apart", lambda: _rows(case)),
        _line("every input has a gradient", lambda: _influence(case)),
        _line("None where it was None", lambda: _pattern(case)),
    ]
    if smooth is not None:
        lines.append(_line("backward is that of smooth", lambda: _alike(case, smooth)))
    return lines


def _is_linear(case: _Case) -> bool:
    try:
        _linear(case)
    except AssertionError:
        return False
    return True


def _gradients(
    outputs: Sequence[Tensor], tensors: Sequence[Tensor], units: Sequence[Tensor]
) -> list[Tensor | None]:
    grads = torch.autograd.grad(outputs, tensors, units, retain_graph=True, allow_unused=True)
    return list(grads)


def _reached(case: _Case, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs that a gradient can come from."""
    outputs = [t for t in case.bind(case.truth)(*tensors) if t.requires_grad]
    assert outputs, "no output requires grad"
    return outputs


def _linear(case: _Case) -> None:
    tensors = case.double()
    outputs = _reached(case, tensors)
    one, other = _like(outputs, 1), _like(outputs, 2)
    mixed = [2 * a - 30 * b for a, b in zip(one, other)]
    got = _gradients(outputs, tensors, mixed)
    parts = zip(_gradients(outputs, tensors, one), _gradients(outputs, tensors, other))
    want = [None if a is None or b is None else 2 * a - 30 * b for a, b in parts]
    _same(got, want, "gradient for 2 * u - 30 * v: gradient")


def _rows(case: _Case) -> str | None:
    tensors, labels = case.double(), case.labels()
    outputs = _reached(case, tensors)
    looked = []
    for index, (tensor, label) in enumerate(zip(tensors, labels)):
        rows = tensor.shape[0] if tensor.dim() else 0
        if rows < 2 or any(t.dim() == 0 or t.shape[0] != rows for t in outputs):
            continue
        if _forward_mixes(case, tensors, index):
            continue
        looked.append(label)
        for row in range(rows):
            units = [torch.zeros_like(t) for t in outputs]
            for unit, full in zip(units, _like(outputs, 3)):
                unit[row] = full[row]
            grad = _gradients(outputs, tensors, units)[index]
            if grad is not None:
                strange = [i for i in range(rows) if i != row and bool(grad[i].ne(0).any())]
                assert not strange, (
                    f"{label}: the gradient of row {strange[0]} depends on the output gradient of "
                    f"row {row}, and row {row} of the output does not depend on it"
                )
    return None if looked else "no input whose rows forward keeps apart"


def _forward_mixes(case: _Case, tensors: Sequence[Tensor], index: int) -> bool:
    """Does a row of the output depend on another row of this input?"""
    f = case.bind(case.truth)
    before = f(*(t.detach() for t in tensors))
    for row in range(tensors[index].shape[0]):
        for other in (lambda t: 1 - 3 * t, torch.zeros_like):
            changed = [t.detach().clone() for t in tensors]
            changed[index][row] = other(changed[index][row])
            for old, new in zip(before, f(*changed)):
                keep = [i for i in range(old.shape[0]) if i != row]
                if not torch.equal(old[keep], new[keep]):
                    return True
    return False


def _influence(case: _Case) -> str | None:
    tensors = case.double()
    outputs = _reached(case, tensors)
    total = [torch.zeros_like(t, dtype=torch.double) for t in map(torch.real, tensors)]
    none = []
    for seed in range(3):
        grads = _gradients(outputs, tensors, _like(outputs, seed))
        none = [label for label, g in zip(case.labels(), grads) if g is None]
        total = [a if g is None else a + g.abs() for a, g in zip(total, grads)]
    for label, size in zip(case.labels(), total):
        assert label in none or bool(size.ne(0).any()), (
            f"{label}: the gradient is zero everywhere at these inputs; return None if that is "
            f"meant, or check nearer to where the surrogate is not flat"
        )
    return f"None for {', '.join(none)}" if none else None


def _pattern(case: _Case) -> None:
    found = set()
    changes: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda t: t,
        torch.zeros_like,
        lambda t: -5 * t,
    )
    for change in changes:
        tensors = [change(t.detach()).clone().requires_grad_() for t in case.double()]
        outputs = _reached(case, tensors)
        for size in (1, 0):
            units = [size * u for u in _like(outputs)]
            found.add(tuple(g is None for g in _gradients(outputs, tensors, units)))
    assert len(found) == 1, "which gradients are None depends on the values of inputs or gradients"


def _alike(case: _Case, smooth: _Function) -> None:
    want = _pull(case.bind(smooth), case.double())[1]
    got = _pull(case.bind(case.f), case.double())[1]
    _same(got, want, "gradient")
