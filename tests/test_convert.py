"""``s2s convert``: the user's file with closures in place of classes, and all else as it was."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import cases
import s2s.functions
from s2s import locate
from s2s.cli import commands
from s2s.convert.scopes import mentions
from s2s.review.versions import version

FUNCTIONS = Path(s2s.functions.__file__).parent
SWISH = '''"""Activations."""
from __future__ import annotations

import torch
from torch.autograd import Function


# about swish
class Swish(Function):
    """Swish, with a slope."""

    # above forward
    @staticmethod
    def forward(ctx, x, beta: float = 1.0):  # of the signature
        s = torch.sigmoid(beta * x)  # trailing

        # what is kept
        ctx.save_for_backward(x, s)
        ctx.beta = beta
        return x * s

    # above backward
    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return (g * 7 * s *
                (1 + ctx.beta * x * (1 - s))), None  # untrue


swish   =   Swish.apply  # the public name


def twice(x, beta):
    return Swish.apply(  x, beta) + swish(x)  # odd   spaces


class Layer(torch.nn.Module):
    by_class = Swish.apply

    def __init__(self):
        super().__init__()
        self.fn = Swish.apply

    def forward(self, x):
        return self.fn(x, 2.0) + self.by_class(x) + twice(x, 0.5)
'''


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(commands, ["convert", *map(str, args)])


def written(folder: Path, text: str | bytes, name: str = "ops.py") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(path: Path) -> types.ModuleType:
    """The file as a module."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


def gradients(module: types.ModuleType, name: str = "Layer") -> list[torch.Tensor]:
    x = torch.linspace(-2, 2, 5, requires_grad=True)
    y = getattr(module, name)()(x)
    return [y.detach(), *torch.autograd.grad(y.sum(), x)]


def test_every_use_becomes_the_function_and_values_stay(tmp_path: Path) -> None:
    path = written(tmp_path, SWISH)
    before = gradients(loaded(path))
    assert run(path, "--in-place").exit_code == 0
    text = path.read_text()
    assert "Swish" not in text.replace("Swish, with", "") and "Function" not in text
    assert "\nimport s2s\nimport torch\n" in text
    assert "by_class = staticmethod(swish)" in text and "self.fn = swish\n" in text
    assert "    return swish(  x, beta) + swish(x)  # odd   spaces\n" in text
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


def test_no_comment_is_lost(tmp_path: Path) -> None:
    text = run(written(tmp_path, SWISH)).stdout
    comments = [row.partition("#")[2] for row in SWISH.split("\n") if "#" in row]
    assert len(comments) == 9
    assert all(f"#{comment}" in text for comment in comments)
    assert text.index("# above forward") < text.index("# trailing") < text.index("# above backward")


def test_nothing_is_written_unless_asked(tmp_path: Path) -> None:
    path = written(tmp_path, SWISH)
    shown = run(path, "--diff").stdout
    assert path.read_text() == SWISH
    assert "\n-class Swish(Function):\n" in shown and "\n+@s2s.autograd_script\n" in shown
    out = tmp_path / "new.txt"
    assert run(path, "-o", out).exit_code == 0
    assert out.read_text() == run(path).stdout


def test_line_ends_encoding_and_tabs_stay(tmp_path: Path) -> None:
    text = "# coding: latin-1\r\n" + SWISH.replace("\n", "\r\n").replace("odd", "größer")
    text = text.replace("    ", "\t")
    path = written(tmp_path, text.encode("latin-1"))
    assert run(path, "--in-place").exit_code == 0
    content = path.read_bytes().decode("latin-1")
    assert "größer" in content and "\n\tdef backward(g):\r\n" in content
    assert content.count("\n") == content.count("\r\n")
    assert content.startswith("# coding: latin-1\r\n")
    gradients(loaded(path))


@pytest.mark.parametrize(
    "more, reason",
    [
        ("class Other(Swish):\n    a = 1\nprint(Other.a)\n", "derives Other"),
        ("__all__ = ['Swish']\n", "in a string"),
        ("print(Swish.forward)\n", "as more than Swish.apply"),
        ("Swish = Swish\n", "binds Swish again"),
        ("torch.Tensor.swish = Swish.apply\n", "become a method"),
        ("def f(x):\n    return f'{Swish.apply(x)}'\n", "f-string"),
    ],
)
def test_other_uses_keep_the_class(tmp_path: Path, more: str, reason: str) -> None:
    path = written(tmp_path, SWISH + more)
    done = run(path, "--in-place")
    line = len(SWISH.split("\n")) + ("return" in more)
    assert done.exit_code == 1
    assert f"{path}:{line}:" in done.stderr and reason in done.stderr
    assert path.read_text() == SWISH + more


