"""The report as one HTML file that loads nothing, and as PDF, which a browser prints.

A content security policy allows only the styles and scripts inside of the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from opmark.analysis.evaluation import accuracy_rows
from opmark.analysis.rows import Row
from opmark.analysis.usability import usability
from opmark.errors import UserError
from opmark.report.charts.samples import samples
from opmark.report.evaluation import HEADS, accuracy_cells, accuracy_notes
from opmark.report.html.comparison import differences, lines, links_of, verdicts, versus_table
from opmark.report.html.figure import FigureStyle, figure
from opmark.report.html.items import MOST, ItemStyle, row_details, row_table
from opmark.report.html.templates import asset, compact, source_hash, templates
from opmark.report.summary import (
    DETAILED,
    Content,
    ItemAnchors,
    RunSection,
    Versus,
    about,
    describe_progress,
    doubts,
    facts_of,
    group_by_reason,
    keys,
    run_name,
    sentence,
)
from opmark.report.text import printable
from opmark.schema.chart import Chart
from opmark.scratch import ScratchFolder
from opmark.version import VERSION

_STYLES = ("style.css", "chart.css")
_SCRIPTS = ("chart.js", "table.js")
_LARGE = 60
"""Number of rows up to which samples get a large chart as well, which takes the room of twenty small ones."""
_ON_PAPER = 60
"""Number of rows of a run up to which they are printed unfolded."""
_MANY = 500
"""Number of rows from which on only samples of the headline are drawn, with fewer dots, to keep the page small."""
_FEWER = 20


def page(content: Content, *, paper: bool = False) -> str:
    """Return the report. `paper`: parts that a reader can unfold on a screen are unfolded, within limits."""
    style = "\n".join(map(asset, _STYLES))
    first, script = asset("theme.js"), "\n".join(map(asset, _SCRIPTS))
    places = [
        ItemAnchors(number, frozenset(row.key for row in part.run_view.rows))
        for number, part in enumerate(content.parts, 1)
    ]
    several = len(content.parts) > 1 or bool(content.comparisons)
    return templates().get_template("report.html").render(
        title=printable(content.title) or make_title(content),
        policy=f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(first)} "
        f"{source_hash(script)}; img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),
        first=Markup(first),
        script=Markup(script),
        version=VERSION,
        several=several,
        comparisons=[_versus(n, one, content, places, paper=paper) for n, one in enumerate(content.comparisons, 1)],
        parts=[
            # With several runs, each has a heading above its figures.
            _part(part, place, FigureStyle(4, f"run {run_name(part.run_view)}", paper) if several
                  else FigureStyle(paper=paper))
            for part, place in zip(content.parts, places, strict=True)
        ],
    )  # fmt: skip


def make_title(content: Content) -> str:
    if content.comparisons:
        first = content.comparisons[0].compared.a
        others = ", ".join(versus.compared.b for versus in content.comparisons)
        return printable(f"{first} against {others}" if len(content.comparisons) > 1 else f"{first} → {others}")
    return ", ".join(run_name(part.run_view) for part in content.parts)


def _versus(
    number: int, versus: Versus, content: Content, places: Sequence[ItemAnchors], *, paper: bool
) -> dict[str, Any]:
    compared = versus.compared
    style = FigureStyle(
        of=printable(f"{compared.a} → {compared.b}") if len(content.comparisons) > 1 else "", paper=paper
    )
    links: dict[Any, str] = {}
    by_case: dict[str, str] = {}  # links to rows of B by key, and to the first row of each case
    for part, place in zip(content.parts, places, strict=True):
        if part.run_view.run.id in compared.runs:
            links |= links_of(part, place)
        if part.run_view.run.id == compared.runs[1]:
            for row in reversed(part.run_view.rows):
                by_case |= {row.case: place.href(row.key), row.key: place.href(row.key)}
    return {
        "id": f"comparison-{number}",
        "name": printable(f"{compared.a} → {compared.b}"),
        "verdicts": verdicts(compared),
        "lines": lines(compared),
        "differences": differences(compared),
        "figures": [_figure(versus.chart, f"c{number}", lambda key: by_case.get(key, ""), style)]
        if versus.chart
        else [],
        "table": versus_table(compared, number, links, style.of),
        "only": [
            (side, [printable(one) for one in lone]) for side, lone in zip("AB", compared.only, strict=True) if lone
        ],
    }


def _figure(chart: Chart, prefix: str, href: Callable[[str], str], style: FigureStyle) -> Markup:
    """Return a figure; `prefix` makes its id unique, because two runs have figures of the same names."""
    return Markup(compact(figure(replace(chart, id=f"{prefix}-{chart.id}" if prefix else chart.id), href, style)))


def _part(part: RunSection, place: ItemAnchors, style: FigureStyle) -> dict[str, Any]:
    run_view, paper = part.run_view, style.paper
    prefix = "" if place.number == 1 else f"r{place.number}"
    folded = paper and len(run_view.rows) > _ON_PAPER
    return {
        "id": f"run-{place.number}",
        "number": place.number,
        "name": run_name(run_view),
        "sentence": sentence(run_view),
        "unfinished": describe_progress(run_view),
        "about": about(run_view),
        "failed": group_by_reason((row for row in run_view.rows if row.failed), place),
        "skipped": group_by_reason((row for row in run_view.rows if row.status == "skipped"), place),
        "doubts": doubts(run_view, place),
        "numbers": keys(run_view, {row.key: place.href(row.key) for row in run_view.rows}) if run_view.rows else [],
        "usability": usability(run_view.rows, run_view.environments),
        "accuracy": _accuracy(run_view.rows),
        "facts": facts_of(run_view),
        "figures": [_figure(chart, prefix, place.href, style) for chart in part.charts],
        "table": row_table(run_view.rows, place, style.of, instead=folded) if run_view.rows else Markup(),
        "each": Markup("") if folded else _details(part, place, style),
        "folded": folded,
        "missing": [printable(title) for title in part.undrawn],
        "few": len(run_view.rows) >= _MANY,
        "undrawn": max(0, len(run_view.rows) - DETAILED),
        "drawn": DETAILED,
    }


def _accuracy(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return the table of accuracy on labelled data, where there is any."""
    found = accuracy_rows([record for row in rows for record in row.records])
    if not found:
        return None
    return {"heads": HEADS, "lines": [c for one in found for c in accuracy_cells(one)], "notes": accuracy_notes(found)}


