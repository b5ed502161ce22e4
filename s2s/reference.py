"""The reference: runs the user's own function inside one generic ``autograd.Function``.

Nothing is compiled, so breakpoints and prints in the function work. The closure that the function
returns is never kept: the tensors in it go through ``save_for_backward``, and each backward gets a
fresh copy of it. So in-place checks, saved-tensor hooks and activation checkpointing see them, a
captured output makes no reference cycle, and no variable of the user is touched.

When grad mode is on inside backward (``create_graph=True``) captured intermediates have to be
functions of the inputs again. The function is then run a second time, on the saved inputs and with
the random state of the first run. Captured inputs and outputs stay the saved ones, so an output
keeps the user's own rule; what carries no gradient keeps its first value.

Limits:

* What backward captures has the value that it had when the function returned; a global that it
  reads has the value of the time when backward runs.
* A tensor inside another object (an attribute, a generator) is not seen: it is not version-checked,
  and gradients do not reach it. The attributes of ``self`` are looked through for tensors that
  require grad, those of other arguments are not.
* The second run repeats side effects. Python's ``random`` and NumPy are not rewound; a captured
  value that comes out differently is an error. An intermediate made from an output is
  differentiated through the function's own operations, not through the user's rule.
* Helper functions are searched for tensors that require grad if they are in the same module.
* A helper that refers to itself is a reference cycle of the user's; what it captures lives until
  the garbage collector runs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, TypeAlias

import torch
from torch import Tensor

from . import outside
from .casting import own_casts
from .context import needed, taken_apart
from .private import is_exporting

P = ParamSpec("P")
# How to look one level into a value: (name, value) -> the named values directly inside it.
_Parts: TypeAlias = Callable[[str, object], Iterator[tuple[str, object]]]
# A leaf of these types holds no tensor (a tuple, list, dict or function that is a leaf is empty).
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, slice, range, tuple, list, dict, type),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


def autograd_function(fn: Callable[P, object]) -> Callable[P, Any]:
    """Give ``fn`` the gradient that it returns beside its outputs.

    ``fn`` returns ``(outputs, backward)``. ``backward`` takes one gradient per output (or one per
    differentiable output), of that output's shape and dtype, and returns one gradient per input of
    ``fn``: a tensor that broadcasts from the input's shape, or None.

    >>> import torch
    >>> @autograd_function
    ... def double(x):
    ...     def backward(grad_out):
    ...         return 2 * grad_out
    ...     return x + x, backward
    >>> x = torch.ones(3, requires_grad=True)
    >>> double(x).sum().backward()
    >>> x.grad
    tensor([2., 2., 2.])

    Raises:
        TypeError: ``fn`` is no function, or returns something else than tensors and a backward.
        RuntimeError: a gradient would be lost (``fn`` reads a tensor that requires grad and is not
            an argument, or changes an input in place without returning it), ``backward`` takes or
            returns the wrong number or shapes of gradients, or the call is not an eager one.
    """
    if not inspect.isfunction(fn):
        raise TypeError(f"autograd_function decorates a function, not {type(fn).__name__}")
    node = type(fn.__name__, (_Node,), {"__module__": fn.__module__, "__doc__": fn.__doc__})
    function = _Function(fn, fn.__name__, inspect.signature(fn), node)

    # TorchScript refuses this signature, and its message quotes the comment.
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:  # in scripted code use autograd_script
        return _call(function, args, kwargs)

    functools.update_wrapper(call, fn)
    del call.__wrapped__  # type: ignore[attr-defined]  # TorchScript would follow it to fn
    call.__signature__ = function.signature  # type: ignore[attr-defined]
    call.__dict__["__s2s_outside__"] = functools.partial(outside.read_from, function.name, fn, ())
    return call


# --- one call -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """What is known about the decorated function before it is called."""

    fn: Callable[..., object]
    name: str
    signature: inspect.Signature
    node: type[_Node]


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor that was taken out of a structure."""

    index: int


