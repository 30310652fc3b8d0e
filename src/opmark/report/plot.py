"""Times over sizes on a terminal, in plain characters: both axes logarithmic, a symbol a series, dots for the fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from string import ascii_letters

from opmark.report.axes import Axis, axis, time_label
from opmark.report.fits import Fitted
from opmark.schema.shown import short_bytes

_SYMBOLS = "ox+*#@%&=$" + ascii_letters.replace("o", "").replace("x", "")
_LINE = "."
_HEIGHT = 18
_NARROWEST, _WIDEST = 30, 120
_LABEL = 8
_APART = 8
"""Columns from label to label beneath the plot."""


def plot_text(fitted: Sequence[Fitted], width: int) -> str:
    """At least one series; as wide as there is room, within reason."""
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
    return "\n".join([*lines, *_beneath(across, columns), "", *legend, *fit]) + "\n"


def _draw_line(canvas: list[list[str]], one: Fitted, across: Axis, up: Axis) -> None:
    """Between the smallest and the largest size of the series."""
    if one.fit is None:
        return
    columns = len(canvas[0])
    for i in range(columns):
        place = i / (columns - 1)
        size = across.value(place)
        if one.points[0].size <= size <= one.points[-1].size and (time := one.fit.time(size)) > 0:
            _put(canvas, place, up.place(time), _LINE)


def _put(canvas: list[list[str]], across: float, up: float, mark: str) -> None:
    """What is outside is not drawn; a point goes over a line, and the first point over later ones."""
    row, column = round((1 - up) * (len(canvas) - 1)), round(across * (len(canvas[0]) - 1))
    if 0 <= row < len(canvas) and canvas[row][column] in (" ", _LINE):
        canvas[row][column] = mark


def _row(up: Axis, exponent: int) -> int:
    return round((1 - (exponent - up.low) / (up.high - up.low)) * (_HEIGHT - 1))


def _beneath(across: Axis, columns: int) -> list[str]:
    ruler, text = ["-"] * columns, [" "] * (columns + _APART)
    for k in across.ticks(columns // _APART):
        column = round((k - across.low) / (across.high - across.low) * (columns - 1))
        ruler[column] = "+"
        label = short_bytes(1 << k)
        start = max(0, column - len(label) // 2)
        text[start : start + len(label)] = label
    margin = " " * (_LABEL + 2)
    return [margin[:-1] + "+" + "".join(ruler), (margin + "".join(text)).rstrip(), f"{margin}bytes"]
