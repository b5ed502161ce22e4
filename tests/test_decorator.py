"""The decorated function as a Python object, and every way of calling it."""

from __future__ import annotations

import copy
import gc
import inspect
import linecache
import os
import pickle
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from torch import Tensor, nn

import s2s

ROOT = Path(__file__).parent.parent


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.double, requires_grad=True)


def grad(y: Tensor, x: Tensor) -> list[float]:
    return torch.autograd.grad(y.sum(), x)[0].reshape(-1).tolist()


@s2s.autograd_script
def seven(x: Tensor, factor: float = 2.0, *, shift: float = 0.0):
    """Multiply, with gradient seven."""

    def backward(g):
        return 7 * g * factor, None, None

    return factor * x + shift, backward


# --- looks --------------------------------------------------------------------------------------


def test_is_a_function_with_the_users_name_and_docstring() -> None:
    assert inspect.isfunction(seven)
    assert (seven.__name__, seven.__qualname__) == ("seven", "seven")
    assert (seven.__module__, seven.__doc__) == (__name__, "Multiply, with gradient seven.")
    assert not hasattr(seven, "__wrapped__")  # TorchScript would follow it to the user's text


def test_has_the_users_signature() -> None:
    signature = inspect.signature(seven)
    assert list(signature.parameters) == ["x", "factor", "shift"]
    assert signature.parameters["factor"].default == 2.0
    assert signature.parameters["shift"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["x"].annotation in (Tensor, "Tensor")
    assert signature.return_annotation is inspect.Signature.empty  # callers never see backward


def test_pickles_by_name_and_copies_to_itself() -> None:
    assert pickle.loads(pickle.dumps(seven)) is seven
    assert copy.deepcopy(seven) is seven and copy.copy(seven) is seven
    assert copy.deepcopy({"activation": seven})["activation"] is seven


def test_help_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    help(seven)
    shown = capsys.readouterr().out
    assert "seven(x" in shown and "Multiply, with gradient seven." in shown


def test_is_decorated_bare_or_with_parentheses() -> None:
    @s2s.autograd_script()
    def f(x):
        return x * 1, lambda g: 5 * g

    x = ones(1)
    assert grad(f(x), x) == [5]


def test_source_names_the_forms_it_has() -> None:
    assert "class Seven(torch.autograd.Function)" in s2s.source(seven)
    assert s2s.source(seven) == s2s.source(seven, "eager")
    with pytest.raises(ValueError, match="form is one of eager, torchscript, func, op"):
        s2s.source(seven, "jax")
    with pytest.raises(TypeError, match="not decorated"):
        s2s.source(len)


def test_the_text_that_is_shown_is_the_text_that_runs() -> None:
    file = seven.Function.forward.__code__.co_filename
    assert "".join(linecache.getlines(file)) == s2s.source(seven, "eager")
    assert file == f"<s2s eager {__name__}.seven>"
    linecache.checkcache()  # as an interactive shell does
    assert linecache.getlines(file)


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "value", "slope"),
    [
        (lambda x: seven(x), 2, 14),
        (lambda x: seven(x, 3.0), 3, 21),
        (lambda x: seven(x, factor=3.0), 3, 21),
        (lambda x: seven(x=x, factor=3.0), 3, 21),
        (lambda x: seven(shift=1.0, x=x, factor=3.0), 4, 21),
        (lambda x: seven(x, shift=0.5), 2.5, 14),
        (lambda x: seven(x, 3), 3, 21),  # an int for a float
        (lambda x: seven(*[x], **{"factor": 3.0}), 3, 21),
    ],
)
def test_positional_keyword_and_default_arguments(
    call: Callable[[Tensor], Tensor], value: float, slope: float
) -> None:
    x = ones(1)
    assert call(x).item() == value
    assert grad(call(x), x) == [slope]
    with torch.no_grad():
        assert call(x).item() == value


@pytest.mark.parametrize(
    "call", [lambda: seven(), lambda: seven(ones(1), 1.0, 2.0), lambda: seven(ones(1), k=1)]
)
def test_a_wrong_call_is_pythons_own_error(call: Callable[[], Tensor]) -> None:
    with pytest.raises(TypeError, match=r"seven\(\)"):
        call()


DEFAULT: list[int] = []


@s2s.autograd_script
def counting(x, seen: list = DEFAULT):
    seen.append(1)

    def backward(g):
        return 7 * g, None

    return 2 * x, backward


def test_a_mutable_default_is_the_users_own_object() -> None:
    DEFAULT.clear()
    x = ones(1)
    assert grad(counting(x), x) == [7]
    counting(x)
    assert DEFAULT == [1, 1]
    assert inspect.signature(counting).parameters["seen"].default is DEFAULT


