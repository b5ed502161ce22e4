"""`s2s explain`: what a reviewer is told is true of the function that runs."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import cases
import programs
import s2s.functions
from s2s import cli, locate, pipeline
from s2s.review.changes import changes
from s2s.review.facts import Facts, Kept, facts
from s2s.review.versions import version
from s2s.source import from_file

ROOT = Path(__file__).parent.parent
CORPUS = [(name, i) for name in cases.NAMES for i in range(len(cases.functions(name)))]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.commands, list(arguments))


def explained(tmp_path: Path, text: str) -> Facts:
    """The facts of the only function of a text."""
    path = tmp_path / "given.py"
    path.write_text("import torch, s2s\n\n@s2s.autograd_script(save='all')\n" + text)
    (source,) = locate.functions(locate.target(str(path)))
    rule = pipeline.read(source)
    return facts(rule, pipeline.lift(rule))


def kept(found: Facts, name: str) -> Kept:
    return next(k for k in found.kept if k.name == name)


def holds(found: Facts, what: str) -> str:
    return next(c.holds for c in found.derivatives if c.what == what)


# --- against what runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name, number", CORPUS)
def test_forms_and_derivatives_are_those_of_the_function_that_runs(name: str, number: int) -> None:
    compiled = cases.functions(name)[number].__s2s__
    found = facts(compiled.rule, compiled.pair)
    forms = {form.name: form.exists for form in found.forms}
    try:
        compiled.scripted.forward
        scripts = True
    except s2s.TransformError:
        scripts = False
    transforms = cases.flag(name, "TRANSFORMS")
    assert forms == {
        "eager": True,
        "torchscript": scripts,
        "func": not compiled.pair.dirty and name != "implicit_root",
        "op": compiled.op is not None,
    }
    assert (holds(found, "second derivative") == "yes") == cases.flag(name, "SECOND")
    assert (holds(found, "vmap") != "no") == (cases.flag(name, "VMAP") and transforms)
    linear = cases.flag(name, "LINEAR") and forms["func"]
    assert (holds(found, "forward mode") == "yes") == linear
    assert all(form.line for form in found.forms if not form.exists)
    assert all(claim.line for claim in found.derivatives if claim.holds != "yes")


@pytest.mark.parametrize("name", s2s.functions.__all__)
def test_what_is_kept_is_what_autograd_holds(name: str) -> None:
    """As many tensors as `ctx.saved_tensors` gives."""
    function = getattr(s2s.functions, name)
    found = facts(function.__s2s__.rule, function.__s2s__.pair)
    x, w, b = (torch.rand(s, requires_grad=True) for s in ((2, 3), (3,), (3,)))
    more: dict[str, tuple[Any, ...]] = {
        "clamp": (0.0, 1.0),
        "scale_gradient": (2.0,),
        "layer_norm": (w, b),
        "linear": (torch.rand(4, 3, requires_grad=True),),
    }
    arguments = (x, *more.get(name, ()))
    output = function(*arguments)
    saved = output.grad_fn.saved_tensors
    tensors = [part for k in found.tensors for part in (k.parts or (k.name,))]
    assert len(saved) == len(tensors)
    final = pipeline.stages(function.__s2s__.pair, "eager")[-1].pair
    assert set(tensors) == {s.name for s in final.saved if s.keep != "plain"}


# --- what is said of a function ---------------------------------------------------------------------


def test_captures_say_how_they_are_kept_and_who_reads_them(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        "def f(x, w, p: float):\n"
        "    s = torch.sigmoid(x)\n"
        "    mask = torch.rand_like(x) > p\n"
        "    def backward(g):\n"
        "        h = g * mask / x.shape[0]\n"
        "        return h * s, (h * 7).sum(0), None\n"
        "    return x * mask * w, backward\n",
    )
    assert [(k.name, k.kind, k.line, k.read) for k in found.kept] == [
        ("x", "input", 4, (8,)),
        ("s", "intermediate", 5, (9,)),
        ("mask", "intermediate", 6, (8,)),
    ]
    x, s, mask = found.kept
    assert (x.needed_for, x.shape_for, x.start_of) == ((), ("x", "w"), ("s",))
    assert (s.needed_for, s.again, s.sources) == (("x",), "recomputed", ("x",))
    assert (mask.needed_for, mask.type, mask.again) == (
        ("x", "w"),
        "Tensor (integer or bool)",
        "as is",
    )
    by_x, by_w, by_p = found.gradients
    assert (by_x.needs, by_x.shapes) == (("s", "mask"), ("x",))
    assert (by_w.needs, by_w.text, by_w.guarded) == (("mask",), "(h * 7).sum(0)", True)
    assert by_p.given == "never"


def test_an_output_is_kept_in_place_of_another_name_for_it(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        "def f(x):\n"
        "    s = torch.sigmoid(x)\n"
        "    y = s\n"
        "    def backward(g):\n"
        "        return g * s * (1 - s)\n"
        "    return y, backward\n",
    )
    (only,) = found.kept
    assert (only.name, only.how, only.parts) == ("s", "saved tensor", ("y",))


def test_a_shape_is_kept_in_place_of_the_tensor(tmp_path: Path) -> None:
    text = "def f(x):\n    return x.sum(), lambda g: g.expand(x.shape)\n"
    (x,) = explained(tmp_path, text).kept
    assert (x.how, x.parts, x.is_tensor) == ("shape only", ("x_shape",), False)
    assert x.shape_for == ("x",)


def test_what_one_gradient_alone_needs_is_kept_for_that_one(tmp_path: Path) -> None:
    text = "def f(x, w):\n    return x * w, lambda g: (7 * g * w, g * x)\n"
    x, w = explained(tmp_path, text).kept
    assert (x.how, x.when, w.how, w.when) == ("saved tensor", ("w",), "saved tensor", ("x",))


def test_what_backward_computes_again_says_from_what() -> None:
    (source,) = locate.functions(locate.target(str(cases.CORPUS / "rms_norm.py")))
    rule = pipeline.read(source, save="auto")
    found = facts(rule, pipeline.lift(rule))
    normed = kept(found, "normed")
    assert (normed.how, normed.is_tensor) == ("computed again", False)
    assert normed.sources == ("x", "residual", "inverse")
    assert normed.value == "normed = h * inverse"
    assert kept(found, "inverse").redo == ("normed",)
    assert kept(found, "inverse").sources == ("x", "residual", "eps")
    assert kept(found, "eps").start_of == ("inverse",)


def test_a_value_that_is_not_computed_twice_prevents_the_second_derivative(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        "def f(x):\n    noisy = x * torch.randn(3)\n    return x * 1, lambda g: 7 * g * noisy\n",
    )
    claim = found.derivatives[0]
    assert (claim.holds, claim.line) == ("no", 5)
    assert "noisy" in claim.why and "torch.randn(3)" in claim.why
    assert kept(found, "noisy").again == "refused"


@pytest.mark.parametrize(
    "body, line",
    [
        ("    y = (lambda t: t * 2)(x)\n", 5),
        ("    try:\n        y = x * 2\n    finally:\n        pass\n", 5),
        ("    import math\n    y = x * math.pi\n", 5),
        ("    y = x * 2\n    y = sum(map(torch.sin, [y]))\n", 6),
    ],
)
def test_the_line_that_prevents_torchscript(tmp_path: Path, body: str, line: int) -> None:
    text = f"def f(x):\n{body}    return y * 1, lambda g: 7 * g\n"
    form = explained(tmp_path, text).forms[1]
    assert (form.name, form.exists, form.line) == ("torchscript", False, line)


def test_a_change_in_place_prevents_two_forms(tmp_path: Path) -> None:
    text = "def f(x):\n    x.mul_(2)\n    return x, lambda g: 7 * g\n"
    found = explained(tmp_path, text)
    assert [(f.name, f.line) for f in found.forms if not f.exists] == [("func", 5), ("op", 5)]
    assert [c.holds for c in found.derivatives] == ["yes", "no", "no"]


def test_constant_gradients_and_zero_second_derivatives(tmp_path: Path) -> None:
    found = explained(tmp_path, "def f(x):\n    return x.round(), lambda g: 7 * g\n")
    assert found.kept == ()
    assert found.derivatives[0].why.startswith("and zero")


@pytest.mark.parametrize("start", range(0, 40, 20))
def test_random_programs_can_be_explained_and_are_no_change_of_themselves(start: int) -> None:
    for seed in range(start, start + 20):
        text = programs.program(random.Random(seed).choice)
        for source in from_file(Path("random.py"), "random", text):
            one = version(source)
            assert one.facts is not None and changes(one, one) == ()


def test_a_parameter_with_a_default_before_the_name_of_a_factory(tmp_path: Path) -> None:
    text = (
        "import torch, s2s\n"
        "def make(alpha):\n"
        "    @s2s.autograd_script\n"
        "    def f(x, n: int = 2):\n"
        "        return x * n * alpha, lambda g: (7 * g * alpha, None)\n"
        "    return f\n"
    )
    (source,) = from_file(tmp_path / "made.py", "made", text)
    pair = pipeline.lift(pipeline.read(source))
    written = pipeline.emit(pair, "torchscript").text
    assert "def f_forward(x: Tensor, n: int, alpha" in written
    assert facts(pipeline.read(source), pair).forms[1].exists


# --- the command ----------------------------------------------------------------------------------


def test_one_screen_that_names_everything() -> None:
    text = run("explain", "s2s.functions:layer_norm").stdout
    assert text.startswith("layer_norm(x, weight, bias, eps: float = 1e-5)\n")
    assert len(text.splitlines()) < 50
    assert max(map(len, text.splitlines())) <= 80
    for title in ("Kept for backward", "Gradients", "Forms", "Derivatives"):
        assert f"\n{title}\n" in text
    assert "keeps 4 tensors (x, weight, rstd, x_hat)" in text


def test_another_choice_of_what_is_kept_is_explained_before_it_is_made() -> None:
    text = run("explain", "s2s.functions:layer_norm", "--save", "least").stdout
    assert "keeps 2 tensors (x, weight)" in text
    assert 'save="least", chosen  1 x + 1 weight; computes rstd and x_hat again' in text
    assert 'save="all"            2.02 x + 1 weight' in text
    assert "torch.compiler.disable(f) keeps this choice" in text
    text = run("explain", "s2s.functions:layer_norm", "--recompute", "x_hat").stdout
    assert 'save="all", chosen  1 x + 1 weight; computes rstd and x_hat again' in text
    failed = run("explain", "s2s.functions:layer_norm", "--recompute", "x")
    assert failed.exit_code == 1 and "S2S220" in failed.stderr


@pytest.mark.parametrize("columns", ["40", "120"])
def test_no_line_is_wider_than_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = run("explain", "s2s.functions").stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert not any(line != line.rstrip() for line in lines)


def test_for_programs() -> None:
    answer = json.loads(run("explain", "s2s.functions", "--format", "json").stdout)
    assert {f["name"] for f in answer["functions"]} == set(s2s.functions.__all__)
    swish = next(f for f in answer["functions"] if f["name"] == "swish")
    assert [k["name"] for k in swish["kept"]] == ["x"]
    assert swish["line"] > 0 and swish["file"].endswith("activations.py")
    assert answer["problems"] == []


def test_markdown_is_tables() -> None:
    text = run("explain", "s2s.functions:swish", "--format", "markdown").stdout
    assert text.startswith("### `swish(x: Tensor)`\n")
    for row in re.findall(r"^\|.*$", text, re.M):
        assert len(re.findall(r"(?<!\\)\|", row)) in (3, 4, 5)


def test_what_does_not_compile_is_reported_and_the_rest_explained(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(
        "import s2s\n"
        "@s2s.autograd_script\n"
        "def wrong(x, w):\n"
        "    return x * w, lambda g: g\n"
        "@s2s.autograd_script\n"
        "def fine(x):\n"
        "    return x * 1, lambda g: 7 * g\n"
    )
    result = run("explain", str(path))
    assert result.exit_code == 1
    assert "S2S202" in result.stderr and "fine(x)" in result.stdout
    answer = json.loads(run("explain", str(path), "--format", "json").stdout)
    assert [p["code"] for p in answer["problems"]] == ["S2S202"]
    assert [f["name"] for f in answer["functions"]] == ["fine"]


def test_a_folder_stands_for_the_files_in_it(tmp_path: Path) -> None:
    head = "import s2s\n@s2s.autograd_script\n"
    (tmp_path / "a.py").write_text(f"{head}def one(x):\n    return x * 1, lambda g: 7 * g\n")
    (tmp_path / "b.py").write_text("# autograd_script\ndef f(:\n")
    (tmp_path / "c.py").write_text("x = 1\n")
    (tmp_path / "d.py").write_text(
        "import s2s\n"
        "class Layer:\n"
        "    @s2s.autograd_script\n"
        "    def two(self, x):\n"
        "        return x * 1, lambda g: 7 * g\n"
    )
    result = run("explain", str(tmp_path), str(tmp_path / "a.py"))
    assert result.exit_code == 1
    heads = [line for line in result.stdout.splitlines() if line.endswith("x)")]
    assert heads == ["one(x)", "Layer.two(self, x)", "one(x)"]
    assert "b.py:2:7: S2S215" in result.stderr


def test_nothing_in_a_file_is_taken_for_markup_or_an_order_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "import s2s\n"
        "@s2s.autograd_script\n"
        "def f(x, mode: str = '[red]|\x1b[31m'):\n"
        "    return x * 1, lambda g: (g * len('[/bold]|\x1b[0m'), None)\n"
    )
    text = run("explain", str(path)).stdout
    assert "\x1b" not in text and "[red]" in text and "[/bold]" in text
    assert "\x1b" not in run("explain", str(path), "--format", "markdown").stdout
