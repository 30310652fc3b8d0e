"""Records to rows and back: JSON, packed with the words that all records share; packed numbers for the samples."""

from __future__ import annotations

import math
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.schema import Case, Measurement, Record
from opmark.store.dictionary import DICTIONARY
from opmark.store.figures import stored_figure
from opmark.store.old import old_record

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
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape, and not a backslash that is followed by these letters."""
_WIDTH = 8
"""Bytes of a sample."""


class Damaged(ValueError):
    """What is stored cannot be what was written."""


@contextmanager
def decoding() -> Iterator[None]:
    """Whatever a damaged value does to those who decode it."""
    try:
        yield
    except (ValueError, TypeError, IndexError, OverflowError, zlib.error, struct.error, msgspec.MsgspecError) as error:
        raise Damaged(str(error)) from None


def to_row(run_id: str, record: Record) -> dict[str, Any]:
    """The columns of the table `record`."""
    task, case = record.task, record.task.case
    bare = tuple([_bare(m) for m in record.measurements])
    duration = _finite(record.duration)
    return {
        "run_id": run_id,
        "task_id": task.id,
        "case_id": case.id,
        "op": storable(case.op),
        "phase": case.phase,
        "backend": storable(task.backend),
        "status": record.status,
        "environment_id": record.environment,
        "started": record.started,
        "duration": duration,
        "body": _pack(encoded(replace(record, measurements=bare, duration=duration))),
        "samples": pack_samples([m.samples for m in record.measurements]),
        "implementation": storable(task.implementation),
        "threads": task.settings.threads,
        "process": task.settings.process,
        "reason": storable(record.reason),
        "figures": storable_json(encoded([stored_figure(m) for m in record.measurements]).decode()),
    }


def _bare(m: Measurement) -> Measurement:
    """JSON has no NaN: where a number must be, none could be read back."""
    return replace(m, samples=[], overhead=_finite(m.overhead), warmup_time=_finite(m.warmup_time))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def encoded(value: Any) -> bytes:
    """As JSON. Half a character, as names of files may have, would make it none."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(whole(msgspec.to_builtins(value)))


def whole(value: Any) -> Any:
    """Plain data with texts that are `storable`."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list | tuple) else value


def storable(text: str) -> str:
    """Without what a database has no place for: PostgreSQL none for NUL, none has any for half a character."""
    if text.isascii() and "\0" not in text:
        return text
    found = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return found.replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_json(text: str) -> str:
    """The same of what is JSON already, where NUL is written as an escape: views take it apart."""
    return _NUL.sub(r"\1\\ufffd", text) if r"\u0000" in text else text


def case_row(case: Case) -> dict[str, Any]:
    """The columns of the table `bench_case`."""
    params, wrt = (encoded(value).decode() for value in (case.params, case.wrt))
    return {"id": case.id, "op": storable(case.op), "phase": case.phase, "params": params, "wrt": wrt}


def plain_body(body: bytes | str) -> bytes | str:
    """The JSON of a record without its samples."""
    return body if isinstance(body, str) else _unpack(body)


def from_row(body: bytes | str, samples: bytes) -> Record:
    """`Damaged` if it cannot be what was written."""
    with decoding():
        if isinstance(body, str):  # of a writer that began before the store was upgraded
            return old_record(body, samples)
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
    if data[:1] != _PACKED:
        raise Damaged(f"a record begins with {bytes(data[:1])!r}")
    inflating = zlib.decompressobj(_WINDOW_OF_BODIES, zdict=DICTIONARY)
    plain = inflating.decompress(data[1:])
    if not inflating.eof or inflating.unused_data:
        raise Damaged("a record does not end where it should")
    return plain


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
    if data[:1] != _SHUFFLED:
        raise Damaged(f"samples begin with {bytes(data[:1])!r}")
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
