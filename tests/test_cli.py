"""The command: what it prints, what it refuses, and that it runs nothing it is shown."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import s2s
import s2s.functions
from s2s import cli, pipeline
from s2s.commands.dump import FORMS

SHIPPED = s2s.functions.__all__

ACTS = """
import torch
import s2s

open("MARK", "w").write("this file was run")

@s2s.autograd_script
def swish(x):
    # the comment stays
    s = torch.sigmoid(x)
    def backward(grad_out):
        return grad_out * (s * (1 + x * (1 - s)))
    return x * s, backward

def plain(x):
    return x

class Layer:
    @staticmethod
    @s2s.autograd_script
    def scale(x, a):
        return x * a, lambda g: (g * a, g * x)

class Other:
    @s2s.autograd_script
    def scale(self, x):
        return x * 2, lambda g: g * 2

def make(alpha: float):
    @s2s.autograd_script
    def spike(v):
        def backward(g):
            return g / (1 + alpha * v.abs())
        return (v > 0).to(v.dtype), backward
    return spike
"""

WRONG = """
import s2s

@s2s.autograd_script
def one(x, w):
    def backward(g):
        return g
    return x * w, backward

@s2s.autograd_script
def two(x):
    def backward(g):
        return g.mul_(2)
    return x * 1, backward

