"""Make a report of stored runs: `opmark report`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from opmark.analysis.rows import RunView
from opmark.api.compare import RunFinder, RunReference, compare_request
from opmark.api.items import view_stored_run
from opmark.api.keywords import keywords_of
from opmark.api.requests import CompareOptions, CompareRequest, ReportRequest
from opmark.errors import UnknownName, UserError
from opmark.report.charts.elements import unique
from opmark.report.charts.gallery import FIGURES
from opmark.report.charts.ratios import ratios
from opmark.report.charts.tuning import tuned_bars
from opmark.report.summary import MARKS, Content, RunSection, Versus
from opmark.schema.chart import Chart
from opmark.schema.options import options_of, split_names
from opmark.store.runs import find_run
from opmark.store.sql import SqlStore

FORMATS = ("html", "md", "pdf")


@keywords_of(ReportRequest)
def make_report(request: ReportRequest) -> str | bytes:
    """Return a self-contained report of one run (by default the last one), or of several, each compared with the first.

    Names are those of `compare`. `format` is `html`; `md`, short enough for a pull request; or `pdf` as bytes, printed
    by `browser`, `$OPMARK_BROWSER` or an installed browser.
    """
    return report_request(request)


def report_request(request: ReportRequest) -> str | bytes:
    format, browser = request.format, request.browser
    if format not in FORMATS:
        raise UnknownName("format of a report", format, FORMATS)
    content = _gather_content(request)
    if format == "md":
        from opmark.report.formats.markdown import markdown_report

        return markdown_report(content)
    from opmark.report.html.page import page

    if format == "html":
        return page(content)
    from opmark.report.html.page import print_pdf

    return print_pdf(page(content, paper=True), Path(browser) if browser else None)


def _gather_content(request: ReportRequest) -> Content:
    names = split_names(request.runs)
    if len(names) < 2 and request.quantity:
        raise UserError(
            "--quantity says what is compared, and a single run is compared with nothing",
            "name a second run; of one, every quantity is in the report",
        )
    with ExitStack() as stack:
        finder = RunFinder(stack, request.db)
        options = {name: getattr(request, name) for name in options_of(CompareOptions)}
        parts = {(id(found.store), found.run.id): found for found in _find_runs(finder, names, request.run)}
        versus = []
        for other in names[1:]:
            compared = compare_request(CompareRequest(names[0], other, **options))
            versus.append(Versus(compared, ratios(compared) if compared.pairs else None))
        sections = [_make_section(found) for found in parts.values()]
        if request.charts and sections:
            sections[0] = sections[0]._replace(charts=[*request.charts, *sections[0].charts])
        return Content(request.title, tuple(sections), tuple(versus))


def _find_runs(finder: RunFinder, names: Sequence[str], run: str | None) -> list[RunReference]:
    """Return the runs to report. Two backends of a run are one run, which is returned twice."""
    if len(names) > 1:
        return [side for other in names[1:] for side in finder.two(names[0], other, run)]
    if run is not None:
        raise UserError("--run goes with two backends of it", f"`opmark report {run}` reports a run")
    if names and (found := finder.run(names[0])):
        return [found]
    store = finder.store()
    return [RunReference(store, find_run(store, names[0] if names else None), "")]


def _make_section(found: RunReference) -> RunSection:
    assert isinstance(found.store, SqlStore), "a store that is opened for reading is an SqlStore"
    run_view = view_stored_run(found.store, found.run, whole=True)
    charts, left_out = charts_of(run_view)
    gained = tuned_bars(entry for entry in found.store.tuned() if entry.run == found.run.id)
    return RunSection(run_view, [*gained, *charts], left_out)


def charts_of(run_view: RunView, most: int = MARKS) -> tuple[list[Chart], list[str]]:
    """Return the charts of a report in order, and the titles of those that exceed `most` marks. One chart of each kind
    is kept before a second of any kind."""
    kinds = [figure(run_view) for figure in FIGURES.values()]
    turns = [chart for turn in zip_longest(*kinds) for chart in turn if chart is not None]
    kept, used = set(), 0
    for chart in turns:
        if used + len(chart.marks()) <= most:
            used += len(chart.marks())
            kept.add(id(chart))
    charts = [chart for kind in kinds for chart in kind]
    return unique(chart for chart in charts if id(chart) in kept), [c.title for c in charts if id(c) not in kept]
