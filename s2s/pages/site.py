"""Reviews to the pages of a report: an index, and a page per function, each complete in itself."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__, codes
from ..emit.eager import attribute
from ..ir import Diagnostic, Saved, Source, lines_of
from ..review import words
from .markup import Mark, Piece, html_of, names_in, outermost, pieces, visible
from .review import Form, Review, lines_shown, title, written

__all__ = ["GENERATOR", "Entry", "page_names", "pages"]

GENERATOR = '<meta name="generator" content="s2s report">'  # tells our files from others
_HERE = Path(__file__).parent
_COLOURS = 8  # of captured values, in the style sheet
_ABOUT = {
    "eager": "The torch.autograd.Function that every normal call runs.",
    "torchscript": "The typed pair that torch.jit.script compiles.",
    "func": "The Function for torch.func, vmap and forward mode.",
    "op": "The operator, for scripted and exported programs.",
    "call": "What stands in the place of the function: it chooses a form for each call.",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the report: its name as shown, the reviews of its functions, and what is wrong
    with it or with functions that have no page."""

    file: str
    reviews: tuple[Review, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def pages(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """The names and texts of all pages, the index last."""
    environment = _environment()
    names = page_names(entries)
    every = [(entry, review) for entry in entries for review in entry.reviews]
    template = environment.get_template("page.html")
    for index, (entry, review) in enumerate(every):
        around = {
            "before": _link(every[index - 1][1], names[index - 1]) if index else None,
            "after": _link(every[index + 1][1], names[index + 1]) if names[index + 1 :] else None,
        }
        yield names[index], template.render(_shown(entry, review), **around)
    yield "index.html", environment.get_template("index.html").render(_index(entries, names))


def _environment() -> Environment:
    """The templates. The style sheet and the script of a page are the only ones that its policy
    lets a browser use, whatever the text under review may hold."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    environment.globals.update(
        generator=Markup(GENERATOR),
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        meaning=lambda code: codes.WHY.get(code, ""),
    )
    environment.filters.update(visible=visible, linked=linked)
    return environment


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# --- names ----------------------------------------------------------------------------------


def page_names(entries: Sequence[Entry]) -> list[str]:
    """A file name for each function, in order; one that is taken, in whatever case, gets ``_1``."""
    names: list[str] = []
    taken = {"index"}
    for entry in entries:
        module = entry.file.removesuffix(".py").replace("/", ".")
        for review in entry.reviews:
            whole = f"{module}.{_plain(title(review.source))}"
            plain = re.sub(r"[^A-Za-z0-9_.-]", "_", whole).lstrip(".-")[:120]
            name, number = plain, 0
            while name.casefold() in taken:
                number += 1
                name = f"{plain}_{number}"
            taken.add(name.casefold())
            names.append(f"{name}.html")
    return names


def _plain(qualname: str) -> str:
    return qualname.replace("<locals>.", "")


def _link(review: Review, name: str) -> tuple[str, str]:
    return name, _plain(title(review.source))


# --- the page of a function -----------------------------------------------------------------


def _shown(entry: Entry, review: Review) -> dict[str, Any]:
    source = review.source
    colours = _colours(review)
    forms = [_form(form, colours) for form in review.forms]
    rows = list(_source_rows(review, colours, forms))
    return {
        "file": entry.file,
        "name": _plain(title(source)),
        "line": written(source).lineno,
        "problems": review.problems,
        "warnings": review.warnings,
        "plan": list(_plan(review, colours)),
        "derivatives": review.facts.derivatives if review.facts else (),
        "forms": forms,
        "rows": rows,
        "summary": list(_remarks(review)),
        "shown": {row["number"] for row in rows},
        "refused": review.pair is None,
    }


def _colours(review: Review) -> dict[str, int]:
    """A colour for each value that gets from forward to backward, in the order of the table."""
    if review.facts is None or review.pair is None:
        return {}
    inputs = {p.name for p in review.pair.params}
    names = dict.fromkeys(k.name for k in review.facts.kept if k.kind not in ("helper", "branch"))
    names |= dict.fromkeys(s.name for f in review.forms for s in f.saved if s.name in inputs)
    return {name: index % _COLOURS for index, name in enumerate(names)}


def _origins(saved: Sequence[Saved], names: Mapping[str, int]) -> dict[str, str]:
    """What stands for which captured value in a form: ``x_shape`` for ``x``, ``ctx.eps``."""
    found = {name: name for name in names}
    for one in saved:
        origin = one.name if one.name in names else ""
        for name in names:
            if not origin and one.name.startswith(f"{name}_"):
                origin = name
        if origin:
            found[one.name] = found[attribute(one)] = origin
    return found


def _form(form: Form, colours: Mapping[str, int]) -> dict[str, Any]:
    marks: list[Mark] = []
    if form.text:
        functions = outermost(ast.parse(form.text))
        rows = form.text.split("\n")
        marks = list(names_in(functions, rows, _origins(form.saved, colours)))
    lines = dict(enumerate(form.lines, 1))
    return {
        "name": form.name,
        "about": _ABOUT[form.name],
        "problems": form.problems,
        "rows": [
            {
                "number": number,
                "line": lines.get(number, 0),
                "indent": _indent(row[0].text if row else ""),
                "added": bool(row) and (not lines.get(number) or _is_ours(row)),
                "html": html_of(row, colours),
            }
            for number, row in enumerate(pieces(form.text.rstrip("\n"), marks), 1)
        ],
    }


def _is_ours(row: Sequence[Piece]) -> bool:
    """``ctx.alpha = alpha`` in front of the user's return, and the heads of methods."""
    text = "".join(p.text for p in row).lstrip()
    return text.startswith("ctx") or re.match(r"def \w+\((ctx|\w*, ctx)", text) is not None


def _indent(text: str) -> int:
    """How far a line is moved right, at most as far as the style sheet goes."""
    return min(len(text) - len(text.lstrip(" ")), 40)


def _source_rows(
    review: Review, colours: Mapping[str, int], forms: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The user's lines, each with the first line of each form that comes from it."""
    source = review.source
    first, last = lines_shown(source)
    every = lines_of(source.user_text or source.text)
    rows = every[first - 1 : last]
    margin = min((len(r) - len(r.lstrip(" ")) for r in rows if r.strip()), default=0)
    marks = [
        Mark(m.line - first + 1, m.start - margin, m.end - margin, m.name)
        for m in names_in(_functions(source), every, {n: n for n in colours}, whole=True)
    ]
    targets: list[tuple[str, dict[int, int]]] = []
    for form in forms:
        found: dict[int, int] = {}
        for row in form["rows"]:
            found.setdefault(row["line"], row["number"])
        targets.append((form["name"], found))
    text = "\n".join(row[margin:] for row in rows)
    for number, row in enumerate(pieces(text, marks), first):
        yield {
            "number": number,
            "to": [(name, found.get(number, 0)) for name, found in targets],
            "indent": _indent(row[0].text if row else ""),
            "html": html_of(row, colours),
            "remarks": [(kind, p) for kind, p in _remarks(review) if p.span.line == number],
        }


def _functions(source: Source) -> list[ast.AST]:
    """The function, or the methods of the class, in whose text variables are coloured."""
    node = written(source)
    if isinstance(node, ast.ClassDef):
        return [s for s in node.body if isinstance(s, ast.FunctionDef)]
    return [node]


def _remarks(review: Review) -> Iterator[tuple[str, Diagnostic]]:
    """What is wrong, and then what may be, each with its class in the style sheet."""
    yield from (("bad", problem) for problem in review.problems)
    yield from (("doubt", problem) for problem in review.warnings)


def _plan(review: Review, colours: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """What backward reads from outside itself, and what becomes of each in the eager form."""
    for kept in review.facts.kept if review.facts else ():
        yield {
            "name": kept.name,
            "colour": colours.get(kept.name),
            "what": words.kept_what(kept),
            "how": words.kept_how(kept),
            "why": words.kept_why(kept),
        }


_LINES = re.compile(r"\b(lines? )((?:\d+, )*\d+)")


def linked(text: str, lines: Collection[int]) -> Markup:
    """The text, with links at the numbers of lines that a page shows.

    >>> linked("input, line 7", {7})
    Markup('input, line <a href="#L7">7</a>')
    """

    def link(number: re.Match[str]) -> str:
        return f'<a href="#L{number[0]}">{number[0]}</a>' if int(number[0]) in lines else number[0]

    done = _LINES.sub(lambda m: m[1] + re.sub(r"\d+", link, m[2]), str(visible(text)))
    return Markup(done)


# --- the index ------------------------------------------------------------------------------


def _index(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, Any]:
    links = iter(names)
    files = [
        {
            "file": entry.file,
            "problems": entry.problems,
            "functions": [
                {
                    "name": _plain(title(review.source)),
                    "href": next(links),
                    "line": written(review.source).lineno,
                    "problems": review.problems,
                    "warnings": review.warnings,
                    "saved": _tensors(review),
                    "missing": [form.name for form in review.forms if form.problems],
                }
                for review in entry.reviews
            ],
        }
        for entry in entries
        if entry.reviews or entry.problems
    ]
    reviews = [review for entry in entries for review in entry.reviews]
    every = [(entry, review) for entry in entries for review in entry.reviews]
    return {
        "files": files,
        "to_look_at": [
            {"kind": kind, "href": f"{name}#L{p.span.line}", "file": entry.file, "problem": p}
            | {"name": _plain(title(review.source))}
            for kind in ("bad", "doubt")
            for (entry, review), name in zip(every, names)
            for which, p in _remarks(review)
            if which == kind
        ],
        "count": len(reviews),
        "read": len(entries),
        "refused": sum(review.pair is None for review in reviews),
        "doubtful": sum(bool(review.warnings) for review in reviews),
        "unread": sum(len(entry.problems) for entry in entries),
    }


def _tensors(review: Review) -> list[dict[str, Any]]:
    """What is kept as tensors, in the colours of the function's page."""
    colours = _colours(review)
    kept = review.facts.tensors if review.facts else ()
    return [{"name": k.name, "colour": colours.get(k.name)} for k in kept]
