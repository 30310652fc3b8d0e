"""Parse numbers of bytes as people write them: `64K`, and series such as `8..64M`."""

from __future__ import annotations

import re
from typing import Any

_PREFIXES = " KMGT"
_NUMBER = r"(\d+)\s*([KMGT]?)(?:i?B)?"
_SERIES = re.compile(rf"{_NUMBER}\s*\.\.\s*{_NUMBER}\s*(?:([*+])\s*{_NUMBER})?", re.IGNORECASE)
_MOST = 10_000


def parse_bytes(text: str) -> int:
    """Parse a number of bytes in powers of 1024, as nccl-tests and PARAM count; ValueError if it is not one."""
    found = re.fullmatch(_NUMBER, text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(text)
    return _bytes(found[1], found[2])


def parse_series(value: Any) -> list[Any] | None:
    """`8..64M` doubles from one to the other, `8..64M*4` quadruples, `8..1K+8` goes in steps of 8 bytes; None for
    anything that is not a series. ValueError if the series would be empty, endless or too long."""
    found = _SERIES.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return None
    first, last = _bytes(found[1], found[2]), _bytes(found[3], found[4])
    by, step = found[5] or "*", _bytes(found[6], found[7]) if found[5] else 2
    if not 1 <= first <= last or step < (2 if by == "*" else 1):
        raise ValueError(value)
    values = [first]
    while (following := values[-1] * step if by == "*" else values[-1] + step) <= last:
        values.append(following)
        if len(values) > _MOST:
            raise ValueError(value)
    return values


def _bytes(digits: str, prefix: str) -> int:
    return int(digits) << 10 * _PREFIXES.index(prefix.upper() or " ")
