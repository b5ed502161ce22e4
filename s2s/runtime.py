"""The torch side of one compiled function: its forms, made when they are first needed."""

from __future__ import annotations

import functools
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import (
    custom_function_call,
    unpack_outputs,
    vmapify_autograd_function,
)
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from . import cache, inductor, load, operator, outside, scripted
from .casting import with_own_casts, without_autocast
from .deferred import deferred
from .dynamo import constant_for_dynamo, untraced
from .errors import TransformError
from .ir import CELLS, LISTS, Emitted, Pair, Rule
from .levels import jvp_below
from .prepare import Prepared
from .private import is_exporting, is_fx_tracing, original_backend
from .vocabulary import PLAIN

__all__ = ["Compiled"]

_transforms_active = torch._C._are_functorch_transforms_active
_Transform = torch._C._functorch.TransformType
_Apply = Callable[..., Any]


class Compiled:
    """One decorated function: the lifted pair, and every form of it.

    ``cells`` are the variables of enclosing functions that it reads, shared with the function that
    the user wrote, so that two products of one factory share code and not state.
    """

    def __init__(
        self,
        prepared: Prepared,
        scope: dict[str, Any],
        cells: Mapping[str, types.CellType],
        defaults: tuple[tuple[Any, ...] | None, dict[str, Any] | None],
        compile: bool = False,
        cast: tuple[torch.dtype, tuple[str, ...]] | None = None,
        lasting: bool = True,
    ) -> None:
        self.prepared = prepared
        self.lasting = lasting  # False: a variant, whose operator only graphs of this process call
        self.cast = cast
        self.interface = prepared.interface
        self.name = prepared.interface.name
        self.arguments = prepared.interface.arguments
        self.scope = scope
        self.cells = cells
        self.defaults = defaults
        self.texts: dict[str, Emitted] = {}
        self.script_error: TransformError | None = None
        self.variants: dict[tuple[str, ...], Compiled] = {}
        self.compiles = compile and not self._stays_eager()
        self._compiler = inductor.Compiler(self.name) if self.compiles else None
        self.Function = self._eager()
        self.module = Constants(self)
        self.function = self._call()

    def _stays_eager(self) -> bool:
        """Compiled code cannot change the caller's tensor and say so to autograd."""
        if self.interface.dirty:
            inductor.warn_uncompiled(self.name, "it changes an input in place", stacklevel=5)
        return bool(self.interface.dirty)

    @property
    def rule(self) -> Rule:
        """What the user wrote; read again where all else came from the cache."""
        return self.prepared.rule

    @property
    def pair(self) -> Pair:
        """The lifted pair."""
        return self.prepared.pair

    # --- texts ------------------------------------------------------------------------------

    def text(self, form: str) -> Emitted:
        """The text of a form, entered in linecache the first time."""
        if form not in self.texts:
            self.texts[form] = load.register(self._printed(form))
            load.forget_with(self, self.texts[form])
        return self.texts[form]

    def _printed(self, form: str) -> Emitted:
        # the TorchScript form writes down what outside names are now
        return scripted.typed(self) if form == "torchscript" else self.prepared.text(form)

    @untraced
    def _made(self, form: str) -> tuple[Any, ...]:
        emitted = self.text(form)
        made = load.load(emitted, self.scope, self.interface.torch, lazy=form == "torchscript")
        return tuple(made[name] for name in emitted.names if name in made)

    def _extra(self, form: str) -> int:
        """How many extra outputs a form's Function returns."""
        return self.prepared.text(form).extra

    def _stripped(self, apply: _Apply, extra: int) -> _Apply:
        """``apply`` without the extra outputs."""
        if not extra:
            return apply
        count = len(self.interface.outputs)
        if self.interface.list_output:  # as many as there are, in front of the extra ones
            return lambda *args: apply(*args)[:-extra]
        if self.interface.single:
            return lambda *args: apply(*args)[0]
        return lambda *args: apply(*args)[:count]

    # --- the forms --------------------------------------------------------------------------

    def _eager(self) -> type[torch.autograd.Function]:
        """The eager class; its text is made at the first call that asks for a gradient."""
        module = self.scope.get("__name__", "builtins")  # as Python has it for a class statement
        return deferred(self.interface.cls, module, lambda: self._made("eager")[0])

    @functools.cached_property
    def _running(self) -> type[torch.autograd.Function]:
        return self._compiler.cls(self.Function) if self._compiler else self.Function

    @functools.cached_property
    def apply(self) -> _Apply:
        """The eager form, for calls that ask for a gradient."""
        if self.cast is not None:  # autocast is off in backward too, whatever it is there
            return self.autocast_apply
        return self._applied(self._running)

    def _applied(self, cls: type[torch.autograd.Function]) -> _Apply:
        apply = self._stripped(_single_level(cls), self._extra("eager"))
        unclear = self.interface.unclear
        unsure = any(o.type not in _CERTAIN for o in self.interface.outputs)
        if not unclear and not unsure:
            return apply

        def applied(*args: Any) -> Any:
            found = apply(*args)
            outputs = (found,) if self.interface.single else found
            if unsure:
                _refuse_nested_outputs(self.name, outputs)
            if unclear:
                _refuse_hidden_tensors(self.name, unclear, outputs)
            return found

        return applied

    @functools.cached_property
    def run(self) -> _Apply:
        """Forward alone, for calls that ask for no gradient."""
        function: _Apply = self._made("op")[0]
        objects = any(p.type == "object" and not p.bound for p in self.interface.params)
        text = self.text("op").text
        if objects or "requires_grad_(" in text or "enable_grad(" in text:
            return _without_grad(function)
        return function

    @functools.cached_property
    def Func(self) -> type[torch.autograd.Function]:
        """The class for function transforms."""
        made: type[torch.autograd.Function] = self._made("func")[0]
        return with_own_casts(made) if self.cast is None else without_autocast(made)

    @functools.cached_property
    def func_apply(self) -> _Apply:
        """The func form through ``torch.func``'s own dispatch."""
        return self._stripped(self.Func.apply, self._extra("func"))

    @functools.cached_property
    def pair_functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The lifted forward and backward as plain Python functions."""
        forward, backward = self._made("torchscript")
        return forward, backward

    @functools.cached_property
    def scripted(self) -> scripted.Scripted:
        return scripted.Scripted(self)

    @functools.cached_property
    def autocast_apply(self) -> _Apply:
        """The eager form whose backward runs under the autocast state of its forward."""
        return self._applied(_under_autocast(self._running))

    @functools.cached_property
    def op(self) -> Any:
        """The operator's only overload, ``torch.ops.s2s.<name>.default``, or None."""
        return operator.define(self) if self.lasting else self.op_as_of_now

    @functools.cached_property
    def op_as_of_now(self) -> Any:
        """The same for programs that torch.compile keeps: another one with every text."""
        return operator.define_as_of_now(self)

    @property
    def version(self) -> str:
        """A name for all that the function depends on; one of this process where it reads what is
        not in its file, or what may be bound again."""
        key, interface = self.prepared.key, self.interface
        lasts = key and not interface.watched and all(c.lifted for c in interface.constants)
        parts = (key, interface.written, str(interface.schema), str(self.cast), str(self.compiles))
        return cache.digest(*parts, "" if lasts else _THIS_PROCESS)[:16]

    def differentiable(self, *args: Any) -> Any:
        """What the operator's Autograd kernel does: the user's rule at this level alone."""
        if _transforms_active():
            return self._at_level(*args)
        if forward_ad._current_level >= 0:
            return self._stripped(_single_level(self.Func), self._extra("func"))(*args)
        if not _asks(args):
            return self.run(*args)
        if torch._C._is_any_autocast_enabled():
            return self.autocast_apply(*args)
        return self.apply(*args)

    def _at_level(self, *args: Any) -> Any:
        """The operator at one of functorch's levels: a node there, and the operator again below."""
        transforms = _transforms()
        forward_mode = transforms[-1] == _Transform.Jvp
        if forward_mode:
            _refuse_nested_forward_mode(self.name)
        if not forward_mode and not _asks(args):
            return self.below(*args)
        if not self._extra("func"):
            with enable_single_level_autograd_function():
                return self.level_func_apply(*args)
        inner = [torch._C._functorch.get_unwrapped(t) for t in args if _is_wrapped(t)]
        deeper = sum(t != _Transform.Vmap for t in transforms) > 1
        if forward_mode or deeper or any(t.requires_grad for t in inner):
            raise RuntimeError(
                f"{self.name}: what it draws at random, or computes in a way that cannot be "
                "seen, is not handed through the operator to forward mode, or to several levels of "
                "derivatives; call the function itself, outside torch.compile"
            )
        with enable_single_level_autograd_function():
            return self.level_apply(*args)

    @functools.cached_property
    def level_apply(self) -> _Apply:
        """``apply`` where one of functorch's levels is all that there is."""
        cls = self._running if self.cast is None else _under_autocast(self._running)
        return self._stripped(_at_one_level(cls), self._extra("eager"))

    def below(self, *args: Any) -> Any:
        """The operator again, for the layers under autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            out = operator.call(self, args)
        return tuple(out) if isinstance(out, list) else out

    @functools.cached_property
    def level_func_apply(self) -> _Apply:
        """The func form with the operator as its forward: the levels below see their own rule."""

        def forward(*args: Any) -> Any:
            # off here for this level; the ones below have their own
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                return self.below(*args)

        def jvp(ctx: Any, *tangents: Any) -> Any:
            return jvp_below(self.Func, ctx, tangents)

        return _at_one_level(self.Func, forward=forward, jvp=jvp)

    def recorded(self, *args: Any) -> Any:
        """The operator in a graph that someone may differentiate, or be differentiating."""
        if self._extra("func"):
            raise RuntimeError(
                f"{self.name}: what it draws at random, or computes in a way that cannot be "
                "seen, is lost in a recorded graph. Record it with inputs that need no gradient"
            )
        return self.level_func_apply(*args)

    def batched(
        self, args: Sequence[Any], dims: tuple[int | None, ...], size: int, randomness: str
    ) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
        """The func form over a batch: its outputs, and where the batch is in each."""
        if not _transforms_active() and operator.recorded_for_later():
            raise RuntimeError(
                f"{self.name}: a recorded graph holds vmap of it without its rule. Record its "
                "gradient as well, or train the exported program as it is, not decomposed"
            )
        function = vmapify_autograd_function(self.Func, dims, size, randomness)
        if _transforms_active():
            returned = custom_function_call(function, *args)
        else:
            returned = _single_level(function)(*args)
        outputs, placed = unpack_outputs(returned)
        if isinstance(outputs, Tensor):
            outputs, placed = (outputs,), (placed[0] if isinstance(placed, tuple) else placed,)
        count = len(outputs) - self._extra("func")
        return tuple(outputs[:count]), tuple(placed[:count])

    def read_outside(self, seen: set[int] | None = None) -> Iterator[tuple[str, object]]:
        """The tensors and modules that it reads, itself or by helpers, from no argument."""
        for name, paths in self.interface.watched:
            if name in self.cells or name in self.scope:  # else it is an argument, such as self
                for path in paths:
                    yield from outside.read_from(name, self.constant(name), path, seen)

    def why_trainable(self) -> str:
        """Why calls are refused, if they are: something from outside requires grad."""
        trained = (where for where, found in self.read_outside() if outside.trains(found))
        return next((_trainable(self.name, where) for where in trained), "")

    # --- the function that users call -------------------------------------------------------

    def _call(self) -> types.FunctionType:
        def running() -> _Apply:
            return self._compiler.function(self.run) if self._compiler else self.run

        def first(name: str, make: Callable[[], _Apply]) -> _Apply:
            """Makes the real one at its first call, and puts that in its place."""

            def call(*args: Any) -> Any:
                made = make()
                cells[names[name]].cell_contents = made
                return made(*args)

            return call

        parts = {
            "is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
            "compiler": torch.compiler,
            "is_tracing": torch._C._is_tracing,
            "is_grad_enabled": torch.is_grad_enabled,
            "transforms_active": _transforms_active,
            "autocast_active": torch._C._is_any_autocast_enabled,
            "forward_ad": forward_ad,
            "is_fx_tracing": is_fx_tracing,
            "Tensor": Tensor,
            "s2s": self.module,
            "run": first("run", running),
            "apply": first("apply", lambda: self.apply),
        }
        positional, keywords = self.defaults
        function = self._bound("call", [parts[name] for name in CELLS], positional)
        function.__kwdefaults__ = keywords
        names = dict(zip(CELLS, self.text("call").names[1:]))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

        def prepare() -> Any:
            """What torch.jit.script compiles instead of ``function``."""
            asked = sys._getframe(1).f_locals.get("obj", function)
            if asked is not function:  # functools.wraps has copied this attribute
                raise RuntimeError(
                    f"torch.jit.script cannot compile {self.name} through a decorator "
                    "above @autograd_script; call the inner function from scripted code"
                )
            return self._scripted_call

        function.__dict__["__prepare_scriptable__"] = prepare
        return function

    def scriptable(self) -> Any:
        """What torch.jit.script compiles."""
        return self._scripted_call

    @functools.cached_property
    def _scripted_call(self) -> Any:
        positional, keywords = self.defaults
        plain = [p.name for p in self.interface.params if p.kind.startswith("positional")]
        values = dict(keywords or {}) | dict(zip(reversed(plain), reversed(positional or ())))
        order = self.interface.scripted_order
        ordered = [values[p.name] for p in order if p.default is not None]
        return self._bound("scripted call", [self.module], tuple(ordered) or None)

    @untraced
    def _bound(
        self, form: str, parts: list[Any], defaults: tuple[Any, ...] | None
    ) -> types.FunctionType:
        """The function of a text that takes ``parts``, with the variables of the user's enclosing
        functions as its own."""
        emitted = self.text(form)
        self.scope.setdefault(self.interface.torch, torch)
        name, code = load.inner(emitted)
        cells = dict(zip(emitted.names[1:], map(types.CellType, parts))) | dict(self.cells)
        closure = tuple(cells[name] for name in code.co_freevars)
        return types.FunctionType(code, self.scope, name, defaults, closure)

    def constant(self, name: str) -> Any:
        """The value, now, of a name from outside the function."""
        if name in self.cells:
            return self.cells[name].cell_contents
        if name in self.scope:
            return self.scope[name]
        raise NameError(f"name {name!r} is not defined (read by {self.name})")

    def variant(self, args: tuple[Any, ...]) -> Compiled:
        """The same function for inputs that are not what their parameters seem to be.

        ``f(x, 2.0)`` where nothing says that the second parameter may be a number, or a tensor for
        a parameter with a number as its default. Made once per combination.
        """
        return self.variant_of(tuple(map(_kind, args)))

    def variant_of(self, kinds: tuple[str, ...]) -> Compiled:
        """The same for arguments of these types."""
        names, listed = self.arguments, self.interface.listed
        fixed = {p.name for p in self.interface.params if p.bound or p.name == listed}
        kinds = tuple("" if name in fixed else kind for name, kind in zip(names, kinds))
        if kinds not in self.variants:
            given = {n: k for n, k in zip(names, kinds) if k}
            prepared = self.prepared.retyped(given)
            self.variants[kinds] = Compiled(
                prepared, self.scope, self.cells, self.defaults, self.compiles, lasting=False
            )
        return self.variants[kinds]


def _kind(value: Any) -> str:
    """The type name of an argument for a variant."""
    if isinstance(value, Tensor):
        return "Tensor"
    if value is None:
        return "Optional[Tensor]"
    known = {bool: "bool", int: "int", float: "float", str: "str", complex: "complex"}
    return known.get(type(value), "object")


def _asks(args: Sequence[Any]) -> bool:
    """Is a gradient asked for?"""
    return torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args)


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def _without_grad(run: _Apply) -> _Apply:
    """``run`` as autograd runs a forward: what it calls may have parameters of its own."""

    def quiet(*args: Any) -> Any:
        with torch.no_grad():
            found = run(*args)
        if isinstance(found, tuple):
            return tuple(_quiet(value) for value in found)
        return _quiet(found)

    return quiet


def _quiet(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


_CERTAIN = ("Tensor", "IntTensor", *LISTS)  # types of outputs that surely are tensors


def _refuse_nested_outputs(name: str, outputs: Sequence[Any]) -> None:
    """Outputs whose type the text did not tell: tensors, or an error."""
    for one in outputs:
        if not isinstance(one, Tensor) and holds_tensor(one):
            raise TypeError(
                f"{name} returned a {type(one).__name__} of tensors as one of its outputs; "
                "autograd would detach them. Return a tuple of tensors"
            )


def _refuse_hidden_tensors(
    name: str, unclear: tuple[tuple[str, str], ...], outputs: Sequence[Any]
) -> None:
    """No tensor may hide in what is kept on ctx: in a dict, say, where autograd does not see it."""
    nodes = [t.grad_fn for t in outputs if isinstance(t, Tensor) and t.grad_fn is not None]
    for value, attribute in unclear if nodes else ():
        found = getattr(nodes[0], attribute, None)
        if holds_tensor(found):
            raise RuntimeError(
                f"backward of {name} reads {value}, a {type(found).__name__} with tensors in it, "
                "which autograd cannot keep. Bind the tensors that backward needs to names of "
                "their own"
            )


def _single_level(cls: type[torch.autograd.Function]) -> _Apply:
    """``apply`` of the base class: one autograd node, without functorch's unwrapping."""
    apply: _Apply = super(torch.autograd.Function, cls).apply  # type: ignore[misc]
    return apply