class _Result(NamedTuple):
    """What a run of the function returned, and which inputs it changed in place."""

    outputs: tuple[object, ...]
    single: bool
    backward: Callable[..., object]
    dirty: tuple[Tensor, ...]
    flat: tuple[int, ...]  # the outputs that are marked non-differentiable


@dataclass(frozen=True)
class _Call:
    """One call: all that a second run needs, but for the tensors."""

    function: _Function
    arguments: Mapping[str, object]  # by parameter; tensors are slots
    shapes: tuple[torch.Size, ...]  # of the tensors, in slot order
    random: _Random
    autocast: _Autocast

    def inputs(self) -> list[tuple[str, object]]:
        """The values that need a gradient each, with a name: parameters, with ``*args`` spread."""
        found: list[tuple[str, object]] = []
        for name, parameter in self.function.signature.parameters.items():
            value = self.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                found += _items(name, value)
            else:
                found.append((name, value))
        return found

    def run(self, tensors: Sequence[Tensor]) -> _Result:
        """Run the user's function; refuse a result or an in-place change that has no meaning."""
        arguments = _fill(dict(self.arguments), tensors, _items)
        bound = inspect.BoundArguments(self.function.signature, arguments)
        versions = _versions(tensors)
        with needed(self.needs([t.requires_grad for t in tensors])):
            returned = self.function.fn(*bound.args, **bound.kwargs)
        outputs, single, backward = _split(self.function.name, returned)
        outputs, flat = taken_apart(outputs)
        changed = [i for i, v in enumerate(_versions(tensors)) if v != versions[i]]
        for i in changed:
            if not _among(tensors[i], outputs):
                raise RuntimeError(
                    f"{self.function.name} changes its input {self.label(i)} in place and does not "
                    f"return it; return {self.label(i)}, or change a clone"
                )
        dirty = tuple(tensors[i] for i in changed)
        return _Result(outputs, single, backward, dirty, flat)

    def needs(self, tensors: Sequence[bool]) -> tuple[bool, ...]:
        """One bool per input, from those of the tensors in slot order."""
        return tuple(isinstance(v, _Slot) and tensors[v.index] for _, v in self.inputs())

    def label(self, index: int) -> str:
        """The name of one input tensor, as the user would write it."""
        leaves = (leaf for name, value in self.inputs() for leaf in _leaves(name, value, _items))
        return next(name for name, value in leaves if value == _Slot(index))


def _call(function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """Call the decorated function; through its autograd node if a gradient may be asked for."""
    _refuse_other_than_eager(function.name)
    try:
        bound = function.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.name}(): {error}") from None
    bound.apply_defaults()
    arguments, tensors = _take_out(bound.arguments, _items)
    _refuse_other_inputs(function.name, bound.arguments, tensors)
    if torch.is_grad_enabled():
        _refuse_lost_gradients(function, bound.arguments)
    shapes = tuple(t.shape for t in tensors)
    call = _Call(function, arguments, shapes, _Random.now(tensors), _Autocast.now())
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return function.node.apply(call, *tensors)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        result = call.run(tensors)
    _taken(function.name, result)
    inputs = [t for t in tensors if not _among(t, result.dirty)]
    outputs = tuple(
        o.detach() if isinstance(o, Tensor) and (o.requires_grad or _among(o, inputs)) else o
        for o in result.outputs
    )
    return outputs[0] if result.single else outputs


def _split(name: str, returned: object) -> tuple[tuple[object, ...], bool, Callable[..., object]]:
    """Take apart what the function returned: its outputs, whether it is a bare one, its backward.

    >>> [_split("f", result)[:2] for result in [(1, abs), ((1,), abs), (1, 2, abs)]]
    [((1,), True), ((1,), False), ((1, 2), False)]
    """
    if not isinstance(returned, tuple) or len(returned) < 2 or not callable(returned[-1]):
        raise TypeError(f"{name} must return (outputs, backward); it returned {_kind(returned)}")
    *front, backward = returned
    single = len(front) == 1 and not isinstance(front[0], tuple)
    outputs = tuple(front if single or len(front) > 1 else front[0])
    for output in outputs:
        if isinstance(output, (tuple, list, dict, set)):
            raise TypeError(
                f"{name} returns a {_kind(output)} as an output, and the tensors in it would get "
                f"no gradient; return a tuple of tensors: return (a, b), backward"
            )
    return outputs, single, backward


