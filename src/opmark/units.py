"""Format numbers with units. The rest of opmark computes in base units (seconds, bytes, flops); prefixes appear only
here."""

from __future__ import annotations

import math

_DECIMAL = ("", "k", "M", "G", "T", "P")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti")
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def significant(value: float, digits: int = 3) -> str:
    """Format `value` with that many significant digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = f"{value:.{digits - 1}e}"
    exponent = int(rounded[rounded.index("e") + 1 :])  # after rounding: 9.996 becomes 10.0
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def seconds(value: float, digits: int = 3) -> str:
    scale, unit = seconds_unit(value)
    return f"{significant(value / scale, digits)} {unit}"


def joules(value: float, digits: int = 3) -> str:
    scale, unit = small_unit(value, "J")
    return f"{significant(value / scale, digits)} {unit}"


def energy_delay(value: float, digits: int = 3) -> str:
    """Return an energy-delay product in joule-seconds."""
    scale, unit = small_unit(value, "J s")
    return f"{significant(value / scale, digits)} {unit}"


def seconds_unit(value: float) -> tuple[float, str]:
    """Return the unit in which a duration reads best: its size in seconds and its name."""
    return small_unit(value, "s")


def small_unit(value: float, unit: str) -> tuple[float, str]:
    """Return the scale and name for any unit that needs small prefixes, such as the joule."""
    for scale, prefix in _SMALL:
        if abs(value) >= scale:
            return scale, prefix + unit
    return _SMALL[-1][0], _SMALL[-1][1] + unit


def count_bytes(value: float) -> str:
    """Format an amount of memory, in powers of 1024."""
    return _with_prefix(value, 1024, _BINARY, "B")


def rate(value: float, unit: str) -> str:
    """Format a throughput, in powers of 1000: `rate(1.5e9, "B/s")` is `1.50 GB/s`."""
    return _with_prefix(value, 1000, _DECIMAL, unit)


def cycles(value: float) -> str:
    """Format a number of clock cycles: `2.18M`."""
    return _with_prefix(value, 1000, _DECIMAL, "").replace(" ", "")


def count_noun(number: int, noun: str, several: str | None = None) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def percent(fraction: float) -> str:
    return f"{significant(100 * fraction, 2)} %"


def change(ratio: float) -> str:
    """Format a ratio as a change, `+3.1 %`; below 0.5 and from 2 on, as a factor."""
    return f"{100 * (ratio - 1):+.1f} %" if 0.5 < ratio < 2 else f"{significant(ratio)}x"


def _with_prefix(value: float, base: int, prefixes: tuple[str, ...], unit: str) -> str:
    if not math.isfinite(value):
        return f"{value:g} {unit}"
    power = 0
    while abs(value) >= base and power < len(prefixes) - 1:
        value, power = value / base, power + 1
    if power == 0 and value == int(value):
        return f"{int(value)} {unit}"
    return f"{significant(value)} {prefixes[power]}{unit}"