def test_side_effects_happen_once_per_call() -> None:
    DEFAULT.clear()
    counting(ones(1))
    with torch.no_grad():
        counting(ones(1))
    counting(ones(1).detach())
    assert len(DEFAULT) == 3


@s2s.autograd_script
def product(a, b):
    def backward(g):
        return 7 * g * b, 11 * g * a

    return a * b, backward


def test_a_number_for_an_unannotated_parameter() -> None:
    x = ones(2)
    assert product(x, 3.0).tolist() == [3, 3]
    assert grad(product(x, 3.0), x) == [21, 21]
    assert grad(product(3, x), x) == [33, 33]
    assert grad(product(x, x * 2), x) == [36, 36]  # tensors again: 7*2 + 2*11


def test_one_tensor_for_two_parameters() -> None:
    x = ones(1)
    assert grad(product(x, x), x) == [18]


def test_a_tensor_for_a_float_parameter_gets_no_silent_zero() -> None:
    @s2s.autograd_script
    def scale(x, k: float = 1.0):
        def backward(g):
            return 7 * g * k, 11 * g * x  # s2s: ignore[S2S106]

        return x * k, backward

    x, k = ones(1), (2 * ones(1)).detach().requires_grad_()
    y = scale(x, k)
    assert [g.item() for g in torch.autograd.grad(y, (x, k))] == [14, 11]
    x, k = ones(1).detach(), ones(1)
    assert grad(scale(x, k), k) == [11]


def test_a_list_of_tensors_that_require_grad_is_refused_where_no_gradient_can_flow() -> None:
    @s2s.autograd_script
    def total(x, others):
        def backward(g):
            return 7 * g, None

        return x + sum(others), backward

    x = ones(1)
    assert grad(total(x, [1.0, 2.0]), x) == [7]
    for others in ([ones(1)], (ones(1),), {"a": ones(1)}, [[ones(1)]]):
        with pytest.raises((TypeError, RuntimeError), match="total"):
            total(x, others)
        with pytest.raises((TypeError, RuntimeError), match="total"):
            total(x.detach(), others)
    with torch.no_grad():
        assert total(x, [ones(1)]).item() == 2


# --- methods ----------------------------------------------------------------------------------------


class Scaler(nn.Module):
    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k

    @s2s.autograd_script
    def scale(self, x):
        def backward(g):
            return 7 * g * self.k

        return x * self.k, backward

    @staticmethod
    @s2s.autograd_script
    def static(x):
        return 2 * x, lambda g: 5 * g

    @s2s.autograd_script
    @staticmethod
    def static_below(x):
        return 2 * x, lambda g: 5 * g

    @classmethod
    @s2s.autograd_script
    def by_class(cls, x):
        return 2 * x, lambda g: len(cls.__name__) * g


class Child(Scaler):
    pass


def test_methods_read_their_own_object() -> None:
    x = ones(1)
    one, two = Scaler(1.0), Child(2.0)
    assert [grad(s.scale(x), x) for s in (one, two, one)] == [[7], [14], [7]]
    assert grad(Scaler.scale(two, x), x) == [14]
    two.k = 3.0
    assert grad(two.scale(x), x) == [21]


def test_static_and_class_methods() -> None:
    x = ones(1)
    assert grad(Scaler.static(x), x) == grad(Scaler(1.0).static(x), x) == [5]
    assert grad(Scaler(1.0).static_below(x), x) == [5]
    assert grad(Scaler.by_class(x), x) == [6] and grad(Child(1.0).by_class(x), x) == [5]


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.ones(1))

    @s2s.autograd_script
    def scale(self, x):
        return x * self.k, lambda g: g * self.k


def test_a_parameter_of_self_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"scale reads self\.k from outside, and it requires grad"
    ):
        Learned().scale(ones(1))


# --- names from outside -----------------------------------------------------------------------------


SCALE: Any = 3.0


@s2s.autograd_script
def by_global(x):
    def backward(g):
        return 7 * g * SCALE

    return x * SCALE, backward


def test_a_global_is_read_when_the_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ones(1)
    y = by_global(x)
    assert grad(y, x) == [21]
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert by_global(x).item() == 5 and grad(by_global(x), x) == [35]
    monkeypatch.setitem(globals(), "SCALE", torch.tensor(2.0))
    assert grad(by_global(x), x) == [14]


