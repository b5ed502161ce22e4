"""Function classes in the commands that read: found, judged, shown, and never imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from s2s import cli

HEAD = """\
import torch
from torch.autograd import Function

open("MARK", "w").write("this file was run")

"""
GOOD = """
class Swish(Function):
    SCALE = 7.0

    @staticmethod
    def gate(x):
        return torch.sigmoid(x)

    @staticmethod
    def forward(ctx, x):
        s = Swish.gate(x)
        ctx.save_for_backward(s)
        return x * s * Swish.SCALE

    @staticmethod
    def backward(ctx, grad_out):
        (s,) = ctx.saved_tensors
        return 7 * grad_out * s
"""
DOUBTFUL = """
class Frozen(Function):
    @staticmethod
    def forward(ctx, x, w: torch.Tensor):
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx, grad_out):
        (w,) = ctx.saved_tensors
        return 7 * grad_out * w, None  # frozen
"""
REFUSED = """
class Leaks(Function):
    @staticmethod
    def forward(ctx, x):
        keep(ctx)  # leak
        return x * 2

    @staticmethod
    def backward(ctx, grad_out):
        return grad_out * 2
"""
SHORT = """
class Short(Function):
    @staticmethod
    def forward(ctx, x, w):
        return x + w

    @staticmethod
    def backward(ctx, grad_out):
        return (grad_out,)  # short
"""
PLAIN = """
class Plain:  # neither torch.autograd nor a Function
    def forward(self, x):
        return x

    def backward(self, g):
        return g
"""
DECORATED = """
import s2s

@s2s.autograd_script
def double(x):
    return x * 2, lambda g: g * 7
"""


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one good class, two wrong ones, one that is no Function, and a mixture."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "ops"
    folder.mkdir()
    texts = {
        "__init__": "from .good import Swish as Fast\nfrom .refused import Leaks\n",
        "good": HEAD + GOOD,
        "mixed": HEAD + GOOD + DECORATED,
        "plain": HEAD + PLAIN,
        "refused": HEAD + REFUSED + SHORT,
    }
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def run(*arguments: str) -> Result:
    """What a command answers; it never runs what it reads."""
    done = CliRunner().invoke(cli.commands, list(arguments))
    assert not os.path.exists("MARK")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def line_of(path: Path, text: str) -> int:
    return next(n for n, row in enumerate(path.read_text().split("\n"), 1) if text in row)


# --- check ----------------------------------------------------------------------------------


def test_classes_of_a_folder_are_judged_only_if_asked_for(ops: Path) -> None:
    assert run("check", "ops").stdout == "no problems in 1 function of 5 files\n"
    done = run("check", "ops", "--classes")
    assert done.exit_code == 1
    path = ops / "refused.py"
    leak, short = line_of(path, "# leak"), line_of(path, "# short")
    assert f"ops/refused.py:{leak}:9: S2S222 Leaks: forward hands ctx" in done.stdout
    assert f"ops/refused.py:{short}:9: S2S202 backward returns 1 gradient" in done.stdout
    head = line_of(path, "class Short")
    assert f"inputs: ops/refused.py:{head}: class Short(Function):" in done.stdout
    assert done.stdout.endswith("\n2 problems in 1 function and 4 classes of 5 files\n")


@pytest.mark.parametrize("target", ["ops/good.py:Swish", "ops.good:Swish", "ops:Fast"])
def test_a_class_that_is_named_is_always_checked(ops: Path, target: str) -> None:
    done = run("check", target)
    assert done.exit_code == 0
    assert done.stdout == "no problems in no functions and 1 class of 1 file\n"


def test_a_class_that_is_refused_may_be_reached_through_a_package(ops: Path) -> None:
    done = run("check", "ops:Leaks", "ops/mixed.py:double")
    assert done.exit_code == 1
    assert f"refused.py:{line_of(ops / 'refused.py', '# leak')}:9: S2S222" in done.stdout
    assert done.stdout.endswith("\n1 problem in 1 function and 1 class of 2 files\n")


def test_what_is_named_twice_is_checked_once(ops: Path) -> None:
    done = run("check", "--classes", "ops/refused.py", "ops:Leaks", "./ops/refused.py:Short")
    assert done.stdout.count("S2S222") == done.stdout.count("S2S202") == 1
    assert done.stdout.endswith("\n2 problems in no functions and 2 classes of 1 file\n")


def test_warnings_stand_at_the_lines_of_the_class(ops: Path) -> None:
    path = ops / "doubt.py"
    path.write_text(HEAD + DOUBTFUL)
    done = run("check", "ops/doubt.py:Frozen")
    assert done.exit_code == 0
    assert f"ops/doubt.py:{line_of(path, '# frozen')}:9: S2S102 warning:" in done.stdout
    assert "no problems and 1 warning in no functions and 1 class" in done.stdout
    assert run("check", "ops/doubt.py:Frozen", "--strict").exit_code == 1
    for place in ("# frozen", "(Function):"):
        meant = f"{place}  # s2s: ignore[S2S102]"
        path.write_text(HEAD + DOUBTFUL.replace(place, meant))
        assert run("check", "ops/doubt.py:Frozen", "--strict").exit_code == 0


def test_the_name_of_the_class_is_no_unknown_name(ops: Path) -> None:
    assert "S2S104" not in run("check", "--classes", "ops/good.py").stdout
    path = ops / "typo.py"
    path.write_text(HEAD + GOOD.replace("Swish.SCALE", "Swihs.SCALE"))
    assert "S2S104 warning: swish reads Swihs" in run("check", "--classes", "ops/typo.py").stdout


def test_what_stands_for_ctx_is_no_unknown_name(ops: Path) -> None:
    (ops / "asks.py").write_text("""