def _kind(value: object) -> str:
    """The type of a value in words; of each item for a tuple."""
    if type(value) is tuple:
        return f"({', '.join(map(_kind, value))})"
    return "None" if value is None else type(value).__name__


# --- the autograd node ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Memory:
    """What a call keeps from forward to backward, the saved tensors aside."""

    closure: Callable[..., object]  # the user's backward; captured tensors are slots
    recompute: tuple[bool, ...]  # per captured tensor: an intermediate that may carry a gradient
    plain: tuple[str, ...]  # captured numbers and texts, which a second run must repeat
    takes: tuple[int, ...]  # the outputs whose gradients backward takes
    kept: Tensor | None  # its node holds the inputs for a second run; None if none is needed
    dirty: bool


class _Node(torch.autograd.Function):
    """The autograd node of every decorated function; each has a subclass of its own name."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> object:
        """Run the function; save what its backward captured."""
        with own_casts():
            result = call.run(tensors)
        _refuse_captured_leaves(call, result.backward, tensors)
        closure, captured = _take_out(result.backward, _parts)
        ctx.call = call
        ctx.memory = _remember(call, result, tensors, closure, captured)
        ctx.save_for_backward(*map(_unlinked, captured))
        ctx.mark_dirty(*result.dirty)
        outputs = _distinct(result.outputs)
        ctx.mark_non_differentiable(*(outputs[i] for i in result.flat))
        ctx.set_materialize_grads(not _may_be_undefined(result.backward))
        return outputs[0] if result.single else outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        """Call the user's backward on the saved tensors."""
        call: _Call = ctx.call
        memory: _Memory = ctx.memory
        tensors: tuple[Tensor, ...] = ctx.saved_tensors
        with call.autocast.restored(), own_casts():
            closure = memory.closure
            if torch.is_grad_enabled():
                closure, tensors = _second_run(call, memory, tensors)
            taken = [grads[i] for i in memory.takes]
            watched = [t for t in (*taken, *tensors) if isinstance(t, Tensor)]
            versions = _versions(watched)
            with needed(call.needs(ctx.needs_input_grad[1:])):
                returned = _fill(closure, tensors, _parts)(*taken)
        if _versions(watched) != versions:
            raise RuntimeError(
                f"backward of {call.function.name} changes a gradient or a captured tensor in "
                f"place; others may read it too: change a clone"
            )
        return None, *_gradients(call, returned)


class _Keep(torch.autograd.Function):
    """Holds the inputs for a second run.

    A node apart from the call's own, because unpacking checks versions: changing an input that
    backward does not read is an error for the second derivative, but not for the first.
    """

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        """Save the inputs; the result only carries the node."""
        ctx.save_for_backward(*tensors)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        """Never called: nothing is computed from the result."""


def _remember(
    call: _Call,
    result: _Result,
    tensors: Sequence[Tensor],
    closure: Callable[..., object],
    captured: Sequence[Tensor],
) -> _Memory:
    """Say what backward will need, and whether a second derivative needs a second run."""
    known = _known(call, (*tensors, *result.outputs))
    recompute = tuple(id(t) not in known and _carries_gradient(t) for t in captured)
    leaves = [leaf for _, leaf in _leaves("", result.backward, _parts)]
    # an object that the function made may hold intermediates
    made = any(not isinstance(v, (Tensor, *_PLAIN)) and id(v) not in known for v in leaves)
    kept, dirty = None, bool(result.dirty)
    if (made or any(recompute)) and not dirty:
        with torch.enable_grad():
            kept = _Keep.apply(*tensors)  # type: ignore[no-untyped-call]
    takes = _taken(call.function.name, result)
    return _Memory(closure, recompute, _plain(result.backward), takes, kept, dirty)


def _known(call: _Call, tensors: Sequence[object]) -> set[int]:
    """The identities of what needs no second run: inputs, outputs, enclosing functions' names."""
    arguments = _leaves("", dict(call.arguments), _items)
    constants = _leaves("", call.function.fn, _parts)
    return {id(value) for value in tensors} | {id(leaf) for _, leaf in (*arguments, *constants)}