def _details(part: RunSection, place: ItemAnchors, style: FigureStyle) -> Markup:
    rows, paper = part.run_view.rows, style.paper
    dots = MOST if len(rows) < _MANY else _FEWER
    prefix = "" if place.number == 1 else f"r{place.number}"
    found = []
    for number, row in enumerate(rows):
        look = ItemStyle(dots if number < DETAILED else 0, len(rows) < _MANY, paper, style.of)
        large = ""
        if len(rows) <= _LARGE and not paper and row.timings:
            large = str(_figure(samples(row), prefix, place.href, style))
        found.append(row_details(row, place, look, large))
    return Markup("".join(found))


# PDF: a browser of this machine prints the page, with a temporary profile.

VARIABLE = "OPMARK_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge",
         "brave", "brave-browser")  # fmt: skip
_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_OTHER_BROWSER = "--browser PATH names another one; --format html can be printed from any browser"
_TIMEOUT = 180.0
_LAST = 5
"""Number of last lines of a browser's output in messages."""
_FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
          "--disable-background-networking", "--disable-sync", "--no-pdf-header-footer")  # fmt: skip


def print_pdf(html: str, browser: Path | None = None, timeout: float = _TIMEOUT) -> bytes:
    """Print a page and return the bytes of the PDF."""
    return _produce(html, "report.html", "report.pdf", ["--print-to-pdf={made}"], b"%PDF-", browser, timeout)


def draw_png(svg: str, browser: Path | None = None, timeout: float = _TIMEOUT) -> bytes:
    """Draw an SVG that states its size in pixels, at twice that size, and return the bytes of the PNG."""
    size = re.search(r'<svg [^>]*\bwidth="(\d+)" height="(\d+)"', svg)
    assert size, "an SVG without a size"
    flags = ["--screenshot={made}", f"--window-size={size[1]},{size[2]}", "--force-device-scale-factor=2",
             "--hide-scrollbars"]  # fmt: skip
    return _produce(svg, "picture.svg", "picture.png", flags, b"\x89PNG", browser, timeout)


def _produce(
    content: str, name: str, result: str, flags: list[str], magic: bytes, browser: Path | None, timeout: float
) -> bytes:
    """Open a file in the browser and return the bytes of the file that `flags` make of it, which begin with `magic`."""
    program = find_browser(browser)
    with ScratchFolder("pdf") as scratch:
        folder = Path(scratch)
        page, made = folder / name, folder / result
        page.write_text(content, encoding="utf-8")
        # Chromium has no sandbox for root; the page runs only its own script.
        root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
        asked = [flag.format(made=made) for flag in flags]
        output = _run(
            [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", *root, *asked, page.as_uri()], timeout
        )
        found = made.read_bytes() if made.is_file() else b""
    if not found.startswith(magic):
        kind = result.rpartition(".")[2].upper()
        raise UserError(f"{program}: ended well but printed no {kind}{output}", _OTHER_BROWSER)
    return found


def find_browser(browser: Path | None = None) -> str:
    """Return the path of `browser`, of `$OPMARK_BROWSER`, or of the first installed browser."""
    for source, name in (("--browser", str(browser or "")), (f"${VARIABLE}", os.environ.get(VARIABLE, ""))):
        if name:
            found = shutil.which(name)
            if found is None:
                raise UserError(f"{source}: `{name}` is no program that can be started", "the path of a browser")
            return found
    apps = [Path("/Applications") / f"{app}.app" / "Contents" / "MacOS" / app for app in _APPS]
    installed = [*filter(None, map(shutil.which, NAMES)), *(str(path) for path in apps if path.is_file())]
    if not installed:
        raise UserError(
            "a PDF is printed by a browser, and none was found: looked for " + ", ".join(NAMES),
            f"install chromium, or name another by --browser PATH or ${VARIABLE}; "
            "--format html can be printed from any browser",
        )
    return installed[0]


def _run(command: list[str], timeout: float) -> str:
    """Run the browser and return the last lines of its output, as part of a message."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]}: did not print the report within {timeout:g} s", _OTHER_BROWSER) from None
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be started: {error.strerror or error}", _OTHER_BROWSER) from None
    lines = done.stderr.decode(errors="replace").split("\n")
    output = "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-_LAST:])
    if done.returncode:
        raise UserError(
            f"{command[0]}: ended with exit code {done.returncode} and printed no PDF{output}", _OTHER_BROWSER
        )
    return output