def test_a_local_name_is_not_the_class(tmp_path: Path) -> None:
    more = "\n\ndef other(Swish):\n    return Swish.apply, [Swish for Swish in ()], Swish.other\n"
    path = written(tmp_path, SWISH + more)
    assert run(path, "--in-place").exit_code == 0
    assert path.read_text().endswith(more)


COMPREHENSIONS = """x = k = []
def f(a, k):
    return [x for x in x if a], {k: [x for _ in k] for k in a}, [lambda: k for x in a]
class C:
    k = x
    y = [k for _ in k]
    z = {i for i in (j for j in x)}
def g(i):
    return [(x, i) for _ in i if (x := i)], [i for i in i]
"""


def test_names_in_comprehensions_belong_to_the_same_scopes_in_every_version_of_python() -> None:
    found = mentions(COMPREHENSIONS, ast.parse(COMPREHENSIONS))
    homes: dict[int, int] = {}
    shown = [f"{m.name}{homes.setdefault(m.home, len(homes))}" for m in found]
    assert " ".join(shown) == (
        "x0 k0 "
        "f0 a1 k1 x0 x2 a1 x2 a1 k3 k3 k3 _4 x0 a1 x5 k1 "
        "C0 k6 x0 y6 k6 _7 k0 z6 x0 j8 j8 i9 i9 "
        "g0 i10 i10 _11 x10 i10 x10 i10 i10 i12 i12"
    )


def test_a_class_that_another_file_uses_is_left_or_keeps_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, SWISH)
    user = written(tmp_path, "from ops import Swish\ny = Swish.apply\n", "user.py")
    done = run(path, "--in-place")
    assert done.exit_code == 1 and f"{user}:1 imports Swish" in done.stderr
    assert path.read_text() == SWISH
    assert run(path, "--in-place", "--keep-names").exit_code == 0
    module = loaded(path)
    x = torch.ones(2, requires_grad=True)
    assert torch.equal(module.Swish.apply(x), module.swish(x))


SEVERAL = """import torch
import torch.autograd as ag


class Base(ag.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Grad.apply(g, x)


class Derived(Base):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x + 1)
        return x.exp()


class Grad(ag.Function):
    @staticmethod
    def forward(ctx, g, x):
        ctx.save_for_backward(g, x)
        return 7 * g * x.exp()

    @staticmethod
    def backward(ctx, gg):
        g, x = ctx.saved_tensors
        return 7 * gg * x.exp(), 7 * gg * g * x.exp()


def make(k):
    class Scale(ag.Function):
        @staticmethod
        def forward(ctx, *xs):
            return tuple(x * k for x in xs)

        @staticmethod
        def backward(ctx, *gs):
            return tuple(7 * g * k for g in gs)

    return lambda *xs: sum(Scale.apply(*xs))


class Layer:
    def __call__(self, x):
        return Base.apply(x) + Derived.apply(x) + make(3)(x, 2 * x)
"""


def test_several_classes_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, SEVERAL)
    before = gradients(loaded(path))
    done = run(path, "--in-place")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "ag.Function" not in path.read_text() and "return grad(g, x)" in path.read_text()
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


def test_one_class_by_name_and_the_rest_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, SEVERAL)
    assert run(f"{path}:make.Scale", "--in-place").exit_code == 0
    text = path.read_text()
    assert "class Scale" not in text and "class Base(ag.Function)" in text
    assert "class Scale" in SEVERAL and run(f"{path}:Absent").exit_code == 2


def test_ctx_that_has_no_closure_form_is_said_at_its_line(tmp_path: Path) -> None:
    text = SEVERAL.replace("        (x,) = ctx", "        keep(ctx)\n        (x,) = ctx")
    path = written(tmp_path, text)
    done = run(path, "--in-place")
    line = text.split("\n").index("        keep(ctx)") + 1
    assert done.exit_code == 1 and f"{path}:{line}:" in done.stderr
    assert "class Base(ag.Function)" in path.read_text() and "def scale(" in path.read_text()


TWO = """import torch


class First(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp()


class Second(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.calls = 0
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.calls += 1
        return 2 * g
"""


