"""Reads and checks the lines of an upload: ids match the contents, counts are right, all fields are known.

Nothing is written before the whole upload is checked; a refusal names the line and the reason.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from opmark.dashboard.endpoint import RequestRefused
from opmark.schema import Environment, Record
from opmark.schema.codec import strict_struct
from opmark.schema.machine import MachineFinding, findings_key
from opmark.schema.tuned import TunedEntry
from opmark.schema.upload import (
    FORMAT,
    EnvironmentLine,
    FindingLine,
    Header,
    RecordLine,
    RecordLineIdParts,
    Seal,
    TunedLine,
)
from opmark.store.limits import (
    LimitExceeded,
    Limits,
    check_case,
    check_finding,
    check_record,
    check_run,
    check_size,
    check_tuned,
)
from opmark.store.record_codec import case_row, to_row
from opmark.store.runs import noise_under
from opmark.store.transfer import UploadedRun
from opmark.units import count_bytes
from opmark.version import VERSION

_GZIP = b"\x1f\x8b"
_STEP = 1 << 16
"""Input bytes per step."""
_MOST = 1 << 20
"""Inflated bytes per step."""
_AGAIN = "send it again: `opmark push` does"

INVALID, TOO_LARGE = 422, 413
"""HTTP statuses."""


class Lines:
    """Yields lines one by one, with their number from 1 on and a checksum of all that were read."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        if len(body) > limits.wire:
            raise too_large("the upload", limits.wire)
        self.number = 0
        """Number of the line that was read last."""
        self._lines = _split(_inflate(body, limits) if body[:2] == _GZIP else _slice(body, limits), limits)
        self._sum = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def next(self, what: str) -> bytes:
        """Return the next line without its end; `what` names the expected line in error messages."""
        line = next(self._lines, None)
        if line is None:
            raise RequestRefused(INVALID, f"the upload ends after line {self.number}: expected {what}", _AGAIN)
        self.number += 1
        self._sum.update(line + b"\n")
        return line

    def check_end(self) -> None:
        if next(self._lines, None) is not None:
            raise RequestRefused(INVALID, f"line {self.number + 1}: something stands behind the end of the upload")


def too_large(what: str, limit: int) -> RequestRefused:
    return RequestRefused(TOO_LARGE, f"{what} is larger than {count_bytes(limit)}", "nothing was stored")


def _slice(body: bytes, limits: Limits) -> Iterator[bytes]:
    if len(body) > limits.unpacked:
        raise too_large("the upload, unpacked,", limits.unpacked)
    for start in range(0, len(body), _STEP):
        yield body[start : start + _STEP]


def _inflate(body: bytes, limits: Limits) -> Iterator[bytes]:
    """Inflate in steps, and stop at the limit, because a small body may inflate to the size of a disk."""
    inflating, total = zlib.decompressobj(31), 0
    for start in range(0, len(body), _STEP):
        if inflating.eof:
            break
        for some in _steps(inflating, body[start : start + _STEP]):
            total += len(some)
            if total > limits.unpacked:
                raise too_large("the upload, unpacked,", limits.unpacked)
            yield some
    if not inflating.eof:
        raise RequestRefused(INVALID, "the upload is cut off: its gzip does not end", _AGAIN)
    if inflating.unused_data or start + _STEP < len(body):
        raise RequestRefused(INVALID, "something stands behind the end of the gzip")


