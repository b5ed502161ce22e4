"""`s2s diff`: what a change means comes first, comments and layout do not show."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cases
from s2s import cli
from s2s.review.canonical import canonical, changed_rows, rows, same_program

HEAD = "import torch, s2s\n\n@s2s.autograd_script(save='all')\n"
SWISH = (
    HEAD
    + """def swish(x):
    s = torch.sigmoid(x)
    def backward(g):
        return g * (s * (1 + x * (1 - s)))
    return x * s, backward
"""
)
Two = Callable[[str, str], Result]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.commands, ["diff", *arguments])


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    """The difference of two texts as files."""
    monkeypatch.chdir(tmp_path)

    def compare(old: str, new: str, *options: str) -> Result:
        Path("old.py").write_text(old)
        Path("new.py").write_text(new)
        return run("old.py", "new.py", *options)

    return compare


def sentences(result: Result) -> list[str]:
    """What is said of the only function that differs."""
    assert result.exit_code == 0, result.output
    found = result.stdout.split("\n\n")[0].splitlines()[1:]
    return [line.strip().rpartition(" (line ")[0] for line in found]


# --- what it means --------------------------------------------------------------------------------


def test_comments_and_layout_do_not_show(two: Two) -> None:
    laid_out = SWISH.replace("torch.sigmoid(x)", "torch.sigmoid( x )  # a comment")
    laid_out = laid_out.replace(
        "return g * (s * (1 + x * (1 - s)))",
        "# the product rule\n        return (\n            g * (s * (1 + x * (1 - s)))\n        )",
    )
    assert two(SWISH, laid_out).stdout == "no functions changed, 1 the same\n"


def test_a_variable_of_backward_is_not_the_one_of_forward_that_is_called_so(two: Two) -> None:
    old = (
        HEAD
        + """def f(x):
    s = torch.sin(x)
    def backward(x):
        return x * s
    return s * 2, backward
