"""One case over all runs: its series, where their levels changed, and the runs that have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from opmark.analysis.history import HistoryQuery as Wanted
from opmark.analysis.history import histories
from opmark.api.history import parse_time
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.navigation import Page, PageNumber, paged
from opmark.dashboard.reader import Reader
from opmark.errors import StoreError, UnknownName, UserError
from opmark.plugin.param import format_params
from opmark.plugin.registry import parameters_of, way_of
from opmark.report.charts.history import history_chart
from opmark.schema import QUANTITIES, Case
from opmark.schema.chart import Chart
from opmark.schema.history import History, LevelChange, RunAt
from opmark.schema.measurement import Cache
from opmark.store.records import TaskPlace, first_tasks
from opmark.store.sql import SqlStore

LAST = 500
"""Runs that are followed: the newest."""
ROWS = 200
Keys = Mapping[TaskPlace, str]
"""Keys of rows."""


class CaseQuery(Struct, frozen=True):
    case: str
    backend: str = ""
    quantity: Annotated[str, Meta(description="Another than the headline of each; `all` for each.")] = ""
    since: Annotated[str, Meta(description="A date, a time, or how long ago: 2030-12-31, 30d.")] = ""
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
    """What a run says of a series."""

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
    """To the level that its series had then."""
    key: str = ""
    """The key of the row within the run."""


class CasePage(Struct, frozen=True):
    case: str
    op: str
    phase: str
    params: dict[str, Any]
    parameters: str
    """The same as people read them."""
    series: list[CaseSeries]
    rows: list[CaseRunRow]
    """One page; the newest run first."""
    page: Page
    backends: list[str]
    quantities: list[str]
    """Quantities that can be asked for."""
    note: str = ""
    """Why there is nothing to follow."""


def view_case(reader: Reader, asked: CaseQuery) -> CasePage:
    case = find_case(reader, asked.case)
    store = reader.store
    figures = store.figures(case=case.id)
    found, note = _followed(store, case, asked)
    keys = first_tasks(store, case.id)
    rows = sorted((row for one in found for row in _rows(one, keys)), key=_newest, reverse=True)
    page_rows, page = paged(rows, asked.page, ROWS)
    return CasePage(
        case.id,
        case.op,
        " d".join((case.phase, *case.wrt)),
        case.params,
        format_params(case, parameters_of(case.op)),
        [_series(one) for one in found],
        page_rows,
        page,
        sorted({figure.backend for figure in figures}),
        sorted({figure.quantity for figure in figures if figure.quantity}),
        note,
    )


def find_case(reader: Reader, name: str) -> Case:
    """By its whole id: pages link to nothing else."""
    known = reader.store.cases([name]) if reader.there else {}
    if name not in known:
        error = UnknownName("case", name, ())
        error.hint = "a case is found by words of its operator and its parameters: /search"
        raise error
    return known[name]


def _followed(store: SqlStore, case: Case, asked: CaseQuery) -> tuple[list[History], str]:
    """(series, why there are none). That a case has only failed, or not since then, is no mistake of who asks."""
    if asked.quantity not in ("", "all", *QUANTITIES):
        raise UnknownName("quantity", asked.quantity, [*QUANTITIES, "all"])
    backends = (asked.backend,) if asked.backend else ()
    wanted = Wanted(case=case.id, backends=backends, quantity=asked.quantity, since=parse_time(asked.since), last=LAST)
    try:
        return histories(store, wanted).series, ""
    except StoreError:
        raise  # that is no word about the case
    except UserError as error:
        return [], error.message


def _series(history: History) -> CaseSeries:
    return CaseSeries(
        _where(history), history.quantity, history.cache, _unit(history), history.chip, len(history.points),
        history.level, history.last, history.changes, history.warning, history_chart(history),
    )  # fmt: skip


def _rows(history: History, keys: Keys) -> Iterator[CaseRunRow]:
    way = (history.backend, history.implementation, history.threads)
    what = (_where(history), history.quantity, history.cache, _unit(history))
    for point, level in zip(history.points, _levels(history), strict=True):
        key = keys.get(TaskPlace(point.run.id, *way), "")
        numbers = (point.value, point.low, point.high, point.processes)
        yield CaseRunRow(point.run, *what, "ok", *numbers, point.value / level if level > 0 else None, key)
    for outage in history.outages:
        yield CaseRunRow(outage.run, *what, outage.status, key=keys.get(TaskPlace(outage.run.id, *way), ""))


def _levels(history: History) -> Sequence[float]:
    """At each of its points."""
    later = {change.after.id: change.level_after for change in history.changes}
    level = history.changes[0].level_before if history.changes else history.level
    found = []
    for point in history.points:
        level = later.get(point.run.id, level)
        found.append(level)
    return found


def _newest(row: CaseRunRow) -> tuple[str, str]:
    return row.run.started, row.run.id


def _where(history: History) -> str:
    return f"{history.backend}{way_of(history.backend, history.implementation)} ×{history.threads}"


def _unit(history: History) -> str:
    return QUANTITIES[history.quantity].unit if history.quantity in QUANTITIES else "s"


CASE_ENDPOINT = Endpoint(
    "/cases/{case}", view_case, CaseQuery, CasePage, "case.html", "Case",
    "A case over all runs: its series, the changes of their levels, and what each run says.",
)  # fmt: skip