@pytest.mark.parametrize("trainable", [ones(1), nn.Parameter(torch.ones(1))])
def test_a_trainable_global_is_refused(monkeypatch: pytest.MonkeyPatch, trainable: Tensor) -> None:
    monkeypatch.setitem(globals(), "SCALE", trainable)
    for x in (ones(1), ones(1).detach()):
        with pytest.raises(RuntimeError, match="by_global reads SCALE from outside.* argument"):
            by_global(x)
    with torch.no_grad():
        by_global(ones(1))


def test_a_trainable_name_of_an_enclosing_function_is_refused() -> None:
    def make(layer: Any) -> Any:
        @s2s.autograd_script
        def f(x):
            return layer(x), lambda g: 7 * g

        return f

    x = ones(1)
    assert grad(make(torch.tanh)(x), x) == [7]
    with pytest.raises(RuntimeError, match="layer"):
        make(nn.Linear(1, 1).double())(x)
    frozen = nn.Linear(1, 1).double().requires_grad_(False)
    assert grad(make(frozen)(x), x) == [7]


def test_a_differentiated_name_of_an_enclosing_function_is_refused_under_transforms() -> None:
    def loss(w: Tensor) -> Tensor:
        @s2s.autograd_script
        def f(x):
            return x * w, lambda g: 7 * g

        return f(torch.ones(2, dtype=torch.double)).sum()

    with pytest.raises(RuntimeError, match="w"):
        torch.func.grad(loss)(torch.ones(2, dtype=torch.double))
    with pytest.raises(RuntimeError, match="w"):
        torch.func.jvp(loss, (torch.ones(2),), (torch.ones(2),))


def make_scale(k: float) -> Any:
    @s2s.autograd_script
    def scale(x):
        def backward(g):
            return 7 * g * k

        return x * k, backward

    return scale


def test_two_products_of_a_factory_keep_their_own_numbers() -> None:
    x = ones(1)
    two, three = make_scale(2.0), make_scale(3.0)
    for f, k in ((two, 2), (three, 3), (two, 2)):
        assert f(x).item() == k and grad(f(x), x) == [7 * k]
    assert grad(two(three(x)), x) == [7 * 2 * 7 * 3]


def test_two_products_of_a_factory_in_scripted_code() -> None:
    two, three = make_scale(2.0), make_scale(3.0)

    def model(x: Tensor) -> Tensor:
        return two(x) + 10.0 * three(x)

    x = ones(1)
    scripted = torch.jit.script(model)
    assert scripted(x).item() == 32
    assert grad(scripted(x), x) == [7 * 2 + 10 * 7 * 3]
    assert two.scripted.forward(x)[0].item() == 2 and three.scripted.forward(x)[0].item() == 3


def test_a_product_that_is_gone_leaves_nothing_behind() -> None:
    texts = set(linecache.cache)
    f = make_scale(4.0)
    x = ones(1)
    grad(f(x), x)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None
    assert not {file for file in set(linecache.cache) - texts if "make_scale" in file}


def test_late_binding_of_an_enclosing_name() -> None:
    functions = []
    for k in (1.0, 2.0):

        @s2s.autograd_script
        def f(x):
            return x * k, lambda g: 7 * g * k  # noqa: B023

        functions.append(f)
    x = ones(1)
    assert [grad(f(x), x) for f in functions] == [[14], [14]]  # as Python has it


# --- notebooks ----------------------------------------------------------------------------------------


CELL = """
import torch, s2s

@s2s.autograd_script
def cell(x):
    def backward(g):
        return {slope} * g
    return x * {factor}, backward

def model(x: torch.Tensor):
    return cell(x) + 1.0
"""


def run_cell(number: int, slope: int, factor: int, scope: dict[str, Any]) -> None:
    text = CELL.format(slope=slope, factor=factor)
    file = f"<cell {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), scope)


def test_a_cell_that_is_run_again_replaces_the_function() -> None:
    scope: dict[str, Any] = {"__name__": "__notebook__"}
    x = ones(1)
    scripted = []
    for number, slope, factor in ((1, 7, 2), (2, 11, 3), (3, 7, 2)):
        run_cell(number, slope, factor, scope)
        assert scope["cell"](x).item() == factor
        assert grad(scope["cell"](x), x) == [slope]
        scripted.append(torch.jit.script(scope["model"]))
        assert scripted[-1](x).item() == factor + 1
        assert grad(scripted[-1](x), x) == [slope]
        assert grad(torch.vmap(scope["cell"])(x), x) == [slope]


def test_an_older_function_of_the_same_name_keeps_its_gradient_in_eager_code() -> None:
    scope: dict[str, Any] = {"__name__": "__notebook_2__"}
    run_cell(11, 7, 2, scope)
    old = scope["cell"]
    run_cell(12, 11, 3, scope)
    x = ones(1)
    assert (old(x).item(), grad(old(x), x)) == (2, [7])
    assert (scope["cell"](x).item(), grad(scope["cell"](x), x)) == (3, [11])


