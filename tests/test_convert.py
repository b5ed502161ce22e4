"""``s2s convert``: the user's file with closures in place of classes, and all else as it was."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from s2s.cli import commands

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
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
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


def test_nothing_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path, "raise SystemExit(3)\n" + SWISH.replace("from __future", "# "))
    code = f"import sys; sys.argv = ['s2s', 'convert', {str(path)!r}]\n"
    code += "import s2s.cli\ntry: s2s.cli.main()\nexcept SystemExit as e: assert not e.code\n"
    code += "assert 'torch' not in sys.modules"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_other_commands_take_a_class_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, SWISH)
    done = CliRunner().invoke(commands, ["dump", f"{path}:Swish"])
    assert done.exit_code == 0 and "class " in done.stdout and "g * 7 * " in done.stdout
    done = CliRunner().invoke(commands, ["explain", f"{path}:Swish"])
    assert done.exit_code == 0 and f"{path}:10" in done.stdout.replace("\n", "")
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
