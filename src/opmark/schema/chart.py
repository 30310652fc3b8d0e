"""Chart: a figure as numbers. The code that draws it knows no operators; the code that makes it knows no pixels."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unit = Literal["s", "J", "B", "B/s", "flop/s", "flop/B", "share", "ratio", "count", ""]
"""Base units, as everywhere; `share` is a fraction of 1 and shown in percent, `ratio` a factor around 1."""
Scale = Literal["linear", "log", "log2", "category"]
"""`log2`: ticks at powers of two, for sizes and threads. `category`: values are indices into `Axis.names`."""
Shape = Literal["points", "line", "band", "bars", "cells", "steps"]
"""`line` has no points. `band` is a line with points and its intervals as an area. `steps` holds a level to the
next."""
Role = Literal["data", "ceiling", "guide", "alarm"]
"""`ceiling`: a limit of the hardware. `guide`: the ideal. `alarm`: draws the reader's eye first."""


class Axis(Struct, frozen=True):
    title: str
    unit: Unit
    scale: Scale
    names: tuple[str, ...] = ()
    """Names of the categories, for a category axis."""
    most: float | None = None
    """Upper end of the axis, if it should not follow the data: marks beyond it are drawn at the edge."""


class Mark(Struct, frozen=True):
    """One dot, bar or cell, and one row of the table of numbers beside the figure."""

    x: float
    y: float
    label: str = ""
    """What the mark stands for, as people read it."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of y; in `bars`, where values go to the right, of x."""
    value: float | None = None
    """Value of a cell, whose x and y are indices into two lists of names."""
    link: str = ""
    """Key of the item that the mark shows, if it shows one item."""
    note: str = ""
    unsure: bool = False
    """The mark should have an interval, but that is not known: it is drawn hollow."""


class ChartSeries(Struct, frozen=True):
    name: str
    marks: tuple[Mark, ...]
    shape: Shape = "points"
    role: Role = "data"
    stated: bool = False
    """The values come from a datasheet and not from a measurement: the series is drawn dashed."""


class ReferenceLine(Struct, frozen=True):
    """A line across the figure; with `to`, the stretch between two values."""

    across: Literal["x", "y"]
    """The axis on which `at` lies."""
    at: float
    name: str
    to: float | None = None


class HistogramBin(Struct, frozen=True):
    """One bin of a histogram: how many values lie in it. The last bin also counts values beyond its end."""

    low: float
    high: float
    number: int


class Chart(Struct, frozen=True):
    """A figure. Numbers are finite, and positive on a logarithmic scale; `notes` say what was left out for that."""

    id: str
    """Unique within a page and usable in a URL: letters, digits, `-`."""
    title: str
    about: str
    """One sentence on how to read the figure."""
    kind: Literal["plot", "bars", "heatmap", "samples"]
    """`plot`: two axes of numbers. `bars`: names downwards, values to the right. `samples`: a plot of values in the
    order taken, with a histogram of them along the right edge."""
    x: Axis
    y: Axis
    series: tuple[ChartSeries, ...]
    rules: tuple[ReferenceLine, ...] = ()
    values: Axis | None = None
    """For a heatmap: the quantity of its cells."""
    notes: tuple[str, ...] = ()
    """What was left out and why, and which numbers are doubtful."""
    spread: tuple[HistogramBin, ...] = ()
    """For `samples`: the histogram of all values, also those that have no mark."""

    def marks(self) -> list[tuple[ChartSeries, Mark]]:
        """Return every mark with its series, in the order of the table of numbers."""
        return [(series, mark) for series in self.series for mark in series.marks]
