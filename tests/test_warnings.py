"""What may be a mistake: what is warned of, where, and what is left alone.

The examples of ``explained/`` show each warning; here is what must not be warned of, and how a
warning is shown and silenced.
"""

from __future__ import annotations

import ast
import json
import textwrap
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import s2s
from s2s import cli, pipeline
from s2s.errors import WARNINGS, GradientWarning
from s2s.ir import Diagnostic
from s2s.source import from_file
from s2s.warn import warnings_for

ROOT = Path(__file__).parent.parent
HEAD = "import torch\nfrom torch import Tensor\nfrom typing import List, Optional\nimport s2s\n\n"
RIGHT = [*(ROOT / "tests" / "corpus").glob("*.py"), *(ROOT / "s2s" / "functions").glob("*.py")]
RIGHT += [*(ROOT / "benchmarks").glob("*.py")]


def found_in(text: str, known: tuple[str, ...] = ()) -> list[Diagnostic]:
    """The warnings for the functions of a text, which is decorated and put below some imports."""
    text = HEAD + textwrap.dedent(text).replace("def f(", "@s2s.autograd_script\ndef f(")
    sources = from_file(Path("example.py"), "example", text)
    return [w for source in sources for w in warnings_for(pipeline.read(source), known)]


def codes_in(text: str, known: tuple[str, ...] = ()) -> list[str]:
    return [problem.code for problem in found_in(text, known)]


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_functions_are_not_warned_of(path: Path) -> None:
    text = path.read_text()
    for source in from_file(path, path.stem, text):
        assert warnings_for(pipeline.read(source)) == ()


