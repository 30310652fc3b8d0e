"""The page of one case over all runs: its series, the changes of their levels, and the runs that have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from opmark.analysis.history import HistoryQuery, histories
from opmark.analysis.rows import case_parameters
from opmark.api.history import parse_time
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.navigation import Page, PageNumber, paginate
from opmark.dashboard.reader import Reader
from opmark.errors import StoreError, UnknownName, UserError
from opmark.plugin.registry import way_of
from opmark.report.charts.history import history_chart
from opmark.schema import QUANTITIES, Case
from opmark.schema.case import shown_case
from opmark.schema.chart import Chart
from opmark.schema.history import History, LevelChange, RunAt
from opmark.schema.measurement import Cache
from opmark.store.records import TaskPlace, first_tasks
from opmark.store.sql import SqlStore

LAST = 500
"""Number of newest runs in the histories."""
ROWS = 200
Keys = Mapping[TaskPlace, str]
"""Keys of the rows of a case, by run and implementation."""


class CaseQuery(Struct, frozen=True):
    case: str
    backend: str = ""
    quantity: Annotated[str, Meta(description="Quantity instead of the headline; `all` for every one.")] = ""
    since: Annotated[
        str,
        Meta(
            description="A date, a time, or an age: 2030-12-31, 30d.",
            extra_json_schema={"pattern": r"^([0-9]{1,5}[hdw]|[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))?$"},
        ),
    ] = ""
    page: PageNumber = 1


class CaseSeries(Struct, frozen=True):
    """The same case, measured in the same way on the same chip."""

    where: str
    quantity: str
    cache: Cache | None
    unit: str
    chip: str
    runs: int
    level: float
    last: float
    """The newest value over the level."""
    changes: tuple[LevelChange, ...]
    """Oldest first."""
    warning: bool
    """The newest runs are out of line, and too few for a change yet."""
    chart: Chart


class CaseRunRow(Struct, frozen=True):
    """The value of a series in one run, or the failure in its place."""

    run: RunAt
    where: str
    quantity: str
    cache: Cache | None
    unit: str
    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    processes: int = 0
    ratio: float | None = None
    """Ratio of the value to the level that its series had at that time."""
    key: str = ""
    """Key of the row in its run."""


class CasePage(Struct, frozen=True):
    case: str
    op: str
    phase: str
    params: dict[str, Any]
    parameters: str
    """The parameters as text."""
    series: list[CaseSeries]
    rows: list[CaseRunRow]
    """Rows of one page, from the newest run to the oldest."""
    page: Page
    backends: list[str]
    quantities: list[str]
    """Quantities that the query may name."""
    note: str = ""
    """The reason why there is no series."""


def view_case(reader: Reader, query: CaseQuery) -> CasePage:
    case = find_case(reader, query.case)
    store = reader.store
    figures = store.figures(case=case.id)
    found, note = _find_histories(store, case, query)
    keys = first_tasks(store, case.id)
    rows = [row for history in found for row in _rows(history, keys)]
    rows.sort(key=lambda row: (row.run.started, row.run.id), reverse=True)
    page_rows, page = paginate(rows, query.page, ROWS)
    return CasePage(
        case.id,
        shown_case(case).op,
        " d".join((case.phase, *case.wrt)),
        case.params,
        case_parameters(case),
        [
            CaseSeries(
                _where(one), one.quantity, one.cache, _unit(one), one.chip, len(one.points), one.level, one.last,
                one.changes, one.warning, history_chart(one),
            )
            for one in found
        ],
        page_rows,
        page,
        sorted({figure.backend for figure in figures}),
        sorted({figure.quantity for figure in figures if figure.quantity}),
        note,
    )  # fmt: skip


def find_case(reader: Reader, name: str) -> Case:
    """Return a case by its whole id, because pages link to cases by whole ids."""
    known = reader.store.cases([name]) if reader.exists else {}
    if name not in known:
        error = UnknownName("case", name, ())
        error.hint = "a case is found by words of its operator and its parameters: /search"
        raise error
    return known[name]


def _find_histories(store: SqlStore, case: Case, query: CaseQuery) -> tuple[list[History], str]:
    """Return the series of a case, and the reason if there is none: a case that only failed, or has no run in the time
    asked for, is a valid query."""
    if query.quantity not in ("", "all", *QUANTITIES):
        raise UnknownName("quantity", query.quantity, [*QUANTITIES, "all"])
    backends = (query.backend,) if query.backend else ()
    since = parse_time(query.since)
    selection = HistoryQuery(case=case.id, backends=backends, quantity=query.quantity, since=since, last=LAST)
    try:
        return histories(store, selection).series, ""
    except StoreError:
        raise  # the store is broken, which says nothing about the case
    except UserError as error:
        return [], error.message


def _rows(history: History, keys: Keys) -> Iterator[CaseRunRow]:
    way = (history.backend, history.implementation, history.threads)
    what = (_where(history), history.quantity, history.cache, _unit(history))
    later = {change.after.id: change.level_after for change in history.changes}
    level = history.changes[0].level_before if history.changes else history.level
    for point in history.points:
        level = later.get(point.run.id, level)
        key = keys.get(TaskPlace(point.run.id, *way), "")
        numbers = (point.value, point.low, point.high, point.processes)
        yield CaseRunRow(point.run, *what, "ok", *numbers, point.value / level if level > 0 else None, key)
    for outage in history.outages:
        yield CaseRunRow(outage.run, *what, outage.status, key=keys.get(TaskPlace(outage.run.id, *way), ""))


def _where(history: History) -> str:
    return f"{history.backend}{way_of(history.backend, history.implementation)} {history.where}"


def _unit(history: History) -> str:
    return QUANTITIES[history.quantity].unit if history.quantity in QUANTITIES else "s"


CASE_ENDPOINT = Endpoint(
    "/cases/{case}", view_case, CaseQuery, CasePage, "case.html", "Case",
    "A case over all runs: its series, the changes of their levels, and the values of each run.",
)  # fmt: skip
