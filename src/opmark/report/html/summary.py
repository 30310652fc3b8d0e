"""What a run is and what became of it, in a few words and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
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


_BEST: tuple[tuple[str, Callable[[Item], float | None], Callable[[float], str]], ...] = (
    ("nearest to the peak", lambda item: item.of_peak.share if item.of_peak else None, percent),
    ("most bandwidth", lambda item: item.bytes_per_second, lambda value: rate(value, "B/s")),
    ("most arithmetic", lambda item: item.flops_per_second, lambda value: rate(value, "FLOP/s")),
    ("most memory", lambda item: item.memory, units.count_bytes),
    ("longest call", lambda item: item.seconds, units.seconds),
)
"""Numbers of which the largest is told, and how."""


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
    """The numbers that stand for the run. `href`: of items, by key."""
    items = [item for item in looked.items if item.status == "ok"]
    found = [
        Key("measured", str(len(items)), f"of {counted(len(looked.items), 'case')}"),
        Key("with cautions", str(sum(bool(item.cautions) for item in items)), "numbers to doubt; see below"),
    ]
    shares = [item.of_peak.share for item in items if item.of_peak and known(item.of_peak.share) is not None]
    if shares:
        middle = f"in the middle of {counted(len(shares), 'case')}"
        found.append(Key("of the measured peak", percent(median(shares)), middle))
    for name, of, shown in _BEST:
        valued = [(value, item) for item in items if (value := known(of(item)))]
        if valued:
            value, item = max(valued, key=lambda one: one[0])
            found.append(Key(name, shown(value), printable(item.name), href.get(item.key, "")))
    return found
