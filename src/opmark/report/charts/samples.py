"""The chart of the raw samples of a case in the order of measurement, with its cautions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from opmark.analysis.rows import Row, Timing, unit_of
from opmark.report.charts.elements import address, row_label
from opmark.schema.chart import Axis, Chart, ChartSeries, HistogramBin, Mark, ReferenceLine, Role
from opmark.schema.measurement import Cache, Measurement
from opmark.schema.record import Record
from opmark.stats import outlier_limit
from opmark.units import count_noun, percent, significant

MOST = 120
_BINS = (8, 48)
"""Least and greatest number of bins of the histogram."""
_FLAT = 3.0
"""The axis is cut if outliers make it longer than this number of times the range of the other samples."""
_AIR = 0.02
_SERIES: tuple[tuple[str, Role], ...] = (("samples", "data"), ("clock held down", "data"), ("outliers", "alarm"))
"""Series; a sample belongs to the last one that matches."""
_PLAIN, _HELD, _OUTLIER = range(3)


class Sample(NamedTuple):
    place: int
    """Position among all samples of the row, from 1."""
    value: float
    process: int
    number: int
    """Position among the samples of its process, from 1."""
    kind: int
    """Index of its series."""
    held: bool


def samples(row: Row, quantity: str = "", cache: Cache | None = None, *, most: int = MOST) -> Chart:
    """Return the chart of the samples of the headline, or of another quantity, in one state of the caches. The row
    needs its whole records. `most` is the number of points; many outliers may add to it."""
    timing = row.timing(quantity, cache) if quantity else row.headline
    which = (quantity or (timing.quantity if timing else ""), cache or (timing.cache if timing else None))
    found = [(record, m) for record in row.records if (m := record.measurement(which[0] or None, which[1]))]
    every = list(_all_samples(found))
    finite = [sample for sample in every if math.isfinite(sample.value)]
    points, limit = thin_out(finite, most), _limit(finite)
    name = " ".join(filter(None, which))
    return Chart(
        id=address("samples", row.key, *filter(None, which)),
        title=f"Samples of {row_label(row)}" + (f", {name}" if name else ""),
        about="Samples in the order taken, all of them in the histogram; the line is the median, the stretch around it "
        "where that may lie.",
        kind="samples",
        x=Axis("sample", "count", "linear"),
        y=Axis(name, unit_of(which[0]), "linear", most=limit),
        series=tuple(_series(points)),
        rules=tuple(_rules(timing, every)),
        notes=(*_left_out(row, every, finite, points, limit), *_cautions([m for _, m in found])),
        spread=_spread([sample.value for sample in finite], limit),
    )


def _all_samples(found: Sequence[tuple[Record, Measurement]]) -> Iterator[Sample]:
    """Yield the samples of one process after the other; outliers are found within each process."""
    place = 0
    for record, m in found:
        held, finite = set(m.throttled), [value for value in m.samples if math.isfinite(value)]
        far = outlier_limit(finite) if finite else math.inf
        for i, value in enumerate(m.samples):
            place += 1
            kind = _OUTLIER if value > far else _HELD if i in held else _PLAIN
            yield Sample(place, value, record.task.settings.process, i + 1, kind, i in held)


def thin_out(found: Sequence[Sample], most: int) -> list[Sample]:
    """Return all outliers, and of the others so many at equal distances that there are `most` together, but at least
    half of `most`, so that there are never outliers alone."""
    if len(found) <= most:
        return list(found)
    others = [sample for sample in found if sample.kind != _OUTLIER]
    room = min(max(most - (len(found) - len(others)), most // 2, 1), len(others))
    step = (len(others) - 1) / max(room - 1, 1)
    picked = {others[round(i * step)].place for i in range(room)}
    return [sample for sample in found if sample.kind == _OUTLIER or sample.place in picked]


def _limit(found: Sequence[Sample]) -> float | None:
    """Return the end of the axis if outliers would flatten all other samples: a little above the slowest of these."""
    usual = [sample.value for sample in found if sample.kind != _OUTLIER]
    if not usual or len(usual) == len(found):
        return None
    low, high = min(usual), max(usual)
    end = high + max(0.5 * (high - low), _AIR * abs(high))
    return end if max(sample.value for sample in found) - low > _FLAT * (end - low) else None


def _spread(values: Sequence[float], limit: float | None) -> tuple[HistogramBin, ...]:
    """Return bins of equal width."""
    low = min(values, default=0.0)
    high = max(values, default=0.0) if limit is None else limit
    step = (high - low) / (bins := min(_BINS[1], max(_BINS[0], math.ceil(2 * len(values) ** 0.5))))
    if not (step > 0 and math.isfinite(step)):
        return ()
    numbers = Counter(min(bins - 1, int((min(value, high) - low) / step)) for value in values)
    return tuple(HistogramBin(low + k * step, low + (k + 1) * step, numbers[k]) for k in range(bins))


def _series(points: Sequence[Sample]) -> Iterator[ChartSeries]:
    several = len({sample.process for sample in points}) > 1
    for kind, (name, role) in enumerate(_SERIES):
        marks = []
        for sample in points:
            if sample.kind == kind:
                label = f"sample {sample.number}" + (f" of process {sample.process}" if several else "")
                note = "clock held down" if sample.held and kind == _OUTLIER else ""
                marks.append(Mark(sample.place, sample.value, label, note=note))
        if marks:
            yield ChartSeries(name, tuple(marks), "points", role)


def _rules(timing: Timing | None, every: Sequence[Sample]) -> Iterator[ReferenceLine]:
    """Yield the median with its interval, and a rule where the next process begins."""
    if timing is not None and timing.median is not None:
        yield ReferenceLine("y", timing.median, "median")
        low, high = timing.low, timing.high
        if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
            yield ReferenceLine("y", low, "interval of the median", high)
    for before, after in pairwise(every):
        if after.number == 1:
            yield ReferenceLine("x", (before.place + after.place) / 2, f"process {after.process}")


def _left_out(
    row: Row, every: Sequence[Sample], finite: Sequence[Sample], points: Sequence[Sample], limit: float | None
) -> Iterator[str]:
    if not every:
        yield f"nothing was measured: {row.status}" + (f": {row.reason}" if row.reason else "")
    if len(finite) < len(every):
        yield f"{count_noun(len(every) - len(finite), 'sample')} left out: not a number"
    outliers = sum(sample.kind == _OUTLIER for sample in finite)
    if len(points) < len(finite):
        among = f", {count_noun(outliers, 'outlier')} among them" if outliers else ""
        yield f"{len(points)} of {len(finite)} samples drawn{among}"
    elif outliers:
        yield f"{count_noun(outliers, 'outlier')}, {percent(outliers / len(finite))} of the samples"
    far = [sample.value for sample in finite if limit is not None and sample.value > limit]
    if far:
        beyond = count_noun(len(far), "outlier")
        yield f"{beyond} beyond the axis, at its upper edge: up to {significant(max(far) / (limit or 1))} times its end"


def _cautions(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield each caution as in the first process that has it."""
    every = [caution for m in measurements for caution in {c.code: c for c in m.cautions}.values()]
    counts = Counter(caution.code for caution in every)
    for code, caution in {caution.code: caution for caution in reversed(every)}.items():
        more = f" (in {counts[code]} of {len(measurements)} processes)" if len(measurements) > 1 else ""
        yield f"{code}: {caution.message}" + (f"; {caution.hint}" if caution.hint else "") + more