def _unlinked(tensor: Tensor) -> Tensor:
    """Drop a view's link to its base, which may be an output: saving it would be a cycle.

    The version counter stays shared, so in-place changes are still seen.
    """
    return tensor.detach() if tensor._base is not None and not tensor.requires_grad else tensor


def _distinct(outputs: tuple[object, ...]) -> tuple[object, ...]:
    """Give each place its own tensor: autograd has one place per tensor and would mix them up."""
    found: list[object] = []
    for output in outputs:
        again = isinstance(output, Tensor) and _among(output, found)
        found.append(output.detach() if isinstance(output, Tensor) and again else output)
    return tuple(found)


def _may_be_undefined(backward: Callable[..., object]) -> bool:
    """Is an output gradient annotated as optional?"""
    found = getattr(backward, "__annotations__", {})
    marks = (repr(v).replace(" ", "") for k, v in found.items() if k != "return")
    return any("None" in m or "Optional[" in m for m in marks)


def _carries_gradient(tensor: Tensor) -> bool:
    """Whether the dtype is one that autograd differentiates."""
    return tensor.is_floating_point() or tensor.is_complex()


def _among(tensor: Tensor, values: Sequence[object]) -> bool:
    """Whether the very tensor is one of the values; ``in`` would compare elements."""
    return any(tensor is value for value in values)


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    """How often each tensor was changed in place; inference tensors do not count it."""
    return [0 if t.is_inference() else t._version for t in tensors]


# --- gradients in and out -------------------------------------------------------------------------


def _taken(name: str, result: _Result) -> tuple[int, ...]:
    """The outputs whose gradients backward takes: all of them, or the differentiable ones only."""
    every = tuple(range(len(result.outputs)))
    outputs = enumerate(result.outputs)
    some = tuple(
        i
        for i, o in outputs
        if isinstance(o, Tensor) and _carries_gradient(o) and i not in result.flat
    )
    try:
        parameters = inspect.signature(result.backward).parameters.values()
    except ValueError:  # a built-in without a signature
        return every
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in places)
    most = max(len(places), *(len(every) for p in parameters if p.kind is p.VAR_POSITIONAL), 0)
    for choice in (every, some):  # without the defaults, which are often captures: `s=s`
        if len(choice) == required:
            return choice
    for choice in (every, some):
        if required <= len(choice) <= most:
            return choice
    raise RuntimeError(
        f"backward of {name} takes {_count(required, 'gradient')}; {name} has "
        f"{_count(len(every), 'output')}, of which {len(some)} differentiable"
    )


def _gradients(call: _Call, returned: object) -> list[Tensor | None]:
    """Match what backward returned with the input tensors, in slot order."""
    name, inputs = call.function.name, call.inputs()
    several = type(returned) is list and len(returned) == len(inputs) > 1
    grads = tuple(returned) if several or type(returned) is tuple else (returned,)  # type: ignore[arg-type]
    if len(grads) + 1 == len(inputs) and inputs[0][0] in ("self", "cls"):
        grads = (None, *grads)
    if len(grads) != len(inputs):
        names = ", ".join(label for label, _ in inputs)
        raise RuntimeError(
            f"backward of {name} returns {_count(len(grads), 'gradient')}; "
            f"{name} has {_count(len(inputs), 'input')} ({names})"
        )
    found: list[Tensor | None] = [None] * len(call.shapes)
    for (label, value), grad in zip(inputs, grads, strict=True):
        for index, one in _matched(name, label, value, grad):
            found[index] = _checked(name, label, call.shapes[index], one)
    return found


