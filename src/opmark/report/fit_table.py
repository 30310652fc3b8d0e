"""Fits as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.metrics.alpha_beta import Fit
from opmark.report.communication import gigabytes
from opmark.report.fits import Fitted, Point, fits_of
from opmark.report.rows import Row
from opmark.report.tables import print_rows
from opmark.schema.shown import short_bytes

_HEADS = ("fit", "parameters", "backend", "sizes", "alpha", "algbw GB/s", "busbw GB/s", "half at", "off by", "")
LEGEND = "fit: time = alpha + size / algbw; messages of `half at`, alpha x algbw, reach half of algbw"


def print_fits(found: Sequence[Row], console: Console) -> None:
    """Beneath the table of a run, where there are sizes enough."""
    fitted = [one for one in fits_of(found) if one.fit]
    if fitted:
        console.print()
        print_fit_table(fitted, console)
        console.print(Text(LEGEND), soft_wrap=True)


def print_fit_table(fitted: Sequence[Fitted], console: Console) -> None:
    print_rows(_HEADS, [list(_cells(one)) for one in fitted], console, who=3)


def _cells(one: Fitted) -> Iterator[str]:
    yield from (one.op, one.parameters, one.where, _range(one.points))
    line = one.fit
    if line is None:
        yield from ("", "", "", "", "", f"no fit: {one.reason}")
        return
    yield units.seconds(line.alpha) if line.alpha else "0 s"
    for rate in (line.beta, one.bus_bandwidth):
        yield gigabytes(rate) if rate else ""
    yield "" if line.half_size is None else units.count_bytes(round(line.half_size))
    yield units.percent(line.worst)
    yield _doubt(line)


def _doubt(line: Fit) -> str:
    """What one line hides is said."""
    if line.off:
        return f"! not one line: worst at {short_bytes(line.worst_at)}; another protocol or cache for other sizes?"
    return "" if line.beta else "the time does not grow with the size"


def _range(points: Sequence[Point]) -> str:
    first, last = (short_bytes(points[i].size) for i in (0, -1))
    return f"{len(points)}: {first}..{last}" if len(points) > 1 else first
