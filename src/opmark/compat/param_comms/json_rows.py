"""Every row as a line of JSON: the figures of the table, and the samples of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from opmark.compat.param_comms.collectives import PT2PT
from opmark.compat.param_comms.figures import MICRO, Spread, figures, latency, pair_figures
from opmark.compat.param_comms.options import Asked
from opmark.compat.param_comms.rows import PATTERNS, Row
from opmark.errors import UserError
from opmark.schema import Record


class JsonFile:
    """Writes rows one by one, so that finished ones are on disk. Without a path it writes nothing."""

    def __init__(self, path: Path | None, request: Asked) -> None:
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

    def write(self, row: Row, records: Sequence[Record], run_id: str) -> None:
        if self._file:
            self._file.write(msgspec.json.encode(json_row(self._request, row, records, run_id)) + b"\n")
            self._file.flush()


def json_row(request: Asked, row: Row, records: Sequence[Record], run_id: str) -> dict[str, Any]:
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


def _collective_details(row: Row, record: Record) -> dict[str, Any]:
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


def _pair_details(row: Row, records: Sequence[Record]) -> dict[str, Any]:
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


def _in_microseconds(time: Spread) -> dict[str, float]:
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