def _at_one_level(cls: type[torch.autograd.Function], **instead: Callable[..., Any]) -> _Apply:
    """One node for one of functorch's levels, as functorch makes it: from PyTorch 2.14 on, what
    ``_single_level`` gives goes through all levels where there are any."""
    methods = ("forward", "setup_context", "backward", "jvp")
    body = {name: staticmethod(instead.get(name, getattr(cls, name))) for name in methods}
    apply: _Apply = type(cls.__name__, (_SingleLevelFunction,), body).apply  # type: ignore[attr-defined]
    return apply


def _under_autocast(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """A subclass that remembers forward's autocast state for backward."""
    cls = with_own_casts(cls)

    def forward(ctx: Any, *args: Any) -> Any:
        ctx.autocast_states = _autocast_states()
        return cls.forward(ctx, *args)

    def backward(ctx: Any, *grads: Any) -> Any:
        with _Autocast(ctx.autocast_states):
            return cls.backward(ctx, *grads)

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: type[torch.autograd.Function] = type(cls.__name__, (cls,), body)
    return made


_DEVICES = ("cpu", "cuda")


def _autocast_states() -> tuple[tuple[str, bool, torch.dtype], ...]:
    return tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES)


class _Autocast:
    """Enters a recorded autocast state of every device type that differs from today's."""

    def __init__(self, states: tuple[tuple[str, bool, torch.dtype], ...]) -> None:
        now = _autocast_states()
        self.contexts: list[Any] = [
            torch.autocast(device, enabled=enabled, dtype=dtype)
            for (device, enabled, dtype), today in zip(states, now)
            if (enabled, dtype) != today[1:]
        ]

    def __enter__(self) -> None:
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self.contexts):
            context.__exit__(*error)


