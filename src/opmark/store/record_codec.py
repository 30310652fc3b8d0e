"""Convert records to rows and back: JSON compressed with a dictionary that all records share, and packed samples."""

from __future__ import annotations

import math
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

from opmark.schema import Case, Measurement, Record
from opmark.schema.company import Company
from opmark.schema.load import Load
from opmark.schema.measurement import NAMED_BY_TIMER
from opmark.schema.record import Figure, StoredFigure
from opmark.stats import median_inflation, median_interval
from opmark.stats.measurement import cycles
from opmark.store.query_process import is_sealed, seal
from opmark.units import count_bytes

# Text that records have in common. Compressed records refer to it instead of repeating it.

DICTIONARY = b"".join(
    line.encode()
    for line in (
        # Texts of cautions.
        "take it for an upper bound; the profiler would tell it exactly",
        "another virtual machine shares these cores: repeat, or use a dedicated host",
        "the hypervisor took 3.1 % of the time; up to 1 % is usual",
        "too little work to measure: enlarge the case",
        "a call takes , less than half of the harness's own ",
        "do not use this number; stop other work, or use fewer --threads than there are idle cores",
        "the core was taken away  times in  samples: the median is the scheduler's, not the operator's; the fastest ",
        "sample took ",
        "clocks or load changed while sampling: measure again, with a higher --effort",
        "the second half of the samples is  slower than the first; up to 5 % is usual",
        "look for other load (`opmark doctor`), or pin the process to cores",
        '{"code":"noisy","message":"samples spread by  % of the median; up to 10 % is usual',
        "use a higher --effort, or quieten the machine (`opmark doctor`)",
        "warm-up ended after  without two windows within 3 % of each other",
        '{"code":"interrupted","message":"another process took the core  times in ',
        "stop other work, or use fewer --threads than cores",
        'the load of the last minute is 3.1 on 2 cores","hint":"wait until the machine is idle (`opmark doctor`)"}',
        '{"code":"loaded","message":"other processes kept 1.4 of 2 cores busy; up to 0.3 is usual","hint":"stop them, ',
        'or wait until the machine is idle (`opmark doctor` names them)"}',
        '{"code":"imprecise","message":"the median is known to ± 2.1 % from 50 samples, in 200 ms; ± 2 % was asked for',
        '","hint":"use a higher --effort"},',
        '"profiles":[{"tool":"ncu","metrics":{"compilation":{"cold":0.,"warm":0.,"cache":"',
        '"reason":"out of memory","status":"oom","status":"timeout","status":"error","status":"wrong","status":',
        '"skipped"',
        " has no implementation for its process ended with exit code 1 while running the task; it said: ",
        '"tags":["small","typical","large"],"wrt":["input","weight"],"sources":["',
        '{"code":"imprecise","message":"the interval of the median is ± ',
        '{"code":"loaded","message":"{"code":"drifting","message":"{"code":"clocks-moved","message":"',
        '{"code":"preempted","message":"{"code":"unsettled","message":"{"code":"stolen","message":"',
        '"kernels":[{"name":"void at::native::vectorized_elementwise_kernel<4, at::native::',
        '"readings":[{"at":0,"clock":1980000000.0,"power":,"temperature":,"throttle":[]},{"at":',
        '{"quantity":"device_time","cache":"cold","timer":"cupti","samples":100,"calls":1,"overhead":0.0,',
        '"control":"flush","check":{"timer":"events","median":',
        '{"quantity":"host_time","cache":"warm","timer":"monotonic",',
        '"params":{"M":1024,"N":1024,"K":1024,"dtype":"bfloat16","dtype":"float16",',
        '{"task":{"case":{"id":"","op":"matmul","params":{"shape":[1024,1024],"dtype":"float32"},"phase":"backward",',
        '"phase":"forward","tags":[],"wrt":[],"sources":[]},"backend":"numpy-cpu","implementation":"numpy",',
        '"backend":"torch-cuda","backend":"torch-cpu","implementation":"torch","settings":{"threads":2,"effort":"standard",',
        '"effort":"thorough","sampling":{"warmup_min":0.2,"warmup_max":5.0,"effort":"quick",',
        '"sampling":{"warmup_min":0.005,"warmup_max":0.1,"warmup_agreement":0.03,"sample_time":0.0001,"min_samples":20,',
        '"min_time":0.015,"max_time":0.2,"rel_ci":0.02,"warmup":null,"samples":null},"seed":0,"verify":true,',
        '"quantities":[],"caches":[],"mode":"","timer":"","process":0}},"status":"ok","reason":"",',
        '"measurements":[{"quantity":"latency","cache":"warm","timer":"monotonic","samples":50,"calls":23,"overhead":',
        '4.1e-8,"warmup_calls":1006,"warmup_time":0.006,"stop":"budget","stop":"count","stop":"precise",',
        '"cautions":[{"code":"outliers","message":"3 of 50 samples took longer than 9.11 µs, the median is 5.65 µs",',
        '"hint":"something interrupts this machine regularly; the median stands, a mean would not"}],"cautions":[],',
        '"control":"","conditions":{"readings":[],"highest_clock":null,"elapsed":0.0163,"switches":4,"load":0.09,',
        '"others":0.0,"steal":0.0},"kernels":[],"check":null,"by_rank":[],"warmup_samples":[]}],"cost":{"flops":0,',
        '"bytes_read":262144,"bytes_written":262144},"memory":{"peak":528384,"baseline":246812672,',
        '"source":"resident pages","resolution":4096},"verification":{"checked":"full","note":"","params":null,',
        '"max_abs_error":0.0,"max_rel_error":0.0,"tolerance":[0.00001,0.00001],"reference":"","after":"same",',
        '"numerics":[{"elements":65536,"compared":65536,"nan":0,"inf":0,"nan_expected":0,"inf_expected":0,',
        '"max_abs":0.0,"mean_abs":0.0,"max_rel":0.0,"mean_rel":0.0,"cosine":1.0,"max_ulp":0.0,"mean_ulp":0.0}]},',
        '"environment":"","started":"2026-11-15T21:27:51.997+00:00","called":"","view":false,"notes":[],"duration":0.1,',
        '"profiles":[],"compilation":null,"untried":false,"overlap":null}',
    )
)

