"""Where a Function class is used in its file, and what stands there once it is a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..classes.find import FunctionClass
from ..names import is_name, walk
from .scopes import Mention, home_of, mentions

__all__ = ["Alias", "Obstacle", "Use", "alias_of", "exported", "uses"]


@dataclass(frozen=True, slots=True)
class Use:
    """``Cls.apply``, and the text for it: ``{}`` stands for the function's name."""

    node: ast.Attribute
    new: str
    parents: tuple[ast.AST, ...]  # of the class's name; the innermost last


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A use that has no counterpart with a function: where, and what it does."""

    node: ast.AST
    what: str


@dataclass(frozen=True, slots=True)
class Alias:
    """``swish = Swish.apply``, beside the class: the function may have that name."""

    name: str
    statement: ast.Assign


def uses(cls: FunctionClass) -> tuple[list[Use], list[Obstacle]]:
    """Every use of a class outside its own statement's head."""
    every = mentions(cls.text, cls.tree)
    home = home_of(cls.text, cls.tree, cls.node)
    found: list[Use] = []
    obstacles: list[Obstacle] = []
    for mention in every:
        if mention.name != cls.name or mention.node is cls.node:
            continue
        if mention.home == home:
            if mention.binds or isinstance(mention.node, (ast.Global, ast.Nonlocal)):
                obstacles.append(Obstacle(mention.node, f"binds {cls.name} again"))
                continue
            assert isinstance(mention.node, ast.Name)
            one = _use(cls.name, mention.node, mention.parents, mention.scope)
            (found if isinstance(one, Use) else obstacles).append(one)  # type: ignore[arg-type]
        elif isinstance(mention.scope, ast.ClassDef) and not mention.binds:
            what = f"reads {cls.name} in a class that has one of its own"
            obstacles.append(Obstacle(mention.node, what))
    if cls.enclosing and isinstance(cls.enclosing[-1], ast.ClassDef):
        for one in _through_class(cls):
            (found if isinstance(one, Use) else obstacles).append(one)  # type: ignore[arg-type]
    return found, obstacles


def exported(cls: FunctionClass) -> Iterator[Obstacle]:
    """Strings that say the class's name: ``__all__``, ``getattr``, annotations in quotes."""
    for node in walk(cls.tree):
        if isinstance(node, ast.Constant) and node.value == cls.name:
            yield Obstacle(node, f"has {cls.name} in a string, as for __all__ or getattr")


def _use(name: str, node: ast.expr, parents: Sequence[ast.AST], scope: ast.AST) -> Use | Obstacle:
    """What an expression that is the class is used for."""
    apply = parents[-1]
    if isinstance(apply, ast.ClassDef):
        return Obstacle(node, f"derives {apply.name} from {name}")
    if any(isinstance(p, ast.JoinedStr) for p in parents):
        return Obstacle(node, f"uses {name} in an f-string")
    if not isinstance(apply, ast.Attribute) or apply.attr != "apply":
        whole = apply if isinstance(apply, ast.expr) else node
        return Obstacle(node, f"uses {name} as more than {name}.apply: {_short(whole)}")
    user = parents[-2]
    if not isinstance(apply.ctx, ast.Load) or isinstance(user, ast.Attribute):
        whole = user if isinstance(user, ast.expr) else apply
        return Obstacle(node, f"takes {name}.apply for an object: {_short(whole)}")
    if isinstance(user, ast.Call) and user.func is apply:
        if any(k.arg for k in user.keywords):
            return Obstacle(node, f"calls {name}.apply with keywords, which it does not take")
        return Use(apply, "{}", tuple(parents))
    new = _as_value(apply, user, parents[-3:-2], scope, parents)
    if new is None:
        what = f"puts {name}.apply where a function may become a method: {_short(user)}"
        return Obstacle(node, what)
    return Use(apply, new, tuple(parents))


def _as_value(
    apply: ast.Attribute,
    user: ast.AST,
    above: Sequence[ast.AST],
    scope: ast.AST,
    parents: Sequence[ast.AST],
) -> str | None:
    """The function as a value. As an attribute of a class it would take ``self``."""
    if isinstance(user, (ast.Tuple, ast.List)) and above and isinstance(above[0], ast.Assign):
        user = above[0]
        if isinstance(scope, ast.ClassDef):
            return None
    if isinstance(user, (ast.Assign, ast.AnnAssign)):
        targets = user.targets if isinstance(user, ast.Assign) else [user.target]
        every = [n for t in targets for n in walk(t) if isinstance(n, (ast.Attribute, ast.Name))]
        attributes = [n for n in every if isinstance(n, ast.Attribute) and not _loads(n)]
        if isinstance(scope, ast.ClassDef):
            return None if attributes else "staticmethod({})"
        return "{}" if all(_is_of_self(n, scope, parents) for n in attributes) else None
    if isinstance(scope, ast.ClassDef):
        inside = isinstance(user, (ast.Call, ast.keyword, ast.Dict, ast.arguments))
        return "{}" if inside else None
    return "{}"


def _loads(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_of_self(node: ast.Attribute, scope: ast.AST, parents: Sequence[ast.AST]) -> bool:
    """``self.fn`` in a method, which sets it on the object and not on the class."""
    methods = [
        inner
        for outer, inner in zip(parents, parents[1:])
        if isinstance(outer, ast.ClassDef) and isinstance(inner, ast.FunctionDef)
    ]
    method = methods[-1] if methods else None
    if method is None or method.decorator_list or not method.args.args:
        return False
    return is_name(node.value, method.args.args[0].arg) and method.args.args[0].arg != "cls"


def _through_class(cls: FunctionClass) -> Iterator[Use | Obstacle]:
    """``Outer.Inner`` and ``self.Inner``, for a class that is written in another."""
    outer = cls.enclosing[-1]
    assert isinstance(outer, ast.ClassDef)
    for node, parents, scope in _attributes(cls.tree, (cls.tree,), cls.tree):
        if node.attr != cls.name:
            continue
        method = next((p for p in reversed(parents) if isinstance(p, ast.FunctionDef)), None)
        first = method.args.args[0].arg if method and method.args.args else ""
        of_self = bool(first) and is_name(node.value, first) and method in outer.body
        if of_self or is_name(node.value, outer.name):
            yield _use(cls.name, node, parents, scope)
        else:
            yield Obstacle(node, f"uses {ast.unparse(node)}, which may be this class")


def _attributes(
    node: ast.AST, parents: tuple[ast.AST, ...], scope: ast.AST
) -> Iterator[tuple[ast.Attribute, tuple[ast.AST, ...], ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute):
            yield child, parents, scope
        inner = child if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else scope
        yield from _attributes(child, (*parents, child), inner)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- a name for the function ------------------------------------------------------------------


def alias_of(cls: FunctionClass, found: Sequence[Use]) -> Alias | None:
    """The statement ``swish = Swish.apply`` that stands in the same block as the class, where
    nothing else in the file is called so."""
    around = cls.enclosing[-1] if cls.enclosing else cls.tree
    block: list[ast.stmt] = getattr(around, "body", [])
    if cls.node not in block or isinstance(around, ast.ClassDef):
        return None
    for use in found:
        statement = use.parents[-2]
        if not isinstance(statement, ast.Assign) or statement not in block:
            continue
        if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        if _is_only(name, statement.targets[0], mentions(cls.text, cls.tree)):
            return Alias(name, statement)
    return None


def _is_only(name: str, target: ast.Name, every: Sequence[Mention]) -> bool:
    """Is this the only binding of a name in the whole file?"""
    return [m.node for m in every if m.name == name and m.binds] == [target]
