"""Random functions in the closure form, for comparing the forms with the reference.

``program(draw)`` returns the text of a module with a function ``f(x, w, k, flag)``: tensors of
shape (3,), an int and a bool. Its gradients are linear in the output gradients and otherwise
arbitrary, so a form that drops or mixes up anything gives other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Draw = Callable[[Sequence[str]], str]

HEADER = """import math

import torch

import s2s

SCALE = 1.5


def doubled(v):
    return 2 * v


def bump(v):
    v.add_(0.25)
"""

UNARY = ["torch.tanh({})", "torch.sigmoid({})", "{}.sin()", "{} * 0.5", "-{}", "({} * {}).cos()"]
UNARY += ["torch.where({} > 0, {}, 0.1 * {})", "{}.clone()", "({}).detach() + 0.1"]
BINARY = [
    "{} * {}",
    "{} + {}",
    "{} - 0.5 * {}",
    "torch.maximum({}, {})",
    "torch.atan2({}, 1 + {} * {})",
]
PLAIN = ["{}.numel()", "{}.shape[0]", "math.pi", "SCALE", "len({}.shape)", "float({}.dim())"]


@dataclass
class Scope:
    """What the next statement may read."""

    draw: Draw
    tensors: list[str]
    plain: list[str] = field(default_factory=lambda: ["2.0", "k", "0.25"])
    helpers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def tensor(self) -> str:
        return self.draw(self.tensors)

    def expression(self) -> str:
        shape = self.draw(["unary", "binary", "binary", "scaled", "choice", "helper", "name"])
        if shape == "unary":
            return self.fill(self.draw(UNARY), repeat=True)
        if shape == "binary":
            return self.fill(self.draw(BINARY))
        if shape == "scaled":
            return f"{self.tensor()} * {self.draw(self.plain)}"
        if shape == "choice":
            return f"({self.tensor()} if flag else {self.tensor()})"
        if shape == "helper" and self.helpers:
            return f"{self.draw(self.helpers)}({self.tensor()})"
        return f"{self.tensor()} + {self.draw(self.plain)}"

    def fill(self, text: str, repeat: bool = False) -> str:
        name = self.tensor()
        while "{}" in text:
            text = text.replace("{}", name, 1)
            name = name if repeat else self.tensor()
        return f"({text})"

    def add(self, line: str, depth: int) -> None:
        self.lines.append("    " * depth + line)


def statement(scope: Scope, depth: int, nested: bool = False) -> None:
    """Append one random statement."""
    kinds = ["assign"] * 4 + ["rebind", "plain", "if", "for", "inplace", "helper", "unpack", "mask"]
    kinds += ["walrus", "comprehension", "augmented", "with", "while", "random", "opaque"]
    kinds += ["called", "bumped", "pair", "scratch"]
    kind = scope.draw(kinds if not nested else ["assign", "rebind", "augmented"])
    if kind == "rebind":
        name = scope.draw([t for t in scope.tensors if "[" not in t])
        scope.add(f"{name} = {scope.expression()}", depth)
    elif kind == "plain":
        name = scope.fresh("n")
        scope.add(f"{name} = {scope.fill(scope.draw(PLAIN))}", depth)
        scope.plain.append(name)
    elif kind == "if":
        name = scope.fresh()
        scope.add(f"if {scope.draw(['flag', 'k > 1', 'not flag', '0 < k < 3'])}:", depth)
        scope.add(f"{name} = {scope.expression()}", depth + 1)
        statement(scope, depth + 1, nested=True)
        scope.add("else:", depth)
        scope.add(f"{name} = {scope.expression()}", depth + 1)
        scope.tensors.append(name)
    elif kind == "for":
        name, index = scope.fresh(), scope.fresh("i")
        scope.add(f"{name} = {scope.expression()}", depth)
        scope.add(f"for {index} in range({scope.draw(['k', '2', '3'])}):", depth)
        scope.tensors.append(name)
        scope.add(f"{name} = {scope.expression()} * 0.5 + {index}", depth + 1)
    elif kind == "while":
        name, index = scope.fresh(), scope.fresh("j")
        scope.add(f"{name}, {index} = {scope.expression()}, 0", depth)
        scope.add(f"while {index} < k:", depth)
        scope.add(f"{name}, {index} = torch.tanh({name}), {index} + 1", depth + 1)
        scope.tensors.append(name)
    elif kind == "inplace":
        name = scope.fresh("buf")
        scope.add(f"{name} = {scope.tensor()}.clone()", depth)
        scope.add(f"{name}.mul_({scope.tensor()})", depth)
        scope.add(f"{name}[0] = {scope.draw(['0.5', 'float(k)'])}", depth)
        scope.tensors.append(name)
    elif kind == "augmented":
        name = scope.fresh("acc")
        scope.add(f"{name} = {scope.expression()} * 1.0", depth)
        scope.add(f"{name} += {scope.tensor()}", depth)
        scope.tensors.append(name) if not nested else None
    elif kind == "helper":
        name = scope.fresh("h")
        scope.add(f"def {name}(v):", depth)
        scope.add(f"return v * {scope.tensor()} + {scope.draw(scope.plain)}", depth + 1)
        scope.helpers.append(name)
    elif kind == "unpack":
        a, b = scope.fresh(), scope.fresh()
        scope.add(f"{a}, {b} = {scope.expression()}, {scope.expression()}", depth)
        scope.tensors += [a, b]
    elif kind == "mask":
        name = scope.fresh("m")
        scope.add(f"{name} = ({scope.tensor()} > 0.1).to({scope.tensor()}.dtype)", depth)
        scope.tensors.append(name)
    elif kind == "walrus":
        name = scope.fresh()
        scope.add(f"if ({name} := {scope.expression()}).dim() != 1:", depth)
        scope.add("raise ValueError(f'{flag}')", depth + 1)
        scope.tensors.append(name)
    elif kind == "comprehension":
        name = scope.fresh()
        scope.add(
            f"{name} = sum([{scope.tensor()} * (x1 + 1) for x1 in range(k)], {scope.tensor()})",
            depth,
        )
        scope.tensors.append(name)
    elif kind == "random":
        name = scope.fresh("r")
        scope.add(f"{name} = torch.rand_like({scope.tensor()}) * {scope.expression()}", depth)
        scope.tensors.append(name)
    elif kind == "opaque":
        name = scope.fresh("o")
        scope.add(f"{name} = getattr(torch, 'sin')({scope.tensor()}) * {scope.tensor()}", depth)
        scope.tensors.append(name)
    elif kind == "called":
        name = scope.fresh("c")
        scope.add(f"{name} = doubled({scope.expression()})", depth)
        scope.tensors.append(name)
    elif kind == "bumped":
        name = scope.fresh("u")
        scope.add(f"{name} = torch.sin({scope.tensor()})", depth)
        scope.add(f"bump({name})", depth)
        scope.tensors.append(name)
    elif kind == "pair":
        name = scope.fresh("p")
        scope.add(f"{name} = ({scope.expression()}, {scope.expression()})", depth)
        scope.tensors += [f"{name}[0]", f"{name}[1]"]
    elif kind == "scratch":
        name, other = scope.fresh("s"), scope.fresh("s")
        scope.add(f"{name} = {scope.expression()}", depth)
        scope.add(f"{other} = torch.cos({name})", depth)
        scope.add(f"del {name}", depth)
        scope.tensors.append(other)
    elif kind == "with":
        name = scope.fresh()
        scope.add("with torch.no_grad():", depth)
        scope.add(f"{name} = {scope.expression()}", depth + 1)
        scope.tensors.append(name)
    else:
        plain = [t for t in scope.tensors if "[" not in t]
        name = scope.draw(plain) if nested else scope.fresh()
        scope.add(f"{name} = {scope.expression()}", depth)
        if not nested:
            scope.tensors.append(name)


def backward(scope: Scope, depth: int, outputs: int, name: str = "backward") -> None:
    """Append ``def backward`` with random gradients, linear in the output gradients."""
    grads = [scope.draw(["g", "grad", "x", "t1"]) + str(i) for i in range(outputs)]
    scope.add(f"def {name}({', '.join(grads)}):", depth)
    inner = Scope(scope.draw, list(scope.tensors), list(scope.plain), list(scope.helpers))
    inner.count = 50 + scope.count
    for _ in range(int(scope.draw(["0", "1", "2"]))):
        local = scope.draw(["a", "b", "c"]) + str(inner.count)
        inner.count += 1
        inner.add(f"{local} = {inner.expression()}", depth + 1)
        inner.tensors.append(local)
    scope.lines += inner.lines

    if inner.draw(["shared", "not"]) == "shared":
        local = scope.fresh("d")
        scope.add(f"{local} = {grads[0]} * {inner.expression()}", depth + 1)
        grads.append(local)

    def gradient() -> str:
        if inner.draw(["terms", "terms", "name"]) == "name":
            return inner.draw(grads)
        terms = [f"{inner.draw(['3', '7', '-2'])} * {g} * {inner.expression()}" for g in grads]
        return " + ".join(terms)

    second = scope.draw([gradient(), "None"])
    if scope.draw(["flat", "flat", "early"]) == "early":
        scope.add("if flag:", depth + 1)
        scope.add(f"return {gradient()}, {gradient()}, None, None", depth + 2)
    scope.add(f"return {gradient()}, {second}, None, None", depth + 1)


def program(draw: Draw) -> str:
    """The text of a module with one random decorated function ``f(x, w, k, flag)``."""
    scope = Scope(draw, ["x", "w"])
    for _ in range(int(draw(["1", "2", "3", "4", "5"]))):
        statement(scope, 1)
    outputs = int(draw(["1", "1", "2"]))
    shape = draw(["def", "def", "def", "branches", "two returns", "late"])
    names = []
    for _ in range(outputs):
        name = scope.fresh("y")
        scope.add(f"{name} = {scope.expression()} * 1.0", 1)
        names.append(name)
    # what is computed from an output is left out: see the contract on second derivatives
    value = names[0] if outputs == 1 else f"({', '.join(names)})"
    if draw(["captured", "not"]) == "captured":
        scope.tensors.append(names[0])
    if shape == "branches":
        scope.add("if flag:", 1)
        backward(scope, 2, outputs)
        scope.add("else:", 1)
        backward(scope, 2, outputs)
        scope.add(f"return {value}, backward", 1)
    elif shape == "two returns":
        scope.add("if k > 1:", 1)
        backward(scope, 2, outputs)
        scope.add(f"return {value}, backward", 2)
        backward(scope, 1, outputs, "other")
        scope.add(f"return {value}, other", 1)
    else:
        backward(scope, 1, outputs)
        if shape == "late":
            statement(Scope(draw, ["x", "w"], count=80, lines=scope.lines), 1)
        scope.add(f"return {value}, backward", 1)
    body = "\n".join(scope.lines)
    return f"{HEADER}\n\n@s2s.autograd_script\ndef f(x, w, k: int, flag: bool):\n{body}\n"