_encoder = msgspec.json.Encoder()
_record = msgspec.json.Decoder(Record)
_PACKED = b"\x03"
"""First byte of a body that is compressed with this dictionary; another dictionary would get another byte."""
_SHUFFLED = b"\x02"
"""First byte of samples whose bytes are grouped by significance. Stores before version 3 have other first bytes."""
_BODY_WINDOW, _SAMPLES_WINDOW = 13, 12
"""Window sizes of zlib (powers of 2): large enough for a record, small enough to be allocated in microseconds. The
checksum of zlib detects damage."""
# Copied for each record: loading the dictionary is half the work.
_packer = zlib.compressobj(3, zlib.DEFLATED, _BODY_WINDOW, 6, zdict=DICTIONARY)
LARGEST = 64 << 20
"""Bytes to which a body, or the samples of a record, may inflate: some kilobytes can stand for gigabytes."""
DAMAGED_FIGURES = '[[null,null,null,null,null,null,null,null,null,["damaged"]]]'
"""Figures that views show in place of damaged ones: no number, and a caution."""


class _PlannedSettings(msgspec.Struct, frozen=True):
    load: Load | None = None
    company: Company | None = None


class _PlannedTask(msgspec.Struct, frozen=True):
    settings: _PlannedSettings


class _PlannedBody(msgspec.Struct, frozen=True):
    """The part of a record's JSON that says under which load, or beside what, it was to be measured."""

    task: _PlannedTask


