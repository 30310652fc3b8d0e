"""Numbers as people write them: `10 µs`, `64 KiB`, `1 TFLOP/s`, `50 %`; for ticks, and with more digits for tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from opmark import units
from opmark.schema.chart import Axis, Unit

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
