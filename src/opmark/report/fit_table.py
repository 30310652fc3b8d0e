"""Fits as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from opmark import units
from opmark.analysis.rows import Row
from opmark.report.fits import Fitted, fits_of, remarks, said
from opmark.report.tables import gigabytes, print_rows

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
    """What the sizes cannot tell has no number; the last cell says why."""
    yield from (one.op, one.parameters, one.where, _range(one))
    line = one.fit
    yield units.seconds(line.alpha) if line and line.alpha is not None else ""
    for rate in (line.beta if line else None, one.bus_bandwidth):
        yield gigabytes(rate) if rate else ""
    yield units.count_bytes(round(line.half_size)) if line and line.half_size is not None else ""
    yield units.percent(line.worst) if line else ""
    yield said(remarks(one))


def _range(one: Fitted) -> str:
    """As the rows of a run have them."""
    first, last = (one.size_of(one.points[i]) for i in (0, -1))
    return f"{len(one.points)}: {first}..{last}" if len(one.points) > 1 else first
