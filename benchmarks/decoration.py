"""What decorating and importing cost, in processor time: fresh processes, as both happen once."""

from __future__ import annotations

import json
import linecache
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from .measure import Row

__all__ = ["decoration"]

IMPORTS = """
import json, time
start = time.process_time()
import torch
middle = time.process_time()
from s2s import autograd_script
print(json.dumps({"torch": middle - start, "s2s": time.process_time() - middle}))
"""
COPIES = 10  # of the function, in each process
FIRST = "s2s, the process's first"
CONTENDERS = (FIRST, "s2s", "by hand", "custom_op")


def decoration(quick: bool, only: str = "", slow: Collection[str] = ()) -> Iterator[Row]:
    """Medians over processes. Every process gets an empty cache folder, unless it says "again"."""
    runs = 1 if quick else 5
    _child(["-c", IMPORTS])  # so that every file is compiled to bytecode
    imports = [_child(["-c", IMPORTS]) for _ in range(runs)]
    for name in ("torch", "s2s"):
        seconds = statistics.median(found[name] for found in imports)
        yield Row("decoration", "import", "in a new process", name, seconds * 1e3, "ms")
    cold: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_child(["-m", __name__], cache))
            again.append(_child(["-m", __name__], cache))
    subject = f"a function of {cold[0]['lines']} lines"
    for case, found in (("new", cold), ("again, in a new process", again)):
        for which in CONTENDERS:
            value = statistics.median(one[which] for one in found)
            yield Row("decoration", subject, case, which, value * 1e3, "ms")
        for which in CONTENDERS[1:]:
            value = statistics.median(one["calls"][which] for one in found)
            first = f"{case}: its first gradient"
            yield Row("decoration", subject, first, which, value * 1e3, "ms")


def _child(arguments: list[str], cache: str = "") -> dict[str, Any]:
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path} | ({"S2S_CACHE_DIR": cache} if cache else {})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- in the child -------------------------------------------------------------------------------


def _measured() -> dict[str, Any]:
    import inspect

    from s2s import autograd_script  # noqa: F401  its import is another figure

    from . import subjects

    names = [n for n in vars(subjects) if n == "layer_norm" or n.startswith("layer_norm_")]
    text = "\n\n".join(inspect.getsource(getattr(subjects, n)) for n in names)
    lines = len(inspect.getsource(subjects.layer_norm).splitlines())
    makers = {"s2s": _with_s2s, "by hand": _with_class, "custom_op": _with_custom_op}
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    made: dict[str, list[Callable[..., Any]]] = {name: [] for name in makers}
    for copy in range(COPIES):
        scope = _copy(text.replace("layer_norm", f"norm_{copy}"), copy)
        for name, make in makers.items():
            start = time.process_time()
            made[name].append(make(scope, f"norm_{copy}"))
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
    calls = {
        name: statistics.median([_first_gradient(f) for f in found][1:])
        for name, found in made.items()
    }
    return {"lines": lines, FIRST: seconds["s2s"][0], "calls": calls, **medians}


def _first_gradient(function: Callable[..., Any]) -> float:
    import torch

    x, weight, bias = (torch.ones(shape, requires_grad=True) for shape in ((2, 4), (4,), (4,)))
    start = time.process_time()
    function(x, weight, bias, 1e-5).sum().backward()
    return time.process_time() - start


def _copy(text: str, copy: int) -> dict[str, Any]:
    """A module of its own, with a text that can be read back."""
    text = f"import torch\nfrom typing import Any\nfrom torch import Tensor\n\n\n{text}"
    name = f"<benchmarks decoration {copy}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": f"benchmarks_decoration_{copy}"}
    exec(compile(text, name, "exec"), scope)
    return scope


def _with_s2s(scope: dict[str, Any], name: str) -> Callable[..., Any]:
    import s2s

    made: Callable[..., Any] = s2s.autograd_script(scope[name])
    return made


def _with_class(scope: dict[str, Any], name: str) -> Callable[..., Any]:
    import torch

    parts = {"forward": "forward", "setup_context": "save", "backward": "backward"}
    statics = {key: staticmethod(scope[f"{name}_{part}"]) for key, part in parts.items()}
    made: Callable[..., Any] = type(name, (torch.autograd.Function,), statics).apply
    return made


def _with_custom_op(scope: dict[str, Any], name: str) -> Callable[..., Any]:
    import torch

    made = torch.library.custom_op(f"s2s_decoration::{name}", mutates_args=())(
        scope[f"{name}_forward"]
    )
    made.register_autograd(scope[f"{name}_backward"], setup_context=scope[f"{name}_save"])
    return made


if __name__ == "__main__":
    print(json.dumps(_measured()))