QUIET = {
    "an output gradient that is named as unused": """
        def f(x):
            return x.sin(), x * 2, lambda g, _: g * x.cos()
    """,
    "the gradient of integers": """
        def f(x):
            values, places = x.max(0)
            def backward(g, h):
                return torch.zeros_like(x).scatter(0, places[None], g[None])
            return values, places, backward
    """,
    "zeros": """
        def f(x, y):
            def backward(g):
                nothing = torch.zeros_like(y)
                return g, nothing
            return x + y.round(), backward
    """,
    "a gradient that is filled in place": """
        def f(x, index: Tensor):
            def backward(g):
                grad = torch.zeros_like(x)
                grad.index_add_(0, index, g)
                return grad, None
            return x[index], backward
    """,
    "a list that is filled in a loop": """
        def f(x):
            def backward(g):
                parts: List[Tensor] = []
                for row in g.unbind(0):
                    parts.append(row * 2)
                return torch.stack(parts)
            return x * 2, backward
    """,
    "a helper nested in backward": """
        def f(x):
            def backward(g):
                def scaled(k):
                    return g * k
                return scaled(2)
            return x * 2, backward
    """,
    "a condition on an output gradient": """
        def f(x):
            def backward(g):
                if g.abs().max() > 1:
                    slope = torch.ones_like(x)
                else:
                    slope = torch.zeros_like(x)
                return slope
            return x * 2, backward
    """,
    "autograd inside": """
        def f(x):
            def backward(g):
                with torch.enable_grad():
                    leaf = x.detach().requires_grad_()
                    y = leaf.sin()
                (grad,) = torch.autograd.grad(y, leaf, g)
                return grad
            return x.sin(), backward
    """,
    "no gradient for what only picks": """
        def f(x, where_to: Tensor):
            def backward(g):
                return torch.zeros_like(x).scatter(0, where_to, g), None
            return x.gather(0, where_to), backward
    """,
    "no gradient for a comparison": """
        def f(x: Tensor, threshold: Tensor):
            keep = x > threshold
            def backward(g):
                return g * keep, None
            return x * keep, backward
    """,
    "no gradient for what is detached": """
        def f(x: Tensor, mean: Tensor):
            def backward(g):
                return g, None
            return x - mean.detach(), backward
    """,
    "no gradient for statistics under no_grad": """
        def f(x: Tensor, history: Tensor):
            with torch.no_grad():
                mean = history.mean(0)
            def backward(g):
                return g, None
            return x - mean, backward
    """,
    "no gradient for a target": """
        def f(x: Tensor, target: Tensor):
            def backward(g):
                return 2 * g * (x - target), None
            return (x - target) ** 2, backward
    """,
    "a number without an annotation": """
        def f(x, slope):
            def backward(g):
                return g * slope, None
            return x * slope, backward
    """,
    "straight through: a gradient for what forward does not read": """
        def f(soft, hard: Tensor):
            return hard.clone(), lambda g: (g, None)
    """,
    "an option that is not used yet": """
        def f(x, mode: str = "fast"):
            return x * 2, lambda g: (g * 2, None)
    """,
    "a name of a later line": """
        def f(x):
            return x * LATER, lambda g: g * LATER
        LATER = 2.0
    """,
    "a name that a function makes global": """
        def configure():
            global GAIN
            GAIN = 2.0
        def f(x):
            return x * GAIN, lambda g: g * GAIN
    """,
    "names of a star import": """
        from math import *
        def f(x):
            return x * pi, lambda g: g * pi
    """,
    "a change above backward": """
        def f(x):
            y = x.exp()
            y.mul_(2)
            return y, lambda g: g * y
    """,
    "a change below of what is not captured": """
        def f(x):
            y = x * 1
            def backward(g):
                return g * 2
            y.mul_(2)
            return y, backward
    """,
    "one gradient for two inputs": """
        def f(x, y):
            def backward(g):
                grad_x = g * 2
                return grad_x, grad_x
            return (x + y) * 2, backward
    """,
    "a gradient that may be None for a number that may be a tensor": """
        def f(x, k=1.0):
            return x * k, lambda g: (g * k, g * x if isinstance(k, Tensor) else None)
    """,
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_is_left_alone(text: str) -> None:
    assert codes_in(text) == []


SAID = {
    "S2S101 one of two outputs": """
        def f(x):
            def backward(g, h):
                return g * x.cos() + h.shape[0]
            return x.sin(), x * 2, backward
    """,
    "S2S101 a shape is no use": """
        def f(x):
            def backward(g):
                return torch.ones_like(g) * x
            return x * x, backward
    """,
    "S2S102 an optional bias": """
        def f(x: Tensor, bias: Optional[Tensor] = None):
            y = x if bias is None else x + bias
            return y * 1, lambda g: (g, None)
    """,
    "S2S102 a tensor that only its use shows": """
        def f(x, w):
            return x @ w.t(), lambda g: (g @ w, None)
    """,
    "S2S102 no gradient at all": """
        def f(x: Tensor):
            return torch.sign(x), lambda g: None
    """,
    "S2S103 one of two gradients": """
        def f(x, y):
            return x * y, lambda g: (g * y, x)
    """,
    "S2S104 in forward": """
        def f(x):
            return torch.sin(x) * scael, lambda g: g
    """,
    "S2S106 a bool": """
        def f(x, flag: bool):
            return x * 2, lambda g: (g * 2, g * 0.5)
    """,
    "S2S107 through a view": """
        def f(x):
            y = x.exp()
            def backward(g):
                return g * y
            y.view(-1).mul_(2)
            return y, backward
    """,
    "S2S109 by another way to name them": """
        def f(x, w):
            def backward(g):
                dx, dw = g * w, g * x
                return dw, dx
            return x * w, backward
    """,
    "S2S110 beside None": """
        def f(x, w):
            def backward(g):
                grad_w = g * x
                return g * w, None
            return x * w, backward
    """,
}


@pytest.mark.parametrize("what", SAID)
def test_is_warned_of(what: str) -> None:
    (problem,) = found_in(SAID[what])
    assert problem.code == what.split()[0]
    assert problem.hint and problem.message[-1] != "."
    assert problem.span.text == (HEAD + decorated(SAID[what])).splitlines()[problem.span.line - 1]


def decorated(text: str) -> str:
    return textwrap.dedent(text).replace("def f(", "@s2s.autograd_script\ndef f(")


def test_a_name_that_exists_at_run_time_is_no_mistake() -> None:
    text = "def f(x):\n    return x * CELL, lambda g: g * CELL\n"
    assert codes_in(text) == ["S2S104"]
    assert codes_in(text, ("CELL",)) == []


def test_a_misspelt_name_says_what_may_be_meant() -> None:
    (problem,) = found_in(SAID["S2S104 in forward"].replace("scael", "tocrh.pi"))
    assert problem.hint == "is torch meant?"


# --- how they are shown, and silenced -------------------------------------------------------------

SQUARE = """
def f(x):
    def backward(g):{one}
        return 2 * x{two}
    return x * x, backward
"""


@pytest.mark.parametrize(
    "comment", ["# s2s: ignore", "# s2s:ignore[S2S101]", "# s2s: ignore[S2S102, S2S101] yes"]
)
def test_a_comment_silences(comment: str) -> None:
    assert codes_in(SQUARE.format(one=f"  {comment}", two="")) == []
    assert codes_in(SQUARE.format(one="", two="").replace("f(x):", f"f(x):  {comment}")) == []


@pytest.mark.parametrize("comment", ["# s2s: ignore[S2S102]", "# ignore", "# s2s: ignored"])
def test_another_comment_does_not(comment: str) -> None:
    assert codes_in(SQUARE.format(one=f"  {comment}", two="")) == ["S2S101"]


def test_a_comment_on_another_line_does_not() -> None:
    assert codes_in(SQUARE.format(one="", two="  # s2s: ignore")) == ["S2S101"]


def test_decorating_warns_at_the_line_of_the_user() -> None:
    with pytest.warns(GradientWarning, match=r"^\[S2S101\] no gradient .*\n  hint: ") as given:

        @s2s.autograd_script
        def square(x):
            def backward(grad_out):  # here
                return 2 * x

            return x * x, backward

    (one,) = given
    assert one.filename == __file__
    assert Path(__file__).read_text().splitlines()[one.lineno - 1].endswith("# here")
    assert issubclass(GradientWarning, UserWarning)


def test_a_filter_can_make_it_an_error() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r"\[S2S101\]", GradientWarning)
        with pytest.raises(GradientWarning):

            @s2s.autograd_script
            def square(x):
                return x * x, lambda grad_out: 2 * x


