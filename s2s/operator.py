"""The operator ``torch.ops.s2s.<name>``: how scripted and exported programs call a function."""

from __future__ import annotations

import functools
import operator as operator_module
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, is_grad_enabled
from torch._functorch import autograd_function
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._guards import TracingContext
from torch._library import simple_registry
from torch.autograd import forward_ad

from .errors import TransformError, diagnostic

if TYPE_CHECKING:
    from .runtime import Compiled

from .casting import casting

__all__ = ["call", "define", "define_as_of_now", "named", "no_operator"]

_transforms_active = torch._C._are_functorch_transforms_active
_autocast_active = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_any_requires_grad = torch._C._any_requires_grad
_shares_memory = torch._C._any_output_is_alias_to_input_or_output

_functorch: Any = autograd_function

# operator name -> the library that holds it and the text it was made from
_LIBRARIES: dict[str, tuple[Any, str]] = {}
_SHORT: dict[str, str] = {}


def define(compiled: Compiled) -> Any:
    """Register the operator, and return its overload; None where it can have no schema.

    The full name holds the module's, so that a saved program can never find another function
    under it. ``torch.ops.s2s.<function>`` stands for it as long as one module defines such a name.
    """
    name = compiled.interface.operator
    overload = _defined(compiled, name)
    if overload is not None:
        _alias(compiled.name, name)
    return overload


def define_as_of_now(compiled: Compiled) -> Any:
    """The operator again, under a name that is another one as soon as the function is.

    torch.compile keeps compiled programs on disk, the derivatives in them too, and finds them by
    the names of their operators: by a lasting name it would find the gradient of an earlier text.
    """
    return _defined(compiled, f"{compiled.interface.operator}_as_of_{compiled.version}")