_THIS_PROCESS = uuid.uuid4().hex[:16]


class Constants(types.ModuleType):
    """What the calling text reads as ``s2s``.

    A module, because TorchScript takes the attributes of modules, and of nothing else, as
    constants: ``s2s.op`` is the operator, and ``s2s.alpha`` the number that ``alpha`` is when
    a caller is scripted.
    """

    def __init__(self, compiled: Compiled) -> None:
        super().__init__("s2s")
        self.__dict__["_compiled"] = compiled
        self.__dict__["transformed"] = _transformed(compiled)
        self.__dict__["holds_tensor"] = holds_tensor
        self.__dict__["why_trainable"] = constant_for_dynamo(lambda: compiled.why_trainable())

    def __getattr__(self, name: str) -> Any:
        compiled: Compiled = self.__dict__["_compiled"]
        if name == "op":
            if compiled.op is None:
                raise operator.no_operator(compiled)
            return compiled.op.overloadpacket
        if name in compiled.cells:
            return compiled.constant(name)
        raise AttributeError(name)

    def other(self, *args: Any) -> Any:
        """A call whose arguments are not what their parameters seem to be."""
        compiled: Compiled = self.__dict__["_compiled"]
        if torch.is_grad_enabled():
            refuse_nested(compiled, args)
        chosen = compiled.variant(args)
        if chosen.interface.params == compiled.interface.params:  # a list without tensors
            return compiled.differentiable(*args)
        given = operator.named(compiled, args)
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for param in compiled.interface.params:
            if param.kind == "keyword-only":
                keywords[param.name] = given[param.name]
            elif param.kind == "variadic":
                positional.extend(given[param.name])
            else:
                positional.append(given[param.name])
        return chosen.function(*positional, **keywords)

    def autocast(self, *args: Any) -> Any:
        """A call that asks for a gradient, under autocast."""
        return self.__dict__["_compiled"].autocast_apply(*args)

    def refuse_outside(self, name: str, value: Any) -> None:
        """The same for a name that held a number when the function was compiled."""
        compiled: Compiled = self.__dict__["_compiled"]
        if torch.compiler.is_dynamo_compiling():
            _refuse_in_graph(compiled, name, (), value)
        else:
            _refuse_trainable(compiled, name, (), value)

    def refuse_trainable(self, *values: Any) -> None:
        """Tensors from outside the function are constants: one that requires grad is refused."""
        compiled: Compiled = self.__dict__["_compiled"]
        watched = compiled.interface.watched
        if torch.compiler.is_dynamo_compiling():
            for (name, paths), value in zip(watched, values):
                for path in paths:
                    _refuse_in_graph(compiled, name, path, value)
            if why := self.__dict__["why_trainable"]():
                raise RuntimeError(why)
            return
        for (name, paths), value in zip(watched, values):
            if not outside.is_harmless(value):
                for path in paths:
                    _refuse_trainable(compiled, name, path, value)


