"""``autograd.Function`` classes as people write them, each with inputs: what `from_function` takes.

``EXAMPLES`` pairs a class with one set of inputs. Where a gradient is deliberately untrue (7 times
the true one), whoever drops the rule is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function
from torch.autograd.function import once_differentiable

SHARPNESS = 3.0


def numbers(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.double)


class SavedIntermediate(Function):
    """Saves what it computed: a class gets the second derivative of this wrong."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad_out):
        x, s = ctx.saved_tensors
        return grad_out * (s * (1 + x * (1 - s)))


class Attributes(Function):
    """Tensors and numbers as attributes of ctx, under other names than forward's."""

    @staticmethod
    def forward(ctx, x, power: int, factor=2.0):
        ctx.base = x
        ctx.order, ctx.factor = power, factor
        ctx.shape = x.shape
        return x**power * factor

    @staticmethod
    def backward(ctx, g):
        assert g.shape == ctx.shape
        return 7 * g * ctx.order * ctx.base ** (ctx.order - 1) * ctx.factor, None, None


class OnlyWhatIsNeeded(Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, w)
        ctx.has_bias = b is not None
        y = x @ w.t()
        return y if b is None else y + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = g @ w
        if ctx.needs_input_grad[1]:
            grad_w = 7 * g.t() @ x
        if ctx.has_bias and ctx.needs_input_grad[2]:
            grad_b = g.sum(0)
        return grad_x, grad_w, grad_b


class Split(Function):
    """forward and setup_context, with a mask that has no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, k=2.0):
        x = x * 1
        return x * k, (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k = inputs
        _, mask = output
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(x, mask)

    @staticmethod
    def backward(ctx, g, _):
        x, mask = ctx.saved_tensors
        return 7 * g * ctx.k * mask * x, None


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Unmarked(Function):
    """Changes its input and returns it, and says so to nobody."""

    @staticmethod
    def forward(ctx, x):
        x.clamp_(-1, 1)
        return x

    @staticmethod
    def backward(ctx, g):
        return 7 * g


class Undefined(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return 2 * x, x * x

    @staticmethod
    def backward(ctx, g_double, g_square):
        (x,) = ctx.saved_tensors
        if g_double is None and g_square is None:
            return None
        total = torch.zeros_like(x)
        if g_double is not None:
            total = total + 2 * g_double
        if g_square is not None:
            total = total + 7 * g_square * x
        return total


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        s = x.exp()
        ctx.save_for_backward(s)
        return s * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (s,) = ctx.saved_tensors
        return 7 * g * s


class Mixed(Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.t(), a.t() @ g


class Cast(Function):
    """Computes in float32 under autocast, whatever it is given."""

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return 7 * g @ b.t(), a.t() @ g


class CastOnAnotherDevice(Function):
    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return 7 * g @ b.t().to(g.dtype), a.t().to(g.dtype) @ g


class Variadic(Function):
    """Any number of tensors in and out."""

    @staticmethod
    def forward(ctx, k, *xs):
        ctx.k = k
        ctx.save_for_backward(*xs)
        return tuple(x * x * k for x in xs)

    @staticmethod
    def backward(ctx, *grads):
        xs = ctx.saved_tensors
        return (None,) + tuple(7 * g * x * ctx.k for g, x in zip(grads, xs))


class ListOfSaved(Function):
    @staticmethod
    def forward(ctx, x, *others):
        kept = [x]
        for other in others:
            kept.append(other)
        ctx.save_for_backward(*kept)
        return x * sum(o.sum() for o in others)

    @staticmethod
    def backward(ctx, g):
        x, *others = ctx.saved_tensors
        total = sum(o.sum() for o in others)
        return (7 * g * total, *[(g * x).sum() * torch.ones_like(o) for o in others])


class Branches(Function):
    """Saves different tensors on different paths, and asks what there is."""

    @staticmethod
    def forward(ctx, x, squared=True):
        if squared:
            ctx.save_for_backward(x)
            ctx.twice = 2 * x
            return x * x
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        if hasattr(ctx, "twice"):
            return 7 * g * ctx.twice, None
        x, y = ctx.saved_tensors
        return g * y + 0 * x, None


class Base(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Louder(Base):
    GAIN = 10

    @staticmethod
    def backward(ctx, g):
        return Base.backward(ctx, g) * Louder.GAIN


class ClassMethods(Function):
    @classmethod
    def slope(cls, x):
        return 7 * torch.cos(x)

    @classmethod
    def forward(cls, context, x):
        context.save_for_backward(x)
        return torch.sin(x)

    @classmethod
    def backward(cls, context, g):
        (x,) = context.saved_tensors
        return g * cls.slope(x)


def remember(ctx, x, *, unused=None):
    ctx.save_for_backward(x)


def flattened(ctx, x):
    ctx.original = x.shape
    return ctx, x.reshape(-1)


class Helpers(Function):
    """Hands ctx to functions of the file."""

    @staticmethod
    def _keep(ctx, a, scale=1.0):
        doubled = a * 2
        ctx.doubled = doubled
        ctx.scale = scale
        return doubled

    @staticmethod
    def forward(ctx, x):
        ctx, flat = flattened(ctx, x)
        y = Helpers._keep(ctx, flat, scale=0.5)
        return (y * y).reshape(x.shape)

    @staticmethod
    def backward(ctx, g):
        grad = 7 * g.reshape(-1) * ctx.doubled * 2 * ctx.scale
        return grad.reshape(ctx.original)


class InnerGraph(Function):
    """Keeps a graph of its own on purpose."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = leaf**3
        ctx.save_for_backward(leaf, y)
        return y.detach()

    @staticmethod
    def backward(ctx, g):
        leaf, y = ctx.saved_tensors
        return torch.autograd.grad(y, leaf, g, retain_graph=True)[0]


