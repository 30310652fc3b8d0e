"""The content of a report: its runs, figures and comparisons, and summaries of each run.

`api.report` gathers the content; pages and Markdown show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from opmark import units
from opmark.analysis.metrics import is_above
from opmark.analysis.rows import Row, RunView, headline_name, split_by_headline
from opmark.report.text import fact, finite, format_duration, format_moment, harmless, percent, printable, rate
from opmark.schema.chart import Chart
from opmark.schema.comparison import Compared
from opmark.schema.machine import chip
from opmark.schema.measurement import Caution
from opmark.schema.record import COUNTED
from opmark.schema.run import short_revision
from opmark.units import count_noun

MARKS = 6100
"""Upper bound on the marks of all figures of a report: each is a row of a table as well, and the file has to stay
small."""
DETAILED = 2000
"""Number of rows whose samples are drawn; with more, a browser would take too long to open the page."""


class RunSection(NamedTuple):
    """A run with its figures. Its rows have their records."""

    run_view: RunView
    charts: Sequence[Chart]
    undrawn: Sequence[str] = ()
    """Titles of figures that a page of this size has no room for."""


class Versus(NamedTuple):
    compared: Compared
    chart: Chart | None


class Content(NamedTuple):
    title: str
    """The requested title; if it is empty, the page makes one."""
    parts: tuple[RunSection, ...]
    comparisons: tuple[Versus, ...] = ()
    """Comparisons of each other run with the first; all of these runs are among the parts."""


class ItemAnchors(NamedTuple):
    """Anchors of the rows of a part, which differ between parts because two runs may have the same tasks."""

    number: int
    """The number of the part, from 1."""
    keys: frozenset[str]

    def id(self, key: str) -> str:
        return f"item-{key}" if self.number == 1 else f"item-{self.number}-{key}"

    def href(self, key: str) -> str:
        """Return the link to a row; empty for a row that is not in the page."""
        return f"#{self.id(key)}" if key in self.keys else ""


# The facts of each environment as a column.

_FIRST = ("backend", "device", "gpu", "chip", "cpu", "machine", "system", "python", "opmark")
"""Facts that readers look for first; the others follow in the order of the environment."""


class FactRow(NamedTuple):
    name: str
    values: list[str]
    differs: bool


class Facts(NamedTuple):
    heads: list[str]
    rows: list[FactRow]


def facts_of(run_view: RunView) -> Facts:
    """Return a column for each environment, named by its backend, with the number of its cases."""
    used = Counter(row.environment for row in run_view.rows if row.environment in run_view.environments)
    columns = [run_view.environments[key] for key in used]
    names = dict.fromkeys((*_FIRST, *(name for facts in columns for name in facts)))
    rows = []
    for name in names:
        values = [fact(name, facts.get(name)) for facts in columns]
        if any(values):
            rows.append(FactRow(fact("", name), values, len(set(values)) > 1))
    backends = [fact("", facts.get("backend") or chip(facts)) for facts in columns]
    heads = [f"{name} ({count_noun(used[key], 'case')})" for name, key in zip(backends, used, strict=True)]
    return Facts(heads, rows)


# Failures by reason, with their cases.

ORDER = ("wrong", "error", "oom", "killed", "timeout")
"""Order of failures: wrong results, which mislead, come before missing ones."""
WORDS = {"wrong": "wrong result", "error": "error", "oom": "out of memory", "timeout": "timed out", "killed": "killed",
         "skipped": "skipped", "ok": "measured", "unchecked": "unchecked", "disturbed": "disturbed"}  # fmt: skip
_FAILURES_LISTED = 200
"""Number of cases that are listed for one reason; the table has the others."""


class ItemLink(NamedTuple):
    href: str
    text: str
    where: str


class FailureGroup(NamedTuple):
    status: str
    word: str
    first: str
    """The first line of the reason."""
    reason: str
    """The whole reason, if it is longer."""
    total: int
    links: list[ItemLink]

    @property
    def more(self) -> int:
        return self.total - len(self.links)


def group_by_reason(rows: Iterable[Row], place: ItemAnchors) -> list[FailureGroup]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.status, row.reason), []).append(row)
    rank = {status: i for i, status in enumerate(ORDER)}
    groups = []
    for (status, reason), alike in sorted(
        found.items(), key=lambda one: (rank.get(one[0][0], len(ORDER)), -len(one[1]))
    ):
        text = harmless(reason.strip())
        first = next(iter(text.splitlines()), "") or "no reason was given"
        listed = alike[:_FAILURES_LISTED]
        links = [ItemLink(place.href(row.key), printable(row.name), printable(row.where)) for row in listed]
        rest = text if text and text != first else ""
        groups.append(FailureGroup(status, WORDS.get(status, status), first, rest, len(alike), links))
    return groups


_STATUSES = ("ok", "unchecked", "disturbed", *ORDER, "skipped")


class SummaryFact(NamedTuple):
    name: str
    value: str


class Key(NamedTuple):
    name: str
    value: str
    about: str
    href: str = ""


_Figure = Callable[[Row], float | None]
_BEST: tuple[tuple[str, _Figure, Callable[[float], str], bool], ...] = (
    ("most bandwidth", lambda row: row.bytes_per_second, lambda value: rate(value, "B/s"), True),
    ("most arithmetic", lambda row: row.flops_per_second, lambda value: rate(value, "FLOP/s"), True),
    ("most memory", lambda row: row.memory, units.count_bytes, False),
    ("longest call", lambda row: row.seconds, units.seconds, True),
)
"""Figures whose largest value is shown, its format, and whether it comes from the headline."""
_LIMITS: tuple[tuple[str, _Figure], ...] = (
    ("the measured peak", lambda row: row.of_peak.share if row.of_peak else None),
    ("the datasheet", lambda row: row.of_datasheet.share if row.of_datasheet else None),
)
"""Limits for shares; the first one that is known is used."""
_WITH_LAUNCH = "latency"
"""Quantity that includes the launch, so that it is no measure of a device if there are others."""


def run_name(run_view: RunView) -> str:
    return printable(run_view.run.label or run_view.run.id)


def sentence(run_view: RunView) -> str:
    """Return one line with the number of rows of each status."""
    if not run_view.rows:
        planned = count_noun(run_view.run.tasks, "planned task")
        return f"no records yet of {planned}: the run was interrupted or has just begun"
    counts = Counter[str](row.status for row in run_view.rows)
    listed = ", ".join(f"{counts[status]} {WORDS[status]}" for status in _STATUSES if counts[status])
    return f"{count_noun(len(run_view.rows), 'case')}: {listed}"


def describe_progress(run_view: RunView) -> str:
    """Return the progress of a run that was interrupted or still runs; empty for a complete one."""
    if not run_view.rows or run_view.records >= run_view.run.tasks:
        return ""
    return f"{run_view.records} of {run_view.run.tasks} planned tasks have a record: interrupted, or still running"


def about(run_view: RunView) -> list[SummaryFact]:
    run = run_view.run
    backends = dict.fromkeys(row.backend for row in run_view.rows)
    environments = run_view.environments.values()
    machines = dict.fromkeys(filter(None, (fact("", facts.get("machine")) for facts in environments)))
    chips = dict.fromkeys(fact("", chip(facts)) for facts in environments)
    found = (
        SummaryFact("run", printable(run.id)),
        SummaryFact("label", printable(run.label)),
        SummaryFact("started", format_moment(run.started)),
        SummaryFact("took", format_duration(sum(row.duration for row in run_view.rows)) if run_view.rows else ""),
        SummaryFact("machine", ", ".join(machines)),
        SummaryFact("chip", ", ".join(chips)),
        SummaryFact("backends", printable(", ".join(backends))),
        SummaryFact("opmark", printable(run.version)),
        SummaryFact("revision", printable(short_revision(run.revision))),
        SummaryFact("command", printable(run.command)),
        SummaryFact("description", printable(run.description)),
    )
    return [pair for pair in found if pair.value]


def keys(run_view: RunView, href: dict[str, str]) -> list[Key]:
    """Return the key numbers of a run, from its usable rows. `href` has the links to rows by key."""
    rows = [row for row in run_view.rows if row.status in COUNTED]
    usable = [row for row in rows if row.usable]
    alike = _same_headline(usable)
    doubted = sum(bool(row.headline_cautions) for row in rows)
    found = [
        Key("measured", str(len(rows)), f"of {count_noun(len(run_view.rows), 'case')}"),
        Key("with cautions", str(doubted), "headline numbers to doubt; see below"),
    ]
    limits = ([*_shares(name, of, run_view.rows, href)] for name, of in _LIMITS)
    found += next(filter(None, limits), [])
    for name, of, write, timed in _BEST:
        found += _best(name, of, write, alike if timed else usable, href)
    return found


def _same_headline(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the most frequent headline; those with latency only if there is no other, because it
    includes the launch. Figures of different quantities are not compared."""
    parts = split_by_headline(rows)
    return max(parts, key=lambda part: (not headline_name(part).startswith(_WITH_LAUNCH), len(part)), default=[])