@untraced
def _refuse_trainable(compiled: Compiled, name: str, path: tuple[str, ...], value: Any) -> None:
    for where, found in outside.read_from(name, value, path):
        if outside.trains(found) or isinstance(found, Tensor) and outside.has_tangent(found):
            raise RuntimeError(_trainable(compiled.name, where))


def _refuse_in_graph(compiled: Compiled, name: str, path: tuple[str, ...], value: Any) -> None:
    """The same in terms that Dynamo traces; what globals and their helpers read goes by name."""
    for step in path:
        value = getattr(value, step, None)
        name = f"{name}.{step}"
    if outside.trains(value):
        raise RuntimeError(_trainable(compiled.name, name))
    if isinstance(value, types.MethodType):
        for read in _read_from_owner(value.__func__):
            _refuse_in_graph(compiled, "self", read, value.__self__)


@constant_for_dynamo
def _read_from_owner(function: object) -> tuple[tuple[str, ...], ...]:
    return outside.read_from_owner(function)


def _trainable(name: str, where: str) -> str:
    return (
        f"{name} reads {where} from outside, and it requires grad: "
        "backward would give it no gradient. Pass it to the function as an argument"
    )


def holds_tensor(value: Any) -> bool:
    """Is it a tensor, or a collection with one somewhere inside?"""
    return next(outside.tensors_in(value), None) is not None