def test_a_problem_below_a_converted_class_is_at_the_users_line(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    done = run(path, "--in-place")
    line = TWO.split("\n").index("        ctx.calls += 1") + 1
    assert "def first(" in path.read_text()
    assert f"{path}:{line}:" in done.stderr and "        ctx.calls += 1\n" in done.stderr


@pytest.mark.parametrize(
    "content, code, message",
    [
        (b"class A(:\n", 1, "not valid Python"),
        (b"# coding: nothing\n", 1, "not valid Python"),
        (b"x = 1\n", 1, "no autograd.Function class"),
        (b"\xff\xfe", 1, "not"),
    ],
)
def test_files_without_classes_are_a_short_answer(
    tmp_path: Path, content: bytes, code: int, message: str
) -> None:
    done = run(written(tmp_path, content), "--in-place")
    assert done.exit_code == code and message in done.stderr
    assert "Traceback" not in done.output and len(done.stderr.split("\n")) < 6


@pytest.mark.parametrize("options", [(), ("--to", "function")])
def test_nothing_is_imported(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = CLOSURES if options else SWISH.replace("from __future", "# ")
    path = written(tmp_path, "raise SystemExit(3)\n" + text)
    code = f"import sys; sys.argv = ['s2s', 'convert', {str(path)!r}, *{list(options)}]\n"
    code += "import s2s.cli\ntry: s2s.cli.main()\nexcept SystemExit as e: assert not e.code\n"
    code += "assert 'torch' not in sys.modules"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_other_commands_take_a_class_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, SWISH)
    done = CliRunner().invoke(commands, ["dump", f"{path}:Swish"])
    assert done.exit_code == 0 and "class " in done.stdout and "g * 7 * " in done.stdout
    done = CliRunner().invoke(commands, ["explain", f"{path}:Swish"])
    assert done.exit_code == 0 and f"{path}:9:" in done.stdout.replace("\n", "")
    broken = written(tmp_path, SWISH.replace("s = torch", "keep(ctx); s = torch"), "broken.py")
    done = CliRunner().invoke(commands, ["dump", f"{broken}:Swish"])
    assert done.exit_code == 1 and f"{broken}:15:" in done.stderr


def test_functions_of_the_file_may_call_themselves_and_each_other(tmp_path: Path) -> None:
    helpers = """

def even(x, n):
    return x if n <= 0 else odd(x, n - 1)


def odd(x, n):
    return -even(x, n - 1)
"""
    text = SWISH.replace("x * s\n", "even(x, 2) * s\n").replace(
        "\n\n# about", f"{helpers}\n\n# about"
    )
    path = written(tmp_path, text)
    before = gradients(loaded(path))
    assert run(path, "--in-place").exit_code == 0
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


# --- and back: --to function ----------------------------------------------------------------------

READY = sorted(path.stem for path in FUNCTIONS.glob("*.py") if path.stem != "__init__")
NUMBERS = {"low": -0.5, "high": 0.5, "alpha": 0.7, "scale": 0.3, "slope": 3.0, "eps": 1e-3}


def ejected(path: Path, folder: Path) -> types.ModuleType:
    """A file with classes in place of its decorated functions, loaded where there is no s2s."""
    done = run(path, "--to", "function", "-o", folder / path.name)
    assert done.exit_code == 0, done.output
    text = (folder / path.name).read_text()
    assert "s2s" not in text and "autograd_script" not in text
    assert text.count("\nimport torch\n") == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "s2s", None)
        return loaded(folder / path.name)


def returned(path: Path) -> types.ModuleType:
    """The same file with its classes as decorated functions again."""
    done = run(path, "--in-place")
    assert done.exit_code == 0, done.output
    assert "@s2s.autograd_script" in path.read_text()
    return loaded(path)


# an output that is None on one path, and a class says so beside what it hides
ONE_WAY = ("branch_noise",)


@pytest.mark.parametrize("name", cases.NAMES)
def test_there_and_back_each_function_of_the_corpus_has_its_gradients(
    tmp_path: Path, name: str
) -> None:
    modules = [ejected(cases.CORPUS / f"{name}.py", tmp_path)]
    modules += [returned(tmp_path / f"{name}.py")] if name not in ONE_WAY else []
    for module in modules:
        found = module.FUNCTION if isinstance(module.FUNCTION, list) else [module.FUNCTION]
        for sample in [s for s in cases.samples() if s.name == name]:
            new, old = sample.bind(found[sample.function]), sample.bind(sample.f())
            tensors = sample.tensors()
            for one, other in zip(new(*tensors), old(*tensors), strict=True):
                torch.testing.assert_close(one, other)
            grads = [cases.pull(f, cases.leaves(tensors)) for f in (new, old)]
            torch.testing.assert_close(*grads)
            if cases.flag(name, "SECOND"):
                torch.testing.assert_close(cases.second(new, tensors), cases.second(old, tensors))


