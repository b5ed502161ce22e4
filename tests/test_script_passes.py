"""What Python has and TorchScript has not: rewritten, run as Python and compiled, same numbers."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import s2s
from s2s import pipeline
from s2s.ir import Pair
from s2s.passes.lift_helpers import lift_helpers
from s2s.passes.match_to_if import match_to_if
from s2s.passes.plain_messages import plain_messages
from s2s.passes.plain_sequences import plain_sequences
from s2s.passes.plain_statements import plain_statements
from s2s.passes.plain_values import plain_values
from s2s.passes.unnest_walrus import unnest_walrus
from s2s.passes.unroll_comprehensions import unroll_comprehensions
from s2s.source import from_file
from s2s.verify import verify

HEAD = (
    "import warnings\nfrom typing import List\nimport torch\nfrom torch import Tensor\nimport s2s\n"
)
STEPS = (match_to_if, plain_values, unnest_walrus, plain_messages, unroll_comprehensions)
STEPS += (plain_statements, plain_sequences, lift_helpers)
Case = tuple[str, str]

# pass -> (parameters after x, body); g is backward's gradient, `y` the output where none is said
CHANGED: dict[Callable[[Pair], Pair], list[Case]] = {
    match_to_if: [
        (
            "k: str",
            'match k:\n    case "a":\n        y = x\n    case "b" | "c":  # two\n        y = 2 * x\n    # the rest\n    case other:\n        y = 3 * x * len(other)',
        ),
        (
            "n: int",
            "match n + 1:\n    case 2: y = x\n    case -1: y = 2 * x\n    case _ if n > 5: y = 3 * x\n    case _:\n        y = 5 * x",
        ),
        (
            "n: int",
            "y = x\nmatch n:\n    case 1 | 2 as m:\n        y = y * m\n    case 3 if x.dim() > 0:\n        y = 7 * y",
        ),
        (
            "b: bool",
            "match b:\n    case True:\n        y = x\n    case _:\n        match x.dim():\n            case 2:\n                y = 2 * x\n            case _:\n                y = 3 * x",
        ),
    ],
    plain_values: [
        ("n: int", "m = n or 7\ny = x * m"),
        ("n: int", "m = n and 7\ny = x * m"),
        ("n: int", "m = (n - 1) or n or 7\ny = x * m"),
        (
            "n: int",
            "torch.manual_seed(0)\ny = x\nif 0.0 < float(torch.rand(1)) < 2.0:\n    y = torch.rand(2, 2) * y",
        ),
        (
            "f: float",
            "torch.manual_seed(0)\nif x.dim() > 5:\n    y = x\nelif 0.0 < float(torch.rand(1)) <= f < 9:\n    y = torch.rand(2, 2) * x\nelse:\n    y = torch.rand(2, 2) - x",
        ),
    ],
    unnest_walrus: [
        ("n: int", "if (m := n + 1) > 2:  # more\n    y = x * m\nelse:\n    y = x - m"),
        ("n: int", "y = (m := n + 1) * x * m"),
        (
            "n: int",
            "if n > 3:\n    y = x\nelif (m := x.dim() + n) > 3:\n    y = x * m\nelif (k := n * 2) > 1:\n    y = x - k\nelse:\n    y = x * m * k",
        ),
        ("n: int", "# c\nif (m := (k := n + 1) * 2) > k: y = x * m; y = y + k\nelse: y = x - m"),
        ("n: int", "if (m := n) > 0 and m < 5:\n    y = x * m\nelse:\n    y = x"),
        ("n: int", "y = x if (m := n - 1) else x * 2\ny = y + m"),
        ("n: int", "y = x\nfor i in range(3):\n    y = y * (d := i + n) + d"),
        ("n: int", "y = x[(m := n // 9)] * 2 + m + x"),
    ],
    plain_messages: [
        (
            "k: str",
            'if k == "zz":\n    raise ValueError(f"no {k!r} {{}} {x.dim():3d} {k=}")\ny = x',
        ),
        ("n: int", 'assert n < 99, f"{type(x).__name__} {n:>3} {tuple(x.shape)}"\ny = x'),
        (
            "n: int",
            'if n > 99:\n    raise ValueError(\n        "many "  # why\n        f"{n!r}"\n    )\ny = x',
        ),
    ],
    unroll_comprehensions: [
        ("xs: List[Tensor]", "# c\nys = [2 * t for t in xs if t.dim() > 1]  # d\ny = x * ys[0]"),
        (
            "n: int",
            "ys = [i * j + n for i in range(3) if i != 1 for j in range(i) if j < 2 if n >= 0]\ny = x * ys[0] * len(ys)",
        ),
        (
            "n: int",
            "t = n\nys = [t * 3 for t in x.shape if t]\ny = x * ys[1] * t\nzs = [\n    s\n    for s in x.shape\n    if (s > 0\n        and n < 99)\n]\ny = y + len(zs)",
        ),
        (
            "n: int",
            "y = x\nfor k in range(2):\n    ys = [y * i for i in range(k + 2) if i > 0]\n    y = y + ys[0]",
        ),
    ],
    plain_statements: [
        ("k: str", 'if k in {"a", "b"}:\n    y = x\nelse:\n    y = 2 * x'),
        (
            "n: int",
            "if n not in {1, -2}:\n    y = x\nelse:\n    y = 2 * x\nif n in {2}:\n    y = y * 3",
        ),
        ("n: int", "if n > 1:\n    ...\nelse:\n    n = 7\ny = x * n"),
        ("n: int", "y: Tensor\ny = x * n"),
        ("n: int", "m = n + 5\nm //= 2\ny = x * m"),
        ("f: float", "m = -f\nm //= 2 if f > 1 else 3\ny = x * m"),
        ("n: int", "y = x * 5\nz = y\nz //= n + 2\ny = y + z"),
        ("n: int", "y = x * n\ny @= x + 1"),
        ("n: int", "y = x\nfor i in reversed(range(n + 2)):\n    y = y * 2 + i"),
        (
            "n: int",
            "y = x\nfor i in reversed(range(1, n + 3)):\n    y = y * 2 + i\nfor i in reversed(range(0, 2)):\n    y = y * 3 - i",
        ),
        ("xs: List[Tensor]", "y = x\nfor a in reversed(xs):\n    y = y * 2 + a"),
        ("xs: List[Tensor]", "y = x\nfor a, b in zip(xs, reversed(xs[:])):\n    y = y * a + b"),
    ],
    plain_sequences: [
        ("", "y = x.reshape(*x.shape) * 2"),
        ("", "y = x.reshape(*x.shape[:-1], -1) + x.view(-1, *x.shape[1:])"),
        ("", "y = x.permute(*range(x.dim())) + torch.zeros(*x.shape, dtype=x.dtype)"),
        ("", "y = x - x.sum(tuple(range(1, x.dim())), keepdim=True)"),
        ("", "y = x - x.mean(dim=tuple(i for i in range(x.dim())))"),
        ("xs: List[Tensor]", "y = torch.stack([*xs, x], 0).sum(0) + torch.stack((x, *xs)).sum(0)"),
        ("xs: List[Tensor]", "ys = [x, *xs, 2 * x]\ny = ys[0] * ys[1] - ys[-1]"),
        ("", "rows, *rest = x.shape\ny = x * rows + rest[0]"),
        ("", "*rest, columns = x.shape\ny = x * columns + rest[0]"),
        ("xs: List[Tensor]", "a, *b = xs\ny = x * a\nfor t in b:\n    y = y + t"),
        ("xs: List[Tensor]", "a, *_, b = xs\ny = x * a + b"),
        ("", "a, *b = x\ny = x * a + b[0]"),
    ],
    lift_helpers: [
        ("", "def twice(t):\n    return 2 * t\n\ny = twice(x)"),
        ("", "half = lambda t: t / 2\ny = half(x)"),
        (
            "n: int",
            "scale = n * 1.5\n\ndef by(t, power):\n    # the comment\n    return scale * t**power\n\ny = by(x, 2) + by(t=x, power=3)",
        ),
        (
            "n: int",
            "scale = n * 1.5\n\ndef by(t, power: int = 2):\n    return scale * t**power\n\ny = by(x) + by(x, power=3)",
        ),
        (
            "n: int",
            "scale = 1.5\n\ndef by(t):\n    return scale * t\n\ny = by(x)\nscale = 3.5\ny = y - by(y)",
        ),
        (
            "n: int",
            "def inner(t): return t * n\ndef outer(t): return inner(t) + inner(2 * t)\ny = outer(x)",
        ),
        ("n: int", "def parts(t):\n    return t * n, t.dim()\n\ny, d = parts(x)\ny = y * d"),
        ("", "def scaled(t):\n    return t * RATE\n\ny = scaled(x)"),
        (
            "xs: List[Tensor]",
            "f = lambda t: t * 2\ny = x\nfor a in xs:\n    y = y + f(a)\ny = y + [f(a) for a in xs][0]",
        ),
    ],
}

# what each leaves alone
KEPT: dict[Callable[[Pair], Pair], list[Case]] = {
    match_to_if: [
        ("n: int", "match (n, 1):\n    case (1, m):\n        y = x * m\n    case _:\n        y = x")
    ],
    plain_values: [
        (
            "n: int",
            "y = x\nif n or 0 < x.dim() < 3:\n    y = 2 * x\nb = n > 1 or not n\ny = y * float(b)",
        ),
    ],
    unnest_walrus: [
        ("n: int", "y = x\nif n > 5 or (m := n) > 0:\n    y = 2 * x"),
        ("n: int", "y = x * n if n > 5 else x * (m := n)"),
        ("n: int", "i = 0\nwhile (i := i + 1) < 3:\n    pass\ny = x * i"),
        ("n: int", "y = sum([(m := i) for i in range(3)]) * x"),
        ("n: int", "y = x.sin() * (m := n)"),
        ("n: int", "y = n * (n := 3) * x"),
    ],
    plain_messages: [
        (
            "k: str",
            'if k == "zz":\n    raise ValueError(f"no {k} {x.shape}")\nz = f"{k!r}"\ny = x * len(z)',
        )
    ],
    plain_statements: [("n: int", "n += 1\ny = x * n\ny *= 2\nif n in (1, 2):\n    pass")],
    plain_sequences: [
        ("n: int", "a, b = x.shape\nt = (1, *x.shape)\ny = x * a + t[1]"),
        ("n: int", "y = x + max(*x.shape)"),
    ],
    lift_helpers: [
        (
            "n: int",
            "def deep(t, k: int):\n    return t if k == 0 else deep(t, k - 1)\n\ny = deep(x, n)",
        ),
        ("xs: List[Tensor]", "f = lambda t: 2 * t\ny = x + list(map(f, xs))[0]"),
        ("n: int", "def f(*ts):\n    return ts[0]\n\ny = f(x, n)"),
        ("xs: List[Tensor]", "k = 2\ndef f(t):\n    return k * t\n\ny = x + [f(k) for k in xs][0]"),
    ],
}

VALUES: dict[str, list[Any]] = {
    "k": ["a", "c", "zzz"],
    "n": [0, 1, 2, 6],
    "b": [True, False],
    "f": [0.25, 1.5],
    "xs": [None],
    "": [None],
}


def arguments(params: str) -> list[tuple[Any, ...]]:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.double)
    name = params.split(":")[0]
    lists = name == "xs"
    return [
        (x, [x + 1, x * 2, x - 3]) if lists else (x, v)[: 2 if name else 1] for v in VALUES[name]
    ]


def text_of(case: Case) -> str:
    params, body = case
    head = f"RATE = 0.5\n\n\ndef fn(x: Tensor{', ' + params if params else ''}):\n"
    grads = "g * y, None" if params and not params.startswith("xs") else "g * y"
    grads = "g * y, [2 * g, g * x, g]" if params.startswith("xs") else grads
    lines = [
        *body.split("\n"),
        "",
        "def backward(g):",
        f"    return {grads}",
        "",
        "return y, backward",
    ]
    return HEAD + head + "\n".join(f"    {line}" if line else "" for line in lines) + "\n"


def module_of(path: Path, case: Case) -> ModuleType:
    path.write_text(text_of(case))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def pair_before(path: Path, step: Callable[[Pair], Pair]) -> Pair:
    (source,) = sources(path)
    pair = pipeline.lift(pipeline.read(source))
    for earlier in STEPS[: STEPS.index(step)]:
        pair = earlier(pair)
    return pair


def sources(path: Path) -> list[Any]:
    text = path.read_text().replace("def fn(", "@s2s.autograd_script\ndef fn(")
    marked = path.with_name(f"marked_{path.name}")
    marked.write_text(text)
    return list(from_file(marked, marked.stem))


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [inner for one in value for inner in flat(one)]
    return [value]


def same(got: Any, want: Any) -> None:
    assert len(flat(got)) == len(flat(want))
    for one, other in zip(flat(got), flat(want)):
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        else:
            assert one == other


def every(table: dict[Callable[[Pair], Pair], list[Case]]) -> Any:
    rows = [(step, case) for step, cases in table.items() for case in cases]
    names = [f"{step.__name__}-{i}" for step, cases in table.items() for i in range(len(cases))]
    return pytest.mark.parametrize(("step", "case"), rows, ids=names)


@every(CHANGED)
def test_the_rewritten_pair_means_the_same(
    step: Callable[[Pair], Pair], case: Case, tmp_path: Path
) -> None:
    module = module_of(tmp_path / "written_here.py", case)
    f = s2s.autograd_script(module.fn)
    before = pair_before(tmp_path / "written_here.py", step)
    after = verify(step(before), step.__name__)
    assert after is not before
    assert step(after) is after, "a second time there is nothing to do"
    for given in arguments(case[0]):
        try:
            output, backward = module.fn(*given)
        except UnboundLocalError:  # of a walrus in a branch that was not taken
            continue
        g = torch.full_like(output, 3.0)
        for forward, pulled in ((f.forward, f.backward), (f.scripted.forward, f.scripted.backward)):
            got, saved = forward(*given)
            same(got, output)
            same(pulled(g, *saved), backward(g))


@every(CHANGED)
def test_comments_and_lines_stay(step: Callable[[Pair], Pair], case: Case, tmp_path: Path) -> None:
    path = tmp_path / "written_here.py"
    path.write_text(text_of(case))
    after = step(pair_before(path, step))
    emitted = pipeline.printed(after, "torchscript")
    for part in case[1].split("\n"):
        if "#" in part:
            assert part[part.index("#") :] in emitted.text
    ast.parse(emitted.text)
    known = [*after.forward, *after.helpers]
    assert all(s.line for s in known), "the user's line of each statement"


@every(KEPT)
def test_what_is_left_alone(step: Callable[[Pair], Pair], case: Case, tmp_path: Path) -> None:
    path = tmp_path / "written_here.py"
    path.write_text(text_of(case))
    before = pair_before(path, step)
    assert step(before) is before


def test_refused_at_the_users_line(tmp_path: Path) -> None:
    case = ("n: int", "y = x\nwhile (n := n - 1) > 0:\n    y = 2 * y")
    module = module_of(tmp_path / "refused_here.py", case)
    f = s2s.autograd_script(module.fn)
    with pytest.raises(s2s.TransformError) as caught:
        f.scripted.forward
    assert caught.value.code == "S2S301" and "while" in (caught.value.text or "")


def test_helpers_do_not_meet_in_the_users_module(tmp_path: Path) -> None:
    text = HEAD + (
        "def make(k):\n    @s2s.autograd_script\n    def fn(x: Tensor):\n"
        "        def h(t):\n            return t * k\n"
        "        def backward(g):\n            return h(g)\n"
        "        return h(x), backward\n    return fn\n"
    )
    path = tmp_path / "factory_here.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.ones(2)
    two, half = module.make(2), module.make(0.5)
    for f, want in ((two, 2.0), (half, 0.5)):
        for pair in (f, f.scripted):
            output, saved = pair.forward(x)
            same(output, x * want)
            same(pair.backward(x, *saved), x * want)
    assert not [name for name in vars(module) if name.startswith("fn")]


def test_an_empty_list_gets_no_annotation() -> None:
    text = "def make():\n    seen = []\n    @s2s.autograd_script\n    def f(x):\n"
    text += "        seen.append(1)\n        n = len(seen)\n        return x * 1, lambda g: g * n\n"
    (source,) = from_file(Path("empty.py"), "empty", HEAD + text)
    emitted = pipeline.emit(pipeline.lift(pipeline.read(source)), "torchscript")
    assert "List[]" not in emitted.text
    ast.parse(emitted.text)
