"""What is shown of a row that communicates: bandwidths, skew between ranks, overlap, the part of a link's peak."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from opmark import units
from opmark.metrics.bus import Bandwidths, OfLink, Skew, bandwidths, of_link, skew
from opmark.registry import backend_or_none
from opmark.report.known import Known
from opmark.report.rows import Row
from opmark.schema.overlap import Overlap
from opmark.schema.traffic import Traffic
from opmark.stats import median

COLUMNS = ("algbw GB/s", "busbw GB/s", "of link", "skew", "overlap")

STRAGGLING = 0.2
"""Skew beyond which the rank that is nearly always the slowest is named."""
_NEARLY_ALWAYS = 0.8
_FEWEST = 10
"""Samples: of two ranks that are alike, one is the slowest in more than 8 of 10 samples by a chance of 1 to 50."""
_UNLIKE = ("root", "src")
"""Parameters of operators whose ranks have different work, so that one of them has to be the slowest."""


def traffic(row: Row) -> Traffic | None:
    return row.record.cost.traffic if row.record.cost else None


def bandwidths_of(row: Row) -> Bandwidths:
    return bandwidths(row.record.cost, row.seconds() or 0.0) if traffic(row) else Bandwidths()


def link_share(row: Row, known: Known) -> OfLink | None:
    """Processes of one host have no link; nor is a processor one of the ends of its own."""
    backend = backend_or_none(row.record.task.backend)
    seconds = row.seconds() if traffic(row) else None
    if seconds is None or (backend is not None and backend.device == "cpu"):
        return None
    found = (of_link(row.record.cost, seconds, peaks) for peaks in (known.datasheet, known.measured) if peaks)
    return next((share for share in found if share), None)


def skew_of(row: Row) -> Skew | None:
    """Of the headline; over several processes, of all of their samples."""
    measured = row.measured()
    found = [m.by_rank for m in row.measurements(measured[0]) if m.by_rank] if measured else []
    if not found or len({len(ranks) for ranks in found}) > 1:
        return None
    pooled = [[sample for ranks in found for sample in ranks[rank]] for rank in range(len(found[0]))]
    params = row.record.task.case.params
    return skew(pooled, [params[name] for name in ("src", "dst") if name in params])


def overlap_of(row: Row) -> Overlap | None:
    """Over several processes, the medians."""
    found = [record.overlap for record in row.records if record.overlap]
    if not found:
        return None
    times = {
        name: median([getattr(one, name) for one in found]) for name in ("first_alone", "second_alone", "together")
    }
    return msgspec.structs.replace(found[0], **times)


def straggler(row: Row) -> Skew | None:
    """Where one rank is nearly always the slowest, and by much."""
    found = skew_of(row)
    if found is None or found.slowest is None or found.samples < _FEWEST:
        return None
    alike = not any(name in row.record.task.case.params for name in _UNLIKE)
    return found if alike and found.often > _NEARLY_ALWAYS and found.share > STRAGGLING else None


def communication_cells(row: Row, known: Known) -> dict[str, str]:
    """By column; what is not known has none."""
    rates, apart, overlap, share = bandwidths_of(row), skew_of(row), overlap_of(row), link_share(row, known)
    found = {
        "algbw GB/s": gigabytes(rates.algorithm) if rates.algorithm else None,
        "busbw GB/s": gigabytes(rates.bus) if rates.bus else None,
        "of link": units.percent(share.share) if share else None,
        "skew": units.percent(apart.share) if apart else None,
        "overlap": units.percent(overlap.share) if overlap else None,
    }
    return {name: text for name, text in found.items() if text is not None}


def gigabytes(rate: float) -> str:
    return units.significant(rate / 1e9)


def communication_view(row: Row, known: Known) -> Mapping[str, object]:
    """For programs; None for what is not known, and for everything of what does not communicate."""
    rates, overlap = bandwidths_of(row), overlap_of(row)
    return {
        "algorithm_bandwidth": rates.algorithm,
        "bus_bandwidth": rates.bus,
        "of_link": msgspec.to_builtins(link_share(row, known)),
        "skew": msgspec.to_builtins(skew_of(row)),
        "overlap": {**msgspec.to_builtins(overlap), "share": overlap.share} if overlap else None,
    }
