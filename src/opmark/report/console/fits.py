"""Prints fits of latency and bandwidth: a plot of times over sizes in plain characters, and a table.

Both axes of the plot are logarithmic; each series has a symbol, and dots are the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from string import ascii_letters
from typing import NamedTuple

from rich.console import Console

from opmark import units
from opmark.analysis.fits import Fitted, fits_of, join_remarks, remarks
from opmark.analysis.rows import Row
from opmark.plugin.param import short_bytes
from opmark.report.console.table import gigabytes, print_prose, print_rows

_SYMBOLS = "ox+*#@%&=$" + ascii_letters.replace("o", "").replace("x", "")
_LINE = "."
_HEIGHT = 18
_NARROWEST, _WIDEST = 30, 120
_LABEL = 8
_APART = 8
"""Distance of the labels below the plot, in characters."""


def plot_text(fitted: Sequence[Fitted], width: int) -> str:
    """Return the plot of at least one series, as wide as the terminal within limits."""
    columns = max(_NARROWEST, min(width, _WIDEST)) - _LABEL - 2
    points = [point for one in fitted for point in one.points]
    across, up = axis((point.size for point in points), 2), axis((point.seconds for point in points), 10)
    canvas = [[" "] * columns for _ in range(_HEIGHT)]
    marks = list(islice(cycle(_SYMBOLS), len(fitted)))
    for one in fitted:
        _draw_line(canvas, one, across, up)
    for one, mark in zip(fitted, marks, strict=True):
        for point in one.points:
            _put(canvas, across.place(point.size), up.place(point.seconds), mark)
    labels = {_row(up, k): time_label(k) for k in up.ticks(_HEIGHT // 2)}
    lines = [f"{labels.get(i, ''):>{_LABEL}} |{''.join(cells)}".rstrip() for i, cells in enumerate(canvas)]
    legend = [f"{mark} {one.name}" for one, mark in zip(fitted, marks, strict=True)]
    fit = [f"{_LINE} alpha + size / algbw"] if any(one.fit for one in fitted) else []
    return "\n".join([*lines, *_x_axis(across, columns), "", *legend, *fit]) + "\n"


def _draw_line(canvas: list[list[str]], one: Fitted, across: PlotAxis, up: PlotAxis) -> None:
    """Draw the fit between the smallest and the largest size of the series."""
    if one.fit is None:
        return
    columns = len(canvas[0])
    for i in range(columns):
        place = i / (columns - 1)
        size = across.value(place)
        if one.points[0].size <= size <= one.points[-1].size and (time := one.fit.time(size)) > 0:
            _put(canvas, place, up.place(time), _LINE)


def _put(canvas: list[list[str]], across: float, up: float, mark: str) -> None:
    """Draw a mark if it is inside of the canvas. Points cover lines, and earlier points cover later ones."""
    row, column = round((1 - up) * (len(canvas) - 1)), round(across * (len(canvas[0]) - 1))
    if 0 <= row < len(canvas) and canvas[row][column] in (" ", _LINE):
        canvas[row][column] = mark


def _row(up: PlotAxis, exponent: int) -> int:
    return round((1 - (exponent - up.low) / (up.high - up.low)) * (_HEIGHT - 1))


def _x_axis(across: PlotAxis, columns: int) -> list[str]:
    ruler, text = ["-"] * columns, [" "] * (columns + _APART)
    for k in across.ticks(columns // _APART):
        column = round((k - across.low) / (across.high - across.low) * (columns - 1))
        ruler[column] = "+"
        label = short_bytes(1 << k)
        start = max(0, column - len(label) // 2)
        text[start : start + len(label)] = label
    margin = " " * (_LABEL + 2)
    return [margin[:-1] + "+" + "".join(ruler), (margin + "".join(text)).rstrip(), f"{margin}bytes"]


# Logarithmic axes: decades for a time, powers of two for a size.

_STEPS = (1, 2, 5, 10)
"""Possible distances of labels, in exponents."""


class PlotAxis(NamedTuple):
    base: int
    low: int
    """Exponent at the beginning."""
    high: int
    """Exponent at the end, always above `low`."""

    def place(self, value: float) -> float:
        """Return the position of a value, between 0 and 1."""
        return (math.log(value, self.base) - self.low) / (self.high - self.low)

    def value(self, place: float) -> float:
        return math.pow(self.base, self.low + place * (self.high - self.low))

    def ticks(self, most: int) -> list[int]:
        """Return at most `most` exponents to label, at equal distances."""
        for step in _STEPS:
            found = [k for k in range(self.low, self.high + 1) if k % step == 0]
            if len(found) <= most:
                break
        return found


def axis(values: Iterable[float], base: int) -> PlotAxis:
    """Return the axis from the power below the least value to the power above the greatest."""
    found = list(values)
    low = math.floor(math.log(min(found), base) + 1e-9)
    high = math.ceil(math.log(max(found), base) - 1e-9)
    return PlotAxis(base, low, max(high, low + 1))


def time_label(exponent: int) -> str:
    """Return the label of a power of ten in seconds: `100 µs` for -4."""
    scale, unit = units.seconds_unit(
        10.0**exponent * 1.000001
    )  # in binary, a computed power of ten may be slightly too small
    return f"{10.0**exponent / scale:.6g} {unit}"


_HEADS = ("fit", "parameters", "backend", "sizes", "alpha", "algbw GB/s", "busbw GB/s", "half at", "off by", "")
LEGEND = "fit: time = alpha + size / algbw; messages of `half at`, alpha x algbw, reach half of algbw"


def print_fits(found: Sequence[Row], console: Console) -> None:
    """Print fits below the table of a run, if there are enough sizes."""
    fitted = [one for one in fits_of(found) if one.fit]
    if fitted:
        console.print()
        print_fit_table(fitted, console)
        print_prose(LEGEND, console)


def print_fit_table(fitted: Sequence[Fitted], console: Console) -> None:
    print_rows(_HEADS, [list(_cells(one)) for one in fitted], console, who=3)


def _cells(one: Fitted) -> Iterator[str]:
    """Yield the cells of a fit. Numbers that the sizes do not determine are empty; the last cell says why."""
    yield from (one.op, one.parameters, one.where, _range(one))
    line = one.fit
    yield units.seconds(line.alpha) if line and line.alpha is not None else ""
    for rate in (line.beta if line else None, one.bus_bandwidth):
        yield gigabytes(rate) if rate else ""
    yield units.count_bytes(round(line.half_size)) if line and line.half_size is not None else ""
    yield units.percent(line.worst) if line else ""
    yield join_remarks(remarks(one))


def _range(one: Fitted) -> str:
    """Return the range of sizes, written as in the rows of a run."""
    first, last = (one.size_of(one.points[i]) for i in (0, -1))
    return f"{len(one.points)}: {first}..{last}" if len(one.points) > 1 else first
