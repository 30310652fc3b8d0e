"""Maps values to places on an axis, from 0 to 1, and these to the picture; chooses the range and the ticks of an axis.

Ranges are those of the data with a little air, not whole decades."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from opmark import units
from opmark.schema.chart import Axis, Chart, ChartSeries, Mark, ReferenceLine, Unit

LARGEST = 1e300
"""Beyond it (and, on a logarithmic axis, below its inverse) the arithmetic of an axis would overflow."""
_AIR = 0.04
"""Share of the range that is left free at either end."""
_ALIKE = 1e-9
"""Relative: values that are nearer to each other have no range of their own."""
_NEAR_ZERO = 0.35
"""If the least value is below this part of the greatest, 0 is worth showing."""
_FARTHEST = 307.0
"""Exponents of ten that a number can have."""
_DECADES = math.log10(3)
"""Air on either side of what has no range."""


class Linear(NamedTuple):
    low: float
    high: float

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def value(self, place: float) -> float:
        return self.low + place * (self.high - self.low)


class Log(NamedTuple):
    low: float
    high: float
    """Exponents of ten."""
    base: int = 10
    """Ticks are at its powers."""

    def place(self, value: float) -> float:
        return self.place_of_power(math.log10(value))

    def place_of_power(self, exponent: float) -> float:
        return min(1.0, max(0.0, (exponent - self.low) / (self.high - self.low)))

    def value(self, place: float) -> float:
        return math.pow(10, self.low + place * (self.high - self.low))


class Places(NamedTuple):
    """A place for each name, in the middle of its stretch."""

    names: tuple[str, ...]

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, (value + 0.5) / max(1, len(self.names))))

    def value(self, place: float) -> float:
        return place * max(1, len(self.names)) - 0.5


Scaled = Linear | Log | Places


class Panel(NamedTuple):
    """The rectangle of a picture in which marks lie."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, place: float) -> float:
        return self.left + place * self.width

    def up(self, place: float) -> float:
        return self.top + (1 - place) * self.height

    def down(self, place: float) -> float:
        return self.top + place * self.height


def is_drawable(axis: Axis, value: float | None) -> bool:
    """Whether the value has a place on such an axis; NaN has none."""
    if value is None or not abs(value) < LARGEST:
        return False
    if axis.scale == "category":
        return -0.5 <= value <= len(axis.names) - 0.5
    return axis.scale == "linear" or value > 1 / LARGEST


def fit_scale(axis: Axis, values: Iterable[float], *, zero: bool = False) -> Scaled:
    """Return a scale on which all values lie, unless the axis has an end of its own. `zero` is for bars, whose foot is
    at 0."""
    if axis.scale == "category":
        return Places(axis.names)
    found = [value if axis.most is None else min(value, axis.most) for value in values]
    if axis.scale != "linear":
        base = 2 if axis.scale == "log2" else 10
        low, high = math.log10(min(found, default=1.0)), math.log10(max(found, default=10.0))
        if high - low <= _ALIKE:
            return Log(low - _DECADES, high + _DECADES, base)
        air = _AIR * (high - low)
        return Log(max(low - air, -_FARTHEST), min(high + air, _FARTHEST), base)
    if zero:
        found.append(0.0)
    low, high = min(found, default=0.0), max(found, default=1.0)
    largest = max(abs(low), abs(high))
    if high - low <= max(_ALIKE * largest, 1 / LARGEST):
        around = largest * 0.05 if largest > 1 / LARGEST else 1.0
        return Linear(low - around, high + around)
    if 0 < low <= _NEAR_ZERO * high:
        low = 0.0
    elif _NEAR_ZERO * low <= high < 0:
        high = 0.0
    air = _AIR * (high - low)
    return Linear(low - air if low else 0.0, high + air if high else 0.0)


# Numbers as people write them: `10 µs`, `64 KiB`, `1 TFLOP/s`, `50 %`; for ticks, and with more digits for tables.

NO_NUMBER = "no number"
_WRITTEN: dict[Unit, str] = {"flop/s": "FLOP/s", "flop/B": "FLOP/B"}
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LONG = 10_000
"""Counts below it are written in full."""
_UP = 1 + 1e-9
"""In binary, a power of ten may be a little less than itself."""
_MOST_DECIMALS = 9


def title_with_unit(axis: Axis) -> str:
    """Return the title of an axis, with the unit if its ticks do not have it."""
    unit = _WRITTEN.get(axis.unit, axis.unit)
    alone = axis.unit == "flop/B" and unit.lower() not in axis.title.lower()
    return f"{axis.title} ({unit})" if alone else axis.title


