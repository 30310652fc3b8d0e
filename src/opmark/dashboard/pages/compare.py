"""Any two runs of the store held against each other."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from opmark.analysis.comparison import compare as compare_sides
from opmark.analysis.comparison import side_of
from opmark.analysis.environment import unlike
from opmark.api.compare import cases_of
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.navigation import Page, PageNumber, paged
from opmark.dashboard.reader import Reader
from opmark.dashboard.run_cache import AnswerCache, OfStore
from opmark.report.charts.ratios import ratios
from opmark.report.comparison import chosen, in_both, word
from opmark.schema import QUANTITIES, Run
from opmark.schema.chart import Chart
from opmark.schema.comparison import Compared, Geomean, Pairing, difference_lines
from opmark.stats.verdict import MARGIN
from opmark.store.changes import ReadMark, last_finding
from opmark.store.sql import SqlStore

ROWS = 200
OFFERED = 300
"""Runs in the lists to choose from; any other can be named."""
LONE = 50
"""Cases of one side only that are listed."""
_KEPT = 8

Only = Literal["", "slower", "faster", "same", "undecided", "failed", "skipped"]


class CompareQuery(Struct, frozen=True):
    a: Annotated[str, Meta(description="A run: its id, the beginning of it, or its label.")] = ""
    b: Annotated[str, Meta(description="The run that is held against it.")] = ""
    quantity: Annotated[str, Meta(description="Another than the headline of each: latency, latency:cold, all.")] = ""
    margin: Annotated[float, Meta(ge=0, lt=1, description="Up to this share they are the same: 0.01, 1%.")] = MARGIN
    only: Annotated[Only, Meta(description="Cases of which this is said.")] = ""
    unlike: Annotated[bool, Meta(description="Also where the machines are not alike.")] = False
    page: PageNumber = 1


class RunChoice(Struct, frozen=True):
    id: str
    label: str
    started: str


class Fact(Struct, frozen=True):
    """Values of the environments, which differ in it."""

    name: str
    change: str


class PairRow(Struct, frozen=True):
    pair: Pairing
    word: str
    """Its verdict, or why it has none."""
    unit: str


class Mean(Struct, frozen=True):
    """Geometric, over all cases that have a ratio."""

    ratio: float
    low: float | None
    high: float | None
    """Ends of its interval; None where it has no end: one case alone says nothing of the spread."""
    cases: int


class Verdicts(Struct, frozen=True):
    counts: dict[str, int]
    geomean: Mean | None
    paired: bool
    margin: float
    drift: float
    resolution: float | None
    only_a: list[str]
    only_b: list[str]
    """Cases of one side only: the first of them."""
    lone: tuple[int, int]
    """How many there are."""
    chart: Chart | None
    rows: list[PairRow]
    """One page, the slowest first."""
    page: Page


class ComparePage(Struct, frozen=True):
    runs: list[RunChoice]
    quantities: list[str]
    a: Run | None = None
    b: Run | None = None
    differing: list[Fact] = []
    refused: list[Fact] = []
    """What makes them two machines: then times say nothing of the code, and nothing is compared unless `unlike` is."""
    verdicts: Verdicts | None = None


def view_comparison(reader: Reader, asked: CompareQuery) -> ComparePage:
    runs = [RunChoice(run.id, run.label, run.started) for run in reader.runs()[:OFFERED]]
    quantities = [*QUANTITIES, "all"]
    a, b = (reader.run(name) if name else None for name in (asked.a, asked.b))
    if a is None or b is None:
        return ComparePage(runs, quantities, a, b)
    compared = compared_runs(reader, a, b, asked.quantity, asked.margin)
    apart = [] if asked.unlike or a.id == b.id else unlike(compared.differing)
    refused = [Fact(*one) for one in difference_lines(compared.differing, apart)]
    differing = [Fact(*one) for one in difference_lines(compared.differing)]
    return ComparePage(runs, quantities, a, b, differing, refused, None if refused else _verdicts(compared, asked))


class _Key(Struct, frozen=True):
    """While all of this is the same, so is the comparison; what is learnt of noise from other runs may be older."""

    runs: tuple[tuple[str, str, ReadMark], tuple[str, str, ReadMark]]
    """Ids, labels and how far they were written."""
    quantity: str
    margin: float
    findings: int


_COMPARED: OfStore[AnswerCache[_Key, Compared]] = OfStore(lambda: AnswerCache(_KEPT))


def compared_runs(reader: Reader, a: Run, b: Run, quantity: str, margin: float) -> Compared:
    """Machines that are not alike too: who shows it decides."""
    one, other = reader.counted([a, b])
    sides = ((a.id, a.label, one.mark), (b.id, b.label, other.mark))
    store = reader.store
    key = _Key(sides, quantity, margin, last_finding(store))
    return _COMPARED.of(store).get(key, lambda: _compared(store, a, b, quantity, margin))


def _compared(store: SqlStore, a: Run, b: Run, quantity: str, margin: float) -> Compared:
    one = side_of(store, a)
    other = side_of(store, b, beside=one)
    cases = cases_of((store, one), (store, other))
    return compare_sides(one, other, cases, quantity=quantity, margin=margin, unlike=True)


def _verdicts(compared: Compared, asked: CompareQuery) -> Verdicts:
    pairs, page = paged(chosen(compared, [asked.only] if asked.only else []), asked.page, ROWS)
    chart = ratios(compared)
    counts = Counter(word(pair) for pair in compared.pairs if not in_both(pair))
    only: Any = compared.only
    return Verdicts(
        dict(counts), _mean(compared.geomean), compared.paired, compared.margin, compared.drift, compared.resolution,
        list(only[0][:LONE]), list(only[1][:LONE]), (len(only[0]), len(only[1])), chart if chart.series else None,
        [PairRow(pair, word(pair), _unit(pair)) for pair in pairs], page,
    )  # fmt: skip


def _mean(found: Geomean | None) -> Mean | None:
    if found is None:
        return None
    ended = found.low > 0 and math.isfinite(found.high)
    return Mean(found.ratio, found.low if ended else None, found.high if ended else None, found.cases)


def _unit(pair: Pairing) -> str:
    return QUANTITIES[pair.quantity].unit if pair.quantity in QUANTITIES else "s"


def _newest_two(reader: Reader) -> None:
    """The newest run against the one before it of the same label: what is asked for most."""
    runs = reader.runs()
    before = next((run for run in runs[1:] if run.label == runs[0].label), None)
    if before:
        compared_runs(reader, before, runs[0], "", MARGIN)


COMPARE_ENDPOINT = Endpoint(
    "/compare",
    view_comparison,
    CompareQuery,
    ComparePage,
    "compare.html",
    "Compare",
    "Two runs, case by case, with verdicts.",
    _newest_two,
    of_runs=("a", "b"),
)
