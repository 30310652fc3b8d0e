"""Maps values to places on an axis, from 0 to 1, and chooses its range, ticks and labels.

Ranges are those of the data with a little air, not whole decades."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        return min(1.0, max(0.0, (math.log10(value) - self.low) / (self.high - self.low)))

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


def drawable(axis: Axis, value: float | None) -> bool:
    """Whether it has a place on such an axis at all."""
    if value is None or not abs(value) < LARGEST:  # also of what is no number
        return False
    if axis.scale == "category":
        return -0.5 <= value <= len(axis.names) - 0.5
    return axis.scale == "linear" or value > 1 / LARGEST


def fitting(axis: Axis, values: Iterable[float], *, zero: bool = False) -> Scaled:
    """All of these lie inside, unless the axis has an end of its own. `zero`: bars have their foot there."""
    if axis.scale == "category":
        return Places(axis.names)
    found = [value if axis.most is None else min(value, axis.most) for value in values]
    if axis.scale == "linear":
        return _linear([*found, 0.0] if zero else found)
    return _logarithmic(found, 2 if axis.scale == "log2" else 10)


def _linear(found: list[float]) -> Linear:
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


def _logarithmic(found: list[float], base: int) -> Log:
    low, high = math.log10(min(found, default=1.0)), math.log10(max(found, default=10.0))
    if high - low <= _ALIKE:
        return Log(low - _DECADES, high + _DECADES, base)
    air = _AIR * (high - low)
    return Log(max(low - air, -_FARTHEST), min(high + air, _FARTHEST), base)


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


def titled(axis: Axis) -> str:
    """With the unit where the ticks do not tell it."""
    unit = _WRITTEN.get(axis.unit, axis.unit)
    alone = axis.unit == "flop/B" and unit.lower() not in axis.title.lower()
    return f"{axis.title} ({unit})" if alone else axis.title


def single(value: float, unit: Unit, *, binary: bool = False) -> str:
    """A round number, with the prefix that suits it."""
    divisor, name = _prefix(value, unit, binary)
    return _joined(f"{value / divisor:.4g}", name)


def together(values: Sequence[float], unit: Unit) -> list[str]:
    """Evenly spaced numbers: all with one prefix and as many decimals."""
    if not values:
        return []
    divisor, name = _prefix(max(map(abs, values)), unit, False)
    step = min((b - a for a, b in pairwise(values)), default=values[0]) / divisor
    decimals = max(0, -math.floor(math.log10(abs(step)) + 1e-6)) if step else 0
    return [_joined(_fixed(value / divisor, decimals), name) for value in values]


def exact(value: float | None, axis: Axis, digits: int = 4) -> str:
    """For a table: with its unit, and digits enough to compute with."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return NO_NUMBER
    if axis.scale == "category":
        return axis.names[round(value)] if 0 <= round(value) < len(axis.names) else NO_NUMBER
    if axis.unit in ("share", "flop/B", "ratio", "count", ""):
        return _plain(value, axis.unit, digits)
    if axis.unit in ("s", "J"):
        divisor, name = units.small_unit(value * _UP, axis.unit)
        return f"{units.significant(value / divisor, digits)} {name}"
    divisor, name = _prefix(value, axis.unit, False)
    shown = value / divisor
    return f"{int(shown) if shown == int(shown) else units.significant(shown, digits)} {name}"


def _plain(value: float, unit: Unit, digits: int) -> str:
    if unit == "share":
        return f"{units.significant(100 * value, digits - 1)} %"
    if unit in ("count", "") and value == int(value):
        return str(int(value))
    return _joined(units.significant(value, digits), _WRITTEN[unit] if unit == "flop/B" else "")


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}" if decimals <= _MOST_DECIMALS and abs(value) < 1e12 else f"{value:.12g}"
    return "0" if float(text) == 0 else text


def _joined(number: str, name: str) -> str:
    return f"{number} {name}" if name else number


def _prefix(value: float, unit: Unit, binary: bool) -> tuple[float, str]:
    """How large the unit is in which it reads best, and its name."""
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


class DrawableSeries(NamedTuple):
    series: ChartSeries
    marks: list[tuple[int, Mark]]
    """With the number of its row in the table."""


def kept(chart: Chart) -> list[DrawableSeries]:
    found, row = [], 0
    for series in chart.series:
        numbered = enumerate(series.marks, row)
        found.append(DrawableSeries(series, [(i, mark) for i, mark in numbered if _has_place(chart, mark)]))
        row += len(series.marks)
    return found


def left_out(chart: Chart) -> int:
    """Marks that are in the table and not in the picture."""
    return sum(not _has_place(chart, mark) for series in chart.series for mark in series.marks)


def interval_axis(chart: Chart) -> Axis:
    """Return the axis on which the intervals of marks lie."""
    return chart.x if chart.kind == "bars" else chart.y


def interval(chart: Chart, mark: Mark) -> tuple[float, float] | None:
    """Only whole: half an interval would look like a certain end."""
    if mark.low is None or mark.high is None:
        return None
    axis = interval_axis(chart)
    return (mark.low, mark.high) if drawable(axis, mark.low) and drawable(axis, mark.high) else None