def _matched(name: str, label: str, value: object, grad: object) -> Iterator[tuple[int, object]]:
    """Pair the tensors in one argument with the gradients returned for it."""
    if isinstance(value, _Slot):
        yield value.index, grad
    elif grad is not None:
        values, grads = dict(_items(label, value)), dict(_items(label, grad))
        if not any(isinstance(leaf, _Slot) for _, leaf in _leaves(label, value, _items)):
            raise RuntimeError(
                f"backward of {name} returns a gradient for {label}, which is not a tensor; "
                f"return None in its place"
            )
        if values.keys() != grads.keys():
            raise RuntimeError(
                f"backward of {name} returns {_count(len(grads), 'gradient')} for {label}, "
                f"which has {_count(len(values), 'item')}; return a {type(value).__name__} like it"
            )
        for item, part in values.items():
            yield from _matched(name, item, part, grads[item])


def _checked(name: str, label: str, shape: torch.Size, grad: object) -> Tensor | None:
    """Refuse a gradient that autograd cannot sum to the input's shape."""
    if grad is None:
        return None
    if not isinstance(grad, Tensor):
        raise TypeError(
            f"backward of {name} returns a {_kind(grad)} as the gradient of {label}; "
            f"return a tensor or None"
        )
    trailing = grad.shape[grad.dim() - len(shape) :] if grad.dim() >= len(shape) else None
    if trailing is None or any(a not in (1, b) for a, b in zip(shape, trailing, strict=True)):
        raise RuntimeError(
            f"backward of {name} returns a gradient of shape {list(grad.shape)} for {label}, "
            f"which has shape {list(shape)}"
        )
    return grad


def _count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> _count(1, "gradient"), _count(2, "gradient")
    ('1 gradient', '2 gradients')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- second derivatives ---------------------------------------------------------------------------


def _second_run(
    call: _Call, memory: _Memory, saved: tuple[Tensor, ...]
) -> tuple[Callable[..., object], tuple[Tensor, ...]]:
    """Make captured intermediates functions of the inputs again: a closure and its tensors."""
    if memory.kept is None:
        if memory.dirty and any(memory.recompute):
            raise RuntimeError(
                f"{call.function.name} changed an input in place, so it cannot be run again for "
                f"the second derivative; let backward capture only inputs and outputs"
            )
        return memory.closure, saved
    inputs = memory.kept.grad_fn.saved_tensors  # type: ignore[union-attr]
    with call.random.restored():
        backward = call.run(inputs).backward
    closure, fresh = _take_out(backward, _parts)
    same = _plain(backward) == memory.plain and len(fresh) == len(saved)
    for tensor, old, again in zip(fresh, saved, memory.recompute):
        same = same and not (again and tensor.requires_grad and not _close(tensor, old))
    if not same:
        raise RuntimeError(
            f"no second derivative: {call.function.name} was run again and its backward captured "
            f"other values (random draws, or state that the call changed?)"
        )
    triples = zip(fresh, saved, memory.recompute)
    return closure, tuple(new if r and new.requires_grad else old for new, old, r in triples)


def _plain(backward: Callable[..., object]) -> tuple[str, ...]:
    """The captured numbers and texts, as text: nan is to equal nan, and 1 not to equal True."""
    leaves = (leaf for _, leaf in _leaves("", backward, _parts))
    return tuple(repr(v) for v in leaves if isinstance(v, (bool, int, float, complex, str)))


def _close(new: Tensor, old: Tensor) -> bool:
    """Whether two runs of the same operations may have given these two values."""
    try:
        torch.testing.assert_close(new.detach(), old.detach(), equal_nan=True)
    except AssertionError:
        return False
    return True


# --- looking into structures and closures ---------------------------------------------------------


def _items(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What a tuple, list or dict holds."""
    if isinstance(value, (tuple, list)):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", item) for key, item in value.items())


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What a container holds, or what a function or a partial captured."""
    if isinstance(value, functools.partial):
        yield f"{name}.func", value.func
        yield from _items(name, value.args)
        yield from value.keywords.items()
    elif isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or ())
        yield from ((variable, _content(cell)) for variable, cell in cells)
        yield from _items("default", value.__defaults__)
        yield from (value.__kwdefaults__ or {}).items()
    else:
        yield from _items(name, value)


