"""What a run is and what became of it, in a few words and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from opmark import units
from opmark.analysis.rows import Row, RunView
from opmark.metrics.doubts import is_above
from opmark.report.html.environment import chips, machines
from opmark.report.html.failures import ORDER, WORDS
from opmark.report.html.text import known, lasting, moment, percent, rate
from opmark.report.plain import printable
from opmark.schema.run import short_revision
from opmark.stats import median
from opmark.units import counted

_STATUSES = ("ok", *ORDER, "skipped")


class Pair(NamedTuple):
    name: str
    value: str


class Key(NamedTuple):
    name: str
    value: str
    about: str
    href: str = ""


_Of = Callable[[Row], float | None]
_BEST: tuple[tuple[str, _Of, Callable[[float], str]], ...] = (
    ("most bandwidth", lambda row: row.bytes_per_second, lambda value: rate(value, "B/s")),
    ("most arithmetic", lambda row: row.flops_per_second, lambda value: rate(value, "FLOP/s")),
    ("most memory", lambda row: row.memory, units.count_bytes),
    ("longest call", lambda row: row.seconds, units.seconds),
)
"""Numbers of which the largest is told, and how."""
_LIMITS: tuple[tuple[str, _Of], ...] = (
    ("the measured peak", lambda row: row.of_peak.share if row.of_peak else None),
    ("the datasheet", lambda row: row.of_datasheet.share if row.of_datasheet else None),
)
"""What shares are of: the first that is known is told."""
_WITH_LAUNCH = "latency"
"""A device's launch is in it: no measure of what the device can do, where others were taken."""


def called(run_view: RunView) -> str:
    return printable(run_view.run.label or run_view.run.id)


def counts(rows: Iterable[Row]) -> list[Pair]:
    """How many of each status, what there is none of left out."""
    found = Counter(row.status for row in rows)
    return [Pair(WORDS[status], str(found[status])) for status in _STATUSES if found[status]]  # type: ignore[index]


def sentence(run_view: RunView) -> str:
    """One line: what became of it."""
    if not run_view.rows:
        planned = counted(run_view.run.tasks, "planned task")
        return f"no records yet of {planned}: the run was interrupted or has just begun"
    told = ", ".join(f"{pair.value} {pair.name}" for pair in counts(run_view.rows))
    return f"{counted(len(run_view.rows), 'case')}: {told}"


def unfinished(run_view: RunView) -> str:
    """How far a run is that was interrupted, or still goes on; otherwise empty."""
    if not run_view.rows or run_view.records >= run_view.run.tasks:
        return ""
    return f"{run_view.records} of {run_view.run.tasks} planned tasks have a record: interrupted, or still running"


def about(run_view: RunView) -> list[Pair]:
    run = run_view.run
    backends = dict.fromkeys(row.backend for row in run_view.rows)
    found = (
        Pair("run", printable(run.id)),
        Pair("label", printable(run.label)),
        Pair("started", moment(run.started)),
        Pair("took", lasting(sum(row.duration for row in run_view.rows)) if run_view.rows else ""),
        Pair("machine", machines(run_view)),
        Pair("chip", chips(run_view)),
        Pair("backends", printable(", ".join(backends))),
        Pair("opmark", printable(run.version)),
        Pair("revision", printable(short_revision(run.revision))),
        Pair("command", printable(run.command)),
        Pair("description", printable(run.description)),
    )
    return [pair for pair in found if pair.value]


def keys(run_view: RunView, href: dict[str, str]) -> list[Key]:
    """The numbers that stand for the run, of those that say something of an operator. `href`: of items, by key."""
    rows = [row for row in run_view.rows if row.status == "ok"]
    usable = [row for row in rows if row.usable]
    doubted = sum(bool(row.headline_cautions) for row in rows)
    found = [
        Key("measured", str(len(rows)), f"of {counted(len(run_view.rows), 'case')}"),
        Key("with cautions", str(doubted), "headline numbers to doubt; see below"),
    ]
    limits = ([*_shares(name, of, run_view.rows, href)] for name, of in _LIMITS)
    found += next(filter(None, limits), [])
    for name, of, shown in _BEST:
        found += _best(name, of, shown, usable, href)
    return found


def _best(name: str, of: _Of, shown: Callable[[float], str], rows: Sequence[Row], href: dict[str, str]) -> list[Key]:
    valued = [(value, row) for row in rows if (value := known(of(row)))]
    if not valued:
        return []
    value, row = max(valued, key=lambda one: one[0])
    return [Key(name, shown(value), printable(row.name), href.get(row.key, ""))]


def _shares(name: str, of: _Of, rows: Sequence[Row], href: dict[str, str]) -> Iterator[Key]:
    """Key numbers about a limit: the median of usable rows that were measured alike, the best that is possible, and how
    many of all rows are beyond that, which are those that have the caution."""
    shared = [row for row in rows if row.usable and known(of(row)) is not None]
    if not shared:
        return
    lead, alike = _alike(shared)
    middle = f"in the middle of {counted(len(alike), 'case')}, {lead}"
    yield Key(f"of {name}", percent(median([of(row) or 0.0 for row in alike])), middle)
    yield from _best(f"nearest to {name}", of, percent, [row for row in shared if not is_above(of(row) or 0.0)], href)
    above = sum(is_above(of(row) or 0.0) for row in rows)
    if above:
        yield Key(f"above {name}", str(above), "more than is possible: the limit, the cost or the clock is wrong")


def _alike(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """Rows whose headline is the same quantity: the most frequent one, but latency only where there is no other."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.headline:
            groups.setdefault(f"{row.headline.quantity} {row.headline.cache}", []).append(row)
    return max(groups.items(), key=lambda one: (not one[0].startswith(_WITH_LAUNCH), len(one[1])))