def format_round(value: float, unit: Unit, *, binary: bool = False) -> str:
    """Return a round number, with the prefix that suits it."""
    divisor, name = _prefix(value, unit, binary)
    return f"{value / divisor:.4g} {name}".rstrip()


def format_evenly(values: Sequence[float], unit: Unit) -> list[str]:
    """Return evenly spaced numbers, all with one prefix and the same number of decimals."""
    if not values:
        return []
    divisor, name = _prefix(max(map(abs, values)), unit, False)
    step = min((b - a for a, b in pairwise(values)), default=values[0]) / divisor
    decimals = max(0, -math.floor(math.log10(abs(step)) + 1e-6)) if step else 0
    found = []
    for value in (value / divisor for value in values):
        text = f"{value:.{decimals}f}" if decimals <= _MOST_DECIMALS and abs(value) < 1e12 else f"{value:.12g}"
        found.append(f"{'0' if float(text) == 0 else text} {name}".rstrip())
    return found


def format_exactly(value: float | None, axis: Axis, digits: int = 4) -> str:
    """Return a number for a table, with its unit and enough digits to compute with."""
    unit = axis.unit
    if value is None:
        return ""
    if not math.isfinite(value):
        return NO_NUMBER
    if axis.scale == "category":
        return axis.names[round(value)] if 0 <= round(value) < len(axis.names) else NO_NUMBER
    if unit == "share":
        return f"{units.significant(100 * value, digits - 1)} %"
    if unit in ("count", "") and value == int(value):
        return str(int(value))
    if unit in ("flop/B", "ratio", "count", ""):
        return units.significant(value, digits) + (f" {_WRITTEN[unit]}" if unit == "flop/B" else "")
    if unit in ("s", "J"):
        divisor, name = units.small_unit(value * _UP, unit)
        return f"{units.significant(value / divisor, digits)} {name}"
    divisor, name = _prefix(value, unit, False)
    shown = value / divisor
    return f"{int(shown) if shown == int(shown) else units.significant(shown, digits)} {name}"


def _prefix(value: float, unit: Unit, binary: bool) -> tuple[float, str]:
    """Return the size of the unit in which the value reads best, and its name."""
    value = abs(value) * _UP
    if unit in ("s", "J"):
        return units.small_unit(value, unit)
    if unit == "share":
        return 0.01, "%"
    if unit in ("ratio", "flop/B", "") or (unit == "count" and value < _LONG):
        return 1.0, ""
    prefixes = _BINARY if unit == "B" or binary else _DECIMAL
    base = 1024 if prefixes is _BINARY else 1000
    power = 0
    while value >= base and power < len(prefixes) - 1:
        value, power = value / base, power + 1
    return float(base**power), prefixes[power] + ("" if unit == "count" else _WRITTEN.get(unit, unit))


# Selects the marks of a chart that have a place in the picture; a chart may have others as well.


class DrawableMark(NamedTuple):
    i: int
    """Number of its row in the table of numbers."""
    mark: Mark
    ends: tuple[float, float] | None
    """Its interval if both ends have a place: half an interval would look like a certain end."""


class DrawableSeries(NamedTuple):
    series: ChartSeries
    marks: list[DrawableMark]


def select_marks(chart: Chart) -> list[DrawableSeries]:
    axis, found, row = chart.x if chart.kind == "bars" else chart.y, [], 0
    for series in chart.series:
        own = []
        for i, mark in enumerate(series.marks, row):
            told = chart.values is None or mark.value is None or is_drawable(chart.values, mark.value)
            if told and is_drawable(chart.x, mark.x) and is_drawable(chart.y, mark.y):
                ends = None
                if mark.low is not None and mark.high is not None:
                    whole = is_drawable(axis, mark.low) and is_drawable(axis, mark.high)
                    ends = (mark.low, mark.high) if whole else None
                own.append(DrawableMark(i, mark, ends))
        found.append(DrawableSeries(series, own))
        row += len(series.marks)
    return found


def select_rules(chart: Chart) -> list[ReferenceLine]:
    found = []
    for rule in chart.rules:
        axis = chart.x if rule.across == "x" else chart.y
        if is_drawable(axis, rule.at) and (rule.to is None or is_drawable(axis, rule.to)):
            found.append(rule)
    return found


# Ticks: round numbers inside the range of an axis, from 2 to 12 of them, and no more than there is room for.