def _content(cell: types.CellType) -> object:
    """What a closure's cell holds; None where the name is not assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _leaves(
    name: str, value: object, parts: _Parts, seen: dict[int, object] | None = None
) -> Iterator[tuple[str, object]]:
    """All values inside ``value`` that have no parts, each with a name; shared containers once.

    >>> list(_leaves("a", {"k": (1, [2])}, _items))
    [("a['k'][0]", 1), ("a['k'][1][0]", 2)]
    """
    seen = {} if seen is None else seen
    inside = list(parts(name, value))
    if not inside:
        yield name, value
    elif id(value) not in seen:
        seen[id(value)] = value
        for part in inside:
            yield from _leaves(*part, parts, seen)


def _take_out(value: Any, parts: _Parts) -> tuple[Any, list[Tensor]]:
    """Copy a structure with slots in place of its tensors; return the copy and the tensors."""
    tensors: list[Tensor] = []

    def take(tensor: Tensor) -> _Slot:
        tensors.append(tensor)
        return _Slot(len(tensors) - 1)

    return _Copier(Tensor, take, parts).copy(value), tensors


def _fill(value: Any, tensors: Sequence[Tensor], parts: _Parts) -> Any:
    """The reverse of `_take_out`: a new copy each time, with tensors in place of the slots."""
    return _Copier(_Slot, lambda slot: tensors[slot.index], parts).copy(value)


class _Copier:
    """Copies a structure or closure with each leaf of one type replaced.

    A part that holds no such leaf is not copied, so objects keep their identity, and a variable
    that holds a number stays the same variable. Functions that share a variable go on sharing it.
    """

    def __init__(self, wanted: type, replace: Callable[[Any], object], parts: _Parts) -> None:
        self.wanted = wanted
        self.replace = replace
        self.parts = parts
        self.memo: dict[int, Any] = {}

    def copy(self, value: Any) -> Any:
        """The value with its leaves replaced."""
        if isinstance(value, self.wanted):
            return self.replace(value)
        if id(value) in self.memo or not self.holds(value):
            return self.memo.get(id(value), value)
        if isinstance(value, types.FunctionType):
            return self.copy_function(value)
        if isinstance(value, functools.partial):
            args, keywords = self.copy(value.args), self.copy(value.keywords)
            return functools.partial(self.copy(value.func), *args, **keywords)
        return self.copy_container(value)

    def holds(self, value: object) -> bool:
        """Whether a leaf of the wanted type is somewhere inside."""
        leaves = _leaves("", value, self.parts)
        return any(isinstance(leaf, self.wanted) for _, leaf in leaves)

    def copy_container(self, value: Any) -> Any:
        """A container of the same type with copied items."""
        if isinstance(value, tuple):
            items = [self.copy(item) for item in value]
            return value._make(items) if hasattr(value, "_make") else type(value)(items)
        new = self.memo[id(value)] = copy.copy(value)
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            new[key] = self.copy(value[key])
        return new

    def copy_function(self, fn: types.FunctionType) -> types.FunctionType:
        """The same code over new cells, for those cells that have something to replace."""
        closure = fn.__closure__ or ()
        old = [c for c in closure if id(c) not in self.memo and self.holds(_content(c))]
        for cell in old:
            self.memo[id(cell)] = types.CellType()  # filled below: helpers may call each other
        cells = tuple(self.memo.get(id(cell), cell) for cell in closure)
        new = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, closure=cells)
        for cell in old:
            self.memo[id(cell)].cell_contents = self.copy(cell.cell_contents)
        new.__defaults__ = self.copy(fn.__defaults__)
        new.__kwdefaults__ = self.copy(fn.__kwdefaults__)
        new.__qualname__, new.__module__, new.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
        new.__dict__.update({k: v for k, v in vars(fn).items() if k != "__wrapped__"})
        return new


# --- what is refused ------------------------------------------------------------------------------


def _refuse_lost_gradients(function: _Function, arguments: Mapping[str, object]) -> None:
    """Refuse tensors that require grad and are read, but not passed: no gradient reaches them."""
    passed = {id(leaf) for _, leaf in _leaves("", arguments, _items)}  # also by a default
    owner = arguments.get("self")
    called = function.fn if owner is None else types.MethodType(function.fn, owner)
    for name, value in outside.read_from(function.name, called):
        if id(value) not in passed:
            _refuse_trainable(function.name, name, value)


def _refuse_captured_leaves(
    call: _Call, backward: Callable[..., object], tensors: Sequence[Tensor]
) -> None:
    """The same for what backward captured in a local variable of the function.

    A graph that the function builds for itself under ``enable_grad`` has leaves of its own: where
    a captured tensor belongs to such a graph, captured leaves are taken to do so too.
    """
    arguments = (leaf for _, leaf in _leaves("", dict(call.arguments), _items))
    known = {id(value) for value in (*tensors, *arguments)}
    captured = [
        (name, value)
        for name, value in _leaves("", backward, _parts)
        if id(value) not in known and id(getattr(value, "_base", None)) not in known
    ]
    inner = any(isinstance(value, Tensor) and value.grad_fn is not None for _, value in captured)
    for name, value in captured:
        if not inner or not isinstance(value, Tensor) or isinstance(value, torch.nn.Parameter):
            _refuse_trainable(call.function.name, name, value)


def _refuse_trainable(function: str, name: str, value: object) -> None:
    """Refuse a tensor that requires grad, or a module that has one."""
    if isinstance(value, Tensor) and value.requires_grad:
        what = "a tensor that requires grad"
    elif isinstance(value, torch.nn.Module) and any(p.requires_grad for p in value.parameters()):
        what = "a module with parameters that require grad"
    else:
        return
    raise RuntimeError(
        f"{function} reads {name}, {what}, which is not an argument of {function}: "
        f"it would get no gradient. Pass it as an argument"
    )


def _refuse_other_than_eager(name: str) -> None:
    """Refuse to run where the user's rule would be dropped, or fail obscurely."""
    if is_exporting():
        raise _eager_only(name, "torch.export")
    if torch.compiler.is_compiling():
        raise _eager_only(name, "torch.compile")
    if torch._C._are_functorch_transforms_active():
        raise _eager_only(name, "torch.func transforms")
    if torch._C._get_tracing_state() is not None:
        raise _eager_only(name, "torch.jit.trace")