def refuse_nested(compiled: Compiled, args: tuple[Any, ...]) -> None:
    """Collections of tensors that require grad would be detached: an error."""
    for name, value in operator.named(compiled, args).items():
        if name == compiled.interface.listed or isinstance(value, Tensor):
            continue
        if isinstance(value, Iterator):
            raise TypeError(
                f"{compiled.name}: {name} is an iterator, and what it gives cannot be looked "
                "at beforehand. Pass a list"
            )
        if any(t.requires_grad for t in outside.tensors_in(value)):
            raise TypeError(
                f"{compiled.name}: {name} is a {type(value).__name__} of tensors, and one of "
                "them requires grad; gradients cannot flow through it. Annotate it as "
                "List[Tensor], or pass the tensors one by one"
            )


def _transforms() -> list[Any]:
    return [i.key() for i in torch._C._functorch.get_interpreter_stack() or ()]


def _refuse_nested_forward_mode(name: str) -> None:
    if _transforms().count(_Transform.Jvp) > 1:
        raise RuntimeError(
            f"{name}: forward mode over forward mode drops the rule of a custom function in "
            "PyTorch; use jacfwd over jacrev, or jacrev twice"
        )


def _recorded() -> bool:
    """Is the call written down for later, where it must stay one operator to keep its rule?

    Not where the derivative is taken, and so written down, as well.
    """
    if torch._C._is_tracing():
        return True
    transforms = _transforms()
    if _Transform.Grad in transforms or forward_ad._current_level >= 0:
        return False
    return is_fx_tracing() or _Transform.Functionalize in transforms


