"""Text and numbers on their way into a page: escaped, harmless, and empty where there is nothing to tell."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from opmark import units
from opmark.analysis.rows import Row
from opmark.report.plain import harmless, printable

_FAR = 1000
_BYTES = ("memory", "gpu_memory", "gpu_l2")
"""Facts that are counted in bytes."""


def esc(text: str) -> str:
    """On one line; what turns the direction of text or cannot be seen is written out."""
    return escape(printable(text))


def esc_lines(text: str) -> str:
    """The same, but lines stay lines."""
    return escape(harmless(text))


def known(value: float | None) -> float | None:
    """None for what is no number."""
    return value if value is not None and math.isfinite(value) else None


def amount(value: float | None, unit: str) -> str:
    """Seconds or joules."""
    value = known(value)
    if value is None:
        return ""
    scale, name = units.small_unit(value, unit)
    return f"{units.significant(value / scale)} {name}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """In the unit of its upper end, which is said once; ends that are far apart have a unit each."""
    low, high = known(low), known(high)
    if low is None or high is None:
        return ""
    scale, name = units.small_unit(high, unit)
    if 0 < low * _FAR <= high:
        return f"{amount(low, unit)}–{amount(high, unit)}"
    return f"{units.significant(low / scale)}–{units.significant(high / scale)} {name}"


def rate(value: float | None, unit: str) -> str:
    return "" if known(value) is None else units.rate(value or 0.0, unit)


def size(value: float | None) -> str:
    return "" if known(value) is None else units.count_bytes(value or 0)


def memory(row: Row) -> str:
    """At the peak; a need below the steps of who counts is known to be smaller, and no more."""
    if row.memory is not None and row.memory < row.memory_resolution:
        return f"<{size(row.memory_resolution)}"
    return size(row.memory)


def percent(value: float | None) -> str:
    return "" if known(value) is None else units.percent(value or 0.0)


def sortable(value: float | None) -> str:
    """For `data-v`; as short as order allows."""
    return "" if known(value) is None else f"{value:.4g}"


def fact(name: str, value: Any) -> str:
    """A fact of an environment, in full."""
    if value is None:
        return ""
    if name in _BYTES and isinstance(value, int) and not isinstance(value, bool):
        return units.count_bytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(fact("", one) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}={fact('', one)}" for key, one in value.items()) or "none"
    return printable(str(value))


def moment(started: str) -> str:
    """A time in ISO 8601 as people read it, to the second."""
    day, _, time = started.partition("T")
    return printable(f"{day} {time[:8]} UTC" if time else started)


def lasting(value: float) -> str:
    """A duration as people say it."""
    if value < 90:
        return units.seconds(value, 2)
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