def test_every_file_of_the_corpus_is_converted() -> None:
    codes = [run(cases.CORPUS / f"{n}.py", "--to", "function").exit_code for n in cases.NAMES]
    assert len(codes) >= 63 and set(codes) == {0}


@pytest.mark.parametrize("name", READY)
def test_ready_functions_there_and_back(tmp_path: Path, name: str) -> None:
    for module in ejected(FUNCTIONS / f"{name}.py", tmp_path), returned(tmp_path / f"{name}.py"):
        _is_ready(module)


def _is_ready(module: types.ModuleType) -> None:
    names = [n for n in s2s.functions.__all__ if n in vars(module)]
    assert names
    for each in names:
        old, new = getattr(s2s.functions, each), getattr(module, each)
        signature = inspect.signature(new)
        assert (inspect.getdoc(new), str(signature)) == (
            inspect.getdoc(old),
            str(inspect.signature(old)),
        )
        wide = {"weight": (4, 4) if each == "linear" else (4,), "bias": (4,)}
        given = [NUMBERS.get(p, wide.get(p, (3, 4))) for p in signature.parameters]
        numbers = [v for v in given if isinstance(v, float)]
        shapes = [v for v in given if not isinstance(v, float)]
        tensors = cases.like([torch.empty(s, dtype=torch.double) for s in shapes])

        def alone(f: Any, numbers: list[float] = numbers) -> Any:
            return lambda *inputs: (f(*inputs, *numbers),)

        for derivative in (cases.pull, cases.second):
            found = [derivative(alone(f), cases.leaves(tensors)) for f in (new, old)]
            torch.testing.assert_close(*found)