@constant_for_dynamo
def _traces_ahead() -> bool:
    """Does the backend that Dynamo compiles for trace backward beforehand, in AOTAutograd?

    It then raises where a second derivative is asked for. What runs Dynamo's own node for a
    Function as it is, such as ``backend="eager"``, would give zero.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        backend = original_backend(InstructionTranslator.current_tx().output.compiler_fn)
    except AttributeError:
        return False
    name = str(getattr(backend, "compiler_name", ""))
    ahead = name.startswith("aot_") or name in ("cudagraphs", "openxla")
    return ahead or isinstance(backend, torch._TorchCompileInductorWrapper)


def _transformed(compiled: Compiled) -> Callable[..., Any]:
    """Calls under torch.compile, torch.export, function transforms and forward-mode AD."""
    is_compiling = torch.compiler.is_compiling
    cls: Any = compiled.Function
    interface = compiled.interface
    plain = interface.params_of("Tensor"), interface.params_of("Optional[Tensor]")

    @constant_for_dynamo
    def extra() -> int:
        return compiled._extra("eager")

    @constant_for_dynamo
    def why_no_operator() -> str:
        return str(operator.no_operator(compiled))

    made_for_dynamo = types.SimpleNamespace()
    outputs = enumerate(interface.outputs, 1)
    numbers = [o.name or f"output number {i}" for i, o in outputs if o.type in PLAIN]

    @constant_for_dynamo
    def make_outside() -> bool:
        why = (
            f"{compiled.name} has no operator, and without one this backend would drop its second "
            'derivative: use backend="inductor" or "aot_eager", or fullgraph=False'
        )
        if interface.overlap:
            why = (
                f"{compiled.name} has no operator, and without one torch.compile would mix up the "
                "gradients of outputs that share memory: return a clone() of one of them, or use "
                "fullgraph=False"
            )
        outside = torch.compiler.disable(compiled.apply, reason=why)  # type: ignore[no-untyped-call]
        made_for_dynamo.outside = outside
        return True

    def odd(args: tuple[Any, ...]) -> str:
        """The parameter that looks like a tensor and is given something else."""
        for index in (*plain[0], *plain[1]):
            given = args[index]
            if not isinstance(given, Tensor) and (given is not None or index in plain[0]):
                return compiled.arguments[index]
        return ""

    @constant_for_dynamo
    def make_op(kinds: tuple[str, ...], key: str) -> bool:
        chosen = compiled.variant_of(kinds) if kinds else compiled
        if chosen.op is None:
            raise operator.no_operator(chosen)
        setattr(made_for_dynamo, f"compiled{key}", chosen)
        setattr(made_for_dynamo, f"op{key}", chosen.op_as_of_now)
        return True

    def in_graph(args: tuple[Any, ...]) -> Any:
        kinds = tuple([_kind(a) for a in args]) if odd(args) else ()
        key = "_".join(kinds)
        make_op(kinds, key)
        chosen = getattr(made_for_dynamo, f"compiled{key}")
        return operator.call(chosen, args, getattr(made_for_dynamo, f"op{key}"))

    def kept(args: tuple[Any, ...]) -> Any:
        """In a graph that outlives the process."""
        if name := odd(args):
            kind = _kind(args[compiled.arguments.index(name)])
            raise RuntimeError(
                f"{compiled.name}: {name} is no tensor here, and nothing in the source says so. "
                f"In a recorded or exported program it has one type: annotate it, `{name}: {kind}`"
            )
        return operator.call(compiled, args)

    cast = compiled.cast is not None

    def transformed(*args: Any) -> Any:
        if torch.onnx.is_in_onnx_export():  # no gradients there, and no operators of ours
            return compiled.run(*args)
        if is_compiling():
            if compiled.interface.dirty:
                raise RuntimeError(
                    f"{compiled.name} changes an input in place: torch.compile would drop its "
                    "gradient. Return a new tensor, or call it under torch.compiler.disable"
                )
            # Dynamo would ask for the gradients of extra outputs, and leave autocast as it is
            if is_exporting() or cast or extra() or _transforms_active():
                if compiled.op is None and torch.compiler.is_dynamo_compiling():
                    raise RuntimeError(why_no_operator())
                return kept(args) if is_exporting() else in_graph(args)
            if (_traces_ahead() and not interface.overlap) or not _asks(args):
                return cls.apply(*args)
            if compiled.op is not None:
                return in_graph(args)
            make_outside()
            return made_for_dynamo.outside(*args)
        if compiled.interface.dirty:
            raise RuntimeError(
                f"{compiled.name} changes an input in place: it has no form for function "
                "transforms and forward-mode AD. Return a new tensor instead"
            )
        if _recorded():
            stand_ins = any(isinstance(a, torch.fx.Proxy) for a in args)  # for tensors
            return operator.call(compiled, args) if stand_ins else kept(args)
        _refuse_nested_forward_mode(compiled.name)
        if odd(args):
            refuse_nested(compiled, args)  # no tensor where one was expected: f(x, 3.0)
            return compiled.variant(args).module.transformed(*args)
        for name, value in zip(compiled.arguments, args):
            if not isinstance(value, Tensor) and holds_tensor(value):
                raise TypeError(
                    f"{compiled.name}: {name} is a {type(value).__name__} with tensors in it; "
                    "function transforms cannot see them. Pass the tensors one by one"
                )
        if numbers:
            raise RuntimeError(
                f"{compiled.name} returns {numbers[0]}, which is no tensor: it has no form for "
                "function transforms and forward-mode AD. Return tensors alone"
            )
        return compiled.func_apply(*args)

    return transformed