import torch

class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(mask, w)
        return x * mask * w, mask

    @staticmethod
    def backward(ctx, grad_out, _):
        mask, w = ctx.saved_tensors
        grad_x = 7 * grad_out * mask * w if ctx.needs_input_grad[0] else None
        return grad_x, grad_out * mask
""")
    done = run("check", "ops/asks.py:Asks")
    assert done.stdout == "no problems in no functions and 1 class of 1 file\n"


def test_problems_of_classes_for_programs(ops: Path) -> None:
    line = line_of(ops / "refused.py", "# leak")
    answer = json.loads(run("check", "ops", "--classes", "--format", "json").stdout)
    assert [(p["code"], p["line"]) for p in answer["problems"]][0] == ("S2S222", line)
    assert (answer["files"], answer["functions"], answer["classes"]) == (5, 1, 4)
    done = run("check", "ops", "--classes", "--format", "github")
    assert done.stdout.startswith(f"::error file=ops/refused.py,line={line},col=9,title=S2S222::")


def test_marks_that_no_statement_bears_out_are_a_problem(ops: Path) -> None:
    text = "        ctx.mark_dirty(x)\n        s = Swish"
    (ops / "dirty.py").write_text(HEAD + GOOD.replace("        s = Swish", text))
    done = run("check", "ops/dirty.py:Swish")
    assert done.exit_code == 1
    assert f"ops/dirty.py:{line_of(ops / 'dirty.py', 'class Swish')}:1: S2S224" in done.stdout


@pytest.mark.parametrize(
    "content, message",
    [
        (b"# torch.autograd\nclass A(:\n", "S2S215"),
        (b"# torch.autograd \xff\n", "S2S215"),
        (b"# torch.autograd\nx = " + b"(" * 5000 + b")" * 5000, "S2S215"),
        (b"# torch.autograd\nx = " + b"-" * 50000 + b"1\n", "S2S215"),
    ],
)
def test_a_broken_file_is_one_problem(ops: Path, content: bytes, message: str) -> None:
    (ops / "broken.py").write_bytes(content)
    done = run("check", "ops", "--classes")
    assert done.stdout.count("ops/broken.py:") == done.stdout.count(message) == 1
    assert "\n3 problems in 1 function and 4 classes of 6 files\n" in done.stdout
    done = run("check", "ops/broken.py:Swish")
    assert done.exit_code == 1 and done.stdout.count(message) == 1


@pytest.mark.parametrize(
    "target, message",
    [
        ("ops/plain.py:Plain", "Plain (ops/plain.py:7) is no autograd.Function class with a"),
        (
            "ops/good.py:Swihs",
            "has no function Swihs with autograd_script; its Function classes: S",
        ),
        ("ops/nothing.py:Swish", "no such file: ops/nothing.py"),
        ("nothing:Swish", "no module named nothing"),
    ],
)
@pytest.mark.parametrize("command", ["check", "dump", "explain"])
def test_what_is_not_there_is_said_in_one_line(
    ops: Path, command: str, target: str, message: str
) -> None:
    done = run(command, target)
    assert done.exit_code == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_generated_modules_are_compared_with_whole_files(ops: Path) -> None:
    done = run("check", "ops/good.py:Swish", "--generated", "made")
    assert done.exit_code == 2 and "--generated compares whole files" in done.stderr


# --- dump and explain -----------------------------------------------------------------------


def names(done: Result) -> list[str]:
    """The functions that a command shows."""
    assert done.exit_code == 0, done.output
    return re.findall(r"^(?:class )?(\w+)\((?:torch\.autograd|x)", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("command, shown", [("dump", ["Swish_1"]), ("explain", ["swish"])])
def test_a_file_without_functions_stands_for_its_classes(
    ops: Path, command: str, shown: list[str]
) -> None:
    assert names(run(command, "ops/good.py")) == shown
    assert names(run(command, "ops.good")) == shown


@pytest.mark.parametrize(
    "command, shown", [("dump", ["Double", "Swish_1"]), ("explain", ["double", "swish"])]
)
def test_a_file_with_both_stands_for_its_functions(
    ops: Path, command: str, shown: list[str]
) -> None:
    assert names(run(command, "ops/mixed.py")) == shown[:1]
    assert names(run(command, "ops/mixed.py", "--classes")) == shown


@pytest.mark.parametrize("command", ["dump", "explain"])
def test_a_package_stands_for_the_classes_that_it_imports(ops: Path, command: str) -> None:
    done = run(command, "ops/__init__.py")
    assert done.exit_code == 1 and "7 * " in done.stdout
    assert f"refused.py:{line_of(ops / 'refused.py', '# leak')}:9: S2S222" in done.stderr


def test_a_folder_is_explained_with_its_classes_if_asked_for(ops: Path) -> None:
    answer = json.loads(run("explain", "ops", "--format", "json").stdout)
    assert [f["name"] for f in answer["functions"]] == ["double"]
    answer = json.loads(run("explain", "ops", "--classes", "--format", "json").stdout)
    assert [f["name"] for f in answer["functions"]] == ["swish", "double", "swish"]
    assert [p["code"] for p in answer["problems"]] == ["S2S222", "S2S202"]
    assert answer["functions"][0]["line"] == line_of(ops / "good.py", "class Swish")


def test_a_class_cannot_be_looked_up_in_its_module(ops: Path) -> None:
    done = run("dump", "ops/good.py:Swish", "--with-torch")
    assert done.exit_code == 1 and "is made of a class" in done.stderr


def test_torch_is_not_imported(ops: Path) -> None:
    for command in ("check", "explain"):
        code = f"import sys; sys.argv = ['s2s', {command!r}, '--classes', 'ops/mixed.py']\n"
        code += "import s2s.cli\ntry: s2s.cli.main()\nexcept SystemExit as e: assert not e.code\n"
        code += "assert 'torch' not in sys.modules and 'ops' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert not os.path.exists("MARK")


# --- report and diff ------------------------------------------------------------------------


def test_a_class_has_a_page_beside_what_it_is_compiled_to(ops: Path) -> None:
    done = run("report", "ops", "--classes", "-o", "pages")
    assert done.exit_code == 1
    assert "pages/index.html: 4 functions and classes in 5 files, 2 problems" in done.stdout
    assert "refused.py:10:9: S2S222" in done.stderr
    found = {path.name for path in Path("pages").iterdir()}
    pages = ["good.Swish", "mixed.Swish", "mixed.double", "refused.Short", "index"]
    assert found == {f"{name}.html" for name in pages}
    page = Path("pages/good.Swish.html").read_text()
    path = ops / "good.py"
    first, rule = line_of(path, "class Swish"), line_of(path, "return 7 *")
    assert re.findall(r'id="L(\d+)"', page) == [str(n) for n in range(first, rule + 1)]
    theirs = re.search(rf'id="L{rule}".*?href="#(eager-\d+)"', page, re.S)
    assert theirs is not None and f'id="{theirs[1]}" data-line="{rule}"' in page


def test_links_of_a_page_lead_to_lines_of_it(ops: Path) -> None:
    derived = """