@s2s.autograd_script
def fine(x):
    return x * 1, lambda g: g
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a package whose parents refuse to be imported."""
    package = tmp_path / "pkg" / "sub"
    package.mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text('open("MARK", "w").write("imported")\n')
    (package / "__init__.py").write_text("from .acts import swish, Layer\nimport torch\n")
    (package / "acts.py").write_text(ACTS)
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.commands, list(arguments))


def ran(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as users start it."""
    command = [sys.executable, "-m", "s2s", *arguments]
    root = str(Path(s2s.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


# --- dump -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("form", ["eager", "func", "op", "call"])
def test_dump_prints_what_runs(name: str, form: str) -> None:
    function: Callable[..., Any] = getattr(s2s.functions, name)
    assert ran("dump", f"s2s.functions:{name}", "--form", form) == s2s.source(function, form)


def test_eager_is_the_default_and_all_is_every_form() -> None:
    text = ran("dump", "s2s.functions:swish")
    assert text == ran("dump", "s2s.functions:swish", "--form", "eager")
    every = ran("dump", "s2s.functions:swish", "--form", "all")
    assert re.findall(r"# --- (\w+) ---", every) == list(FORMS)
    assert text in every
    ast.parse(every)


def test_the_forms_are_those_of_the_pipeline() -> None:
    assert set(FORMS) == {*pipeline.FORMS, "call"}


def test_dump_of_a_module_is_python_that_defines_every_class() -> None:
    text = ran("dump", "s2s.functions")
    scope: dict[str, Any] = {}
    exec(text, scope)
    classes = {name for name, value in scope.items() if isinstance(value, type)}
    assert classes >= {getattr(s2s.functions, n).Function.__name__ for n in SHIPPED}
    one = s2s.source(s2s.functions.mish)
    assert f"\n\n\n{one.strip()}\n\n\n" in text


def test_functions_of_one_name_get_classes_of_their_own(project: Path) -> None:
    result = run("dump", "pkg/sub/acts.py")
    assert result.exit_code == 0
    assert re.findall(r"class (\w+)", result.stdout) == ["Swish", "Scale", "Scale1", "Spike"]
    assert result.stderr == "note: Other.scale, line 26, is printed as scale_1\n"


@pytest.mark.parametrize(
    "target, expected",
    [
        ("pkg/sub/acts.py:swish", "Swish"),
        ("pkg.sub.acts:swish", "Swish"),
        ("pkg.sub:swish", "Swish"),
        ("pkg.sub.acts:Layer.scale", "Scale"),
        ("pkg.sub.acts:make.<locals>.spike", "Spike"),
        ("pkg.sub.acts:make.spike", "Spike"),
        ("pkg.sub.acts:spike", "Spike"),
    ],
)
def test_ways_to_name_a_function(project: Path, target: str, expected: str) -> None:
    assert re.findall(r"class (\w+)", ran("dump", target)) == [expected]


@pytest.mark.parametrize(
    "target, message",
    [
        ("nothing.py", "no such file: nothing.py"),
        ("nothing", "no module named nothing; a file is named by its path, nothing.py"),
        ("pkg.nothing:f", "no module named pkg.nothing"),
        ("sys", "sys has no Python file to read (built-in)"),
        ("pkg/sub", "pkg/sub is a folder: name a file in it, or a module"),
        ("pkg/sub/acts.py:plain", "plain (pkg/sub/acts.py:15) is not decorated"),
        ("pkg/sub/acts.py:swihs", "no function swihs with autograd_script; it has swish"),
        ("pkg/sub/acts.py:scale", "scale is one of several in pkg/sub/acts.py: Layer.scale, Other"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(project: Path, target: str, message: str) -> None:
    result = run("dump", target)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_without_functions_is_a_problem(project: Path) -> None:
    (project / "empty.py").write_text("import s2s\n")
    result = run("dump", "empty.py")
    assert result.exit_code == 1
    assert "empty.py has no function decorated with autograd_script" in result.stderr


def test_nothing_is_run_and_torch_is_not_imported(project: Path) -> None:
    code = (
        "import sys\n"
        "from s2s.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    loaded = {'torch', 'pkg', 'acts'} & set(sys.modules)\n"
        "    print('loaded:', loaded or 'nothing', file=sys.stderr)\n"
    )
    root = str(Path(s2s.__file__).parent.parent)
    for arguments in (
        ["dump", "pkg.sub.acts"],
        ["dump", "pkg/sub/acts.py:swish", "--form", "all"],
        ["dump", "pkg.sub:swish", "--after", "lift_backward"],
        ["check", "."],
        ["explain", "pkg.sub.acts"],
        ["explain", "pkg/sub/acts.py", "--format", "json"],
        ["diff", "pkg/sub/acts.py", "wrong.py"],
        ["dump", "pkg", "--write", "gen"],
        ["check", "pkg", "--generated", "gen"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stderr.endswith("loaded: nothing\n"), done.stderr
        assert done.stdout
    assert not (project / "MARK").exists()


# --- dump --save ---------------------------------------------------------------------------------

SAVING = """
import torch
import s2s

@s2s.autograd_script(save="all")
def f(x, w):
    s = torch.sigmoid(x)
    p = torch.softmax(x @ w, -1)
    def backward(g):
        return g * s * p.sum(), g * p
    return x * w, backward

HOW = "least"

@s2s.autograd_script(save=HOW)
def unwritten(x):
    return x * 2, lambda g: g * 2

@s2s.autograd_script(save="lots", recompute=3)
def wrong(x):
    return x * 2, lambda g: g * 2
"""


def test_what_the_decorator_says_of_saving_is_read_from_its_text(project: Path) -> None:
    (project / "saving.py").write_text(SAVING)

    def saved(*options: str) -> set[str]:
        text = ran("dump", "saving.py:f", *options)
        call = text[text.index("save_for_backward(") : text.index("return x * w")]
        return {name for name in "xwsp" if re.search(rf"\b{name}\b", call.split("(", 1)[1])}

    assert saved() == set("xwsp")
    assert saved("--save", "least") == set("xw")
    assert saved("--recompute", "p") == set("xws")


def test_what_cannot_be_read_of_saving_is_said(project: Path) -> None:
    (project / "saving.py").write_text(SAVING)
    result = run("dump", "saving.py:unwritten")
    assert result.exit_code == 1
    assert "S2S220 the value of save is not written here: HOW" in result.stderr
    assert run("dump", "saving.py:unwritten", "--save", "auto").exit_code == 0
    result = run("dump", "saving.py:wrong")
    assert "save is one of least, auto, all, not 'lots'" in result.stderr
    assert "recompute holds names of captured values, not 3" in result.stderr
    result = run("dump", "saving.py:f", "--recompute", "x")
    assert "recompute names 'x', but backward reads no such value" in result.stderr


# --- dump --after ---------------------------------------------------------------------------------


def test_a_stage_is_two_plain_functions_that_run() -> None:
    scope: dict[str, Any] = {}
    exec(ran("dump", "s2s.functions:layer_norm", "--after", "lift_backward"), scope)
    x, w, b, g = (torch.randn(s, dtype=torch.double) for s in ((4, 3), (3,), (3,), (4, 3)))
    x.requires_grad_()
    y, saved = scope["layer_norm_forward"](x, w, b)
    grads = scope["layer_norm_backward"](g, *saved)
    expected = s2s.functions.layer_norm(x, w, b)
    assert torch.equal(y, expected)
    assert torch.allclose(grads[0], torch.autograd.grad(expected, x, g)[0])


def test_a_stage_says_what_it_saves_and_what_it_asks_for() -> None:
    text = ran("dump", "s2s.functions:layer_norm", "--after", "guard_gradients")
    assert "# saves x_hat: Tensor, as a saved tensor; for a second derivative: recomputed" in text
    assert "x_hat, needs_input_grad):" in text


@pytest.mark.parametrize("step", [p.__name__ for f in pipeline.FORMS.values() for p in f])
def test_every_pass_can_be_asked_for(step: str) -> None:
    assert "def linear_forward(x, weight, bias=None" in ran(
        "dump", "s2s.functions:linear", "--after", step
    )


def test_an_unknown_pass_is_told_from_those_that_exist() -> None:
    result = run("dump", "s2s.functions:swish", "--after", "nothing", "--form", "op")
    assert result.exit_code == 2
    assert "no pass 'nothing'; the passes of the form op are lift_backward, plain_forward" in (
        result.stderr
    )


# --- dump --with-torch ----------------------------------------------------------------------------


def test_with_torch_finds_types_that_the_text_does_not_tell(project: Path) -> None:
    (project / "typed_by_torch.py").write_text(
        "import torch, s2s\n"
        "print('noise')\n"
        "SCALE = torch.tensor(2.0).item()\n"
        "@s2s.autograd_script\n"
        "def f(x):\n"
        "    def backward(g):\n"
        "        return g * SCALE\n"
        "    return x * SCALE, backward\n"
    )
    without = process("dump", "typed_by_torch.py", "--form", "torchscript")
    assert "SCALE = 2.0" not in without.stdout
    done = process("dump", "typed_by_torch.py:f", "--form", "torchscript", "--with-torch")
    assert done.returncode == 0, done.stderr
    assert "SCALE = 2.0  # from the module" in done.stdout
    assert "noise" not in done.stdout


def test_with_torch_says_why_a_module_cannot_be_imported(project: Path) -> None:
    (project / "wants_more.py").write_text("import not_there\n" + WRONG)
    done = process("dump", "wants_more.py:fine", "--with-torch")
    assert done.returncode == 1
    assert "wants_more cannot be imported: ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr
    local = run("dump", "pkg.sub.acts:spike", "--with-torch")
    assert local.exit_code == 1
    assert "make.<locals>.spike exists only while make runs" in local.stderr


# --- dump -o --------------------------------------------------------------------------------------


def test_output_is_written_whole_or_not_at_all(project: Path) -> None:
    assert ran("dump", "pkg.sub:swish", "-o", "out.py") == ""
    text = Path("out.py").read_text()
    assert text.startswith(ran("dump", "pkg.sub:swish"))
    result = run("dump", "wrong.py", "-o", "out.py")
    assert result.exit_code == 1
    assert "S2S202" in result.stderr and "out.py is not written" in result.stderr
    assert Path("out.py").read_text() == text
    assert sorted(os.listdir(".")) == ["out.py", "pkg", "wrong.py"]


@pytest.mark.parametrize("output", ["pkg/sub/acts.py", "link.py"])
def test_the_file_that_is_read_is_not_overwritten(project: Path, output: str) -> None:
    os.symlink("pkg/sub/acts.py", "link.py")
    result = run("dump", "pkg.sub:swish", "-o", output)
    assert result.exit_code == 2
    assert "it is not overwritten" in result.stderr
    assert Path("pkg/sub/acts.py").read_text() == ACTS


# --- check ----------------------------------------------------------------------------------------


def test_check_shows_every_problem_of_a_file(project: Path) -> None:
    result = run("check", ".")
    assert result.exit_code == 1
    assert result.stdout == (
        "wrong.py:7:9: S2S202 backward returns 1 gradient (g) here; one has 2 inputs (x, w)\n"
        "    7 |         return g\n"
        "      |         ^\n"
        "  inputs: wrong.py:5: def one(x, w):\n"
        "  hint: return one gradient per input, in order, and None where there is none: "
        "`return grad_x, grad_w`\n"
        "wrong.py:13:16: S2S210 backward of two changes the output gradient g in place: "
        "`g.mul_(2)`\n"
        "   13 |         return g.mul_(2)\n"
        "      |                ^\n"
        "  hint: autograd may use that tensor elsewhere, or run backward again; "
        "compute a new value, for example from g.clone()\n"
        "2 problems in 7 functions of 4 files\n"
    )


def test_check_is_quiet_about_what_is_well(project: Path) -> None:
    assert ran("check", "pkg") == "no problems in 4 functions of 3 files\n"


def test_check_for_programs(project: Path) -> None:
    result = run("check", "--format", "json", "wrong.py", "pkg")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [(p["code"], p["file"], p["line"], p["column"]) for p in answer["problems"]] == [
        ("S2S202", "wrong.py", 7, 9),
        ("S2S210", "wrong.py", 13, 16),
    ]
    assert answer["problems"][0]["notes"] == ["inputs: wrong.py:5: def one(x, w):"]
    assert answer["problems"][0]["hint"].startswith("return one gradient per input")
    assert (answer["files"], answer["functions"]) == (4, 7)


def test_check_for_github(project: Path) -> None:
    result = run("check", "--format", "github", "wrong.py")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("::error file=wrong.py,line=7,col=9,title=S2S202::backward returns")
    assert "%0Ahint: return one" in lines[0]
    assert lines[-1] == "2 problems in 3 functions of 1 file"


def test_one_bad_file_never_stops_the_rest(project: Path) -> None:
    (project / "a_broken.py").write_text("# autograd_script\ndef f(:\n")
    (project / "b_other.py").write_text("def f(:\n")
    (project / "c_bytes.py").write_bytes(b"# autograd_script \xff\n")
    result = run("check", ".")
    assert result.exit_code == 1
    assert "a_broken.py:2:7: S2S215" in result.stdout
    assert "b_other.py" not in result.stdout  # it has nothing to do with s2s
    assert "c_bytes.py:1:1: S2S215" in result.stdout
    assert "S2S210" in result.stdout
    named = run("check", "b_other.py")
    assert named.exit_code == 1
    assert "b_other.py:1:7: S2S215" in named.stdout


def test_check_goes_on_past_a_path_that_is_not_there(project: Path) -> None:
    result = run("check", "nothing", "wrong.py")
    assert result.exit_code == 2
    assert "no such file: nothing" in result.stderr
    assert "2 problems in 3 functions of 1 file" in result.stdout


@pytest.mark.parametrize("folder", [".hidden", "node_modules", "__pycache__", "environment"])
def test_folders_that_are_left_out(project: Path, folder: str) -> None:
    inside = project / "top" / folder
    inside.mkdir(parents=True)
    (inside / "wrong.py").write_text(WRONG)
    if folder == "environment":
        (inside / "pyvenv.cfg").touch()
    assert ran("check", "top") == "no problems in no functions of no files\n"
    assert run("check", f"top/{folder}").exit_code == 1  # unless it is named


def test_a_file_is_checked_once(project: Path) -> None:
    assert "3 functions of 1 file\n" in run("check", "wrong.py", "./wrong.py").stdout


def test_functions_under_autograd_function_are_not_compiled(project: Path) -> None:
    text = WRONG.replace("import s2s", "import s2s\nfrom s2s import autograd_function as reference")
    text = text.replace("@s2s.autograd_script\ndef one", "@reference\ndef one")
    Path("wrong.py").write_text(
        text.replace("@s2s.autograd_script\ndef two", "@reference\ndef two")
    )
    assert ran("check", "wrong.py") == "no problems in 1 function of 1 file\n"
    assert re.findall(r"class (\w+)", ran("dump", "wrong.py")) == ["Fine"]


# --- what nobody should feed it -------------------------------------------------------------------

HEAD = "import s2s\n@s2s.autograd_script\ndef f(x):\n"
TAIL = "    return y, lambda g: g\n"
HOSTILE = {
    "null bytes": f"{HEAD}    y = x\n{TAIL}\0".encode(),
    "not UTF-8": f"{HEAD}    y = x  # ".encode() + b"\xff\xfe\n" + TAIL.encode(),
    "an endless line": f"{HEAD}    y = '{'a' * 1_000_000}\n{TAIL}".encode(),
    "a deep expression": f"{HEAD}    y = {'-' * 3000}x\n{TAIL}".encode(),
    "a deep tree": f"{HEAD}    y = {'not ' * 1500}x\n{TAIL}".encode(),
    "deep calls": f"{HEAD}    y = x{'.t()' * 300}\n    return y\n".encode(),
    "deep brackets": f"{HEAD}    y = {'(' * 5000}\n{TAIL}".encode(),
    "10,000 lines": (HEAD + "    y = x\n" * 10_000 + "    return y\n").encode(),
    "escape sequences": f"{HEAD}    y = x\n    return y, lambda g: (g, '\x1b[31m\x07')\n".encode(),
    "a huge return": f"{HEAD}    return x, lambda g: ({'g,' * 20_000})\n".encode(),
}


GOOD = f"{HEAD}    y = x * 2\n    return y, lambda g: 7 * g\n"


def hostile_arguments(command: str, folder: Path) -> list[str]:
    """A command over a file of that folder, and for some over a good file as well."""
    bad, good = folder / "hostile.py", folder / "good.py"
    return {
        "dump": ["dump", str(bad)],
        "check": ["check", str(folder)],
        "explain": ["explain", str(bad)],
        "diff": ["diff", str(folder.parent / "old"), str(folder), "--summary"],
        "diff back": ["diff", str(folder), str(folder.parent / "old"), "--summary"],
        "dump --write": ["dump", str(bad), str(good), "--write", str(folder / "gen")],
        "check --generated": ["check", str(folder), "--generated", str(folder / "gen")],
    }[command]


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize(
    "command",
    ["dump", "check", "explain", "diff", "diff back", "dump --write", "check --generated"],
)
def test_hostile_files_give_a_short_answer(tmp_path: Path, command: str, what: str) -> None:
    for name, text in (("new", GOOD), ("old", GOOD.replace("7 * g", "5 * g"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "good.py").write_text(text)
    (tmp_path / "new" / "hostile.py").write_bytes(HOSTILE[what])
    result = run(*hostile_arguments(command, tmp_path / "new"))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    said = result.stdout if command.startswith("check") else result.stderr
    if not re.search("does not compile|did not compile", result.stdout):  # as diff says it
        assert result.exit_code == 1, result.output
        assert re.search(r"hostile\.py:\d+:\d+: \w+ \S", said)
    assert "internal" not in said and "Traceback" not in result.output
    assert len(result.output) < 3000
    for odd in ("\x1b", "\x07", "\0"):
        assert odd not in result.output
    if command.startswith("diff"):
        assert "gradient of x changed" in result.stdout
    elif command == "dump --write":
        assert "good.py, 1 function" in result.stdout


def test_a_long_file_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * 10_000 + HEAD + "    y = x\n" + TAIL)
    assert "class F(" in ran("dump", str(path))


def test_other_files_than_regular_ones(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    fifo = str(tmp_path / "fifo.py")
    for command in (["dump", fifo], ["check", fifo], ["explain", fifo], ["diff", fifo, fifo]):
        result = run(*command)
        assert result.exit_code == 2
        assert "not a regular file" in result.stderr
    assert ran("check", str(tmp_path)) == "no problems in no functions of no files\n"


# --- terminals and pipes --------------------------------------------------------------------------


def on_terminal(*arguments: str, **environment: str) -> str:
    """What the command writes to a terminal of 40 columns."""
    pty = pytest.importorskip("pty")
    child, descriptor = pty.fork()
    if child == 0:
        root = str(Path(s2s.__file__).parent.parent)
        os.environ.update({"PYTHONPATH": root, "TERM": "xterm-256color", "COLUMNS": "40"})
        os.environ.pop("NO_COLOR", None)
        os.environ.update(environment)
        os.execv(sys.executable, [sys.executable, "-m", "s2s", *arguments])
    written = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while part := os.read(descriptor, 65536):
            written += part
    os.close(descriptor)
    os.waitpid(child, 0)
    return written.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_change_no_character() -> None:
    plain = ran("dump", "s2s.functions:layer_norm")
    coloured = on_terminal("dump", "s2s.functions:layer_norm")
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert on_terminal("dump", "s2s.functions:layer_norm", NO_COLOR="1") == plain


def test_a_closed_pipe_is_no_error() -> None:
    root = str(Path(s2s.__file__).parent.parent)
    command = f"{sys.executable} -m s2s dump s2s.functions --form all | true"
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""


def test_a_narrow_encoding_is_no_error(project: Path) -> None:
    Path("arrow.py").write_text(f"{HEAD}    y = x  # \u2192\n{TAIL}", "utf-8")
    done = process("dump", "arrow.py", env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert "# \\u2192" in done.stdout


# --- the command itself ---------------------------------------------------------------------------


def test_help_stands_alone() -> None:
    for command in ([], ["dump"], ["check"], ["explain"], ["diff"], ["explain-code"]):
        text = ran(*command, "--help")
        assert "Examples:" in text
        assert "Exit code: 0" in text
    assert run().output == ran("--help")
    assert ran("--version") == f"s2s {s2s.__version__}\n"


def test_wrong_usage() -> None:
    for arguments in (["dump"], ["check"], ["nothing"], ["dump", "a", "--form", "nothing"]):
        assert run(*arguments).exit_code == 2


# --- the package ----------------------------------------------------------------------------------


def test_the_package_waits_with_torch_and_keeps_its_names() -> None:
    code = (
        "import sys, s2s\n"
        "assert 'torch' not in sys.modules\n"
        "assert set(s2s.__all__) <= set(dir(s2s))\n"
        "import s2s.source, s2s.pipeline\n"
        "from s2s.functions import swish\n"
        "import s2s.source\n"
        "assert s2s.source(swish).startswith('import torch')\n"
        "assert s2s.functions.swish is swish\n"
        "from s2s import *\n"
        "assert issubclass(TransformError, SyntaxError) and source is s2s.source\n"
        "assert not hasattr(s2s, 'nothing')\n"
    )
    root = str(Path(s2s.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr
