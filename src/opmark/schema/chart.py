"""Chart: a figure as numbers. Who draws it knows nothing of operators; who makes it knows nothing of pixels."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unit = Literal["s", "J", "B", "B/s", "flop/s", "flop/B", "share", "ratio", "count", ""]
"""Base units, as everywhere; `share` is a part of 1 and shown in percent, `ratio` a factor around 1."""
Scale = Literal["linear", "log", "log2", "category"]
"""`log2`: ticks at powers of two, for sizes and threads. `category`: values are places in `Axis.names`, from 0."""
Shape = Literal["points", "line", "band", "bars", "cells", "steps"]
"""`line` has no points. `band` is a line with points, and its intervals as an area. `steps`: a level until the next."""
Role = Literal["data", "ceiling", "guide", "alarm"]
"""`ceiling`: a limit of the hardware. `guide`: what would be ideal. `alarm`: what a reader should see first."""


class Axis(Struct, frozen=True):
    title: str
    unit: Unit
    scale: Scale
    names: tuple[str, ...] = ()
    """Names of the places of a category axis."""
    most: float | None = None
    """Where it ends, if not where the data does: what lies beyond is drawn at its edge."""


class Mark(Struct, frozen=True):
    """One dot, bar or cell: a row of the table of numbers beside the figure."""

    x: float
    y: float
    label: str = ""
    """What it is of, as people read it."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of the value: of y; in `bars`, where values go to the right, of x."""
    value: float | None = None
    """Value of a cell, whose x and y are places in two lists of names."""
    link: str = ""
    """The key of the item that it is of, if it is of one."""
    note: str = ""
    unsure: bool = False
    """An interval that it should have is not known: it is drawn hollow, as nothing says how near it is."""


class Series(Struct, frozen=True):
    name: str
    marks: tuple[Mark, ...]
    shape: Shape = "points"
    role: Role = "data"
    stated: bool = False
    """Somebody says so (a datasheet) and nobody measured it: it is drawn dashed, so that the two are not mistaken."""


class Rule(Struct, frozen=True):
    """A line across the figure, or with `to` the stretch between two values."""

    across: Literal["x", "y"]
    """The axis on which `at` lies."""
    at: float
    name: str
    to: float | None = None


class Count(Struct, frozen=True):
    """How many values lie in a stretch of the axis; in the last also those beyond its end."""

    low: float
    high: float
    number: int


class Chart(Struct, frozen=True):
    """Numbers are finite, and positive where a scale is logarithmic: who makes it says in `notes` what it left out."""

    id: str
    """Unique within a page, fit for an address: letters, digits, `-`."""
    title: str
    about: str
    """How to read it, in a sentence."""
    kind: Literal["plot", "bars", "heatmap", "samples"]
    """`plot`: two axes of numbers. `bars`: names downwards, values to the right. `samples`: a plot of values in the
    order taken, with a histogram of them along the right edge."""
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    values: Axis | None = None
    """What the cells of a heatmap tell."""
    notes: tuple[str, ...] = ()
    """What was left out, and why; what is doubtful."""
    spread: tuple[Count, ...] = ()
    """For `samples`, the histogram of all values, with those that have no mark."""

    def marks(self) -> list[tuple[Series, Mark]]:
        """In their order: the rows of its table."""
        return [(series, mark) for series in self.series for mark in series.marks]
