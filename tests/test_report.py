"""``s2s report``: what the pages hold, what a browser shows of them, and what is left alone."""

from __future__ import annotations

import ast
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from browser import CHROMIUM, Browser
from s2s import pipeline
from s2s.cli import commands
from s2s.emit.call import emit_call
from s2s.pages.markup import Mark, names_in, pieces
from s2s.source import from_file

ROOT = Path(__file__).parent.parent
HEAD = "import torch\nimport s2s\n\n\n"
SWISH = """
@s2s.autograd_script
def swish(x, scale: float = 1.0):
    s = torch.sigmoid(x)  # kept

    def backward(grad_out):
        return grad_out * scale * (s * (1 + x * (1 - s))), None

    return scale * x * s, backward
"""
REFUSED = """
@s2s.autograd_script
def gain(x, w):
    def backward(grad_out):
        return grad_out * w

    return x * w, backward
"""
DOUBTFUL = """
@s2s.autograd_script
def square(x):
    def backward(grad_out):
        return 2 * x

    return x * x, backward
"""


def report(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(commands, ["report", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def made(folder: Path, **files: str | bytes) -> Path:
    """A folder ``src`` with modules of these names."""
    source = folder / "src"
    source.mkdir(exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else (HEAD + text).encode()
        (source / f"{name}.py").write_bytes(data)
    return source


def pages(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted(folder.iterdir())}


def shown(page: str, where: str) -> str:
    """The text of the lines whose ids start with ``where``, without their numbers."""
    rows = re.findall(
        rf'<div class="row[^"]*" id="{where}\d+".*?<code[^>]*>(.*?)</code>', page, re.S
    )
    return "\n".join(html.unescape(re.sub(r"<[^>]+>", "", row)) for row in rows)


# --- what the pages hold --------------------------------------------------------------------


def test_a_page_holds_the_source_and_every_form_to_the_letter(tmp_path: Path) -> None:
    source = made(tmp_path, model=SWISH)
    report(source, "-o", tmp_path / "out")
    page = pages(tmp_path / "out")["model.swish.html"]
    assert shown(page, "L") == SWISH.strip()
    (function,) = from_file(source / "model.py", "model")
    pair = pipeline.lift(pipeline.read(function))
    for form in pipeline.FORMS:
        assert shown(page, f"{form}-") == pipeline.emit(pair, form).text.rstrip("\n")
    assert shown(page, "call-") == emit_call(pair).text.rstrip("\n")


def test_lines_are_linked_both_ways(tmp_path: Path) -> None:
    report(made(tmp_path, model=SWISH), "-o", tmp_path / "out")
    page = pages(tmp_path / "out")["model.swish.html"]
    line = (HEAD + SWISH).split("\n").index("    s = torch.sigmoid(x)  # kept") + 1
    theirs = re.search(rf'id="L{line}".*?href="#eager-(\d+)"', page, re.S)
    assert theirs is not None
    eager = shown(page, "eager-").split("\n")
    assert eager[int(theirs[1]) - 1].strip() == "s = torch.sigmoid(x)  # kept"
    back = [i for i in re.findall(rf'id="eager-(\d+)" data-line="{line}"', page)]
    assert [eager[int(i) - 1].strip() for i in back] == ["s = torch.sigmoid(x)  # kept"] + [
        "s = torch.sigmoid(x)"
    ] * (len(back) - 1)


def test_the_heads_of_both_methods_lead_to_the_users(tmp_path: Path) -> None:
    report(made(tmp_path, model=SWISH), "-o", tmp_path / "out")
    page = pages(tmp_path / "out")["model.swish.html"]
    eager, lines = shown(page, "eager-").split("\n"), (HEAD + SWISH).split("\n")
    for ours, theirs in (("forward", "def swish("), ("backward", "    def backward(")):
        number = next(i for i, row in enumerate(eager, 1) if f"def {ours}(" in row)
        line = next(i for i, row in enumerate(lines, 1) if row.startswith(theirs))
        assert f'id="eager-{number}" data-line="{line}"' in page


def test_every_link_leads_somewhere(tmp_path: Path) -> None:
    report(ROOT / "tests" / "refused", ROOT / "s2s" / "functions", "-o", tmp_path, code=1)
    every = pages(tmp_path)
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in every.items()}
    checked = 0
    for name, text in every.items():
        for link in re.findall(r'href="([^"]*)"', text):
            file, _, fragment = html.unescape(link).partition("#")
            assert not fragment or fragment in ids[file or name], (name, link)
            assert not file or file in every, (name, link)
            checked += 1
        assert len(ids[name]) == len(re.findall(r'\bid="', text)), name
    assert checked > 1000


def test_a_refused_function_has_a_page_with_its_problem_at_the_line(tmp_path: Path) -> None:
    result = report(made(tmp_path, model=REFUSED + DOUBTFUL), "-o", tmp_path / "out", code=1)
    assert "model.py:9:9: S2S202 backward returns 1 gradient" in result.stderr
    every = pages(tmp_path / "out")
    page = every["model.gain.html"]
    after = page[page.index('id="L9"') : page.index('id="L10"')]
    assert "S2S202" in after and "return one gradient per input" in after
    assert "does not compile" in page and 'class="form' not in page
    assert 'href="model.gain.html#L9"' in every["index.html"]
    assert "S2S101" in every["model.square.html"] and "S2S101" in every["index.html"]


def test_two_runs_write_the_same_bytes_and_nothing_of_this_machine(tmp_path: Path) -> None:
    paths = [ROOT / "s2s" / "functions", ROOT / "tests" / "corpus" / "branch_values.py"]
    for seed in "12":
        command = [
            sys.executable,
            "-m",
            "s2s",
            "report",
            *map(str, paths),
            "-o",
            str(tmp_path / seed),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
    one, two = pages(tmp_path / "1"), pages(tmp_path / "2")
    assert one == two and len(one) > 15
    for name, text in one.items():
        assert str(ROOT) not in text and str(tmp_path) not in text, name
        assert not re.search(r"<link|<img|<iframe|\bsrc=|@import|url\(", text), name


def test_paths_are_shown_from_the_folder_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in "ab":
        (tmp_path / name / "m.py").write_text(HEAD + REFUSED)
    result = report(tmp_path / "a", tmp_path / "b" / "m.py", "-o", tmp_path / "out", code=1)
    assert str(tmp_path) not in result.stderr
    assert {"a.m.gain.html", "b.m.gain.html"} < set(pages(tmp_path / "out"))
    report(tmp_path / "a" / "m.py", "-o", tmp_path / "out", code=1)
    assert set(pages(tmp_path / "out")) == {"m.gain.html", "index.html"}


def test_the_code_is_not_run(tmp_path: Path) -> None:
    source = made(tmp_path, acts=f"open({str(tmp_path / 'mark')!r}, 'w')\nimport nowhere\n{SWISH}")
    report(source, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "acts.swish.html").exists()
    assert not (tmp_path / "mark").exists()


def test_text_of_the_user_never_becomes_markup(tmp_path: Path) -> None:
    attack = '</code><script>alert(1)</script><img src=x onerror="alert(2)">{{ 7 * 7 }}'
    text = SWISH.replace("# kept", f"# {attack}").replace("swish", "swish_ä")
    text = text.replace("return scale", f"t = '''{attack}'''\n    return scale")
    source = made(tmp_path, model=text + REFUSED.replace("* w\n\n", "* w['<b>&amp;']\n\n"))
    (source / "<img src=x>.py").write_text(HEAD + SWISH)
    report(source, "-o", tmp_path / "out", code=1)
    every = pages(tmp_path / "out")
    assert len(every) == 4
    for name, page in every.items():
        body = page.partition("</style>")[2].rpartition("<script>")[0]
        assert "<script" not in body and "<img" not in body and "<b>&" not in body, name
        assert not re.search(r"[^\w.-]", name), name
    (page,) = (text for name, text in every.items() if name.startswith("model.swish"))
    assert page.count("{{ 7 * 7 }}") >= 2 and attack in shown(page, "L")


def test_characters_that_nobody_sees_are_written_out(tmp_path: Path) -> None:
    text = SWISH.replace("# kept", "# kept \u202e\u2066 if \x0c is \u200b")
    report(made(tmp_path, model=text), "-o", tmp_path / "out")
    page = pages(tmp_path / "out")["model.swish.html"]
    assert "RIGHT-TO-LEFT OVERRIDE" in page and "U+200B" in shown(page, "L")
    assert not re.search("[\u202e\u2066\u200b\x0c]", page)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "broken": (b"import s2s\n@s2s.autograd_script\ndef f(x:\n", "not valid Python"),
    "latin": (HEAD.encode() + SWISH.encode().replace(b"kept", b"\xe9"), "not utf-8"),
    "binary": (b"\x00autograd_script\x00", "not valid Python"),
    "deep": (f"{HEAD}{SWISH}y = {'-' * 50000}1\n".encode(), "not valid Python"),
    "brackets": (f"{HEAD}{SWISH}y = {'(' * 5000}\n".encode(), "not valid Python"),
    "chain": (HEAD.encode() + SWISH.encode().replace(b"(x)", b"(x" + b"+x" * 900 + b")"), "deep"),
    "wide": (
        HEAD.encode() + SWISH.encode().replace(b"kept", b"k" * 1_000_000),
        "a line of 1,000,028 char",
    ),
    "long": (
        HEAD.encode() + SWISH.encode().replace(b"# kept", b"\n    y = x" * 10_000),
        "10,008 lines",
    ),
}


def test_files_that_cannot_be_shown_get_one_line_and_the_rest_is_shown(tmp_path: Path) -> None:
    source = made(tmp_path, fine=SWISH, **{name: text for name, (text, _) in HOSTILE.items()})
    (source / "filler.py").write_text(HEAD + "a = 1\n" * 10_000 + SWISH)
    result = report(source, tmp_path / "gone.py", "-o", tmp_path / "out", code=2)
    every = pages(tmp_path / "out")
    assert set(every) == {"index.html", "src.fine.swish.html", "src.filler.swish.html"}
    lines = result.stderr.splitlines()
    for name, (_, why) in HOSTILE.items():
        (line,) = [one for one in lines if one.startswith(f"src/{name}.py:")]
        assert why in line and len(line) < 300
        after = every["index.html"].partition(f"src/{name}.py")[2].partition("</section>")[0]
        assert why in html.unescape(after)
    assert lines[-1].startswith("Error: no such file") and "gone.py" in every["index.html"]
    assert len(lines) == len(HOSTILE) + 1


def test_names_are_told_apart(tmp_path: Path) -> None:
    text = SWISH + SWISH.replace("swish", "Swish") + SWISH
    report(
        made(tmp_path, model=text, **{"model.swish_1": SWISH.replace("swish", "x")}),
        "-o",
        tmp_path / "o",
    )
    names = {"model.swish.html", "model.Swish_1.html", "model.swish_2.html"}
    assert names < set(pages(tmp_path / "o"))


def test_only_what_a_report_wrote_is_overwritten_or_removed(tmp_path: Path) -> None:
    source, out = made(tmp_path, model=SWISH, other=DOUBTFUL), tmp_path / "out"
    report(source, "-o", out)
    (out / "notes.html").write_text("mine")
    (source / "other.py").unlink()
    report(source, "-o", out)
    assert set(pages(out)) == {"index.html", "model.swish.html", "notes.html"}

    (out / "index.html").write_text("mine too")
    before = pages(out)
    result = report(source, "-o", out, code=2)
    assert "index.html was not written by s2s report" in result.stderr and pages(out) == before

    (out / "index.html").unlink()
    (out / "index.html").symlink_to(tmp_path / "elsewhere")
    report(source, "-o", out, code=2)
    assert not (tmp_path / "elsewhere").exists()
    report(source, "-o", source / "model.py", code=2)
    assert (source / "model.py").read_text() == HEAD + SWISH


# --- markup ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "corpus").glob("*.py")), ids=lambda p: p.stem
)
def test_pieces_give_the_text_back(path: Path) -> None:
    text = path.read_text("utf-8")
    rows = text.split("\n")
    marks = list(names_in([ast.parse(text)], rows, {n: n for n in ("x", "s", "y", "mask")}))
    assert ["".join(p.text for p in row) for row in pieces(text, marks)] == rows
    for mark in marks:
        assert rows[mark.line - 1][mark.start : mark.end] == mark.name


def test_variables_of_inner_functions_are_others() -> None:
    text = "def f(x):\n    é = [x for x in g(x)]; h = lambda x: x + s\n    def k():\n        x = 1\n        return x\n    return x, s.x, f(s=s)"
    (function,) = ast.parse(text).body
    marks = list(names_in([function], text.split("\n"), {"x": "x", "s": "s"}, whole=True))
    assert marks == [
        Mark(1, 6, 7, "x"),
        Mark(2, 22, 23, "x"),
        Mark(2, 45, 46, "s"),
        Mark(6, 11, 12, "x"),
        Mark(6, 14, 15, "s"),
        Mark(6, 23, 24, "s"),
    ]


# --- in a browser ---------------------------------------------------------------------------

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        running.size(1280, 900)
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it that a page can show."""
    folder = tmp_path_factory.mktemp("site")
    wide = SWISH.replace("swish", "w" * 90).replace("# kept", "# " + "wide " * 80 + "w" * 200)
    many = ", ".join(f"a_{i}" for i in range(10))
    total = " * ".join(f"a_{i}" for i in range(10))
    products = ", ".join(f"g * {total.replace(f'a_{i}', '1.0')}" for i in range(10))
    ten = f"@s2s.autograd_script\ndef ten({many}):\n    def backward(g):\n"
    ten += f"        return {products}\n    return {total}, backward\n"
    every = 'class Layer:\n    """Text."""\n\n    @s2s.autograd_script\n    def act(self, x):\n'
    every += '        """Twice.\n\n        More."""\n        assert x.dim() > 0, f"{x} \u200b"\n'
    every += "        return 2 * x, lambda g: g * 2\n"
    odd = made(folder, model=SWISH + REFUSED + DOUBTFUL + ten + every, **{"v" * 80: wide})
    (odd / "broken.py").write_text("@autograd_script\ndef f(:\n")
    report(odd, "-o", folder / "out", code=1)
    return folder / "out"


VISIBLE = "[...document.querySelectorAll('body *')].filter(e => e.getClientRects().length)"

CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const back = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a] = parse(getComputedStyle(e).backgroundColor);
      if (a === undefined || a === 1) return [r, g, b];
      if (a > 0) throw new Error("half transparent: " + e.outerHTML);
    }
    return [255, 255, 255];
  };
  const found = {};
  for (const e of VISIBLE) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own) continue;
    const [one, two] = [light(parse(getComputedStyle(e).color)), light(back(e))].sort((a, b) => b - a);
    const kind = e.tagName + "." + e.className + (e.closest(".on") ? " lit" : "");
    const value = (one + 0.05) / (two + 0.05);
    found[kind] = Math.min(found[kind] || 99, Math.round(value * 100) / 100);
  }
  return found;
})()""".replace("VISIBLE", VISIBLE)


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_the_contrast_of_wcag_aa(browser: Browser, site: Path, theme: str) -> None:
    browser.theme(theme)
    measured: dict[str, float] = {}
    for page in sorted(site.glob("*.html")):
        browser.open(page)
        for row in ("L8", "L21", None):  # on a plain line, and on a lit one
            if row and browser.ask(f"!!document.querySelector('#{row} code')"):
                browser.point(f"#{row} code")
            for kind, value in browser.ask(CONTRAST).items():
                measured[kind] = min(value, measured.get(kind, 99))
    kinds = " ".join(measured)
    for wanted in ("comment", "string", "number", "keyword", "decorator", "defined", "sign", "odd"):
        assert f"SPAN.{wanted}" in kinds, wanted
    assert all(f"name c{i}" in kinds for i in range(8)) and " lit" in kinds
    assert "bad" in kinds and "doubt" in kinds and "good" in kinds
    assert {kind: value for kind, value in measured.items() if value < 4.5} == {}


@in_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(browser: Browser, site: Path, width: int) -> None:
    browser.size(width, 900)
    for page in sorted(site.glob("*.html")):
        browser.open(page)
        forms = browser.ask("[...document.querySelectorAll('.choice')].map(e => e.id)")
        for form in forms or [None]:
            if form is not None:
                browser.click(f"[for={form}]")
            outside = f"{VISIBLE}.filter(e => e.getBoundingClientRect().right > innerWidth + 0.5)"
            cut = f"{VISIBLE}.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
            assert browser.ask(f"{outside}.map(e => e.outerHTML.slice(0, 200))") == [], page.name
            assert browser.ask(f"{cut}.map(e => e.outerHTML.slice(0, 200))") == [], page.name
            assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.size(1280, 900)


LIT = "[...document.querySelectorAll('.on')].filter(e => e.getClientRects().length).map(e => e.id)"


@in_browser
def test_pointing_at_a_line_lights_what_belongs_to_it(browser: Browser, site: Path) -> None:
    browser.open(site / "model.swish.html")
    browser.point("#L8 code")
    lit = browser.ask(LIT)
    assert lit[0] == "L8" and all(one.startswith("eager-") for one in lit[1:]) and len(lit) >= 2
    assert "torch.sigmoid" in browser.ask(f"document.getElementById('{lit[1]}').textContent")
    browser.point(f"#{lit[1]} code")
    assert browser.ask(LIT) == lit
    browser.point("h1")
    assert browser.ask(LIT) == []


@in_browser
def test_clicking_a_number_leads_across_and_back(browser: Browser, site: Path) -> None:
    browser.open(site / "model.swish.html")
    browser.click("[for=form-func]")
    assert browser.ask(f"{VISIBLE}.filter(e => e.matches('.form')).map(e => e.className)") == [
        "form func"
    ]
    browser.click("#L8 a.to-func")
    place = browser.ask("document.activeElement.closest('.row').id")
    assert place.startswith("func-") and browser.ask("location.hash") == f"#{place}"
    browser.click(f"#{place} a")
    assert browser.ask("document.activeElement.closest('.row').id") == "L8"


@in_browser
def test_everything_can_be_done_with_the_keyboard(browser: Browser, site: Path) -> None:
    browser.open(site / "model.swish.html")
    seen = []
    for _ in range(12):
        browser.press("Tab")
        seen.append(
            browser.ask(
                "document.activeElement.id || document.activeElement.className || document.activeElement.textContent"
            )
        )
        assert browser.ask(
            "getComputedStyle(document.activeElement).outlineStyle"
        ) != "none" or seen[-1].startswith("form-")
        if seen[-1] == "form-eager":
            break
    assert "skip" in seen[0] and seen[-1] == "form-eager"
    browser.press("ArrowRight")
    assert browser.ask("document.activeElement.id") == "form-torchscript"
    ring = "getComputedStyle(document.querySelector('[for=form-torchscript]')).outlineStyle"
    assert browser.ask(ring) == "solid"
    browser.press("Tab")
    where = "document.activeElement.closest('.row').id"
    first = browser.ask(where)
    browser.press("ArrowDown")
    second = browser.ask(where)
    assert first.startswith("L") and second.startswith("L") and first != second
    browser.press("ArrowRight")
    across = browser.ask(where)
    assert across.startswith("torchscript-")
    assert browser.ask(f"document.getElementById('{across}').dataset.line") == second[1:]
    browser.press("ArrowLeft")
    assert browser.ask(where) == second
    browser.press("ArrowUp")
    assert browser.ask(where) == first
    browser.press("Enter")
    assert browser.ask(where).startswith("torchscript-")


@in_browser
def test_it_all_works_without_scripts(browser: Browser, site: Path) -> None:
    browser.scripts(False)
    try:
        browser.open(site / "model.swish.html")
        browser.click("[for=form-func]")
        assert browser.ask(f"{VISIBLE}.filter(e => e.matches('.form')).map(e => e.className)") == [
            "form func"
        ]
        browser.click("#L8 a.to-func")
        place = browser.ask("location.hash.slice(1)")
        assert place.startswith("func-")
        assert browser.ask(f"document.getElementById('{place}').matches(':target')")
        browser.click(f"#{place} a.from")
        assert browser.ask("location.hash") == "#L8"
        assert browser.ask("document.querySelector('.keys').getClientRects().length") == 0
    finally:
        browser.scripts(True)


@in_browser
def test_a_page_asks_for_nothing_and_breaks_no_rule(browser: Browser, site: Path) -> None:
    for page in sorted(site.glob("*.html")):
        browser.open(page)
        asked = [
            e["params"]["request"]["url"]
            for e in browser.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        assert asked == [page.absolute().as_uri()]
        assert [
            e
            for e in browser.events
            if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        ] == []
        assert browser.ask("document.documentElement.classList.contains('scripted')")


@in_browser
def test_functions_are_found_by_name(browser: Browser, tmp_path: Path) -> None:
    report(ROOT / "s2s" / "functions", "-o", tmp_path)
    browser.open(tmp_path / "index.html")
    browser.click("#filter")
    for letter in "mish":
        browser.send("Input.insertText", text=letter)
    left = browser.ask(f"{VISIBLE}.filter(e => e.matches('.functions a')).map(e => e.textContent)")
    assert left and all("mish" in name for name in left)
    assert browser.ask("document.getElementById('found').textContent").startswith(
        f"{len(left)} of "
    )


@in_browser
def test_print_shows_every_form_and_no_controls(browser: Browser, site: Path) -> None:
    browser.open(site / "model.swish.html")
    browser.theme("dark")
    browser.send("Emulation.setEmulatedMedia", media="print", features=[])
    try:
        forms = browser.ask(f"{VISIBLE}.filter(e => e.matches('.form')).length")
        controls = browser.ask(f"{VISIBLE}.filter(e => e.matches('nav, .tabs, .keys')).length")
        assert (forms, controls) == (5, 0)
        assert (
            browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert len(browser.send("Page.printToPDF")["data"]) > 10_000
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")
