"""The roofline: operations a second over operations a byte, below what the chip can do at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from opmark import units
from opmark.analysis.rows import Row, RunView
from opmark.charts.ceilings import ceilings, unknown
from opmark.charts.common import LATENCY, LAUNCHED, NOWHERE, Left, Place, doubts, places, rank, timed, unique, why_out
from opmark.charts.dots import Dot, thinned
from opmark.charts.parts import address, called
from opmark.schema.chart import Axis, Chart, Mark, Series
from opmark.schema.dtype import DTYPES
from opmark.schema.quantity import CACHES

MOST_DTYPES = 3
"""Element types in one picture; of more, those of one kind and width share one."""
MOST_SERIES = 8
"""Series that can be told apart; where there would be more, element types are not series of their own."""
MOST_DOTS = 3000
"""In one picture: more are slow to look at, and lie on each other."""

MOVES_ONLY = "with data to move and no arithmetic: the table and the figures over size tell the bandwidth"
UNCOUNTED = "whose floating-point operations nobody can count"
NO_BYTES = "without bytes to move, or nobody knows how many"
_X = Axis("operational intensity", "flop/B", "log")
_Y = Axis("floating-point operations a second", "flop/s", "log")
_ABOUT = (
    "Each dot is a case in one state of the caches. Under a slanted line memory or a cache is the limit, under a level "
    "one arithmetic; what lies between a dot and its line could be gained."
)
_DASHED = " Solid lines were measured, dashed ones are what the datasheet states."


@dataclass
class _Group:
    """What ran in one place."""

    place: Place
    dots: list[Dot] = field(default_factory=list)
    left: Left = field(default_factory=Left)


def roofline(run_view: RunView) -> list[Chart]:
    """One a chip with its limits, or one a kind of element type where there are many."""
    where, groups = places(run_view), dict[str, _Group]()
    for row in run_view.rows:
        place = where.get(row.environment, NOWHERE)
        group = groups.setdefault(place.key, _Group(place))
        if reason := _why_out(row):
            group.left.out(reason)
        else:
            group.dots.extend(_dots(row, group.left))
    charts = [chart for group in groups.values() if group.dots for chart in _of_place(group)]
    untold = [note for group in groups.values() if not group.dots for note in group.left.notes()]
    if charts and untold:  # of a place without a picture
        charts[0] = replace(charts[0], notes=(*charts[0].notes, *untold))
    return unique(charts)


def _why_out(row: Row) -> str:
    if reason := why_out(row):
        return reason
    if not row.flops:
        return UNCOUNTED if row.flops is None else MOVES_ONLY
    return "" if row.bytes else NO_BYTES


def _dots(row: Row, left: Left) -> Iterator[Dot]:
    """The headline in each state of the caches; the other quantities have the launch in them, or are no times."""
    first, moved, flops = row.headline, row.bytes or 1, row.flops or 0
    for timing in row.timings:
        if first is None or timing.quantity != first.quantity:
            continue
        if timed(timing) and timing.median:
            yield Dot(row, timing, flops / moved, flops / timing.median)
        else:
            left.out(f"without a median above 0 where caches are {timing.cache}")


def _of_place(group: _Group) -> Iterator[Chart]:
    kinds: dict[str, list[Dot]] = {}
    several = len({dot.row.dtype for dot in group.dots}) > MOST_DTYPES
    for dot in group.dots:
        kinds.setdefault(_kind(dot.row.dtype) if several else "", []).append(dot)
    for i, (kind, dots) in enumerate(kinds.items()):
        yield _chart(group.place, kind, dots, group.left.notes() if i == 0 else ())


def _kind(dtype: str) -> str:
    """Element types that have about the same ceiling."""
    known = DTYPES.get(dtype)
    if known is None:
        return dtype or "no element type"
    return {"float": f"{8 * known.size}-bit floats", "complex": "complex numbers"}.get(known.kind, "integers")


def _chart(place: Place, kind: str, dots: Sequence[Dot], notes: tuple[str, ...]) -> Chart:
    shown = thinned(dots, MOST_DOTS, lambda dot: dot.spot)
    dtypes = sorted({dot.row.dtype for dot in dots}, key=rank)
    lines = ceilings(place.machine, dtypes, [dot.intensity for dot in shown], warm=_any_warm(shown))
    hidden = len(dots) - len(shown)
    covered = f"left out: {units.counted(hidden, 'dot')} near others of their kind; choose operators to see all"
    return Chart(
        id=address("roofline", place.name, kind),
        title=f"Roofline of {place.name}" + (f", {kind}" if kind else ""),
        about=_ABOUT + (_DASHED if any(line.stated for line in lines) else ""),
        kind="plot",
        x=_X,
        y=_Y,
        series=(*lines, *_series(shown, dtypes)),
        notes=(*_launched(place, dots), *unknown(place, dtypes), *([covered] if hidden else []), *notes),
    )


def _launched(place: Place, dots: Sequence[Dot]) -> Iterator[str]:
    if place.device and any(dot.timing.quantity == LATENCY for dot in dots):
        yield LAUNCHED


def _any_warm(dots: Sequence[Dot]) -> bool:
    return any(dot.timing.cache == "warm" for dot in dots)


def _series(dots: Sequence[Dot], dtypes: Sequence[str]) -> Iterator[Series]:
    """By backend and quantity, the coldest first; by element type as well, while these can be told apart. The quantity
    is named where it is not the same for all."""
    found: dict[tuple[str, str, str, str], list[Mark]] = {}
    for dot in dots:
        key = (dot.row.backend, dot.timing.quantity, dot.timing.cache, dot.row.dtype)
        found.setdefault(key, []).append(_mark(dot))
    told = len({quantity for _, quantity, _, _ in found}) > 1
    apart = len(dtypes) > 1 and len(found) <= MOST_SERIES
    for backend, quantity in dict.fromkeys(key[:2] for key in found):
        for cache in CACHES:
            name = ", ".join([backend, *([quantity] if told else []), cache])
            own = {dtype: marks for dtype in dtypes if (marks := found.get((backend, quantity, cache, dtype)))}
            if apart:
                yield from (Series(f"{name}, {dtype}", tuple(marks)) for dtype, marks in own.items())
            elif own:
                yield Series(name, tuple(mark for marks in own.values() for mark in marks))


def _mark(dot: Dot) -> Mark:
    row, timing = dot.row, dot.timing
    said = [f"{timing.quantity} {units.seconds(timing.median or 0)}"]
    if timing is row.headline and (share := row.of_peak or row.of_datasheet):
        of = "measured" if row.of_peak else "datasheet's"
        said.append(f"{units.percent(share.share)} of the {of} peak ({share.bound})")
    said += filter(None, [doubts(timing)])
    return Mark(dot.intensity, dot.rate, called(row), link=row.key, note="; ".join(said))
