"""Records to rows and back: JSON, packed with the words that all records share; packed numbers for the samples."""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Any

import msgspec

from opmark.schema import Case, Record
from opmark.store.dictionary import DICTIONARY
from opmark.store.figures import figure_row

_encoder = msgspec.json.Encoder()
_record = msgspec.json.Decoder(dict[str, Any])
_PACKED = b"\x01"
"""The first byte of what is packed with the first dictionary; a better one would have another."""


def to_row(run_id: str, record: Record) -> dict[str, Any]:
    """The columns of the table `record`."""
    task, case = record.task, record.task.case
    bare = [msgspec.structs.replace(m, samples=[]) for m in record.measurements]
    body = msgspec.to_builtins(msgspec.structs.replace(record, measurements=tuple(bare)))
    for kept, measurement in zip(body["measurements"], record.measurements, strict=True):
        kept["samples"] = len(measurement.samples)
    return {
        "run_id": run_id,
        "task_id": task.id,
        "case_id": case.id,
        "op": _storable(case.op),
        "phase": case.phase,
        "backend": task.backend,
        "status": record.status,
        "environment_id": record.environment,
        "started": record.started,
        "duration": record.duration,
        "body": _pack(_encoder.encode(body)),
        "samples": _deflate([sample for m in record.measurements for sample in m.samples]),
        "implementation": task.implementation,
        "threads": task.settings.threads,
        "process": task.settings.process,
        "reason": _storable(record.reason),
        "figures": _encoder.encode([figure_row(m) for m in record.measurements]).decode(),
    }


def _storable(text: str) -> str:
    """Without the one character that PostgreSQL has no place for; the body has it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def case_row(case: Case) -> dict[str, Any]:
    """The columns of the table `bench_case`."""
    params, wrt = (_encoder.encode(value).decode() for value in (case.params, case.wrt))
    return {"id": case.id, "op": _storable(case.op), "phase": case.phase, "params": params, "wrt": wrt}


def from_row(body: bytes, samples: bytes) -> Record:
    return with_samples(_unpack(body), samples)


def with_samples(body: bytes, samples: bytes) -> Record:
    """A record from its JSON and its samples."""
    data = _record.decode(body)
    numbers = _inflate(samples)
    start = 0
    for measurement in data["measurements"]:
        count = measurement["samples"]
        measurement["samples"] = numbers[start : start + count]
        start += count
    return msgspec.convert(data, Record)


def _pack(data: bytes) -> bytes:
    packer = zlib.compressobj(level=6, zdict=DICTIONARY)
    return _PACKED + packer.compress(data) + packer.flush()


def _unpack(data: bytes) -> bytes:
    return zlib.decompressobj(zdict=DICTIONARY).decompress(data[1:])


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