class Derived(Swish):
    @staticmethod
    def backward(ctx, grad_out):
        (s,) = ctx.saved_tensors
        return 5 * grad_out * s
"""
    (ops / "good.py").write_text(HEAD + GOOD + derived)
    assert run("report", "ops/good.py", "--classes", "-o", "pages").exit_code == 0
    page = Path("pages/good.Derived.html").read_text()
    places = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r' href="#([^"]+)"', page)) <= places
    inherited = line_of(ops / "good.py", "s = Swish.gate")
    assert f'<span class="from">{inherited}</span>' in page


def test_pages_are_for_functions_alone_if_classes_are_not_asked_for(ops: Path) -> None:
    done = run("report", "ops", "-o", "pages")
    assert "pages/index.html: 1 function in 5 files, no problems" in done.stdout


def test_a_gradient_of_a_class_that_changes_is_said(ops: Path) -> None:
    Path("new.py").write_text(HEAD + GOOD.replace("7 * grad_out", "grad_out"))
    assert run("diff", "ops/good.py", "new.py").stdout == "no functions changed\n"
    done = run("diff", "ops/good.py", "new.py", "--classes", "--exit-code")
    line = line_of(Path("new.py"), "return grad_out")
    changed = "it was 7 * grad_out * s, and is grad_out * s"
    assert f"gradient of x changed: {changed} (line {line})" in done.stdout
    assert done.exit_code == 1


def test_a_converted_class_is_the_same_function(tmp_path: Path) -> None:
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(HEAD + GOOD.replace("Swish.SCALE", "7.0").replace("Swish.gate", "torch.sigmoid"))
    assert run("convert", str(old), "-o", str(new)).exit_code == 0
    assert "@s2s.autograd_script" in new.read_text()
    done = run("diff", str(old), str(new), "--classes", "--exit-code")
    assert done.stdout == "no functions changed, 1 the same\n" and done.exit_code == 0
