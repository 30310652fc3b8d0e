"""Operators x backends: what is implemented, and what became of it in stored runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Literal, get_args

from msgspec import Struct

from opmark.api.coverage import implemented
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.reader import LatestResults, Reader
from opmark.dashboard.run_cache import OfStore
from opmark.errors import UnknownName
from opmark.schema.coverage import ImplementedOperator, Matrix
from opmark.schema.record import FAILED
from opmark.store.changes import LatestTry

State = Literal["verified", "ran", "failed", "untried", "lacking"]
"""
verified  the newest record of it has a result that was found right
ran       the newest record has a time, but nobody checked the result
failed    the newest record of it failed
untried   implemented, and no stored run has tried it
lacking   implemented, and known beforehand not to run on this backend
"""
STATES: tuple[State, ...] = get_args(State)
FORWARD = "forward"


class CoverageQuery(Struct, frozen=True):
    category: str = ""
    backend: str = ""


class CoverageCell(Struct, frozen=True, omit_defaults=True):
    state: State
    run: str = ""
    """The run that says so."""
    reason: str = ""
    phases: dict[str, State] = {}
    """States of other phases than the forward one."""


class OperatorRow(Struct, frozen=True):
    op: str
    cells: dict[str, CoverageCell]
    """By backend; one that has no implementation has none."""


class Category(Struct, frozen=True):
    name: str
    counts: dict[State, int]
    """Counts of its cells."""
    rows: list[OperatorRow]


class BackendColumn(Struct, frozen=True):
    backend: str
    operators: int
    """Number of operators that it has."""
    counts: dict[State, int]


class CoveragePage(Struct, frozen=True):
    operators: int
    runs: int
    """Number of stored runs."""
    counts: dict[State, int]
    columns: list[BackendColumn]
    categories: list[Category]
    known_categories: list[str]
    known_backends: list[str]
    """What can be asked for."""


def view_coverage(reader: Reader, asked: CoverageQuery) -> CoveragePage:
    known = known_operators()
    categories = list(dict.fromkeys(one.category for one in known.operators))
    _check("category", asked.category, categories)
    _check("backend", asked.backend, known.backends)
    backends = [asked.backend] if asked.backend else list(known.backends)
    operators = [one for one in known.operators if asked.category in ("", one.category)]
    tried = _NEWEST.of(reader.store).tried(reader) if reader.there else {}
    rows = {one.op: OperatorRow(one.op, dict(_cells(one, backends, tried.get(one.op, {})))) for one in operators}
    grouped: dict[str, list[OperatorRow]] = {}
    for one in operators:
        grouped.setdefault(one.category, []).append(rows[one.op])
    return CoveragePage(
        len(operators),
        len(reader.runs()),
        _counts(rows.values()),
        [_column(backend, rows.values()) for backend in backends],
        [Category(name, _counts(some), some) for name, some in grouped.items()],
        categories,
        list(known.backends),
    )


_NEWEST: OfStore[LatestResults] = OfStore(LatestResults)


@cache
def known_operators() -> Matrix:
    """What is installed stays the same while the server runs."""
    return implemented()


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    listed = list(known)
    if name and name not in listed:
        raise UnknownName(kind, name, listed)


def _cells(
    one: ImplementedOperator, backends: list[str], tried: Mapping[str, Mapping[str, LatestTry]]
) -> Iterator[tuple[str, CoverageCell]]:
    for backend in backends:
        found = tried.get(backend, {})
        if found:
            yield backend, _tried(found)
        elif backend in one.lacks:
            yield backend, CoverageCell("lacking", reason=one.lacks[backend])
        elif backend in one.backends:
            yield backend, _UNTRIED


_UNTRIED = CoverageCell("untried")


def _tried(phases: Mapping[str, LatestTry]) -> CoverageCell:
    """The forward phase, or what there is in its place."""
    name = FORWARD if FORWARD in phases else next(iter(phases))
    lead = phases[name]
    others = {phase: _state(one) for phase, one in phases.items() if phase != FORWARD}
    return CoverageCell(_state(lead), lead.run, lead.reason, others)


def _state(one: LatestTry) -> State:
    if one.status in FAILED:
        return "failed"
    return "verified" if one.checked else "ran"


def _counts(rows: Iterable[OperatorRow]) -> dict[State, int]:
    counts = Counter(cell.state for row in rows for cell in row.cells.values())
    return {state: counts[state] for state in STATES}


def _column(backend: str, rows: Iterable[OperatorRow]) -> BackendColumn:
    states = Counter(row.cells[backend].state for row in rows if backend in row.cells)
    return BackendColumn(backend, sum(states.values()), {state: states[state] for state in STATES})


COVERAGE_ENDPOINT = Endpoint(
    "/coverage", view_coverage, CoverageQuery, CoveragePage, "coverage.html", "Coverage",
    "Which operators each backend has, and which of them stored runs have verified.",
    ahead=lambda reader: view_coverage(reader, CoverageQuery()),
)  # fmt: skip
