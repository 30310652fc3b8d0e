"""Records as stores before version 3 have them: a text of JSON, and the samples of all measurements in one row."""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Any

import msgspec

from opmark.schema import Record

_body = msgspec.json.Decoder(dict[str, Any])


def old_record(body: bytes | str, samples: bytes) -> Record:
    """In the place of its samples a measurement has how many they are."""
    data = _body.decode(body)
    numbers = _inflate(samples)
    start = 0
    for measurement in data["measurements"]:
        count = measurement["samples"]
        measurement["samples"] = numbers[start : start + count]
        start += count
    return msgspec.convert(data, Record)


def _inflate(data: bytes) -> list[float]:
    packed = array("d", zlib.decompress(data))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