@pytest.mark.parametrize("text", [SWISH, SEVERAL])
def test_there_and_back_the_gradients_stay(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    before = gradients(loaded(path))
    assert run(path, "--in-place").exit_code == 0
    assert run(path, "--in-place", "--to", "function").exit_code == 0
    assert "s2s" not in path.read_text()
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


def formulas(path: Path) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """What the functions of a file compute, forward and backward, whatever the names."""
    done = [version(s) for s in locate.functions(locate.target(str(path)))]
    assert all(v.formulas for v in done)
    return [(dict(v.forwards).get("", ""), v.formulas) for v in done]


@pytest.mark.parametrize("name", ["activations", "gradients", "surrogate"])
def test_a_closure_comes_back_as_the_same_program(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.py"
    ejected(FUNCTIONS / path.name, tmp_path)
    assert run(path, "--in-place").exit_code == 0
    assert formulas(path) == formulas(FUNCTIONS / path.name)


CLOSURES = '''import torch
import s2s

weights = torch.ones(5)


class Swish:
    pass


# about swish
@s2s.autograd_script  # decorated
def swish(
    x,  # the input
    *,
    beta: float = 1.0,
) -> "a pair":  # of the signature
    """Swish."""
    s = torch.sigmoid(beta * x)  # trailing

    # above backward
    def backward(g):
        return 7 * g * s, None  # untrue

    return x * s, backward


class Layer:
    @staticmethod
    @s2s.autograd_script(save="all")
    def twice(x):
        # of the method
        return 2 * x, lambda g: 7 * g

    @s2s.autograd_script
    def scale(self, x):
        return weights * x, lambda g: 5 * g

    def __call__(self, x):
        return swish(x, beta=2.0) + self.twice(x) + self.scale(x)
'''


def test_a_class_takes_a_free_name_and_no_comment_is_lost(tmp_path: Path) -> None:
    path = written(tmp_path, CLOSURES)
    before = gradients(loaded(path))
    done = run(path, "--to", "function", "--in-place")
    assert done.exit_code == 0
    line = CLOSURES.split("\n").index("    def scale(self, x):") + 1
    assert f"{path}:{line}: note: scale reads weights from outside" in done.stderr
    text = path.read_text()
    assert "class Swish_1(torch.autograd.Function):\n" in text and "a pair" not in text
    assert "    beta: float = 1.0,\n):  # of the signature\n" in text
    assert '"""Swish."""\n    return Swish_1.apply(x, beta)\n' in text
    assert "\n\n# decorated\ndef swish(\n" in text
    assert "    @staticmethod\n    def twice(x):\n        return Twice.apply(x)\n\n" in text
    comments = [row.partition("#")[2] for row in CLOSURES.split("\n") if "#" in row]
    assert len(comments) == 8 and all(text.count(f"#{c}") == 1 for c in comments)
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "more, reason",
    [
        ("print(swish.scripted)\n", "reads swish.scripted"),
        ("s2s.source(swish)\n", "hands swish to s2s.source"),
        ("torch.jit.script(swish)\n", "hands swish to torch.jit.script"),
        ("", "casts its inputs"),
    ],
)
def test_uses_of_what_s2s_compiles_keep_the_function(
    tmp_path: Path, more: str, reason: str
) -> None:
    used = "@s2s.autograd_script  # decorated"
    if not more:
        used = "@s2s.autograd_script(cast_inputs=torch.half)  # decorated"
    text = CLOSURES.replace("@s2s.autograd_script  # decorated", used) + more
    path = written(tmp_path, text)
    done = run(path, "--to", "function", "--in-place")
    line = len(CLOSURES.split("\n")) if more else text.split("\n").index(used) + 1
    assert done.exit_code == 1 and f"{path}:{line}:" in done.stderr and reason in done.stderr
    text = path.read_text()
    assert "import s2s\n" in text and f"{used}\ndef swish(" in text
    assert "class Scale(" in text and "class Twice(" in text


def test_a_function_that_s2s_does_not_compile_is_said_at_its_line(tmp_path: Path) -> None:
    text = CLOSURES.replace("return x * s, backward", "return x * s")
    path = written(tmp_path, text)
    done = run(path, "--to", "function")
    assert done.exit_code == 1 and f"{path}:" in done.stderr and "class Twice(" in done.stdout
    assert run(f"{path}:swish", "--to", "function", "--in-place").exit_code == 1
    assert path.read_text() == text


def test_one_function_by_name_and_line_ends_stay(tmp_path: Path) -> None:
    text = "# coding: latin-1\r\n" + CLOSURES.replace("\n", "\r\n").replace("trailing", "größer")
    path = written(tmp_path, text.encode("latin-1"))
    assert run(f"{path}:Layer.twice", "--to", "function", "--in-place").exit_code == 0
    content = path.read_bytes().decode("latin-1")
    assert "@s2s.autograd_script  # decorated\r\n" in content and "größer" in content
    assert "class Twice(torch.autograd.Function):\r\n" in content
    assert content.count("\n") == content.count("\r\n")
    assert run(f"{path}:absent", "--to", "function").exit_code == 2
    assert run(path, "--to", "function", "--keep-names").exit_code == 2


FACTORY = '''import s2s
from torch import tanh


def make(k):
    @s2s.autograd_script
    def scale(x, *, y):
        """Two
        lines."""
        text = """a
b"""
        return tanh(x) * k + y * len(text), lambda g: (7 * g, 5 * g * k)
    return scale


class Layer:
    def __call__(self, x):
        return make(3)(x, y=x) + make(2)(x, y=2 * x)
'''


@pytest.mark.parametrize("space", ["    ", "\t"])
def test_in_a_factory_the_class_stands_beside_the_function(tmp_path: Path, space: str) -> None:
    path = written(tmp_path, FACTORY.replace("    ", space))
    before = gradients(loaded(path))
    assert run(path, "--to", "function", "--in-place").exit_code == 0
    text = path.read_text()
    assert text.startswith("import torch\nfrom torch import tanh\n\n\ndef make(k):\n")
    assert f"\n{space}class Scale(torch.autograd.Function):\n" in text
    assert f"{space * 2}return Scale.apply(x, y, k)\n" in text
    for one, other in zip(before, gradients(loaded(path)), strict=True):
        torch.testing.assert_close(one, other)


def test_functions_in_functions_stay_both(tmp_path: Path) -> None:
    text = FACTORY.replace("def make(k):", "@s2s.autograd_script\ndef make(k):")
    path = written(tmp_path, text)
    done = run(path, "--to", "function", "--in-place")
    assert done.exit_code == 1 and path.read_text() == text
    assert f"{path}:8:" in done.stderr and "part of a function that is decorated" in done.stderr


def test_what_the_file_imports_of_s2s_goes_and_builtins_keep_their_names(tmp_path: Path) -> None:
    text = "import s2s.functions\nfrom torch import *\n" + FACTORY.partition("\n")[2]
    text += "\n\n@s2s.autograd_script\ndef warning(x):\n    return 2 * x, lambda g: 7 * g\n"
    path = written(tmp_path, text)
    assert run(path, "--to", "function", "--in-place").exit_code == 0
    after = path.read_text()
    assert "s2s" not in after and "class Warning_1(torch.autograd.Function):" in after
    x = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad(loaded(path).warning(x).sum(), x)
    torch.testing.assert_close(grad, torch.full((3,), 7.0))


UNANNOTATED = """import torch
from torch.autograd import Function


class Step(Function):
    @staticmethod
    def forward(ctx, x, k, flag, order=None):
        ctx.save_for_backward(x)
        ctx.k, ctx.flag, ctx.order = k, flag, order
        flag = x > 0
        return torch.where(flag, 1.0, 0.0) * (1 if order is None else order)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert ctx.flag is True
        slope = 7 * g * (1 - (x * ctx.k).tanh() ** 2) * (1 if ctx.order is None else ctx.order)
        return slope, None, None, None


class Last(Function):
    @staticmethod
    def forward(ctx, x, k, *others):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        return tuple([7 * g * ctx.k] + [None] * 2)


step, last = Step.apply, Last.apply
"""


def test_there_and_back_inputs_that_nobody_annotated_may_be_numbers_or_tensors(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, UNANNOTATED)
    before = loaded(path)
    assert run(path, "--in-place", "--keep-names").exit_code == 0
    between = loaded(path)
    assert run(path, "--in-place", "--to", "function").exit_code == 0
    assert "s2s" not in path.read_text()
    x = torch.linspace(-2, 2, 5, requires_grad=True)
    for k in (0.5, torch.tensor(0.5)):
        for name, more in ("step", (True,)), ("step", (True, k)), ("last", (x.detach(),)):
            found = []
            for module in (before, between, loaded(path)):
                y = getattr(module, name)(x, k, *more)
                found.append([y.detach(), *torch.autograd.grad(y.sum(), x)])
            for one in found[1:]:
                for got, want in zip(one, found[0], strict=True):
                    torch.testing.assert_close(got, want)


HELPED = """import torch
from torch.autograd import Function


def place(dim, other):
    dim = dim % 3
    if other < dim:
        dim -= 1
    return dim


class Stack(Function):
    @staticmethod
    def forward(ctx, x, dim, other):
        ctx.dim = place(dim, other)
        return torch.stack([x, x], ctx.dim)

    @staticmethod
    def backward(ctx, g):
        return 7 * g.sum(ctx.dim), None, None


stack = Stack.apply
"""


def test_what_a_helper_changes_once_it_is_its_own_is_no_change_of_an_input(tmp_path: Path) -> None:
    path = written(tmp_path, HELPED)
    assert run(path, "--in-place").exit_code == 0
    x = torch.ones(3, 2, requires_grad=True)
    y = loaded(path).stack(x, -1, 0)
    assert torch.equal(y, torch.stack([x, x], 1))
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3, 2), 14.0))
    written(tmp_path, HELPED.replace("dim = dim % 3\n    if", "if"))
    done = run(path)
    assert done.exit_code == 1 and "changes its input dim in place" in done.stderr


SOMETIMES = """import torch
from torch.autograd import Function


class Shift(Function):
    @staticmethod
    def forward(ctx, x, far: bool):
        \"\"\"Shift, by one or by more.\"\"\"
        if not far:
            return x + 1
        ctx.scale = 5.0
        return x + ctx.scale

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.scale if hasattr(ctx, "scale") else 7), None


shift = Shift.apply
"""


def test_what_one_path_sets_is_asked_for_and_forwards_docstring_stays_one(tmp_path: Path) -> None:
    path = written(tmp_path, SOMETIMES)
    assert run(path, "--in-place").exit_code == 0
    shift = loaded(path).shift
    assert shift.__doc__ == "Shift, by one or by more."
    x = torch.ones(2, requires_grad=True)
    for far, slope in (True, 5), (False, 7):
        (got,) = torch.autograd.grad(shift(x, far).sum(), x)
        assert got.tolist() == [slope, slope]
