"""The output of comms.py: PARAM's table, and every row as a line of JSON with the samples of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from opmark.errors import UserError
from opmark.interop.param.comms.collectives import PT2PT
from opmark.interop.param.comms.options import CommsRequest
from opmark.interop.param.comms.rows import (
    MICRO,
    PATTERNS,
    CollectiveFigures,
    CommsRow,
    PairFigures,
    Percentiles,
    figures,
    latency,
    pair_figures,
)
from opmark.schema import Record


class JsonFile:
    """Writes rows one by one, so that finished ones are on disk. Without a path it writes nothing."""

    def __init__(self, path: Path | None, request: CommsRequest) -> None:
        self._path = path
        self._request = request
        self._file: IO[bytes] | None = None

    def __enter__(self) -> JsonFile:
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb")
            except OSError as error:
                message = f"--json {self._path}: the file cannot be written: {error.strerror}"
                raise UserError(message, "name another file") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file:
            self._file.close()

    def write(self, row: CommsRow, records: Sequence[Record], run_id: str) -> None:
        if self._file:
            self._file.write(msgspec.json.encode(json_row(self._request, row, records, run_id)) + b"\n")
            self._file.flush()


def json_row(request: CommsRequest, row: CommsRow, records: Sequence[Record], run_id: str) -> dict[str, Any]:
    """Return a row with times in microseconds and bandwidths in GB/s, as in the table."""
    pair = row.collective == PT2PT
    parts = [_case_details(record) for record in records]
    return {
        "name": row.label,
        "collective": row.collective,
        "data_type": row.dtype,
        "tag": row.tag.removeprefix("-"),
        "backend": request.place.engine,
        "device": request.place.device,
        "ranks": request.ranks,
        "ranks_of_one": request.group_size,
        "blocking": request.blocking,
        "elements_per_rank": row.elements,
        **(_pair_details(row, records) if pair else _collective_details(row, records[0])),
        "run": run_id,
        **({"parts": dict(zip(PATTERNS, parts, strict=True))} if pair else parts[0]),
    }


def _collective_details(row: CommsRow, record: Record) -> dict[str, Any]:
    found = figures(row, record)
    if found is None:
        return {"total_size": row.size}
    return {
        "total_size": found.size,
        "time_us": _in_microseconds(found.time),
        "alg_bw": found.algorithm,
        "bus_bw": found.bus,
        "total_time_us": found.total / MICRO,
        "collectives_per_iteration": row.per_iteration,
    }


def _pair_details(row: CommsRow, records: Sequence[Record]) -> dict[str, Any]:
    found = pair_figures(row, records)
    if found is None:
        return {"total_size": row.size, "window": row.window}
    return {
        "total_size": found.size,
        "window": row.window,
        "ping_us": _in_microseconds(found.ping),
        "ping_pong_us": _in_microseconds(found.ping_pong),
        "uni_bw": found.one_way,
        "bi_bw": found.both_ways,
    }


def _in_microseconds(time: Percentiles) -> dict[str, float]:
    return {name: value / MICRO for name, value in asdict(time).items()}


def _case_details(record: Record) -> dict[str, Any]:
    """Return status, parameters and every sample of every rank of one case."""
    found, case = latency(record), record.task.case
    part: dict[str, Any] = {
        "status": record.status,
        "reason": record.reason,
        "case": {"id": case.id, "op": case.op, "params": case.params},
        "verified": record.verification.checked if record.verification else "none",
        "notes": list(record.notes),
    }
    if found is not None:
        part["samples_us"] = [sample / MICRO for sample in found.samples]
        part["by_rank_us"] = [[sample / MICRO for sample in own] for own in found.by_rank]
        part["cautions"] = [caution.message for caution in found.cautions]
    if record.overlap:
        part["overlap"] = msgspec.to_builtins(record.overlap) | {"share": record.overlap.share}
    return part


# PARAM's table: its titles, order and number of digits, in aligned columns.

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


def line(row: CommsRow, records: Sequence[Record]) -> str | None:
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


def _cells(row: CommsRow, found: CollectiveFigures) -> list[str]:
    time = found.time
    times = [_microseconds_text(value) for value in (time.p50, time.p75, time.p95, time.least, time.most)]
    return [str(row.elements), *times, f"{found.algorithm:.3f}", f"{found.bus:.3f}", _microseconds_text(found.total)]


def _pair_cells(found: PairFigures) -> list[str]:
    """Return cells; the totals over all pairs are those of the only pair."""
    speeds = [f"{speed:.3f}" for speed in (found.one_way, found.both_ways)]
    return [*_percentile_cells(found.ping), *_percentile_cells(found.ping_pong), *speeds, *speeds]


def _percentile_cells(time: Percentiles) -> list[str]:
    return [_microseconds_text(value) for value in (time.p50, time.p75, time.p95)]


def _microseconds_text(seconds: float) -> str:
    return f"{seconds / MICRO:.1f}"