_figures = msgspec.json.Decoder(list[StoredFigure])
_planned = msgspec.json.Decoder(_PlannedBody)
_raw_figures = msgspec.json.Decoder(list[msgspec.Raw])
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape of NUL in JSON, but not an escaped backslash followed by these letters."""
_WIDTH = 8
"""Bytes of a sample."""


class Damaged(ValueError):
    """Stored data is not what was written."""


DECODING_ERRORS = (
    ValueError, TypeError, LookupError, OverflowError, RecursionError, zlib.error, struct.error, msgspec.MsgspecError,
)  # fmt: skip
"""Errors by which decoders answer data that nobody wrote so. Lists that are too deep in each other are among them."""


@contextmanager
def decoding() -> Iterator[None]:
    """Turn any error of decoding into Damaged."""
    try:
        yield
    except DECODING_ERRORS as error:
        raise Damaged(str(error)) from None


def to_row(run_id: str, record: Record) -> dict[str, Any]:
    """Return the columns of the table `record`."""
    task, case = record.task, record.task.case
    # Without samples, which have a column of their own, and without NaN: JSON has none, and a required number could not
    # be read back.
    bare = tuple([
        replace(m, samples=[], overhead=_finite(m.overhead), warmup_time=_finite(m.warmup_time))
        for m in record.measurements
    ])  # fmt: skip
    duration = _finite(record.duration)
    packer = _packer.copy()
    body = packer.compress(encoded(replace(record, measurements=bare, duration=duration)))
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
        "body": _PACKED + body + packer.flush(),
        "samples": pack_samples([m.samples for m in record.measurements]),
        "implementation": storable(task.implementation),
        "threads": task.settings.threads,
        "process": task.settings.process,
        "reason": storable(record.reason),
        "figures": seal_figures([stored_figure(m) for m in record.measurements]),
    }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def encoded(value: Any) -> bytes:
    """Encode a value as JSON; lone surrogates, as in names of files, are replaced."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(whole(msgspec.to_builtins(value)))


