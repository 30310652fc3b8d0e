"""The report as one file: nothing is fetched, and nothing runs but what is written here (content security policy)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from opmark.errors import UserError
from opmark.report.charts.samples import samples
from opmark.report.html.comparison import differences, lines, links_of, verdicts, versus_table
from opmark.report.html.figure import Shown, figure
from opmark.report.html.items import MOST, ItemStyle, row_details, row_table
from opmark.report.html.templates import asset, compact, source_hash, templates
from opmark.report.summary import (
    DETAILED,
    Content,
    ItemAnchors,
    RunSection,
    Versus,
    about,
    called,
    doubts,
    facts_of,
    failed_groups,
    keys,
    place_of,
    sentence,
    skipped_groups,
    unfinished,
)
from opmark.report.text import printable
from opmark.schema.chart import Chart
from opmark.version import VERSION

_STYLES = ("style.css", "chart.css")
_SCRIPTS = ("chart.js", "table.js")
_LARGE = 60
"""Number of rows up to which samples are drawn large as well: each takes as much room as twenty in a line."""
_ON_PAPER = 60
"""Number of rows of a run up to which they are printed unfolded: more would be a book."""
_MANY = 500
"""Number of rows from which on samples are drawn of the headline only, with fewer dots, so that the page stays
small."""
_FEWER = 20


def page(content: Content, *, paper: bool = False) -> str:
    """`paper`: what can be unfolded on a screen is unfolded, as far as that is not a book."""
    style = "\n".join(map(asset, _STYLES))
    first, script = asset("theme.js"), "\n".join(map(asset, _SCRIPTS))
    title = printable(content.title) or named(content)
    places = [place_of(number, part) for number, part in enumerate(content.parts, 1)]
    several = len(content.parts) > 1 or bool(content.comparisons)
    return templates().get_template("report.html").render(
        title=title,
        policy=policy([style], [first, script]),
        style=Markup(style),
        first=Markup(first),
        script=Markup(script),
        version=VERSION,
        several=several,
        comparisons=[_versus(n, one, content, places, paper=paper) for n, one in enumerate(content.comparisons, 1)],
        parts=[
            _part(part, place, _shown(part, several=several, paper=paper))
            for part, place in zip(content.parts, places, strict=True)
        ],
    )  # fmt: skip


def named(content: Content) -> str:
    """What it is about."""
    if content.comparisons:
        first = content.comparisons[0].compared.a
        others = ", ".join(versus.compared.b for versus in content.comparisons)
        return printable(f"{first} against {others}" if len(content.comparisons) > 1 else f"{first} → {others}")
    return ", ".join(called(part.run_view) for part in content.parts)


def policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    sources = {"style-src": styles, "script-src": scripts}
    told = "; ".join(f"{name} {' '.join(map(source_hash, texts))}" for name, texts in sources.items())
    return f"default-src 'none'; {told}; img-src data:; base-uri 'none'; form-action 'none'"


def _versus(
    number: int, versus: Versus, content: Content, places: Sequence[ItemAnchors], *, paper: bool
) -> dict[str, Any]:
    compared = versus.compared
    shown = Shown(of=printable(f"{compared.a} → {compared.b}") if len(content.comparisons) > 1 else "", paper=paper)
    links: dict[Any, str] = {}
    for part, place in zip(content.parts, places, strict=True):
        if part.run_view.run.id in compared.runs:
            links |= links_of(part, place)
    by_case = _by_case(compared.runs[1], content.parts, places)
    return {
        "id": f"comparison-{number}",
        "name": printable(f"{compared.a} → {compared.b}"),
        "verdicts": verdicts(compared),
        "lines": lines(compared),
        "differences": differences(compared),
        "figures": [_drawn(versus.chart, f"c{number}", by_case, shown)] if versus.chart else [],
        "table": versus_table(compared, number, links, shown.of),
        "only": [
            (side, [printable(one) for one in lone]) for side, lone in zip("AB", compared.only, strict=True) if lone
        ],
    }


def _by_case(run: str, parts: Sequence[RunSection], places: Sequence[ItemAnchors]) -> Callable[[str], str]:
    """Marks of a comparison may name a row of B, or a case."""
    found: dict[str, str] = {}
    for part, place in zip(parts, places, strict=True):
        if part.run_view.run.id == run:
            for row in reversed(part.run_view.rows):
                found |= {row.case: place.href(row.key), row.key: place.href(row.key)}
    return lambda key: found.get(key, "")


def _drawn(chart: Chart, prefix: str, href: Callable[[str], str], shown: Shown) -> Markup:
    """Two runs have figures of the same names."""
    return Markup(compact(figure(replace(chart, id=f"{prefix}-{chart.id}" if prefix else chart.id), href, shown)))


def _shown(part: RunSection, *, several: bool, paper: bool) -> Shown:
    """Where there are several runs, each has a heading of its own above its figures."""
    return Shown(4, f"run {called(part.run_view)}", paper) if several else Shown(paper=paper)


def _part(part: RunSection, place: ItemAnchors, shown: Shown) -> dict[str, Any]:
    run_view, paper = part.run_view, shown.paper
    prefix = "" if place.number == 1 else f"r{place.number}"
    folded = paper and len(run_view.rows) > _ON_PAPER
    return {
        "id": f"run-{place.number}",
        "number": place.number,
        "name": called(run_view),
        "sentence": sentence(run_view),
        "unfinished": unfinished(run_view),
        "about": about(run_view),
        "failed": failed_groups(run_view.rows, place),
        "skipped": skipped_groups(run_view.rows, place),
        "doubts": doubts(run_view, place),
        "numbers": keys(run_view, {row.key: place.href(row.key) for row in run_view.rows}) if run_view.rows else [],
        "facts": facts_of(run_view),
        "figures": [_drawn(chart, prefix, place.href, shown) for chart in part.charts],
        "table": row_table(run_view.rows, place, shown.of, instead=folded) if run_view.rows else Markup(),
        "each": Markup("".join(_details(part, place, shown))) if not folded else Markup(),
        "folded": folded,
        "missing": [printable(title) for title in part.undrawn],
        "few": len(run_view.rows) >= _MANY,
        "undrawn": max(0, len(run_view.rows) - DETAILED),
        "drawn": DETAILED,
    }


def _details(part: RunSection, place: ItemAnchors, shown: Shown) -> Iterator[str]:
    rows, paper = part.run_view.rows, shown.paper
    dots = MOST if len(rows) < _MANY else _FEWER
    prefix = "" if place.number == 1 else f"r{place.number}"
    for number, row in enumerate(rows):
        look = ItemStyle(dots if number < DETAILED else 0, len(rows) < _MANY, paper, shown.of)
        large = ""
        if len(rows) <= _LARGE and not paper and row.timings:
            large = str(_drawn(samples(row), prefix, place.href, shown))
        yield row_details(row, place, look, large)


# A page on paper: a browser of this machine prints it, with a profile of its own that is thrown away.

VARIABLE = "OPMARK_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge",
         "brave", "brave-browser")  # fmt: skip
_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_TIMEOUT = 180.0
_LAST = 5
"""Lines of what a browser said that are told."""
_FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
          "--disable-background-networking", "--disable-sync", "--no-pdf-header-footer")  # fmt: skip


def printed(html: str, browser: Path | None = None, timeout: float = _TIMEOUT) -> bytes:
    """The bytes of a PDF."""
    program = find_browser(browser)
    with tempfile.TemporaryDirectory(prefix="opmark-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page, made = folder / "report.html", folder / "report.pdf"
        page.write_text(html, encoding="utf-8")
        said = _run([program, *_flags(folder), f"--print-to-pdf={made}", page.as_uri()], timeout)
        found = made.read_bytes() if made.is_file() else b""
    if not found.startswith(b"%PDF-"):
        raise UserError(f"{program}: ended well but printed no PDF{said}", _another())
    return found


def find_browser(browser: Path | None = None) -> str:
    """The one that is named, that of `$OPMARK_BROWSER`, or the first that is installed."""
    for source, named in (("--browser", str(browser or "")), (f"${VARIABLE}", os.environ.get(VARIABLE, ""))):
        if named:
            found = shutil.which(named)
            if found is None:
                raise UserError(f"{source}: `{named}` is no program that can be started", "the path of a browser")
            return found
    found = next((path for path in _installed()), None)
    if found is None:
        raise UserError(
            "a PDF is printed by a browser, and none was found: looked for " + ", ".join(NAMES),
            f"install chromium, or name another by --browser PATH or ${VARIABLE}; "
            "--format html can be printed from any browser",
        )
    return found


def _installed() -> Iterator[str]:
    for name in NAMES:
        if found := shutil.which(name):
            yield found
    for app in _APPS:
        path = Path("/Applications") / f"{app}.app" / "Contents" / "MacOS" / app
        if path.is_file():
            yield str(path)


def _flags(folder: Path) -> list[str]:
    """Root has no sandbox to be put into; the page is ours and runs nothing but its own script."""
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    return [*_FLAGS, f"--user-data-dir={folder / 'profile'}", *root]


def _run(command: list[str], timeout: float) -> str:
    """What it said last, as part of a message."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]}: did not print the report within {timeout:g} s", _another()) from None
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be started: {error.strerror or error}", _another()) from None
    lines = done.stderr.decode(errors="replace").split("\n")
    said = "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-_LAST:])
    if done.returncode:
        raise UserError(f"{command[0]}: ended with exit code {done.returncode} and printed no PDF{said}", _another())
    return said


def _another() -> str:
    return "--browser PATH names another one; --format html can be printed from any browser"
