"""What each code means, with a function that has it and its corrected twin.

The examples are files of ``tests/refused`` and ``tests/explained``, which the tests run; an
installed package has them in ``s2s/examples``.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from .errors import CODES, WARNINGS

__all__ = ["WHY", "Example", "examples", "files", "meaning"]

WHY = {
    "S2S101": "The chain rule multiplies by the output gradient. A backward that leaves it out "
    "gives the slope instead, the same whatever the loss is, and training goes astray without a "
    "word.",
    "S2S102": "None tells autograd that there is no gradient, so nothing upstream of this input "
    "learns. For data such as targets that is right; of parameters with such names (target, "
    "label, mask, index, running_...) it is not said.",
    "S2S103": "A gradient that is not multiplied by an output gradient is the same whatever the "
    "loss is. Zeros are passed over: they say that there is none.",
    "S2S104": "Python looks a name up when it is read, so a name misspelt in backward shows in "
    "the first backward, after the forward pass of a whole model.",
    "S2S105": "Nothing depends on this input. It is a leftover, or was forgotten.",
    "S2S106": "A number takes no gradient: what is computed for it is thrown away. If tensors are "
    "given there as well, the annotation is wrong.",
    "S2S107": "backward reads a captured tensor as it is when forward returns. Where the text "
    "changes it below backward, the formula above was written for the old value.",
    "S2S108": "Only the returned function is the gradient. One that is defined and not used is "
    "usually the one that was to be returned.",
    "S2S109": "Gradients are matched with inputs by position alone. Of two inputs of one shape, "
    "swapped gradients are taken without an error.",
    "S2S110": "The result has no effect. Usually another name, or None, is returned in its place.",
    "S2S201": "Every call needs its gradient: a path that returns the output alone, or nothing, "
    "leaves none.",
    "S2S202": "There is one gradient per input, in order, None where there is none. Numbers, "
    "strings and flags count as inputs.",
    "S2S203": "backward is called with one gradient per output, in order, and nothing else. What "
    "else it needs it reads from the function around it.",
    "S2S204": "backward is lifted out of the function, so that it can be compiled. Then there is "
    "no variable of the function left to rebind; and backward may run twice, or never.",
    "S2S205": "The text of a function is what is compiled. It must be in a file, a notebook cell, "
    "or entered in linecache.",
    "S2S206": "What would be compiled is not what Python runs, so the gradient would belong to "
    "another function.",
    "S2S207": "A gradient belongs to a call that has finished.",
    "S2S208": "Gradients are matched with inputs by position, so each input needs one: tensors by "
    "name, or one list of them.",
    "S2S209": "Which outputs there are must be known from the text. In a container that is built "
    "at run time autograd would take the tensors for other values, and detach them.",
    "S2S210": "Autograd may use the tensor elsewhere, and backward may run again: the second time "
    "it would meet the changed value.",
    "S2S211": "The caller's tensor would change behind autograd's back. A changed input that is "
    "returned is marked for autograd, and allowed.",
    "S2S212": "What is compiled is the function itself. A decorator between it and "
    "autograd_script, or on backward, would be skipped.",
    "S2S213": "backward is lifted out of the function that is decorated; it must be written there "
    "and used for the return alone.",
    "S2S214": "The number of outputs is the number of gradients that backward takes, so it must "
    "be the same on every path.",
    "S2S215": "A file that Python cannot read holds nothing to check.",
    "S2S216": "The lifted functions have scopes of their own. What looks at the scope it is "
    "written in, or is defined in one branch alone, would find another one.",
    "S2S217": "TorchScript looks such a name up among its own functions first. Scripted code "
    "would run that one, with its gradient, and say nothing.",
    "S2S220": "Only what forward computes can be computed again, and only what gives the same "
    "value again: no random draw, nothing that is changed in place or bound twice, no call that "
    "cannot be seen into.",
    "S2S221": "A class becomes one function. Its forward and backward must stand in one file, as "
    "static methods, which is how PyTorch calls them.",
    "S2S222": "ctx is gone once the class is a function. What takes it must be a function of the "
    "same file whose statements can be written out in its place.",
    "S2S223": "What forward puts on ctx becomes a variable that backward captures. A captured "
    "variable keeps its value, and no other method of ctx has a counterpart.",
    "S2S224": "The closure form has no mark_dirty: an input that it changes in place and "
    "returns is marked by itself. A class that marks others cannot be written as one; "
    "`s2s.from_function` takes it as it is.",
    "S2S301": "TorchScript knows a part of Python. The other forms of the function work, and "
    "scripted code can still call the function as an operator; `f.scripted` cannot be made.",
    "S2S302": "Scripted and exported programs call an operator, and operators take tensors, "
    "numbers, strings and lists of them. Normal calls work.",
}
_HERE = Path(__file__).parent
_PLACES = (_HERE / "examples", _HERE.parent / "tests")


@dataclass(frozen=True, slots=True)
class Example:
    """A function that has a code, and the same function without; ``title`` says what is wrong."""

    title: str
    wrong: str
    corrected: str


def meaning(code: str) -> str:
    """The line of a code in the table of errors or warnings."""
    return CODES[code] if code in CODES else WARNINGS[code]


def files(code: str) -> list[Path]:
    """The files with examples of a code."""
    folders = [place / name for place in _PLACES for name in ("refused", "explained")]
    return sorted(path for folder in folders for path in folder.glob(f"{code}_*.py"))


def examples(code: str) -> tuple[Example, ...]:
    """The examples of a code, read from their files; none are imported or run."""
    found = []
    for path in files(code):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        parts = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        wrong = parts["refused"] if "refused" in parts else parts["doubtful"]
        twins = _inside(wrong, text), _inside(parts["corrected"], text)
        found.append(Example(ast.get_docstring(tree) or "", *twins))
    return tuple(found)


def _inside(function: ast.FunctionDef, text: str) -> str:
    """The body of a function without its last return, as text of its own."""
    body = function.body[:-1] if isinstance(function.body[-1], ast.Return) else function.body
    first = min(n.lineno for n in (body[0], *getattr(body[0], "decorator_list", ())))
    lines = text.splitlines()[first - 1 : body[-1].end_lineno]
    return textwrap.dedent("\n".join(lines)).replace(" here", "")
