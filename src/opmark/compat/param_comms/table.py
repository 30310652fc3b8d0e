"""PARAM's table: its titles, order and number of digits, in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.compat.param_comms.collectives import PT2PT
from opmark.compat.param_comms.figures import MICRO, Figures, PairFigures, Spread, figures, pair_figures
from opmark.compat.param_comms.rows import Row
from opmark.schema import Record

_FIRST = 49
"""End of the column of sizes: PARAM's header has 9 letters and a column of 40."""

_COLUMNS: tuple[tuple[str, int], ...] = (
    ("nElementsPerRank", 18), ("Time(us):p50", 18), ("p75", 12), ("p95", 12), ("Min", 12), ("Max", 12),
    ("AlgBW(GB/s)", 15), ("BusBW(GB/s)", 12), ("TotalTime(us):p50", 20),
)  # fmt: skip
_PAIR_COLUMNS: tuple[tuple[str, int], ...] = (
    ("pingLatency(us):p50", 20), ("p75", 10), ("p95", 10), ("pingPongLatency(us):p50", 25), ("p75", 10), ("p95", 10),
    ("avgUniBW(GB/s)", 15), ("avgBiBW(GB/s)", 15), ("totalUniBW(GB/s)", 18), ("totalBiBW(GB/s)", 18),
)  # fmt: skip


def header(collective: str) -> str:
    """Return the header of a table, with an empty line before it."""
    pair = collective == PT2PT
    size = "size (B)" if pair else "total-size (B)"
    return "\n" + _line("COMMS-RES", size, [name for name, _ in _columns(collective)], collective)


def line(row: Row, records: Sequence[Record]) -> str | None:
    """Return the line of a row; None if a part of it failed."""
    if row.collective == PT2PT:
        pair = pair_figures(row, records)
        return None if pair is None else _line(row.label, str(pair.size), _pair_cells(pair), row.collective)
    (record,) = records
    found = figures(row, record)
    return None if found is None else _line(row.label, str(found.size), _cells(row, found), row.collective)


def _columns(collective: str) -> tuple[tuple[str, int], ...]:
    return _PAIR_COLUMNS if collective == PT2PT else _COLUMNS


def _line(first: str, size: str, cells: Sequence[str], collective: str) -> str:
    """Join cells with at least one blank between them, so that the line can be split."""
    widths = (width for _, width in _columns(collective))
    padded = (f" {cell}".rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"\t{first}{f' {size}'.rjust(_FIRST - len(first))}{''.join(padded)}"


def _cells(row: Row, found: Figures) -> list[str]:
    time = found.time
    times = [_micro(value) for value in (time.p50, time.p75, time.p95, time.least, time.most)]
    return [str(row.elements), *times, f"{found.algorithm:.3f}", f"{found.bus:.3f}", _micro(found.total)]


def _pair_cells(found: PairFigures) -> list[str]:
    """Return cells; the totals over all pairs are those of the only pair."""
    speeds = [f"{speed:.3f}" for speed in (found.one_way, found.both_ways)]
    return [*_percentile_cells(found.ping), *_percentile_cells(found.ping_pong), *speeds, *speeds]


def _percentile_cells(time: Spread) -> list[str]:
    return [_micro(value) for value in (time.p50, time.p75, time.p95)]


def _micro(seconds: float) -> str:
    return f"{seconds / MICRO:.1f}"