def rules(chart: Chart) -> Iterator[ReferenceLine]:
    for rule in chart.rules:
        axis = chart.x if rule.across == "x" else chart.y
        if drawable(axis, rule.at) and (rule.to is None or drawable(axis, rule.to)):
            yield rule


def _has_place(chart: Chart, mark: Mark) -> bool:
    values = chart.values
    told = values is None or mark.value is None or drawable(values, mark.value)
    return told and drawable(chart.x, mark.x) and drawable(chart.y, mark.y)


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


def roomy(scale: Linear | Log, unit: Unit, fits: Callable[[list[Tick]], bool], most: int = MOST) -> Ticks:
    """As many as fit; the fewest where even those do not."""
    found = ticks(scale, unit, most)
    for fewer in range(most - 1, 1, -1):
        if fits(found.labelled):
            break
        found = ticks(scale, unit, fewer)
    return found


def apart(length: float, size: Callable[[str], float], gap: float) -> Callable[[list[Tick]], bool]:
    """Whether no two labels touch, on an axis of this length."""

    def fits(found: list[Tick]) -> bool:
        return all((b.place - a.place) * length >= (size(a.text) + size(b.text)) / 2 + gap for a, b in pairwise(found))

    return fits


def names(scale: Places, step: int = 1) -> list[Tick]:
    return [Tick(i, scale.place(i), name) for i, name in enumerate(scale.names) if i % step == 0]


def _even(scale: Linear | Log, unit: Unit, most: int) -> Ticks:
    """Also of a logarithmic axis so short that no power lies on it."""
    low, high = scale.value(0), scale.value(1)
    values = _multiples(low, high, max(2, most))
    return Ticks([
        Tick(value, scale.place(value), text)
        for value, text in zip(values, together(values, unit), strict=True)
    ], [])  # fmt: skip


def _multiples(low: float, high: float, most: int) -> list[float]:
    """Return the multiples of the smallest round step that gives at most `most` of them; the two ends if it gives fewer
    than two."""
    span = high - low
    power = math.floor(math.log10(span / most))
    steps = [round_ * math.pow(10, power + more) for more in (0, 1) for round_ in _ROUND]
    found: list[float] = []
    for step in steps:
        found = _inside(low, high, step)
        if len(found) <= most:
            break
    return found if len(found) >= 2 else [low, high]


def _inside(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - _EDGE), math.floor(high / step + _EDGE)
    return [k * step for k in range(first, last + 1)]


def _decades(scale: Log, unit: Unit, most: int) -> Ticks:
    first, last = math.ceil(scale.low - _EDGE), math.floor(scale.high + _EDGE)
    if scale.high - scale.low < _WIDE:
        found = [exponent for exponent in _one_two_five(first - 1, last) if _within(scale, exponent)]
        if 3 <= len(found) <= most:
            return Ticks([_tick(scale, exponent, unit) for exponent in found], list(_ninths(scale, first - 1, last)))
    if last - first < (2 if scale.high - scale.low < 1 else 1):
        return _even(scale, unit, most)
    chosen = _every(first, last, most)
    if len(chosen) == last - first + 1:
        fine = scale.high - scale.low <= _FINE
        between = list(_ninths(scale, first - 1, last)) if fine else []
    else:
        between = [scale.place(math.pow(10, k)) for k in range(first, last + 1) if k not in chosen]
    return Ticks([_tick(scale, k, unit) for k in chosen], between)


def _one_two_five(first: int, last: int) -> Iterable[float]:
    return (k + math.log10(one) for k in range(first, last + 1) for one in _ROUND)


def _ninths(scale: Log, first: int, last: int) -> Iterable[float]:
    exponents = (k + math.log10(one) for k in range(first, last + 1) for one in range(2, 10))
    return (_place(scale, one) for one in exponents if _within(scale, one))


def _powers_of_two(scale: Log, unit: Unit, most: int) -> Ticks:
    first, last = math.ceil(scale.low / _TWO - _EDGE), math.floor(scale.high / _TWO + _EDGE)
    if last - first < 1:
        return _even(scale, unit, most)
    chosen = _every(first, last, most)
    between = [_place(scale, k * _TWO) for k in range(first, last + 1) if k not in chosen]
    made = [Tick(math.ldexp(1, k), scale.place(math.ldexp(1, k)), "") for k in chosen]
    return Ticks([tick._replace(text=single(tick.value, unit, binary=True)) for tick in made], between)


def _every(first: int, last: int, most: int) -> list[int]:
    """Exponents: multiples of the least stride that gives few enough; from the first on where those are fewer than
    two."""
    for stride in _STRIDES:
        found = [k for k in range(first, last + 1) if k % stride == 0]
        if len(found) <= max(2, most):
            break
    return found if len(found) >= 2 else [first, last]


def _within(scale: Log, exponent: float) -> bool:
    return scale.low - _EDGE <= exponent <= scale.high + _EDGE


def _place(scale: Log, exponent: float) -> float:
    return min(1.0, max(0.0, (exponent - scale.low) / (scale.high - scale.low)))


def _tick(scale: Log, exponent: float, unit: Unit) -> Tick:
    value = float(f"{math.pow(10, exponent):.3g}")
    return Tick(value, scale.place(value), single(value, unit))
