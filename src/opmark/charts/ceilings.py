"""Ceilings of a roofline as lines: slanted what a level of memory can deliver, level what arithmetic can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opmark import units
from opmark.analysis.rows import MachineFacts
from opmark.charts.common import Place
from opmark.charts.parts import positive
from opmark.schema.chart import Mark, Series
from opmark.schema.peaks import MEMORY, Level, Peaks

DATASHEET = "datasheet"
_MARGIN = 2.0
"""Lines go on beyond what they are about by this factor."""


class _Known(NamedTuple):
    """What one source says that matters here."""

    source: str
    levels: tuple[tuple[str, float], ...]
    """Bandwidths by name, the fastest first."""
    flops: tuple[tuple[str, float], ...]
    """By element type; those that share a ceiling under one name."""

    @property
    def highest(self) -> float | None:
        return max((rate for _, rate in self.flops), default=None)

    def ridges(self) -> list[float]:
        """Intensities where a level gives way to the highest ceiling, the lowest of them first."""
        top = self.highest
        return sorted(top / bandwidth for _, bandwidth in self.levels) if top else []


def ceilings(known: MachineFacts, dtypes: Sequence[str], intensities: Sequence[float], *, warm: bool) -> list[Series]:
    """Lines for the element types that occur. Caches bound nothing cold: they are drawn where something is warm."""
    found = [_known(source, peaks, dtypes, warm) for source, peaks in _sources(known)]
    span = [*intensities, *(ridge for one in found for ridge in one.ridges())]
    if not span:
        return []
    low, high = min(span) / _MARGIN, max(span) * _MARGIN
    return [series for one in found for series in (*_slanted(one, low, high), *_level(one, low, high))]


def unknown(place: Place, dtypes: Sequence[str]) -> Iterator[str]:
    """Which ceilings are missing, and how they are got."""
    measured, sheet = place.machine.measured, place.machine.datasheet
    if measured is None:
        also = "" if sheet else ", and there is no datasheet of it"
        yield f"no measured ceilings of {place.name}{also}: `opmark calibrate` measures them"
    for source, peaks in _sources(place.machine):
        lacking = [dtype for dtype in dtypes if dtype and not positive(peaks.flops.get(dtype))]
        if lacking:
            yield f"no {source} ceiling for {', '.join(lacking)}"


def _sources(known: MachineFacts) -> list[tuple[str, Peaks]]:
    both = (("measured", known.measured), (DATASHEET, known.datasheet))
    return [(source, peaks) for source, peaks in both if peaks is not None]


def _known(source: str, peaks: Peaks, dtypes: Sequence[str], warm: bool) -> _Known:
    levels = [(level.name, level.bandwidth) for level in peaks.levels if _matters(level, warm) and level.bandwidth]
    shared: dict[float, list[str]] = {}
    for dtype in dtypes:
        rate = peaks.flops.get(dtype)
        if rate is not None and positive(rate):
            shared.setdefault(rate, []).append(dtype)
    flops = tuple((", ".join(names), rate) for rate, names in shared.items())
    return _Known(source, tuple(sorted(levels, key=lambda level: -level[1])), flops)


def _matters(level: Level, warm: bool) -> bool:
    return positive(level.bandwidth) and (warm or level.name == MEMORY)


def _slanted(known: _Known, low: float, high: float) -> Iterator[Series]:
    """Each up to where the highest ceiling takes over."""
    for name, bandwidth in known.levels:
        end = known.highest / bandwidth if known.highest else high
        marks = (Mark(low, bandwidth * low), Mark(end, bandwidth * end, "ridge" if known.highest else ""))
        yield _line(f"{name} {units.rate(bandwidth, 'B/s')}", known, marks)


def _level(known: _Known, low: float, high: float) -> Iterator[Series]:
    """Each from where the fastest level reaches it."""
    for names, rate in known.flops:
        start = rate / known.levels[0][1] if known.levels else low
        marks = (Mark(start, rate, "ridge" if known.levels else ""), Mark(high, rate))
        yield _line(f"{names} {units.rate(rate, 'FLOP/s')}", known, marks)


def _line(name: str, known: _Known, marks: tuple[Mark, ...]) -> Series:
    return Series(f"{name} {known.source}", marks, "line", "ceiling", stated=known.source == DATASHEET)
