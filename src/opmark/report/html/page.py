"""The report as one file: nothing is fetched, and nothing runs but what is written here (content security policy)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from opmark.charts.samples import samples
from opmark.report.html.assets import asset, source_hash
from opmark.report.html.cautions import doubts
from opmark.report.html.compact import compact
from opmark.report.html.content import DETAILED, Content, Part, Place, Versus, place_of
from opmark.report.html.environment import facts_of
from opmark.report.html.failures import failed_groups, skipped_groups
from opmark.report.html.figure import Shown, figure
from opmark.report.html.item_details import Look, row_details
from opmark.report.html.item_table import row_table
from opmark.report.html.strip import MOST
from opmark.report.html.summary import about, called, keys, sentence, unfinished
from opmark.report.html.templates import templates
from opmark.report.html.versus import differences, lines, links_of, verdicts, versus_table
from opmark.report.plain import printable
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


def _versus(number: int, versus: Versus, content: Content, places: Sequence[Place], *, paper: bool) -> dict[str, Any]:
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


def _by_case(run: str, parts: Sequence[Part], places: Sequence[Place]) -> Callable[[str], str]:
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


def _shown(part: Part, *, several: bool, paper: bool) -> Shown:
    """Where there are several runs, each has a heading of its own above its figures."""
    return Shown(4, f"run {called(part.run_view)}", paper) if several else Shown(paper=paper)


def _part(part: Part, place: Place, shown: Shown) -> dict[str, Any]:
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


def _details(part: Part, place: Place, shown: Shown) -> Iterator[str]:
    rows, paper = part.run_view.rows, shown.paper
    dots = MOST if len(rows) < _MANY else _FEWER
    prefix = "" if place.number == 1 else f"r{place.number}"
    for number, row in enumerate(rows):
        look = Look(dots if number < DETAILED else 0, len(rows) < _MANY, paper, shown.of)
        large = ""
        if len(rows) <= _LARGE and not paper and row.timings:
            large = str(_drawn(samples(row), prefix, place.href, shown))
        yield row_details(row, place, look, large)
