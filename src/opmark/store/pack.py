"""Records to rows and back: JSON for what people ask about, packed numbers for the samples."""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Any

import msgspec

from opmark.schema import Record

_encoder = msgspec.json.Encoder()


def to_row(run_id: str, record: Record) -> dict[str, Any]:
    """The columns of the table `record`."""
    case = record.task.case
    bare = [msgspec.structs.replace(m, samples=[]) for m in record.measurements]
    body = msgspec.to_builtins(msgspec.structs.replace(record, measurements=tuple(bare)))
    for kept, measurement in zip(body["measurements"], record.measurements, strict=True):
        kept["samples"] = len(measurement.samples)
    return {
        "run_id": run_id,
        "task_id": record.task.id,
        "case_id": case.id,
        "op": case.op,
        "phase": case.phase,
        "backend": record.task.backend,
        "status": record.status,
        "environment_id": record.environment,
        "started": record.started,
        "duration": record.duration,
        "body": _encoder.encode(body).decode(),
        "samples": _deflate([sample for m in record.measurements for sample in m.samples]),
    }


def from_row(body: str, samples: bytes) -> Record:
    data = msgspec.json.decode(body)
    numbers = _inflate(samples)
    start = 0
    for measurement in data["measurements"]:
        count = measurement["samples"]
        measurement["samples"] = numbers[start : start + count]
        start += count
    return msgspec.convert(data, Record)


def _deflate(values: list[float]) -> bytes:
    packed = array("d", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return zlib.compress(packed.tobytes(), level=1)


def _inflate(data: bytes) -> list[float]:
    packed = array("d", zlib.decompress(data))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