def _best(
    name: str, of: _Figure, write: Callable[[float], str], rows: Sequence[Row], href: dict[str, str]
) -> list[Key]:
    valued = [(value, row) for row in rows if (value := finite(of(row)))]
    if not valued:
        return []
    value, row = max(valued, key=lambda one: one[0])
    return [Key(name, write(value), printable(row.name), href.get(row.key, ""))]


def _shares(name: str, of: _Figure, rows: Sequence[Row], href: dict[str, str]) -> Iterator[Key]:
    """Yield key numbers about a limit: the median of usable rows with the same headline, the best row of these within
    the limit, and the number of all rows above it, which are those with the caution."""
    alike = _same_headline([row for row in rows if row.usable and finite(of(row)) is not None])
    if not alike:
        return
    middle = f"in the middle of {count_noun(len(alike), 'case')}, {headline_name(alike)}"
    yield Key(f"of {name}", percent(median([of(row) or 0.0 for row in alike])), middle)
    yield from _best(f"nearest to {name}", of, percent, [row for row in alike if not is_above(of(row) or 0.0)], href)
    above = sum(is_above(of(row) or 0.0) for row in rows)
    if above:
        yield Key(f"above {name}", str(above), "more than is possible: the limit, the cost or the clock is wrong")


# Cautions of a run by kind: number of cases, an example, and what to do.

