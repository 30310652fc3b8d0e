"""The report as one file: nothing is fetched, and nothing runs but what is written here (content security policy)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markupsafe import Markup
from msgspec.structs import replace

from opmark.report.html.assets import asset, source_hash
from opmark.report.html.cautions import doubts
from opmark.report.html.compact import compact
from opmark.report.html.content import DETAILED, Content, Part, Place, Versus, place_of
from opmark.report.html.environment import facts_of
from opmark.report.html.failures import failed_groups, skipped_groups
from opmark.report.html.figure import Shown, figure
from opmark.report.html.item_details import Look, item_details
from opmark.report.html.item_table import item_table
from opmark.report.html.strip import MOST
from opmark.report.html.summary import about, called, keys, sentence, unfinished
from opmark.report.html.templates import templates
from opmark.report.html.versus import differences, lines, links_of, verdicts, versus_table
from opmark.report.plain import printable
from opmark.schema.chart import Chart
from opmark.schema.item import Item
from opmark.version import VERSION

_STYLES = ("style.css", "chart.css")
_SCRIPTS = ("chart.js", "table.js")
_LARGE = 60
"""Items whose samples are drawn large as well: each takes as much room as twenty in a line."""
_ON_PAPER = 60
"""Items of a run that are printed unfolded: more would be a book."""
_MANY = 500
"""Items from which on samples are drawn of the headline only, with fewer dots, so that the page stays small."""
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
    return ", ".join(called(part.looked) for part in content.parts)


def policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    sources = {"style-src": styles, "script-src": scripts}
    told = "; ".join(f"{name} {' '.join(map(source_hash, texts))}" for name, texts in sources.items())
    return f"default-src 'none'; {told}; img-src data:; base-uri 'none'; form-action 'none'"


def _versus(number: int, versus: Versus, content: Content, places: Sequence[Place], *, paper: bool) -> dict[str, Any]:
    compared = versus.compared
    shown = Shown(of=printable(f"{compared.a} → {compared.b}") if len(content.comparisons) > 1 else "", paper=paper)
    links: dict[Any, str] = {}
    for part, place in zip(content.parts, places, strict=True):
        if part.looked.run.id in compared.runs:
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
    """Marks of a comparison may name an item of B, or a case."""
    found: dict[str, str] = {}
    for part, place in zip(parts, places, strict=True):
        if part.looked.run.id == run:
            for item in reversed(part.looked.items):
                found |= {item.case: place.href(item.key), item.key: place.href(item.key)}
    return lambda key: found.get(key, "")


def _drawn(chart: Chart, prefix: str, href: Callable[[str], str], shown: Shown) -> Markup:
    """Two runs have figures of the same names."""
    return Markup(compact(figure(replace(chart, id=f"{prefix}-{chart.id}" if prefix else chart.id), href, shown)))


def _shown(part: Part, *, several: bool, paper: bool) -> Shown:
    """Where there are several runs, each has a heading of its own above its figures."""
    return Shown(4, f"run {called(part.looked)}", paper) if several else Shown(paper=paper)


def _part(part: Part, place: Place, shown: Shown) -> dict[str, Any]:
    looked, paper = part.looked, shown.paper
    prefix = "" if place.number == 1 else f"r{place.number}"
    folded = paper and len(looked.items) > _ON_PAPER
    return {
        "id": f"run-{place.number}",
        "number": place.number,
        "name": called(looked),
        "sentence": sentence(looked),
        "unfinished": unfinished(looked),
        "about": about(looked),
        "failed": failed_groups(looked.items, place),
        "skipped": skipped_groups(looked.items, place),
        "doubts": doubts(part, place),
        "numbers": keys(looked, {item.key: place.href(item.key) for item in looked.items}) if looked.items else [],
        "facts": facts_of(looked),
        "figures": [_drawn(chart, prefix, place.href, shown) for chart in part.charts],
        "table": item_table(looked.items, place, shown.of, instead=folded) if looked.items else Markup(),
        "each": Markup("".join(_details(part, place, shown))) if not folded else Markup(),
        "folded": folded,
        "missing": [printable(title) for title in part.undrawn],
        "few": len(looked.items) >= _MANY,
        "undrawn": max(0, len(looked.items) - DETAILED),
        "drawn": DETAILED,
    }


def _details(part: Part, place: Place, shown: Shown) -> Iterator[str]:
    items, paper = part.looked.items, shown.paper
    dots = MOST if len(items) < _MANY else _FEWER
    prefix = "" if place.number == 1 else f"r{place.number}"
    for number, item in enumerate(items):
        look = Look(dots if number < DETAILED else 0, len(items) < _MANY, paper, shown.of)
        large = _large(part, item, prefix, place, shown) if len(items) <= _LARGE and not paper else ""
        yield item_details(item, part.records.get(item.key, ()), place, look, large)


def _large(part: Part, item: Item, prefix: str, place: Place, shown: Shown) -> str:
    chart = part.samples(item, part.records.get(item.key, ())) if part.samples and item.timings else None
    return str(_drawn(chart, prefix, place.href, shown)) if chart else ""