def _refuse_other_inputs(
    name: str, arguments: Mapping[str, object], tensors: Sequence[Tensor]
) -> None:
    """The same where only the inputs tell."""
    leaves = (leaf for _, leaf in _leaves("", arguments, _items))
    if any(isinstance(leaf, torch.fx.Proxy) for leaf in leaves):
        raise _eager_only(name, "torch.fx")
    if any(map(outside.has_tangent, tensors)):
        raise _eager_only(name, "forward-mode AD")


def _eager_only(name: str, world: str) -> RuntimeError:
    """The error for a call that is not an eager one."""
    return RuntimeError(
        f"{name} is decorated with autograd_function, the reference, which runs in eager code "
        f"only; under {world} use autograd_script"
    )


# --- the surroundings of a call -------------------------------------------------------------------


@dataclass(frozen=True)
class _Random:
    """The state of PyTorch's default generators, on the CPU and on the inputs' CUDA devices."""

    cpu: Tensor
    cuda: tuple[tuple[int, Tensor], ...]

    @classmethod
    def now(cls, tensors: Sequence[Tensor]) -> _Random:
        """Read the state."""
        devices = sorted({t.get_device() for t in tensors if t.is_cuda})
        cuda = tuple((device, torch.cuda.get_rng_state(device)) for device in devices)
        return cls(torch.get_rng_state(), cuda)

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Go back to the state for a while; draws made meanwhile leave no trace."""
        with torch.random.fork_rng([device for device, _ in self.cuda]):
            torch.set_rng_state(self.cpu)
            for device, state in self.cuda:
                torch.cuda.set_rng_state(state, device)
            yield


@dataclass(frozen=True)
class _Autocast:
    """Whether autocast is on, and to which dtype, for each kind of device."""

    states: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls) -> _Autocast:
        """Read the state."""
        kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        on, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
        return cls(tuple((kind, on(kind), dtype(kind)) for kind in kinds))

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Go back to the state for a while."""
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self.states:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            yield
