"""Formats text and numbers for pages and terminals: escaped, without control characters, empty if unknown."""

from __future__ import annotations

import math
import os
import re
from html import escape
from typing import Any, TextIO

import msgspec

from opmark import units
from opmark.analysis.rows import Row

_FAR = 1000
_BYTES = ("memory", "gpu_memory", "gpu_l2")
"""Facts in bytes."""


def esc(text: str) -> str:
    """Escape text for a page, on one line; invisible characters are written as escapes."""
    return escape(printable(text))


def esc_lines(text: str) -> str:
    """Do the same as `esc`, but keep lines."""
    return escape(harmless(text))


def finite(value: float | None) -> float | None:
    """Return the value, or None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


def amount(value: float | None, unit: str) -> str:
    """Return seconds or joules in the unit in which they read best."""
    value = finite(value)
    if value is None:
        return ""
    scale, name = units.small_unit(value, unit)
    return f"{units.significant(value / scale)} {name}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Return an interval in the unit of its upper end, written once; ends that are far apart have a unit each."""
    low, high = finite(low), finite(high)
    if low is None or high is None:
        return ""
    scale, name = units.small_unit(high, unit)
    if 0 < low * _FAR <= high:
        return f"{amount(low, unit)}–{amount(high, unit)}"
    return f"{units.significant(low / scale)}–{units.significant(high / scale)} {name}"


def rate(value: float | None, unit: str) -> str:
    return "" if finite(value) is None else units.rate(value or 0.0, unit)


def size(value: float | None) -> str:
    return "" if finite(value) is None else units.count_bytes(value or 0)


def memory(row: Row) -> str:
    """Return the peak memory; below the resolution of its source, only that it is smaller."""
    if row.memory is not None and row.memory < row.memory_resolution:
        return f"<{size(row.memory_resolution)}"
    return size(row.memory)


def coverage_text(row: Row) -> str:
    """Return the share of operators that a compiler took, and that of the FLOPs where it is another: `97 % (FLOPs
    99 %)`."""
    covered = row.coverage
    if covered is None or not covered.operators:
        return ""
    operators, flops = percent(covered.taken / covered.operators), percent(covered.flops)
    return operators if flops in ("", operators) else f"{operators} (FLOPs {flops})"


def percent(value: float | None) -> str:
    return "" if finite(value) is None else units.percent(value or 0.0)


def sortable(value: float | None) -> str:
    """Return the value of `data-v`, by which a table is sorted, in few digits."""
    return "" if finite(value) is None else f"{value:.4g}"


def fact(name: str, value: Any) -> str:
    """Return the value of a fact of an environment as text."""
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


def format_moment(started: str) -> str:
    """Return a time in ISO 8601 as people read it, to the second."""
    day, _, time = started.partition("T")
    return printable(f"{day} {time[:8]} UTC" if time else started)


def format_duration(value: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if value < 90:
        return units.seconds(value, 2)
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


# Control characters are made visible, because labels and names of operators may contain anything.

_encoder = msgspec.json.Encoder(decimal_format="number")
_DOUBTFUL = re.compile("[^ -~\n\t]")
"""Matches characters that may not be printable."""
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Matches characters that JSON may contain as they are, and that a terminal obeys or does not show."""


def printable(text: str) -> str:
    """Return text on one line; unprintable characters are written as in Python, `\\x1b` or `\\n`."""
    return text if text.isprintable() else "".join(map(_visible, text))


def harmless(text: str) -> str:
    """Do the same as `printable`, but keep lines."""
    return _DOUBTFUL.sub(lambda found: _visible(found[0]), text)


def _visible(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode("ascii")


def json_line(item: Any) -> str:
    """Return JSON without characters that a terminal would obey; NaN and infinity are null."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _encoder.encode(item).decode())


# Lines on a terminal break between words.

_ONE_WIDE = re.compile(r"[ -~\u00a0-\u02ff\u2010-\u2027\u2581-\u2588]*").fullmatch
"""Matches text of characters that are all one column wide: letters, digits, µ, ×, –, the bars of sparklines."""


def text_width(text: str) -> int:
    """Return the width on a terminal, where some characters take two columns."""
    if (text.isascii() and text.isprintable()) or _ONE_WIDE(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fold(text: str, width: int, *, cut: bool = False) -> list[str]:
    """Break text between words into lines of at most `width` columns; all but the first are indented further.
    A word that is longer than a line stays whole, and makes the line too long, unless it is to be `cut`."""
    words = text.lstrip(" ").split(" ")
    line = " " * (len(text) - len(text.lstrip(" ")))
    indent = f"{line}  "
    lines: list[str] = []
    for word in words:
        if line.strip() and text_width(line) + 1 + text_width(word) > width:
            lines.append(line)
            line = indent
        while cut and text_width(line) + text_width(word) > width > len(indent):
            end = next(i for i in range(len(word), 0, -1) if i == 1 or text_width(line + word[:i]) <= width)
            lines.append(line + word[:end])
            line, word = indent, word[end:]
        line = f"{line} {word}" if line.strip() else line + word
    return [*lines, line]


def fold_for(stream: TextIO, text: str) -> str:
    """Return the lines of a text as a stream shows them best: folded if it is a terminal, whose width $COLUMNS may
    state."""
    if not stream.isatty():
        return text
    stated = os.environ.get("COLUMNS", "")
    try:
        width = int(stated) if stated.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # a stream that only says that it is a terminal
        width = 0
    return "\n".join(part for line in text.split("\n") for part in fold(line, width)) if width else text
