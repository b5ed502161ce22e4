"""The operator ``torch.ops.s2s.<name>``: how scripted and exported programs call a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import forward_ad

from .check import surely_fresh
from .emit.op import operator_name, schema
from .errors import TransformError, diagnostic

if TYPE_CHECKING:
    from .runtime import Compiled

__all__ = ["call", "define", "no_operator"]

_transforms_active = torch._C._are_functorch_transforms_active
_autocast_active = torch._C._is_any_autocast_enabled
_any_requires_grad = torch._C._any_requires_grad
_shares_memory = torch._C._any_output_is_alias_to_input_or_output

# operator name -> the library that holds it and the text it was made from
_LIBRARIES: dict[str, tuple[torch.library.Library, str]] = {}
_SHORT: dict[str, str] = {}


def define(compiled: Compiled) -> Any:
    """Register the operator, and return its overload; None where it can have no schema.

    The full name holds the module's, so that a saved program can never find another function
    under it. ``torch.ops.s2s.<function>`` stands for it as long as one module defines such a name.
    """
    pair = compiled.pair
    signature = schema(pair)
    if signature is None:
        return None
    name = operator_name(pair)
    text = signature + compiled.text("eager").text
    known = _LIBRARIES.get(name)
    if known is not None:
        if known[1] == text and not _private(compiled):
            return getattr(torch.ops.s2s, name).default
        _destroy(name)
    library = torch.library.Library("s2s", "FRAGMENT")
    library.define(signature)
    _LIBRARIES[name] = (library, text)
    overload = getattr(torch.ops.s2s, name).default
    # the dispatcher leaves out arguments that equal their default
    defaults = {a.name: a.default_value for a in overload._schema.arguments}
    plain, differentiable = _kernels(compiled, defaults)
    library.impl(name, plain, "CompositeExplicitAutograd")
    library.impl(name, differentiable, "Autograd")
    torch.library.register_vmap(f"s2s::{name}", _vmap_rule(compiled, defaults), lib=library)
    _alias(pair.name, name)
    return overload


def _private(compiled: Compiled) -> bool:
    """Does the operator depend on more than its arguments and its text?"""
    return False


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


def _kernels(
    compiled: Compiled, defaults: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    order = _order(compiled)
    fresh = surely_fresh(compiled.rule)
    count = len(order)
    variadic = any(is_list for _, is_list in order)
    rest = tuple(defaults[name] for name, _ in order)
    run, apply = compiled.run, compiled.apply

    def arguments(args: tuple[Any, ...], keywords: dict[str, Any]) -> Sequence[Any]:
        """Every argument in order: the dispatcher leaves out those that equal their default."""
        if keywords:
            args += tuple(keywords.get(name, defaults[name]) for name, _ in order[len(args) :])
        args += rest[len(args) :]
        if not variadic:
            return args
        return [v for a, (_, is_list) in zip(args, order) for v in (a if is_list else (a,))]

    def plain(*args: Any, **keywords: Any) -> Any:
        args = arguments(args, keywords)  # type: ignore[assignment]
        out = run(*args)
        return out if fresh else _apart(out, args)

    def differentiable(*args: Any, **keywords: Any) -> Any:
        # one flat function: this is what each step of a scripted loop pays
        if variadic or keywords or len(args) != count:
            args = arguments(args, keywords)  # type: ignore[assignment]
        if _transforms_active() or forward_ad._current_level >= 0:
            out = compiled.differentiable(*args)
        elif is_grad_enabled() and _any_requires_grad(*args):
            out = compiled.autocast_apply(*args) if _autocast_active() else apply(*args)
        else:
            out = run(*args)
        return out if fresh else _apart(out, args)

    return plain, differentiable


def _apart(out: Any, args: Sequence[Any]) -> Any:
    """An operator may not return its inputs, views of them, or one output twice: copies then."""
    outputs = out if isinstance(out, tuple) else (out,)
    if not _shares_memory(tuple(args), {}, outputs):
        return out
    return out.clone() if isinstance(out, Tensor) else tuple(t.clone() for t in out)


def _order(compiled: Compiled) -> list[tuple[str, bool]]:
    """The names of the operator's arguments, and which of them is a list to take apart."""
    order = [(p.name, p.kind == "variadic") for p in compiled.pair.params]
    return order + [(c.name, False) for c in compiled.pair.constants if c.lifted]


def call(compiled: Compiled, args: tuple[Any, ...]) -> Any:
    """Call the operator with forward's positional arguments."""
    if compiled.op is None:
        raise no_operator(compiled)
    given = list(args)
    keywords: dict[str, Any] = {}
    params = compiled.pair.params
    lifted = [c.name for c in compiled.pair.constants if c.lifted]
    if any(p.kind == "variadic" for p in params):
        end = len(given) - len(lifted)
        start = len(params) - 1
        given[start:end] = [list(given[start:end])]
    named = [p.name for p in params if p.kind == "keyword-only"] + lifted
    if named:
        keywords = dict(zip(named, given[-len(named) :]))
        given = given[: -len(named)]
    return compiled.op(*given, **keywords)


def _vmap_rule(compiled: Compiled, defaults: dict[str, Any]) -> Callable[..., Any]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **keywords: Any) -> Any:
        order = _order(compiled)
        flat_args: list[Any] = []
        flat_dims: list[Any] = []
        for index, (name, variadic) in enumerate(order):
            value = args[index] if index < len(args) else keywords.get(name, defaults[name])
            dim = in_dims[index] if index < len(args) else None
            if variadic:
                flat_args.extend(value)
                flat_dims.extend(dim if dim is not None else [None] * len(value))
            else:
                flat_args.append(value)
                flat_dims.append(dim)
        out = torch.vmap(
            compiled.func_apply, in_dims=tuple(flat_dims), randomness=info.randomness
        )(*flat_args)
        return out, (0 if compiled.pair.single else (0,) * len(compiled.pair.outputs))

    return rule


def no_operator(compiled: Compiled) -> TransformError:
    """Why a function cannot be called from scripted or exported programs."""
    source = compiled.rule.source
    pair = compiled.pair
    odd = [
        f"{p.name}: {p.annotation or p.type or 'unknown'}"
        for p in pair.params
        if schema(_only(pair, p)) is None
    ]
    odd += [
        f"{c.name} of {c.origin}" for c in pair.constants if c.lifted and schema(_with(pair, c)) is None
    ]
    what = f"no type in an operator's schema for {', '.join(odd)}" if odd else "its outputs or its in-place change of an input do not fit an operator's schema"
    problem = diagnostic(
        "S2S302",
        source.span(source.function),
        f"{pair.name} cannot be called from scripted or exported code: {what}",
        hint="operators take tensors, numbers, bools, strings, dtypes, devices and lists of them; "
        "annotate the parameter, or pass such values",
    )
    return TransformError([problem])


def _only(pair: Any, param: Any) -> Any:
    from .ir import replace

    return replace(pair, params=(param,), constants=(), dirty=(), outputs=(), single=False)


def _with(pair: Any, constant: Any) -> Any:
    from .ir import replace

    return replace(pair, params=(), constants=(constant,), dirty=(), outputs=(), single=False)
