"""Records to rows and back: JSON, packed with the words that all records share; packed numbers for the samples."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.schema import Case, Measurement, Record
from opmark.store.dictionary import DICTIONARY
from opmark.store.figures import figure_row

_encoder = msgspec.json.Encoder()
_record = msgspec.json.Decoder(Record)
_PACKED = b"\x03"
"""The first byte of what is packed with the first dictionary; a better one would have another."""
_SHUFFLED = b"\x02"
"""The first byte of samples whose bytes are sorted by their place. Those of stores before version 3 begin otherwise."""
_WINDOW_OF_BODIES, _WINDOW_OF_SAMPLES = 13, 12
"""Of zlib: large enough for a record, small enough to be made in microseconds. Its checksum tells damage."""
# One that knows the dictionary already is copied for each record: that is half the work.
_packer = zlib.compressobj(3, zlib.DEFLATED, _WINDOW_OF_BODIES, 6, zdict=DICTIONARY)
_WIDTH = 8
"""Bytes of a sample."""


def to_row(run_id: str, record: Record) -> dict[str, Any]:
    """The columns of the table `record`."""
    task, case = record.task, record.task.case
    bare = tuple([replace(m, samples=[]) for m in record.measurements])
    return {
        "run_id": run_id,
        "task_id": task.id,
        "case_id": case.id,
        "op": storable(case.op),
        "phase": case.phase,
        "backend": task.backend,
        "status": record.status,
        "environment_id": record.environment,
        "started": record.started,
        "duration": record.duration,
        "body": _pack(_encoder.encode(replace(record, measurements=bare))),
        "samples": pack_samples([m.samples for m in record.measurements]),
        "implementation": task.implementation,
        "threads": task.settings.threads,
        "process": task.settings.process,
        "reason": storable(record.reason),
        "figures": _encoder.encode([figure_row(m) for m in record.measurements]).decode(),
    }


def storable(text: str) -> str:
    """Without what a database has no place for: PostgreSQL none for NUL, none has any for half a character."""
    if text.isascii() and "\0" not in text:
        return text
    whole = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


def case_row(case: Case) -> dict[str, Any]:
    """The columns of the table `bench_case`."""
    params, wrt = (_encoder.encode(value).decode() for value in (case.params, case.wrt))
    return {"id": case.id, "op": storable(case.op), "phase": case.phase, "params": params, "wrt": wrt}


def from_row(body: bytes, samples: bytes) -> Record:
    record = _record.decode(_unpack(body))
    fill(record.measurements, samples)
    return record


def fill(measurements: tuple[Measurement, ...], samples: bytes) -> None:
    """The samples of each, into those that were just decoded and have none yet."""
    for measurement, values in zip(measurements, unpack_samples(samples), strict=True):
        measurement.samples.extend(values)


def _pack(data: bytes) -> bytes:
    packer = _packer.copy()
    return _PACKED + packer.compress(data) + packer.flush()


def _unpack(data: bytes) -> bytes:
    return zlib.decompressobj(_WINDOW_OF_BODIES, zdict=DICTIONARY).decompress(data[1:])


def pack_samples(groups: list[list[float]]) -> bytes:
    """How many groups, how many values of each, then all values: their first bytes, their second bytes, ... Neighbours
    are of one size, so that their high bytes repeat."""
    packed = array("d", [value for group in groups for value in group])
    if sys.byteorder == "big":
        packed.byteswap()
    plain = packed.tobytes()
    counts = struct.pack(f"<{len(groups) + 1}I", len(groups), *map(len, groups))
    packer = zlib.compressobj(1, zlib.DEFLATED, _WINDOW_OF_SAMPLES, 5)
    shuffled = b"".join([counts, *[plain[place::_WIDTH] for place in range(_WIDTH)]])
    return _SHUFFLED + packer.compress(shuffled) + packer.flush()


def unpack_samples(data: bytes) -> list[list[float]]:
    plain = zlib.decompress(data[1:], _WINDOW_OF_SAMPLES)
    (groups,) = struct.unpack_from("<I", plain)
    counts = struct.unpack_from(f"<{groups}I", plain, 4)
    shuffled, total = plain[4 * (groups + 1) :], sum(counts)
    ordered = bytearray(len(shuffled))
    for place in range(_WIDTH):
        ordered[place::_WIDTH] = shuffled[place * total : (place + 1) * total]
    values = array("d", bytes(ordered))
    if sys.byteorder == "big":
        values.byteswap()
    return [values[start:end].tolist() for start, end in pairwise(accumulate(counts, initial=0))]
