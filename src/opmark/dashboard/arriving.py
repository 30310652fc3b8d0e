"""Reads and checks the lines of an upload: ids match the contents, counts are right, all fields are known.

Nothing is written before the whole upload is checked; a refusal names the line and the reason.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from opmark.dashboard.limits import Limits
from opmark.dashboard.plausible import (
    Implausible,
    check_noise,
    check_peaks,
    check_record,
    check_run,
    check_size,
    past,
)
from opmark.dashboard.problems import Refused
from opmark.dashboard.unpacking import INVALID, TOO_LARGE, Lines
from opmark.schema import Case, Environment, Record
from opmark.schema.finding import Finding
from opmark.schema.noise import NoiseFloor
from opmark.schema.peaks import Peaks, kept_under
from opmark.schema.pushed import FORMAT, EnvironmentLine, FindingLine, Header, LineTold, RecordLine, Seal
from opmark.schema.strict import strict
from opmark.store.find import noise_under
from opmark.store.pack import case_row, to_row
from opmark.store.receiving import Arrived
from opmark.version import VERSION

_Line = TypeVar("_Line", bound=Struct)
_WIDTH = 8
"""Bytes of a sample."""
_BODIES: dict[str, tuple[type[Struct], Callable[[Any], None]]] = {
    "peaks": (strict(Peaks), check_peaks),
    "noise": (strict(NoiseFloor), check_noise),
}
"""Types of findings, with the function that checks their content."""
_DECODERS: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(strict(kind)) for kind in (Header, EnvironmentLine, RecordLine, FindingLine, Seal)
}
_told = msgspec.json.Decoder(LineTold)


def arrived(body: bytes, limits: Limits) -> Arrived:
    """Read an upload; raise `Refused` if any line is wrong."""
    return _Arriving(Lines(body, limits), limits).read()


class _Arriving:
    def __init__(self, lines: Lines, limits: Limits) -> None:
        self._lines, self._limits = lines, limits
        self._version = ""
        self._held = 0
        self._environments: dict[str, Environment] = {}
        self._used: set[str] = set()
        self._tasks: set[str] = set()
        self._findings: set[tuple[str, str]] = set()

    def read(self) -> Arrived:
        header = self._header()
        found = Arrived(header.run, header.notes)
        for _ in range(header.environments):
            found.environments.append(self._environment())
        for _ in range(header.records):
            record, task = self._record(header.run.id)
            case = record.task.case
            found.cases.setdefault(case.id, case_row(case))
            found.records.append(to_row(header.run.id, record) | {"task_id": task})
        if unused := self._environments.keys() - self._used:
            raise Refused(INVALID, f"environment {min(unused)}: no record of this upload is of it")
        for _ in range(header.findings):
            found.findings.append(self._finding())
        self._seal()
        return found

    def _header(self) -> Header:
        first = self._lines.next("a header")
        with self._explained():
            _check_format(first)
            header = self._decoded(first, Header)
            check_run(header.run, header.notes, self._limits)
        self._version = header.version
        for name in ("records", "environments", "findings"):
            count, most = getattr(header, name), getattr(self._limits, name)
            if not 0 <= count <= most:
                raise Refused(TOO_LARGE, f"line 1: expected 0 to {most} {name}, got {count}", "send fewer at once")
        return header

    def _environment(self) -> Environment:
        line = self._lines.next("an environment")
        with self._explained():
            told = self._decoded(line, EnvironmentLine).environment
            environment = Environment.of(told.facts)
            if told.id != environment.id:
                raise Implausible(f"environment `{told.id}`: its content has the id {environment.id}")
            if environment.id in self._environments:
                raise Implausible(f"environment {environment.id} is there twice")
        self._environments[environment.id] = environment
        return environment

    def _record(self, run_id: str) -> tuple[Record, str]:
        line = self._lines.next("a record")
        with self._explained():
            told = self._decoded(line, RecordLine)
            if told.run != run_id:
                raise Implausible(f"a record of run `{told.run}`; this upload is of {run_id}")
            record, task = told.record, _told.decode(line).record.task_id
            self._check_ids(record, told.task, task)
            _fill(record, told.samples)
            check_record(record, self._limits)
        self._tasks.add(task)
        self._used.add(record.environment)
        return record, task

    def _check_ids(self, record: Record, told: str, task: str) -> None:
        case = record.task.case
        if case.id != (of := Case.of(case.op, case.params, case.phase, wrt=case.wrt)).id:
            raise Implausible(f"case `{case.id}` of `{case.op}`: its content has the id {of.id}")
        if told != task:
            raise Implausible(f"task `{told}` of `{case.op}`: its content has the id {task}")
        if task in self._tasks:
            raise Implausible(f"task {task} of `{case.op}` is there twice")
        if record.environment and record.environment not in self._environments:
            raise Implausible(f"the environment `{record.environment}` of this record is not there")

    def _finding(self) -> Finding:
        line = self._lines.next("a finding")
        with self._explained():
            finding = self._decoded(line, FindingLine).finding
            self._check_finding(finding)
        self._findings.add((finding.kind, finding.chip))
        return finding

    def _check_finding(self, finding: Finding) -> None:
        """Check a finding, which has to be about a machine of this upload."""
        past("started", finding.started)
        if finding.kind not in _BODIES:
            raise Implausible(f"a finding of the kind `{finding.kind}`; expected {' or '.join(_BODIES)}")
        kind, check = _BODIES[finding.kind]
        check(msgspec.convert(finding.body, kind))
        if finding.chip not in {_under(finding.kind, one.facts) for one in self._environments.values()}:
            raise Implausible(f"{finding.kind} of `{finding.chip}`, which no environment of this upload is of")
        if (finding.kind, finding.chip) in self._findings:
            raise Implausible(f"{finding.kind} of `{finding.chip}` are there twice")

    def _seal(self) -> None:
        """Read the last line, which is compared byte by byte, because the checksum does not include it."""
        expected = Seal(self._lines.number, self._lines.sha256)
        line = self._lines.next("the line with the sum of all others")
        with self._explained():
            told = self._decoded(line, Seal)
            if told.lines != expected.lines:
                raise Implausible(f"expected {expected.lines} lines before this one, got {told.lines}")
            if line != msgspec.json.encode(expected):
                raise Implausible("the sum of the lines is another: something was changed on the way")
        self._lines.check_end()

    def _decoded(self, line: bytes, kind: type[_Line]) -> _Line:
        decoded: _Line = _DECODERS[kind].decode(line)
        count = check_size(msgspec.json.decode(line), self._limits)
        if kind is not RecordLine:
            self._held += count
        if self._held > self._limits.held:
            raise Implausible(f"expected at most {self._limits.held} values besides those of records, got more")
        return decoded

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Implausible as problem:
            raise self._refused(str(problem)) from None
        except RecursionError:
            raise self._refused("lists or objects are too deep in each other") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> Refused:
        other = self._version not in ("", VERSION)
        hint = f"it was sent by opmark {self._version}, this is {VERSION}: upgrade the older one" if other else None
        return Refused(INVALID, f"line {self._lines.number}: {why}", hint)


def _under(kind: str, facts: dict[str, Any]) -> str:
    """Return the name under which a finding about a machine is stored."""
    return kept_under(facts) if kind == "peaks" else noise_under(facts.get("backend"), facts)


class _Format(Struct):
    opmark_push: int


def _check_format(line: bytes) -> None:
    """Check the format first, because another one may have other fields."""
    found = msgspec.json.decode(line, type=_Format).opmark_push
    if found != FORMAT:
        raise Implausible(f"format {found}; this opmark ({VERSION}) takes {FORMAT}")


def _fill(record: Record, samples: tuple[bytes, ...]) -> None:
    if len(samples) != len(record.measurements):
        raise Implausible(f"{len(record.measurements)} measurements, and samples of {len(samples)}")
    for measurement, packed in zip(record.measurements, samples, strict=True):
        if measurement.samples:
            raise Implausible("samples inside of the record; they belong beside it")
        if len(packed) % _WIDTH:
            raise Implausible(f"{len(packed)} bytes of samples; expected a multiple of {_WIDTH}")
        values = array("d", packed)
        if sys.byteorder == "big":
            values.byteswap()
        measurement.samples.extend(values)