MOST = 12
_ROUND = (1, 2, 5)
_STRIDES = (1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 50, 100, 200, 500, 1000, 2500)
_EDGE = 1e-9
"""What is this near to an end of the range is inside."""
_TWO = math.log10(2)
_WIDE = 2.0
"""Decades; what spans more gets ticks at powers of ten only."""
_FINE = 8.0
"""Decades; what spans more gets no lines between them."""


class Tick(NamedTuple):
    value: float
    place: float
    text: str


class Ticks(NamedTuple):
    labelled: list[Tick]
    between: list[float]
    """Places of thinner lines."""


def ticks(scale: Linear | Log, unit: Unit, most: int = MOST) -> Ticks:
    if isinstance(scale, Linear):
        return _even(scale, unit, most)
    return _powers_of_two(scale, unit, most) if scale.base == 2 else _decades(scale, unit, most)


def fit_ticks(scale: Linear | Log, unit: Unit, length: float, size: Callable[[str], float], gap: float) -> Ticks:
    """Return as many ticks as an axis of this length has room for, or two. `size` is that of a label along the axis."""
    for most in range(MOST, 1, -1):
        found = ticks(scale, unit, most)
        pairs = pairwise(found.labelled)
        if all((b.place - a.place) * length >= (size(a.text) + size(b.text)) / 2 + gap for a, b in pairs):
            break
    return found


def names(scale: Places, step: int = 1) -> list[Tick]:
    return [Tick(i, scale.place(i), name) for i, name in enumerate(scale.names) if i % step == 0]


def _even(scale: Linear | Log, unit: Unit, most: int) -> Ticks:
    """Return ticks at the multiples of the smallest round step that gives at most `most` of them; at the two ends if it
    gives fewer than two. A logarithmic axis has such ticks if it is so short that no power lies on it."""
    low, high, most = scale.value(0), scale.value(1), max(2, most)
    power = math.floor(math.log10((high - low) / most))
    values: list[float] = []
    for step in [round_ * math.pow(10, power + more) for more in (0, 1) for round_ in _ROUND]:
        first, last = math.ceil(low / step - _EDGE), math.floor(high / step + _EDGE)
        values = [k * step for k in range(first, last + 1)]
        if len(values) <= most:
            break
    values = values if len(values) >= 2 else [low, high]
    texts = format_evenly(values, unit)
    return Ticks([Tick(value, scale.place(value), text) for value, text in zip(values, texts, strict=True)], [])


def _decades(scale: Log, unit: Unit, most: int) -> Ticks:
    """Return ticks at powers of ten; on a short axis also at 2 and 5 times these, if there are at least three."""
    span, low, high = scale.high - scale.low, scale.low - _EDGE, scale.high + _EDGE
    first, last = math.ceil(low), math.floor(high)
    powers = range(first - 1, last + 1)
    ninths = [
        scale.place_of_power(exponent)
        for k in powers
        for one in range(2, 10)
        if low <= (exponent := k + math.log10(one)) <= high
    ]
    chosen = [exponent for k in powers for one in _ROUND if low <= (exponent := k + math.log10(one)) <= high]
    if span < _WIDE and 3 <= len(chosen) <= most:
        between = ninths
    elif last - first < (2 if span < 1 else 1):
        return _even(scale, unit, most)
    else:
        chosen = list(_every(first, last, most))
        every = range(first, last + 1)
        if len(chosen) == len(every):
            between = ninths if span <= _FINE else []
        else:
            between = [scale.place(math.pow(10, k)) for k in every if k not in chosen]
    values = [float(f"{math.pow(10, exponent):.3g}") for exponent in chosen]
    return Ticks([Tick(value, scale.place(value), format_round(value, unit)) for value in values], between)


def _powers_of_two(scale: Log, unit: Unit, most: int) -> Ticks:
    first, last = math.ceil(scale.low / _TWO - _EDGE), math.floor(scale.high / _TWO + _EDGE)
    if last - first < 1:
        return _even(scale, unit, most)
    chosen = _every(first, last, most)
    between = [scale.place_of_power(k * _TWO) for k in range(first, last + 1) if k not in chosen]
    values = [math.ldexp(1, k) for k in chosen]
    return Ticks([Tick(one, scale.place(one), format_round(one, unit, binary=True)) for one in values], between)


def _every(first: int, last: int, most: int) -> list[int]:
    """Return the multiples of the least stride that gives few enough exponents; both ends if these are fewer than
    two."""
    for stride in _STRIDES:
        found = [k for k in range(first, last + 1) if k % stride == 0]
        if len(found) <= max(2, most):
            break
    return found if len(found) >= 2 else [first, last]