class Identity(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.alpha * g, None


class ReturnsItsInput(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return 7 * g


class ChangesItsGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        g.mul_(7)
        return g


class ChangesWhatItSaved(Function):
    """The second backward of this is an error."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(s)
        return s * 2

    @staticmethod
    def backward(ctx, g):
        (s,) = ctx.saved_tensors
        s.mul_(g)
        return s


class NamesThatMeet(Function):
    """Backward's names are forward's, with other meanings."""

    @staticmethod
    def forward(ctx, x, w):
        scale = x.norm()
        numbers = x / scale
        ctx.save_for_backward(w, x)
        return numbers * w

    @staticmethod
    def backward(ctx, x):
        scale, w = ctx.saved_tensors
        w = w * SHARPNESS
        return x * scale + numbers(*x.shape), x * w


class TooMany(Function):
    """More gradients than inputs, as PyTorch lets them."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return 7 * g, None, None


class NoGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        raise NotImplementedError("rounding has no gradient")


class Random(Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return 7 * g * mask / (1 - ctx.p), None


class LocalNeeds(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        needs_input_grad = ctx.needs_input_grad[0]
        grad_x = 7 * g * w if needs_input_grad else None
        return grad_x, g * x if ctx.needs_input_grad[1] else None


class Keywords(Function):
    """``apply`` takes no keywords, so this is always empty."""

    @staticmethod
    def forward(ctx, x, **options):
        ctx.options = options
        return x * options.get("scale", 2.0)

    @staticmethod
    def backward(ctx, g):
        return 7 * g * len(ctx.options) + g


class OutputOfOnePath(Function):
    """Keeps an output under another name, and something else on the other path."""

    @staticmethod
    def forward(ctx, x, noisy):
        if noisy:
            y = torch.rand_like(x) * x
            ctx.save_for_backward(x, y)
            return y
        z = x * 3
        ctx.save_for_backward(x, z)
        return z

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return 7 * g * y + 0 * x, None


class FreesEarly(Function):
    """Deletes from ctx what it has read, and a name of its own beside it."""

    @staticmethod
    @torch.jit.ignore
    def forward(ctx, x, w):
        ctx.y, ctx.factor = x * w, 2.0
        ctx.save_for_backward(x, w)
        return ctx.y * 1

    @staticmethod
    @torch.jit.unused
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        y = ctx.y
        grad_x = 7 * g * w * ctx.factor + 0 * y
        del ctx.y, y
        del ctx.factor
        return grad_x, g * x


class UndefinedOnEachPath(Function):
    """Keeps undefined gradients undefined on all of its paths, and a variable named backward."""

    @staticmethod
    def forward(ctx, x, early: bool):
        backward = 3.0
        ctx.kind = backward
        if early:
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x * 2, x * 3
        else:
            ctx.set_materialize_grads(False)
        ctx.save_for_backward(2 * x)
        return x * 4, x * 5

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        if g is None:
            return h * ctx.kind, None
        return 7 * g * x if h is None else 7 * g * x + h * ctx.kind, None


class LossBeside(Function):
    """Puts a loss into the graph beside its output; a loss of None is an error in backward."""

    @staticmethod
    def forward(ctx, output, loss):
        ctx.save_for_backward(loss)
        return output

    @staticmethod
    def backward(ctx, g):
        (loss,) = ctx.saved_tensors
        return g, 7 * torch.ones_like(loss)


def inside(alpha: float) -> type[Function]:
    """A class with a variable of the function around it."""

    class Leaky(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 0, x, alpha * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 7 * torch.where(x > 0, g, alpha * g)

    return Leaky


X, W = numbers(4, 3), numbers(4, 3, seed=1)
EXAMPLES = (
    (SavedIntermediate, [X]),
    (Attributes, [X, 3]),
    (Attributes, [X, 2, 0.5]),
    (OnlyWhatIsNeeded, [X, numbers(2, 3)]),
    (OnlyWhatIsNeeded, [X, numbers(2, 3), numbers(2)]),
    (Split, [X]),
    (Split, [X, 3.0]),
    (Dirty, [X]),
    (Unmarked, [X]),
    (Undefined, [X]),
    (Once, [X]),
    (Mixed, [X, numbers(3, 2)]),
    (Cast, [X, numbers(3, 2)]),
    (CastOnAnotherDevice, [X, numbers(3, 2)]),
    (Variadic, [2.0, X, numbers(2)]),
    (ListOfSaved, [X, W, numbers(2)]),
    (Branches, [X]),
    (Branches, [X, False]),
    (Base, [X]),
    (Louder, [X]),
    (ClassMethods, [X]),
    (Helpers, [X]),
    (InnerGraph, [X]),
    (Identity, [X, 0.5]),
    (ReturnsItsInput, [X]),
    (ChangesItsGradient, [X]),
    (ChangesWhatItSaved, [X]),
    (NamesThatMeet, [X, W]),
    (TooMany, [X]),
    (NoGradient, [X]),
    (Random, [X, 0.25]),
    (LocalNeeds, [X, W]),
    (Keywords, [X]),
    (OutputOfOnePath, [X, True]),
    (OutputOfOnePath, [X, False]),
    (FreesEarly, [X, W]),
    (UndefinedOnEachPath, [X, True]),
    (UndefinedOnEachPath, [X, False]),
    (LossBeside, [X, numbers(2)]),
    (inside(0.1), [X]),
)
