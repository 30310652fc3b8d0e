"""What a run is and what became of it, in a few words and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from opmark import units
from opmark.report.html.environment import chips, machines
from opmark.report.html.failures import ORDER, WORDS
from opmark.report.html.text import known, lasting, moment, percent, rate
from opmark.report.plain import printable
from opmark.schema.item import Item, Looked
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


_Of = Callable[[Item], float | None]
_BEST: tuple[tuple[str, _Of, Callable[[float], str]], ...] = (
    ("most bandwidth", lambda item: item.bytes_per_second, lambda value: rate(value, "B/s")),
    ("most arithmetic", lambda item: item.flops_per_second, lambda value: rate(value, "FLOP/s")),
    ("most memory", lambda item: item.memory, units.count_bytes),
    ("longest call", lambda item: item.seconds, units.seconds),
)
"""Numbers of which the largest is told, and how."""
_LIMITS: tuple[tuple[str, _Of], ...] = (
    ("the measured peak", lambda item: item.of_peak.share if item.of_peak else None),
    ("the datasheet", lambda item: item.of_datasheet.share if item.of_datasheet else None),
)
"""What shares are of: the first that is known is told."""
_WITH_LAUNCH = "latency"
"""A device's launch is in it: no measure of what the device can do, where others were taken."""


def called(looked: Looked) -> str:
    return printable(looked.run.label or looked.run.id)


def counts(items: Iterable[Item]) -> list[Pair]:
    """How many of each status, what there is none of left out."""
    found = Counter(item.status for item in items)
    return [Pair(WORDS[status], str(found[status])) for status in _STATUSES if found[status]]  # type: ignore[index]


def sentence(looked: Looked) -> str:
    """One line: what became of it."""
    if not looked.items:
        return (
            f"no records yet of {counted(looked.run.tasks, 'planned task')}: the run was interrupted or has just begun"
        )
    told = ", ".join(f"{pair.value} {pair.name}" for pair in counts(looked.items))
    return f"{counted(len(looked.items), 'case')}: {told}"


def unfinished(looked: Looked) -> str:
    """Of a run that was interrupted, or still goes on."""
    if not looked.items or looked.records >= looked.run.tasks:
        return ""
    return f"{looked.records} of {looked.run.tasks} planned tasks have a record: interrupted, or still running"


def about(looked: Looked) -> list[Pair]:
    run = looked.run
    backends = dict.fromkeys(item.backend for item in looked.items)
    found = (
        Pair("run", printable(run.id)),
        Pair("label", printable(run.label)),
        Pair("started", moment(run.started)),
        Pair("took", lasting(sum(item.duration for item in looked.items)) if looked.items else ""),
        Pair("machine", machines(looked)),
        Pair("chip", chips(looked)),
        Pair("backends", printable(", ".join(backends))),
        Pair("opmark", printable(run.version)),
        Pair("revision", printable(short_revision(run.revision))),
        Pair("command", printable(run.command)),
        Pair("description", printable(run.description)),
    )
    return [pair for pair in found if pair.value]


def keys(looked: Looked, href: dict[str, str]) -> list[Key]:
    """The numbers that stand for the run, of those that say something of an operator. `href`: of items, by key."""
    items = [item for item in looked.items if item.status == "ok"]
    usable = [item for item in items if item.usable]
    doubted = sum(bool(item.headline_cautions) for item in items)
    found = [
        Key("measured", str(len(items)), f"of {counted(len(looked.items), 'case')}"),
        Key("with cautions", str(doubted), "headline numbers to doubt; see below"),
    ]
    limits = ([*_shares(name, of, usable, href)] for name, of in _LIMITS)
    found += next(filter(None, limits), [])
    for name, of, shown in _BEST:
        found += _best(name, of, shown, usable, href)
    return found


def _best(name: str, of: _Of, shown: Callable[[float], str], items: Sequence[Item], href: dict[str, str]) -> list[Key]:
    valued = [(value, item) for item in items if (value := known(of(item)))]
    if not valued:
        return []
    value, item = max(valued, key=lambda one: one[0])
    return [Key(name, shown(value), printable(item.name), href.get(item.key, ""))]


def _shares(name: str, of: _Of, items: Sequence[Item], href: dict[str, str]) -> Iterator[Key]:
    """Of a limit: the middle of those that were measured alike, the best that is possible, and how many are not."""
    shared = [item for item in items if known(of(item)) is not None]
    if not shared:
        return
    lead, alike = _alike(shared)
    middle = f"in the middle of {counted(len(alike), 'case')}, {lead}"
    yield Key(f"of {name}", percent(median([of(item) or 0.0 for item in alike])), middle)
    yield from _best(f"nearest to {name}", of, percent, [item for item in shared if (of(item) or 0.0) <= 1.0], href)
    above = len([item for item in shared if (of(item) or 0.0) > 1.0])
    if above:
        yield Key(f"above {name}", str(above), "more than is possible: the limit, the cost or the clock is wrong")


def _alike(items: Sequence[Item]) -> tuple[str, list[Item]]:
    """Those whose headline is the same quantity: the most frequent one, but latency only where there is no other."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        if item.headline:
            groups.setdefault(f"{item.headline.quantity} {item.headline.cache}", []).append(item)
    return max(groups.items(), key=lambda one: (not one[0].startswith(_WITH_LAUNCH), len(one[1])))