def _defined(compiled: Compiled, name: str) -> Any:
    signature = compiled.interface.schema
    if signature is None:
        return None
    text = f"{signature} {compiled.interface.written} {compiled.cast} {compiled.compiles}"
    known = _LIBRARIES.get(name)
    if known is not None:
        if known[1] == text:
            return getattr(torch.ops.s2s, name).default
        _destroy(name)
    library: Any = torch.library.Library("s2s", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(signature.replace(compiled.interface.operator, name, 1))
    _LIBRARIES[name] = (library, text)
    overload = getattr(torch.ops.s2s, name).default
    # the dispatcher leaves out arguments that equal their default
    defaults = {a.name: a.default_value for a in overload._schema.arguments}
    plain, differentiable = _kernels(compiled, defaults)
    library.impl(name, plain, "CompositeExplicitAutograd")
    library.impl(name, differentiable, "Autograd")
    _register_fake(library, name, plain)
    kernel = _batched_kernel(compiled, defaults)
    library.impl(name, kernel, "FuncTorchBatched", with_keyset=True)
    return overload


def _register_fake(library: Any, name: str, kernel: Callable[..., Any]) -> None:
    """``torch.library.register_fake``, which would spend most of the time that an operator takes on
    the place in the source that it is called from."""
    try:
        holder: Any = simple_registry.singleton.find(f"s2s::{name}").fake_impl
        library._registration_handles.append(holder.register(kernel, __file__, lib=library))
    except (AttributeError, TypeError):  # another version of PyTorch
        torch.library.register_fake(f"s2s::{name}", kernel, lib=library)


def _destroy(name: str) -> None:
    """Take an operator back: a notebook cell that is run again defines it anew."""
    library, _ = _LIBRARIES.pop(name)
    library._destroy()
    for key in [name, *(short for short, full in _SHORT.items() if full == name)]:
        torch.ops.s2s.__dict__.pop(key, None)


def _alias(short: str, name: str) -> None:
    """``torch.ops.s2s.swish`` for ``torch.ops.s2s.mypackage_activations_swish``, if it is alone."""
    if short == name:
        return
    other = _SHORT.get(short)
    if other is not None and other != name and other in _LIBRARIES:
        torch.ops.s2s.__dict__.pop(short, None)
        return
    _SHORT[short] = name
    setattr(torch.ops.s2s, short, getattr(torch.ops.s2s, name))


def _watching(compiled: Compiled, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, of a function that reads what may require grad, from outside."""

    def differentiable(*args: Any, **keywords: Any) -> Any:
        if is_grad_enabled() and (why := compiled.why_trainable()):
            raise RuntimeError(why)
        return kernel(*args, **keywords)

    return differentiable


def _kernels(
    compiled: Compiled, defaults: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    order = _order(compiled)
    fresh, overlap = compiled.interface.fresh, compiled.interface.overlap
    count = len(order)
    rest = tuple(defaults[name] for name in order)
    same_order = tuple(order) == compiled.arguments and not compiled.interface.listed

    def arguments(args: tuple[Any, ...], keywords: dict[str, Any]) -> Sequence[Any]:
        """Every argument of forward: the dispatcher leaves out those that equal their default."""
        if keywords:
            args += tuple(keywords.get(name, defaults[name]) for name in order[len(args) :])
        args += rest[len(args) :]
        return args if same_order else _flat(compiled, dict(zip(order, args)))

    def plain(*args: Any, **keywords: Any) -> Any:
        args = arguments(args, keywords)  # type: ignore[assignment]
        out = compiled.run(*args)
        return out if fresh else _apart(out, args, overlap)

    def differentiable(*args: Any, **keywords: Any) -> Any:
        # one flat function: this is what each step of a scripted loop pays
        if keywords or len(args) != count or not same_order:
            args = arguments(args, keywords)  # type: ignore[assignment]
        if _transforms_active() or forward_ad._current_level >= 0:
            out = compiled.differentiable(*args)
        elif is_grad_enabled() and _any_requires_grad(*args):
            if _dispatch_modes() and recorded_for_later():
                return compiled.recorded(*args)
            out = compiled.autocast_apply(*args) if _autocast_active() else compiled.apply(*args)
        elif _dispatch_modes():  # a tracer wants to see the operator, not what it does
            return compiled.below(*args)
        else:
            out = compiled.run(*args)
        return out if fresh else _apart(out, args, overlap)

    if compiled.interface.watched:
        differentiable = _watching(compiled, differentiable)
    change = _outward(compiled)
    if compiled.cast is not None:
        plain = casting(plain, *compiled.cast)
        differentiable = casting(differentiable, *compiled.cast)
    if change is None:
        return plain, differentiable
    return _changed(plain, change), _changed(differentiable, change)


def _outward(compiled: Compiled) -> Callable[[Any], Any] | None:
    """From what forward returns to what the schema says: ``Tensor[]``, or one output alone."""
    interface = compiled.interface
    if interface.list_output:
        return list
    if len(interface.outputs) == 1 and not interface.single:
        return operator_module.itemgetter(0)
    return None


def _changed(kernel: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    def changed(*args: Any, **keywords: Any) -> Any:
        return change(kernel(*args, **keywords))

    return changed


def recorded_for_later() -> bool:
    """Does ``make_fx``, or torch.export, record forward alone? torch.compile, which has a context
    of its own, records the derivative as well."""
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is None:
        return False
    return TracingContext.try_get() is None or torch.compiler.is_exporting()


def _apart(out: Any, args: Sequence[Any], overlap: bool) -> Any:
    """An operator may not return its inputs, views of them, or one output twice: copies then."""
    outputs = out if isinstance(out, tuple) else (out,)
    if overlap and TracingContext.try_get() is not None and not _transforms_active():
        return tuple(_own_copy()(t) for t in outputs)
    try:
        if not _shares_memory(tuple(args), {}, outputs):
            return out
    except NotImplementedError:  # tensors of function transforms have no storage in some versions
        pass
    return out.clone() if isinstance(out, Tensor) else tuple(t.clone() for t in out)


@functools.cache
def _own_copy() -> Any:
    """A copy that a compiler does not take out. Of two clones of one tensor Inductor makes one, and
    autograd then takes the gradient of the last one for both."""

    @torch.library.custom_op("s2s_own::copy", mutates_args=())
    def own_copy(x: Tensor) -> Tensor:
        return x.clone()

    own_copy.register_fake(torch.empty_like)
    own_copy.register_autograd(lambda _, grad: grad, setup_context=None)
    own_copy.register_vmap(lambda info, dims, x: (own_copy(x), dims[0]))
    return own_copy


def _order(compiled: Compiled) -> list[str]:
    """The names of the operator's arguments."""
    return [*compiled.interface.positional, *compiled.interface.by_name]


def _flat(compiled: Compiled, given: dict[str, Any]) -> list[Any]:
    """Forward's arguments, the tensors of a list one by one."""
    listed = compiled.interface.listed
    alone = [given[name] for name in compiled.arguments if name != listed]
    return [*alone, *given[listed]] if listed else alone


def named(compiled: Compiled, args: Sequence[Any]) -> dict[str, Any]:
    """Forward's arguments by name, a list put together again."""
    listed = compiled.interface.listed
    alone = [name for name in compiled.arguments if name != listed]
    given = dict(zip(alone, args))
    if listed:
        given[listed] = list(args[len(alone) :])
    return given


def call(compiled: Compiled, args: Sequence[Any], overload: Any = None) -> Any:
    """Call the operator, or another overload of it, with forward's arguments."""
    op = compiled.op if overload is None else overload
    if op is None:
        raise no_operator(compiled)
    given = named(compiled, args)
    interface = compiled.interface
    by_name = {name: given[name] for name in interface.by_name}
    out = op(*(given[name] for name in interface.positional), **by_name)
    one = len(interface.outputs) == 1 and not interface.single
    return (out,) if one else out


def _batched_kernel(compiled: Compiled, defaults: dict[str, Any]) -> Callable[..., Any]:
    """The kernel for vmap: the func form over the batch, one level further down.

    ``torch.library.register_vmap`` leaves its rule on the level of the vmap, where no autograd
    Function can be called; what functorch does for Functions is done here for the operator.
    """
    order = _order(compiled)

    def batched(_: Any, *args: Any, **keywords: Any) -> Any:
        interpreter: Any = retrieve_current_functorch_interpreter()
        given = defaults | dict(zip(order, args)) | keywords
        flat, dims = _functorch.unwrap_batched(tuple(_flat(compiled, given)), interpreter.level())
        with interpreter.lower(), as_called():
            out, out_dims = compiled.batched(
                flat, dims, interpreter.batch_size(), interpreter.randomness()
            )
        wrapped = _functorch.wrap_batched(out, out_dims, interpreter.level())
        change = _outward(compiled)
        if change is not None:
            return change(wrapped)
        return wrapped[0] if compiled.interface.single else wrapped

    return batched


_Key = torch._C.DispatchKey
_LAYER = (_Key.FuncTorchDynamicLayerFrontMode, _Key.FuncTorchDynamicLayerBackMode)
_AT_REST = torch._C._dispatch_tls_local_exclude_set()


def as_called() -> Any:
    """The dispatcher as Python code finds it: functorch calls kernels with autograd and all other
    layers hidden, but the func form is a function that is called from outside."""
    include = torch._C._dispatch_tls_local_include_set().remove(_Key.FuncTorchVmapMode)
    nested = torch._C._functorch.peek_interpreter_stack() is not None
    for key in _LAYER:
        include = include.add(key) if nested else include.remove(key)
    exclude = torch._C._dispatch_tls_local_exclude_set() & _AT_REST
    return torch._C._ForceDispatchKeyGuard(include, exclude)


def no_operator(compiled: Compiled) -> TransformError:
    """Why a function cannot be called from scripted or exported programs."""
    from .emit.op import without_schema

    source = compiled.rule.source
    pair = compiled.pair
    odd = without_schema(pair)
    what = (
        f"no type in an operator's schema for {', '.join(odd)}"
        if odd
        else "its outputs or its in-place change of an input do not fit an operator's schema"
    )
    problem = diagnostic(
        "S2S302",
        source.span(source.function),
        f"{pair.name} cannot be called from scripted or exported code: {what}",
        hint="operators take tensors, numbers, bools, strings, dtypes, devices and lists of them; "
        "annotate the parameter, or pass such values",
    )
    return TransformError([problem])