"""
    )
    new = old.replace("return x * s", "return x * torch.sin(x)")
    assert any(line.startswith("gradient of x changed") for line in sentences(two(old, new)))
    same = old.replace("backward(x)", "backward(g)").replace("return x * s", "return g * s")
    assert not any("gradient of x changed" in line for line in sentences(two(old, same)))


@pytest.mark.parametrize(
    "new, said",
    [
        (("g * (s", "7 * g * (s"), ["gradient of x changed"]),
        (("torch.sigmoid(x)", "torch.tanh(x)"), [
            "gradient of x changed: its formula is the same, but s is computed otherwise",
            "forward computes its output otherwise",
        ]),
        (("    return x * s", "    y = 2 * x\n    return x * s + y"), [
            "forward computes its output otherwise",
        ]),
        (("return g * (s * (1 + x * (1 - s)))", "return None"), [
            "gradient of x is None now",
            "no longer saves the tensor x",
            "no longer saves the tensor s",
            "new warning S2S102",
        ]),
        (("s = torch.sigmoid(x)", "s = torch.sigmoid(x) * torch.rand(1)"), [
            "gradient of x changed: its formula is the same, but s is computed otherwise",
            "forward computes its output otherwise",
            "second derivative no longer available: through s: `s = torch.sigmoid(x) * torch.rand(1)`"
            " cannot be run twice",
            'vmap holds only partly now: it draws at random',
        ]),
        (("def swish(x):", "def swish(x: torch.Tensor, /):"), [
            "inputs are (x: torch.Tensor, /) now, before (x)",
        ]),
        (("def swish(x):", "def silu(x):"), ["renamed from swish"]),
        (("    def backward(g):", "    x.mul_(1)\n    def backward(g):"), None),
    ],
)  # fmt: skip
def test_what_a_change_means(two: Two, new: tuple[str, str], said: list[str] | None) -> None:
    result = two(SWISH, SWISH.replace(*new))
    if said is None:
        assert sentences(result)[0].startswith("no longer compiles: S2S211")
    else:
        found = sentences(result)
        assert len(found) == len(said)
        assert all(f.startswith(s) for f, s in zip(found, said))


def test_a_value_that_is_saved_and_not_computed_in_backward(two: Two) -> None:
    """The gradient is the same; what is kept is not."""
    before = SWISH.replace("    s = torch.sigmoid(x)\n", "").replace(
        "    def backward(g):\n", "    def backward(g):\n        s = torch.sigmoid(x)\n"
    )
    before = before.replace("return x * s", "return x * torch.sigmoid(x)")
    assert sentences(two(before, SWISH)) == ["saves one more tensor: s"]
    assert sentences(two(SWISH, before)) == ["no longer saves the tensor s"]


def test_a_value_that_backward_computes_again(two: Two) -> None:
    least = SWISH.replace("save='all'", "save='least'")
    (said,) = sentences(two(SWISH, least))
    assert said == "no longer saves the tensor s: every backward computes it again"
    assert sentences(two(least, SWISH)) == ["saves one more tensor: s"]


def test_other_names_mean_the_same(two: Two) -> None:
    renamed = SWISH.replace("s = torch", "sig = torch").replace("(s *", "(sig *")
    renamed = renamed.replace("1 - s", "1 - sig").replace("x * s", "x * sig")
    (said,) = sentences(two(SWISH, renamed))
    assert said.startswith("the generated code is written otherwise")
    assert said.endswith("what it means is the same")


def test_a_draw_is_not_the_same_as_two(two: Two) -> None:
    once = HEAD + "def f(x):\n    m = torch.rand(3)\n    return x * m * m, lambda g: 7 * g\n"
    twice = once.replace("x * m * m", "x * m * torch.rand(3)")
    assert sentences(two(once, twice)) == ["forward computes its output otherwise"]


def test_functions_that_come_and_go(two: Two) -> None:
    other = "@s2s.autograd_script\ndef twice(x):\n    return x * 2, lambda g: g * 2\n"
    added = two(SWISH, SWISH + other).stdout
    assert "twice, new.py:10\n  added: it keeps no tensors (line 10)\n" in added
    assert added.endswith("no functions changed, 1 added, 1 the same\n")
    removed = two(SWISH + other, SWISH).stdout
    assert "twice, old.py:10\n  removed (line 10)\n" in removed


def test_warnings_that_come_and_go(two: Two) -> None:
    swapped = HEAD + "def f(x, w):\n    return x * w.exp(), lambda g: (g * w, g * x)\n"
    doubtful = swapped.replace("g * x)", "None)")
    said = sentences(two(swapped, doubtful))
    assert "gradient of w is None now" in said
    assert any(s.startswith("new warning S2S102") for s in said)
    assert any(s.startswith("warning S2S102 is gone") for s in sentences(two(doubtful, swapped)))


# --- the text -------------------------------------------------------------------------------------


def test_the_text_is_the_generated_one(two: Two) -> None:
    text = two(SWISH, SWISH.replace("g * (s", "7 * g * (s")).stdout
    assert "\n  eager:\n" in text
    assert "\n  -        return g * (s * (1 + x * (1 - s)))\n" in text
    assert "\n  +        return 7 * g * (s * (1 + x * (1 - s)))\n" in text
    assert "\n  @@ def backward(ctx, g):\n" in text


def test_another_form_and_no_text(two: Two) -> None:
    changed = SWISH.replace("g * (s", "7 * g * (s")
    assert "def swish_backward(g: Tensor" in two(SWISH, changed, "--form", "torchscript").stdout
    text = two(SWISH, changed, "--summary").stdout
    assert "gradient of x changed" in text and "return" not in text


def test_a_form_that_alone_differs_is_the_one_shown(two: Two) -> None:
    typed = SWISH.replace("(x):", "(x: torch.Tensor, n: int = 2):").replace(
        " - s)))", " - s))), None"
    )
    other = typed.replace("n: int = 2", "n: float = 2")
    assert "\n  torchscript:\n" in two(typed, other).stdout


@pytest.mark.parametrize("name", cases.NAMES)
def test_canonical_text_is_the_same_program(name: str) -> None:
    text = (cases.CORPUS / f"{name}.py").read_text()
    again = canonical(ast.parse(text))
    assert ast.dump(ast.parse(again)) == ast.dump(ast.parse(text))
    assert same_program(text, again)
    assert changed_rows(text, text) == ()
    shown = [line for row in rows(text) for line in row.lines]
    words = "".join("".join(shown).split())
    assert set("".join(again.split())) <= set(words) | set("()'")


def test_rows_are_statements_with_their_branches() -> None:
    text = "if a:\n    b = 1\nelif c:\n    b = 2\nelse:  # why\n    b = 3\ntry:\n    d()\nfinally:\n    e()\n"
    assert [row.lines[0].strip() for row in rows(text)] == [
        "if a:", "b = 1", "elif c:", "b = 2", "else:", "b = 3", "try:", "d()", "finally:", "e()",
    ]  # fmt: skip
    moved = text.replace("else:  # why\n    b = 3\n", "else:\n    b = 3\n    f()\n")
    assert [line for line in changed_rows(text, moved) if line[0] != " "] == ["+    f()"]


# --- git ------------------------------------------------------------------------------------------


def git(*arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits on main, a branch, and a change that is not committed."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "acts.py").write_text(SWISH)
    (tmp_path / "other.txt").write_text("autograd_script")
    git("add", ".")
    git("commit", "-qm", "one")
    (folder / "acts.py").write_text(SWISH.replace("g * (s", "7 * g * (s"))
    git("commit", "-qam", "two")
    git("checkout", "-q", "-b", "branch", "HEAD~1")
    git("mv", "src/acts.py", "src/moved.py")
    git("commit", "-qm", "three")
    (folder / "moved.py").write_text(SWISH.replace("x * s,", "x * s * 3,"))
    (folder / "new.py").write_text(HEAD + "def new(x):\n    return x * 3, lambda g: g * 3\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), ["forward computes its output otherwise", "added: it keeps no tensors"]),
        (("main",), ["gradient of x changed", "forward computes", "added"]),
        (("main~1", "main"), ["gradient of x changed"]),
        (("main~1..main",), ["gradient of x changed"]),
        (("branch...main",), ["gradient of x changed"]),
        (("main...branch",), []),
    ],
)
def test_versions_from_git(repository: Path, arguments: tuple[str, ...], said: list[str]) -> None:
    result = run(*arguments, "--summary", "--", "src")
    assert result.exit_code == 0, result.output
    found = [line.strip() for line in result.stdout.splitlines() if line.startswith("  ")]
    assert ("(from src/acts.py:4)" in result.stdout) == (arguments == ("main",))
    assert len(found) == len(said)
    assert all(any(f.startswith(s) for f in found) for s in said)


def test_paths_are_those_of_the_folder_one_stands_in(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "src")
    text = run("--summary", "--", ".").stdout
    assert "swish, moved.py:4\n" in text and "new, new.py:4\n" in text
    assert run("--summary", "--", "new.py").stdout.startswith("new, new.py:4\n")


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["nothing", "--", "src"], 2, "no such revision: nothing"),
        (["nothing...main", "--", "src"], 2, "no such revision: nothing"),
        (["--upload-pack=x", "--", "src"], 2, "No such option"),
        (["main", "main", "main", "--", "src"], 2, "two revisions at most"),
        (
            ["main", "src"],
            2,
            "no such file: main; for a revision, write `s2s diff main src -- PATH`",
        ),
        (["src", "other.txt"], 2, "compare two files, or two folders"),
        (["other.txt"], 2, "name two files"),
    ],
)
def test_wrong_usage(repository: Path, arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_outside_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    result = run("--", ".")
    assert result.exit_code == 2
    assert "not a git repository" in result.stderr


def test_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", SWISH), ("b", SWISH.replace("g * (s", "7 * g * (s"))):
        Path(name).mkdir()
        Path(name, "acts.py").write_text(text)
    assert "swish, b/acts.py:4\n  gradient of x changed" in run("a", "b").stdout


# --- for programs, and exit codes -------------------------------------------------------------------


def test_for_programs(two: Two) -> None:
    result = two(SWISH, SWISH.replace("g * (s", "7 * g * (s"), "--format", "json")
    (found,) = json.loads(result.stdout)["functions"]
    assert (found["name"], found["old"], found["new"]) == ("swish", "old.py:4", "new.py:4")
    (change,) = found["changes"]
    assert (change["kind"], change["line"]) == ("gradient", 7)
    assert change["text"].startswith("gradient of x changed")
    assert "+        return 7 * g * (s * (1 + x * (1 - s)))" in found["diff"]


def test_for_a_comment_in_a_review(two: Two) -> None:
    text = two(SWISH, SWISH.replace("g * (s", "7 * g * (s"), "--format", "markdown").stdout
    assert text.startswith("### `swish` (new.py:4)\n\n- gradient of x changed: it was")
    assert "\n```diff\n" in text and text.count("```") == 2


def test_exit_codes(two: Two) -> None:
    changed = SWISH.replace("g * (s", "7 * g * (s")
    assert two(SWISH, changed).exit_code == 0
    assert two(SWISH, changed, "--exit-code").exit_code == 1
    assert two(SWISH, SWISH, "--exit-code").exit_code == 0
    broken = two(SWISH, "import s2s  # autograd_script\ndef f(:\n")
    assert broken.exit_code == 1
    assert "new.py:2:7: S2S215" in broken.stderr
    assert "removed" in broken.stdout
