"""The page that compares any two runs of the store."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from opmark.analysis.compared_side import side_of
from opmark.analysis.comparison import compare as compare_sides
from opmark.analysis.environment import unlike
from opmark.api.compare import cases_of
from opmark.dashboard.endpoint import Endpoint
from opmark.dashboard.navigation import Page, PageNumber, paginate
from opmark.dashboard.reader import Reader
from opmark.dashboard.run_cache import AnswerCache, PerStore
from opmark.report.charts.ratios import ratios
from opmark.report.comparison import clock_lines, failed_on_both, select_pairs, word
from opmark.schema import QUANTITIES, Run
from opmark.schema.chart import Chart
from opmark.schema.comparison import Compared, Pairing, difference_lines
from opmark.schema.measurement import Cache
from opmark.stats.verdict import MARGIN
from opmark.store.changes import ReadMark, last_finding

ROWS = 200
OFFERED = 300
"""Number of runs in the lists to choose from; the query may name any other."""
LONE = 50
"""Number of cases of one side only that are listed."""
_KEPT = 8
"""Number of comparisons in the cache of a store."""

Only = Literal["", "slower", "faster", "same", "undecided", "failed", "skipped"]


class CompareQuery(Struct, frozen=True):
    a: Annotated[str, Meta(description="First run: its id, the beginning of its id, or its label.")] = ""
    b: Annotated[str, Meta(description="Run that is compared with the first, named in the same way.")] = ""
    quantity: Annotated[str, Meta(description="Quantity instead of the headline: latency, latency:cold, all.")] = ""
    margin: Annotated[float, Meta(ge=0, lt=1, description="Largest difference that counts as the same: 0.01, 1%.")] = (
        MARGIN
    )
    only: Annotated[Only, Meta(description="Only cases with this verdict.")] = ""
    unlike: Annotated[bool, Meta(description="Compare runs of different machines, too.")] = False
    page: PageNumber = 1


class RunChoice(Struct, frozen=True):
    id: str
    label: str
    started: str


class Fact(Struct, frozen=True):
    """A fact in which the environments of the two runs differ, with its values."""

    name: str
    change: str


class PairRow(Struct, frozen=True):
    pair: Pairing
    word: str
    """The verdict, or the reason why there is none."""
    unit: str


class Mean(Struct, frozen=True):
    """The geometric mean over the cases that have a ratio of one quantity: of several, the one that most cases have."""

    ratio: float
    low: float | None
    high: float | None
    """Ends of its interval; None if it is unbounded, because one case alone says nothing about the spread."""
    cases: int
    quantity: str = ""
    cache: Cache | None = None


class Verdicts(Struct, frozen=True):
    counts: dict[str, int]
    geomean: Mean | None
    paired: bool
    margin: float
    drift: float
    resolution: float | None
    only_a: list[str]
    only_b: list[str]
    """The first `LONE` cases that only one side has."""
    lone: tuple[int, int]
    """Number of all cases that only A has, and that only B has."""
    chart: Chart | None
    rows: list[PairRow]
    """Rows of one page, from the largest slowdown to the largest speed-up."""
    page: Page
    clock: str
    """How far the clock moved between the runs, so that cycles are shown beside times; empty if it did not."""


class ComparePage(Struct, frozen=True):
    runs: list[RunChoice]
    quantities: list[str]
    a: Run | None = None
    b: Run | None = None
    differing: list[Fact] = []
    refused: list[Fact] = []
    """Facts that make them different machines, whose times say nothing about the code. If there are any, nothing is
    compared unless the query sets `unlike`."""
    verdicts: Verdicts | None = None


def view_comparison(reader: Reader, query: CompareQuery) -> ComparePage:
    runs = [RunChoice(run.id, run.label, run.started) for run in reader.runs()[:OFFERED]]
    quantities = [*QUANTITIES, "all"]
    a, b = (reader.run(name) if name else None for name in (query.a, query.b))
    if a is None or b is None:
        return ComparePage(runs, quantities, a, b)
    compared = compare_runs(reader, a, b, query.quantity, query.margin)
    apart = [] if query.unlike or a.id == b.id else unlike(compared.differing)
    refused = [Fact(*one) for one in difference_lines(compared.differing, apart)]
    differing = [Fact(*one) for one in difference_lines(compared.differing)]
    return ComparePage(runs, quantities, a, b, differing, refused, None if refused else _verdicts(compared, query))


class _Key(Struct, frozen=True):
    """All that a comparison depends on, except the noise known from other runs, which may be older in a cached
    answer."""

    runs: tuple[tuple[str, str, ReadMark], tuple[str, str, ReadMark]]
    """Id, label and read mark of each run."""
    quantity: str
    margin: float
    findings: int


_COMPARISONS: PerStore[AnswerCache[_Key, Compared]] = PerStore(lambda: AnswerCache(_KEPT))


def compare_runs(reader: Reader, a: Run, b: Run, quantity: str, margin: float) -> Compared:
    """Compare two runs, also of different machines: the caller decides whether to show the result."""
    summary_a, summary_b = reader.summaries_at_marks([a, b])
    sides = ((a.id, a.label, summary_a.mark), (b.id, b.label, summary_b.mark))
    store = reader.store
    key = _Key(sides, quantity, margin, last_finding(store))

    def compare() -> Compared:
        side_a = side_of(store, a)
        side_b = side_of(store, b, beside=side_a)
        cases = cases_of((store, side_a), (store, side_b))
        return compare_sides(side_a, side_b, cases, quantity=quantity, margin=margin, unlike=True)

    return _COMPARISONS.get(store).get(key, compare)


def _verdicts(compared: Compared, query: CompareQuery) -> Verdicts:
    pairs, page = paginate(select_pairs(compared, [query.only] if query.only else []), query.page, ROWS)
    chart = ratios(compared)
    counts = Counter(word(pair) for pair in compared.pairs if not failed_on_both(pair))
    only: Any = compared.only
    mean = compared.geomean
    shown = None
    if mean is not None:
        ended = mean.low > 0 and math.isfinite(mean.high)
        low, high = (mean.low, mean.high) if ended else (None, None)
        shown = Mean(mean.ratio, low, high, mean.cases, mean.quantity, mean.cache)
    rows = [
        PairRow(pair, word(pair), QUANTITIES[pair.quantity].unit if pair.quantity in QUANTITIES else "s")
        for pair in pairs
    ]
    return Verdicts(
        dict(counts), shown,
        compared.paired, compared.margin, compared.drift, compared.resolution,
        list(only[0][:LONE]), list(only[1][:LONE]), (len(only[0]), len(only[1])), chart if chart.series else None,
        rows, page, " ".join(clock_lines(compared)),
    )  # fmt: skip


def _compare_newest(reader: Reader) -> None:
    """Compare the newest run with the previous one of the same label: the comparison that is opened most often."""
    runs = reader.runs()
    before = next((run for run in runs[1:] if run.label == runs[0].label), None)
    if before:
        compare_runs(reader, before, runs[0], "", MARGIN)


COMPARE_ENDPOINT = Endpoint(
    "/compare",
    view_comparison,
    CompareQuery,
    ComparePage,
    "compare.html",
    "Compare",
    "Two runs, case by case, with verdicts.",
    _compare_newest,
    of_runs=("a", "b"),
)
