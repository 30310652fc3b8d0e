"""Text and numbers on their way into a page: escaped, harmless, and empty where there is nothing to tell."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any

import msgspec

from opmark import units
from opmark.analysis.rows import Row

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


# Text from anywhere, made harmless: a label or an operator may be called whatever its maker liked.

_encoder = msgspec.json.Encoder(decimal_format="number")
_DOUBTFUL = re.compile("[^ -~\n\t]")
"""All that has to be looked at one by one."""
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What JSON may hold as it is, and a terminal obeys or does not show."""


def printable(text: str) -> str:
    """On one line: what cannot be seen is written as Python writes it, `\\x1b` or `\\n`."""
    return text if text.isprintable() else "".join(map(_seen, text))


def harmless(text: str) -> str:
    """The same, but lines stay lines."""
    return _DOUBTFUL.sub(lambda found: _seen(found[0]), text)


def _seen(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode("ascii")


def json_line(item: Any) -> str:
    """JSON without a character that a terminal would obey; what is no number is null."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _encoder.encode(item).decode())