def _steps(inflating: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield what some bytes inflate to; after a full step there may be more."""
    while True:
        try:
            some = inflating.decompress(data, _MOST)
        except zlib.error as error:
            raise RequestRefused(INVALID, f"the upload cannot be inflated: {error}", _AGAIN) from None
        yield some
        data = inflating.unconsumed_tail
        if inflating.eof or (not data and len(some) < _MOST):
            return


def _split(blocks: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for block in blocks:
        *whole, rest = block.split(b"\n")
        for line in whole:
            if size + len(line) > limits.line:
                raise too_large("a line of the upload", limits.line)
            yield b"".join([*held, line])
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > limits.line:
            raise too_large("a line of the upload", limits.line)
    if size:
        raise RequestRefused(INVALID, "the upload is cut off: its last line does not end", _AGAIN)


_Line = TypeVar("_Line", bound=Struct)
_WIDTH = 8
"""Bytes of a sample."""
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(strict_struct(kind))
    for kind in (Header, EnvironmentLine, RecordLine, FindingLine, TunedLine, Seal)
}
_ID_DECODER = msgspec.json.Decoder(RecordLineIdParts)


def read_upload(body: bytes, limits: Limits) -> UploadedRun:
    """Read an upload; raise `RequestRefused` if any line is wrong."""
    return _UploadReader(Lines(body, limits), limits).read()


class _UploadReader:
    def __init__(self, lines: Lines, limits: Limits) -> None:
        self._lines, self._limits = lines, limits
        self._version = ""
        self._held = 0
        self._environments: dict[str, Environment] = {}
        self._used: set[str] = set()
        self._tasks: set[str] = set()
        self._findings: set[tuple[str, str]] = set()

    def read(self) -> UploadedRun:
        header = self._header()
        found = UploadedRun(header.run, header.notes)
        for _ in range(header.environments):
            found.environments.append(self._environment())
        for _ in range(header.records):
            record, task = self._record(header.run.id)
            case = record.task.case
            found.cases.setdefault(case.id, case_row(case))
            found.records.append(to_row(header.run.id, record) | {"task_id": task})
        if unused := self._environments.keys() - self._used:
            raise RequestRefused(INVALID, f"environment {min(unused)}: no record of this upload is of it")
        for _ in range(header.findings):
            found.findings.append(self._finding())
        for _ in range(header.tuned):
            found.tuned.append(self._tuned(header.run.id))
        self._seal()
        return found

    def _header(self) -> Header:
        first = self._lines.next("a header")
        with self._refusing_errors():
            _check_format(first)
            header = self._decode(first, Header)
            check_run(header.run, header.notes, self._limits)
        self._version = header.version
        for name in ("records", "environments", "findings", "tuned"):
            # A run tunes fewer cases than it has records.
            count, most = getattr(header, name), getattr(self._limits, "records" if name == "tuned" else name)
            if not 0 <= count <= most:
                raise RequestRefused(
                    TOO_LARGE, f"line 1: expected 0 to {most} {name}, got {count}", "send fewer at once"
                )
        return header

    def _environment(self) -> Environment:
        line = self._lines.next("an environment")
        with self._refusing_errors():
            sent = self._decode(line, EnvironmentLine).environment
            environment = Environment.of(sent.facts)
            if sent.id != environment.id:
                raise LimitExceeded(f"environment `{sent.id}`: its content has the id {environment.id}")
            if environment.id in self._environments:
                raise LimitExceeded(f"environment {environment.id} is there twice")
        self._environments[environment.id] = environment
        return environment

    def _record(self, run_id: str) -> tuple[Record, str]:
        line = self._lines.next("a record")
        with self._refusing_errors():
            sent = self._decode(line, RecordLine)
            if sent.run != run_id:
                raise LimitExceeded(f"a record of run `{sent.run}`; this upload is of {run_id}")
            record, task = sent.record, _ID_DECODER.decode(line).record.task_id
            self._check_ids(record, sent.task, task)
            _add_samples(record, sent.samples)
            check_record(record, self._limits)
        self._tasks.add(task)
        self._used.add(record.environment)
        return record, task

    def _check_ids(self, record: Record, sent_task: str, task: str) -> None:
        case = record.task.case
        check_case(case)
        if sent_task != task:
            raise LimitExceeded(f"task `{sent_task}` of `{case.op}`: its content has the id {task}")
        if task in self._tasks:
            raise LimitExceeded(f"task {task} of `{case.op}` is there twice")
        if record.environment and record.environment not in self._environments:
            raise LimitExceeded(f"the environment `{record.environment}` of this record is not there")

    def _finding(self) -> MachineFinding:
        line = self._lines.next("a finding")
        with self._refusing_errors():
            finding = self._decode(line, FindingLine).finding
            self._check_finding(finding)
        self._findings.add((finding.kind, finding.chip))
        return finding

    def _tuned(self, run_id: str) -> TunedEntry:
        line = self._lines.next("a tuned configuration")
        with self._refusing_errors():
            entry = self._decode(line, TunedLine).tuned
            if entry.run != run_id:
                raise LimitExceeded(f"tuned by run `{entry.run[:60]}`; this upload is of {run_id}")
            check_tuned(entry)
        return entry

    def _check_finding(self, finding: MachineFinding) -> None:
        """Check a finding, which has to be about a machine of this upload."""
        check_finding(finding)
        if finding.chip not in {_finding_key(finding.kind, one.facts) for one in self._environments.values()}:
            raise LimitExceeded(f"{finding.kind} of `{finding.chip}`, which no environment of this upload is of")
        if (finding.kind, finding.chip) in self._findings:
            raise LimitExceeded(f"{finding.kind} of `{finding.chip}` are there twice")

    def _seal(self) -> None:
        """Read the last line, which is compared byte by byte, because the checksum does not include it."""
        expected = Seal(self._lines.number, self._lines.sha256)
        line = self._lines.next("the line with the sum of all others")
        with self._refusing_errors():
            sent = self._decode(line, Seal)
            if sent.lines != expected.lines:
                raise LimitExceeded(f"expected {expected.lines} lines before this one, got {sent.lines}")
            if line != msgspec.json.encode(expected):
                raise LimitExceeded("the sum of the lines is another: something was changed on the way")
        self._lines.check_end()

    def _decode(self, line: bytes, kind: type[_Line]) -> _Line:
        decoded: _Line = _DECODERS[kind].decode(line)
        plain = msgspec.json.decode(line)
        if kind is RecordLine:
            plain.pop("samples", None)  # texts that only the line limits
        count = check_size(plain, self._limits)
        if kind is not RecordLine:
            self._held += count
        if self._held > self._limits.held:
            raise LimitExceeded(f"expected at most {self._limits.held} values besides those of records, got more")
        return decoded

    @contextmanager
    def _refusing_errors(self) -> Iterator[None]:
        """Turn errors in the current line into refusals that name it."""
        try:
            yield
        except LimitExceeded as problem:
            raise self._refusal(str(problem)) from None
        except RecursionError:
            raise self._refusal("lists or objects are too deep in each other") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
            raise self._refusal(str(error)) from None

    def _refusal(self, why: str) -> RequestRefused:
        other = self._version not in ("", VERSION)
        hint = f"it was sent by opmark {self._version}, this is {VERSION}: upgrade the older one" if other else None
        return RequestRefused(INVALID, f"line {self._lines.number}: {why}", hint)


def _finding_key(kind: str, facts: dict[str, Any]) -> str:
    """Return the name under which a finding about a machine is stored."""
    return findings_key(facts) if kind == "peaks" else noise_under(facts.get("backend"), facts)


class _Format(Struct):
    opmark_push: int


def _check_format(line: bytes) -> None:
    """Check the format first, because another one may have other fields."""
    found = msgspec.json.decode(line, type=_Format).opmark_push
    if found != FORMAT:
        raise LimitExceeded(f"format {found}; this opmark ({VERSION}) takes {FORMAT}")


def _add_samples(record: Record, samples: tuple[bytes, ...]) -> None:
    if len(samples) != len(record.measurements):
        raise LimitExceeded(f"{len(record.measurements)} measurements, and samples of {len(samples)}")
    for measurement, packed in zip(record.measurements, samples, strict=True):
        if measurement.samples:
            raise LimitExceeded("samples inside of the record; they belong beside it")
        if len(packed) % _WIDTH:
            raise LimitExceeded(f"{len(packed)} bytes of samples; expected a multiple of {_WIDTH}")
        values = array("d", packed)
        if sys.byteorder == "big":
            values.byteswap()
        measurement.samples.extend(values)