_CAUTIONS_LISTED = 200


class Doubt(NamedTuple):
    code: str
    message: str
    """Message of the first row with this caution."""
    hints: list[str]
    total: int
    links: list[ItemLink]

    @property
    def more(self) -> int:
        return self.total - len(self.links)


def doubts(run_view: RunView, place: ItemAnchors) -> list[Doubt]:
    """Return the cautions of a run, the most frequent first."""
    found: dict[str, list[tuple[Row, Caution]]] = {}
    for row in run_view.rows:
        own: dict[str, Caution] = {}
        for key, caution in row.warnings():
            quantity = f"{' '.join(key)}: " if len(row.timings) > 1 else ""
            own.setdefault(caution.code, replace(caution, message=quantity + caution.message))
        for code, caution in own.items():
            found.setdefault(code, []).append((row, caution))
    return [
        Doubt(
            printable(code),
            printable(alike[0][1].message),
            list(dict.fromkeys(printable(caution.hint) for _, caution in alike if caution.hint))[:3],
            len(alike),
            [
                ItemLink(place.href(row.key), printable(row.name), printable(row.where))
                for row, _ in alike[:_CAUTIONS_LISTED]
            ],
        )
        for code, alike in sorted(found.items(), key=lambda one: -len(one[1]))
    ]
