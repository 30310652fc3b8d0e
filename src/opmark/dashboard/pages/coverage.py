"""The coverage page: for each operator and backend, whether it is implemented and its latest result in stored runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Literal, get_args

from msgspec import Struct

from opmark.api.coverage import implemented
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.reader import LatestResults, Reader
from opmark.dashboard.run_cache import PerStore
from opmark.errors import UnknownName
from opmark.schema.coverage import ImplementedOperator, Matrix
from opmark.schema.record import FAILED
from opmark.store.changes import LatestTry

State = Literal["verified", "ran", "failed", "untried", "lacking"]
"""
verified  the newest record has a result that was checked and correct
ran       the newest record has a time, but its result was not checked
failed    the newest record failed
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
    """Run of the newest record."""
    reason: str = ""
    phases: dict[str, State] = {}
    """States of other phases than the forward one."""


class OperatorRow(Struct, frozen=True):
    op: str
    cells: dict[str, CoverageCell]
    """Cells by backend; a backend without an implementation has no cell."""


class Category(Struct, frozen=True):
    name: str
    counts: dict[State, int]
    """Counts of its cells."""
    rows: list[OperatorRow]


class BackendColumn(Struct, frozen=True):
    backend: str
    operators: int
    """Number of operators of the backend."""
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
    """Backends that the query may name."""


def view_coverage(reader: Reader, query: CoverageQuery) -> CoveragePage:
    known = known_operators()
    categories = list(dict.fromkeys(one.category for one in known.operators))
    _check("category", query.category, categories)
    _check("backend", query.backend, known.backends)
    backends = [query.backend] if query.backend else list(known.backends)
    operators = [one for one in known.operators if query.category in ("", one.category)]
    tried = _LATEST_RESULTS.get(reader.store).read(reader) if reader.exists else {}
    rows = {one.op: OperatorRow(one.op, dict(_cells(one, backends, tried.get(one.op, {})))) for one in operators}
    grouped: dict[str, list[OperatorRow]] = {}
    for one in operators:
        grouped.setdefault(one.category, []).append(rows[one.op])
    columns = []
    for backend in backends:
        states = Counter(row.cells[backend].state for row in rows.values() if backend in row.cells)
        columns.append(BackendColumn(backend, sum(states.values()), {state: states[state] for state in STATES}))
    return CoveragePage(
        len(operators),
        len(reader.runs()),
        _counts(rows.values()),
        columns,
        [Category(name, _counts(some), some) for name, some in grouped.items()],
        categories,
        list(known.backends),
    )


_LATEST_RESULTS: PerStore[LatestResults] = PerStore(LatestResults)


@cache
def known_operators() -> Matrix:
    """Return the installed operators, which stay the same while the server runs."""
    return implemented()


def _check(kind: str, name: str, known: Iterable[str]) -> None:
    listed = list(known)
    if name and name not in listed:
        raise UnknownName(kind, name, listed)


def _cells(
    one: ImplementedOperator, backends: list[str], tried: Mapping[str, Mapping[str, LatestTry]]
) -> Iterator[tuple[str, CoverageCell]]:
    """Yield the cells of an operator. If it was tried, that is the state of its forward phase, or of its first one if
    it has no forward phase."""
    for backend in backends:
        if phases := tried.get(backend, {}):
            lead = phases[FORWARD if FORWARD in phases else next(iter(phases))]
            others = {phase: _state(found) for phase, found in phases.items() if phase != FORWARD}
            yield backend, CoverageCell(_state(lead), lead.run, lead.reason, others)
        elif backend in one.lacks:
            yield backend, CoverageCell("lacking", reason=one.lacks[backend])
        elif backend in one.backends:
            yield backend, _UNTRIED


_UNTRIED = CoverageCell("untried")


def _state(one: LatestTry) -> State:
    if one.status in FAILED:
        return "failed"
    return "verified" if one.checked else "ran"


def _counts(rows: Iterable[OperatorRow]) -> dict[State, int]:
    counts = Counter(cell.state for row in rows for cell in row.cells.values())
    return {state: counts[state] for state in STATES}


COVERAGE_ENDPOINT = Endpoint(
    "/coverage", view_coverage, CoverageQuery, CoveragePage, "coverage.html", "Coverage",
    "Which operators each backend has, and which of them stored runs have verified.",
    ahead=lambda reader: view_coverage(reader, CoverageQuery()),
)  # fmt: skip