def test_the_products_of_a_factory_warn_once() -> None:
    def make():
        @s2s.autograd_script
        def square(x):
            return x * x, lambda grad_out: 2 * x

        return square

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        make()
        make()
    assert len([w for w in given if w.category is GradientWarning]) == 1


def check(path: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.commands, ["check", str(path), *options])
    return result.exit_code, result.stdout


def test_the_command_prints_warnings_and_counts_them_when_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(HEAD + decorated(SQUARE.format(one="", two="")))
    code, text = check(path)
    assert code == 0
    assert text.splitlines()[0].startswith(f"{path}:9:18: S2S101 warning: no gradient")
    assert text.splitlines()[-1] == "no problems and 1 warning in 1 function of 1 file"
    assert check(path, "--strict") == (1, text)
    path.write_text(path.read_text().replace("2 * x", "2 * x * g"))
    assert check(path, "--strict") == (0, "no problems in 1 function of 1 file\n")


def test_for_programs_warnings_stand_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(HEAD + decorated(SQUARE.format(one="", two="")))
    answer = json.loads(check(path, "--format", "json")[1])
    assert answer["problems"] == []
    assert [(w["code"], w["line"]) for w in answer["warnings"]] == [("S2S101", 9)]
    _, text = check(path, "--format", "github")
    assert text.startswith("::warning file=") and "title=S2S101::" in text


def test_the_table_and_the_code_name_the_same_warnings() -> None:
    tree = ast.parse((ROOT / "s2s" / "warn.py").read_text())
    given = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "diagnostic"
        if isinstance(node.args[0], ast.Constant)
    }
    assert given == set(WARNINGS)