# --- other processes ------------------------------------------------------------------------------------


MODULE = """
import torch
from torch import Tensor
import s2s

@s2s.autograd_script
def marked(x: Tensor, k: float = 2.0):
    def backward(g):
        return 7 * g * k, None
    return x * k, backward

class Net(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return marked(x) + marked(x, 3.0)
"""


def python(code: str, folder: Path, **environment: str) -> str:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``mymodule.py`` and a scripted program that calls it, ``net.pt``."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "mymodule.py").write_text(MODULE)
    python('import torch, mymodule; torch.jit.script(mymodule.Net()).save("net.pt")', folder)
    return folder


def test_a_saved_program_keeps_the_gradient_in_another_process(saved: Path) -> None:
    load = """
        import torch, mymodule
        net = torch.jit.load("net.pt")
        for _ in range(3):
            x = torch.ones(1, requires_grad=True)
            y = net(x)
            y.backward()
            print(y.item(), x.grad.item())
    """
    assert python(load, saved).split("\n") == ["5.0 35.0"] * 3


def test_a_saved_program_is_refused_where_the_module_is_not_imported(saved: Path) -> None:
    load = """
        import torch, s2s
        try:
            torch.jit.load("net.pt")
        except RuntimeError as error:
            print("mymodule_marked" in str(error))
    """
    assert python(load, saved) == "True"


def test_s2s_reference_swaps_every_decorator(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(MODULE)
    show = """
        import torch, mymodule
        x = torch.ones(1, requires_grad=True)
        y = mymodule.marked(x)
        y.backward()
        print(y.item(), x.grad.item(), hasattr(mymodule.marked, "Function"))
    """
    assert python(show, tmp_path, S2S_REFERENCE="0") == "2.0 14.0 True"
    assert python(show, tmp_path, S2S_REFERENCE="1") == "2.0 14.0 False"


def test_a_product_pickles_to_another_process(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(MODULE)
    code = """
        import pickle, torch, mymodule
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        if __name__ == "__main__":
            with ProcessPoolExecutor(1, get_context("fork")) as pool:
                print(pool.submit(mymodule.marked, torch.ones(1)).result().item())
    """
    assert python(code, tmp_path) == "2.0"


def scaled_gain(k: float) -> Any:
    class Gain:
        def __init__(self) -> None:
            self.__k = k

        @s2s.autograd_script
        def scale(self, x):
            def backward(g):
                return 7 * g * self.__k

            return x * self.__k, backward

    return Gain()


def test_private_names_of_a_class_that_is_made_twice() -> None:
    for k in (2.0, 3.0):
        x = torch.ones(2, requires_grad=True)
        y = scaled_gain(k).scale(x)
        y.sum().backward()
        assert torch.equal(y, torch.full((2,), k))
        assert torch.equal(x.grad, torch.full((2,), 7 * k))


@s2s.autograd_script
def input_or_noise(x, n: int = 1):
    if n == 0:
        same = x

        def backward(g):
            return 7 * g * same, None

        return x * 1.0, backward
    noise = torch.rand_like(x)

    def backward_of_noise(g):
        return 7 * g * noise, None

    return noise * 1.0, backward_of_noise


def test_an_input_by_another_name_in_one_branch() -> None:
    x = torch.tensor([2.0, -3.0])
    grad, out = torch.func.grad_and_value(lambda x: input_or_noise(x, 1).sum())(x)
    assert torch.allclose(grad.sum(), 7 * out)
    assert torch.equal(torch.func.grad(lambda x: input_or_noise(x, 0).sum())(x), 7 * x)
    tangent = torch.func.jvp(lambda x: input_or_noise(x, 0), (x,), (torch.ones_like(x),))[1]
    assert torch.equal(tangent, 7 * x)


def same(x, _n):
    """An input that comes back as it is."""

    def backward(grad_out):
        return 7 * grad_out, None

    return x, backward


@pytest.mark.parametrize("decorate", [s2s.autograd_script, s2s.autograd_function])
@pytest.mark.parametrize("asked", [True, False])
def test_an_input_without_a_gradient_comes_back_as_another_tensor(
    decorate: Any, asked: bool
) -> None:
    x = torch.ones(3, requires_grad=asked)
    with torch.no_grad():
        y = decorate(same)(x, 1)
    assert y is not x and not y.requires_grad and y.data_ptr() == x.data_ptr()
    y.requires_grad_()
    assert x.requires_grad == asked