def whole(value: Any) -> Any:
    """Return plain data with all texts made `storable`."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list | tuple) else value


def storable(text: str) -> str:
    """Replace characters that databases cannot store: lone surrogates, and NUL in PostgreSQL."""
    if text.isascii() and "\0" not in text:
        return text
    found = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return found.replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_json(text: str) -> str:
    """Replace escaped NUL in JSON text, because views extract its strings."""
    return _NUL.sub(r"\1\\ufffd", text) if r"\u0000" in text else text


def case_row(case: Case) -> dict[str, Any]:
    """Return the columns of the table `bench_case`."""
    params, wrt = (encoded(value).decode() for value in (case.params, case.wrt))
    return {"id": case.id, "op": storable(case.op), "phase": case.phase, "params": params, "wrt": wrt}


def plain_body(body: bytes | str, largest: int = LARGEST) -> bytes | str:
    """Return the JSON of a record without its samples."""
    return body if isinstance(body, str) else _unpack(body, largest)


def from_row(body: bytes | str, samples: bytes, largest: int = LARGEST) -> Record:
    """Decode a record; raises Damaged if the data is not valid, or inflates to more than `largest` bytes."""
    with decoding():
        if isinstance(body, str):  # of a writer that began before the store was upgraded
            return old_record(body, samples)
        record = _record.decode(_unpack(body, largest))
        fill(record.measurements, samples, largest)
    return record


def fill(measurements: tuple[Measurement, ...], samples: bytes, largest: int = LARGEST) -> None:
    """Add the samples to measurements that were decoded without them."""
    for measurement, values in zip(measurements, unpack_samples(samples, largest), strict=True):
        measurement.samples.extend(values)


def _unpack(data: bytes, largest: int) -> bytes:
    if data[:1] != _PACKED:
        raise Damaged(f"a record begins with {bytes(data[:1])!r}")
    return _inflate(zlib.decompressobj(_BODY_WINDOW, zdict=DICTIONARY), data[1:], largest)


def _inflate(inflating: zlib._Decompress, data: bytes, largest: int) -> bytes:
    plain = inflating.decompress(data, largest + 1)
    if len(plain) > largest:
        raise Damaged(f"a record inflates to more than {count_bytes(largest)}")
    if not inflating.eof or inflating.unused_data:
        raise Damaged("a record does not end where it should")
    return plain


def pack_samples(groups: list[list[float]]) -> bytes:
    """Pack the number of groups, their lengths, then the first bytes of all values, their second bytes, and so on.
    Neighbouring samples are of similar size, so their high bytes repeat and compress well."""
    packed = array("d", [value for group in groups for value in group])
    if sys.byteorder == "big":
        packed.byteswap()
    plain = packed.tobytes()
    counts = struct.pack(f"<{len(groups) + 1}I", len(groups), *map(len, groups))
    packer = zlib.compressobj(1, zlib.DEFLATED, _SAMPLES_WINDOW, 5)
    shuffled = b"".join([counts, *[plain[place::_WIDTH] for place in range(_WIDTH)]])
    return _SHUFFLED + packer.compress(shuffled) + packer.flush()


def unpack_samples(data: bytes, largest: int = LARGEST) -> list[list[float]]:
    if data[:1] != _SHUFFLED:
        raise Damaged(f"samples begin with {bytes(data[:1])!r}")
    plain = _inflate(zlib.decompressobj(_SAMPLES_WINDOW), data[1:], largest)
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


def stored_figure(measurement: Measurement) -> StoredFigure:
    """The numbers of a measurement that are stored beside its samples. `store.views` reads their JSON by position."""
    m = measurement
    codes = tuple(dict.fromkeys(caution.code for caution in m.cautions))
    if not m.samples:
        return StoredFigure(m.quantity, m.cache, m.timer, m.calls, 0, None, None, None, None, codes)
    low, high, _ = median_interval(m.samples, inflation=median_inflation(m.samples))
    middle = median(m.samples)
    return StoredFigure(m.quantity, m.cache, m.timer, m.calls, len(m.samples), middle, low, high, cycles(m), codes)


def seal_figures(figures: Sequence[StoredFigure]) -> str:
    """Return figures as JSON. Behind the fields of each stands the beginning of the MD5 of its text before that, which
    a server can compute as well, so that a flipped bit does not become another number."""
    sealed = []
    for figure in figures:
        text = storable_json(encoded(figure).decode())[:-1]
        sealed.append(f'{text},"{seal(text.encode())}"]')
    return f"[{','.join(sealed)}]"


def read_figures(text: str) -> list[StoredFigure]:
    """Decode figures and compare their checksums; raises one of DECODING_ERRORS if something is damaged. Figures of
    older versions end with their cautions and have no checksum."""
    for raw in _raw_figures.decode(text):
        if not is_sealed(bytes(raw)):
            raise Damaged("the checksum of its figures is another")
    return _figures.decode(text)


def figures_from(who: tuple[Any, ...], stored: Sequence[StoredFigure], load: str = "") -> list[Figure]:
    """One figure for each measurement; a record without any has one, with its status. `who`: the fields of a Figure
    that belong to its record. `load`: the load that a record without measurements should have had."""
    if not stored:
        return [replace(Figure(*who), load=load)]
    return [
        Figure(*(*who, one.quantity, one.cache, one.median, one.cycles, one.cautions, _load_of(one))) for one in stored
    ]


def _load_of(figure: StoredFigure) -> str:
    return figure.timer if figure.quantity in NAMED_BY_TIMER else ""


def planned_load(body: bytes | str) -> str:
    """Return the load or the company of a record's settings, as `Settings.circumstances` has it; empty without."""
    with decoding():
        settings = _planned.decode(plain_body(body)).task.settings
        found = settings.load or settings.company
        return found.text if found else ""


def figures_of(run_id: str, record: Record) -> list[Figure]:
    task = record.task
    who = (run_id, task.case.id, task.case.op, task.backend, task.implementation, task.settings.threads)
    bare = (*who, task.settings.process, record.status, record.environment, record.started)
    stored = [stored_figure(measurement) for measurement in record.measurements]
    return figures_from(bare, stored, task.settings.circumstances)


# Records of stores before version 3: JSON as text, and the samples of all measurements in one row.

_body = msgspec.json.Decoder(dict[str, Any])


def old_record(body: bytes | str, samples: bytes) -> Record:
    """Decode a record whose measurements hold the number of their samples in place of these."""
    data = _body.decode(body)
    numbers = array("d", _inflate(zlib.decompressobj(), samples, LARGEST))
    if sys.byteorder == "big":
        numbers.byteswap()
    start = 0
    for measurement in data["measurements"]:
        count = measurement["samples"]
        measurement["samples"] = numbers[start : start + count].tolist()
        start += count
    return msgspec.convert(data, Record)
