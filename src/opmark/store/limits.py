"""Limits of what comes from elsewhere, by upload or by merge, and checks that it fits into a store and can be shown:
lengths, depths, ranges, dates.

opmark's own runs stay far below the limits; its client sends large ones in parts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from opmark.schema import Case, Record, Run
from opmark.schema.case import LONGEST_NAME
from opmark.schema.codec import strict_struct
from opmark.schema.machine import MachineFinding, NoiseFloor, Peaks
from opmark.schema.record import MEASURED
from opmark.schema.tuned import TunedEntry
from opmark.schema.upload import Note


@dataclass(frozen=True)
class Limits:
    wire: int = 32 << 20
    """Bytes as they arrive. They are in memory together with their decoded form, for several uploads at once."""
    unpacked: int = 256 << 20
    """Bytes after inflating. Records shrink to about a fifth; data that shrinks to a thousandth is not measurements."""
    line: int = 8 << 20
    """Bytes of a record: 60 ranks with a thousand samples each are one or two million."""
    records: int = 50_000
    environments: int = 1_000
    """Number of environments; a run has one for each backend, and a new one after a change."""
    findings: int = 1_000
    notes: int = 1_000
    text: int = 100_000
    """Characters of a text; the longest are commands and error messages of frameworks."""
    name: int = LONGEST_NAME
    """Characters of names that are shown in tables and searched for: operators, backends, labels."""
    depth: int = 24
    """Depth of nested lists and objects, so that recursive code does not run out of stack."""
    values: int = 500_000
    """Numbers, texts, lists and objects of a line; each takes far more memory than its bytes."""
    held: int = 1_000_000
    """Number of values of all lines except records, which are in memory together; records are packed one by one."""


LIMITS = Limits()


_ID = re.compile(r"(?!\.)[\w.-]{1,48}", re.ASCII)
"""Valid form of an id of a run: safe as a file name, and short enough to get a number appended."""
_WORD = 2**63
"""Limit of whole numbers of 64 bits, in databases and encoders."""
_INTEGER = 2**31
"""Limit of whole numbers of an integer column."""
_PLAN = 16
"""Characters of the column of plans."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}(?:\d{3})?)?\+00:00", re.ASCII)
"""opmark's format of times, which are sorted and compared as texts."""
_AHEAD = timedelta(days=1)
"""Largest error of a clock."""
_SAMPLE = (1e-30, 1e18)
"""Range of samples in seconds, joules or bytes, besides 0; values computed from others could overflow."""
_SECONDS, _FLOPS, _BANDWIDTH = (1e-12, 1e6), (1e3, 1e19), (1e6, 1e17)
_SPREAD, _LAUNCH = (0.0, 1.0), (0.0, 1e6)


class LimitExceeded(ValueError):
    """The reason why a line of an upload, or a row of another store, is refused."""


def harmless_id(theirs: str) -> str:
    """Return an id of a run that is safe as a file name and in messages. An unsafe id of another store is replaced by a
    hash, which is the same when it is merged again."""
    if _ID.fullmatch(theirs):
        return theirs
    return f"renamed-{hashlib.sha256(theirs.encode(errors='surrogatepass')).hexdigest()[:16]}"


def check_size(value: Any, limits: Limits) -> int:
    """Check depth, lengths and number of values of data from elsewhere, and return the number."""
    count = 0
    level = [value]
    for _ in range(limits.depth):
        count += len(level)
        if count > limits.values:
            raise LimitExceeded(f"expected at most {limits.values} values, got more")
        deeper: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                _check_texts(part, limits)
                deeper.extend(part.values())
            elif isinstance(part, list):
                deeper.extend(part)
            else:
                _check_plain(part, limits)
        if not deeper:
            return count
        level = deeper
    raise LimitExceeded(f"lists or objects are too deep in each other: expected at most {limits.depth} levels")


def _check_texts(texts: Iterable[str], limits: Limits) -> None:
    for text in texts:
        _check_plain(text, limits)


def _check_plain(value: Any, limits: Limits) -> None:
    if isinstance(value, str) and len(value) > limits.text:
        raise LimitExceeded(f"expected texts of at most {limits.text} characters, got one of {len(value)}")
    if isinstance(value, int) and not -_WORD <= value < _WORD:
        raise LimitExceeded("expected whole numbers of 64 bits, got a larger one")


def check_run(run: Run, notes: tuple[Note, ...], limits: Limits) -> None:
    if harmless_id(run.id) != run.id:
        raise LimitExceeded(
            f"the id of the run is {run.id[:60]!a}; expected letters, digits, `.`, `_` and `-`, 1 to 48"
        )
    check_time("started", run.started)
    _check_length("plan", run.plan, _PLAN)
    for name in ("label", "version", "session", "revision"):
        _check_length(name, getattr(run, name), limits.name)
    _check_column("tasks", run.tasks)
    if run.description:
        raise LimitExceeded("a run's description is one of its notes")
    if len(notes) > limits.notes:
        raise LimitExceeded(f"expected at most {limits.notes} notes, got {len(notes)}")
    for note in notes:
        if check_time("noted", note.noted) > check_time(
            "started", run.started
        ):  # older notes were made when the run began
            check_not_future("noted", note.noted)
        if note.kind == "label":
            _check_length("label", note.text, limits.name)


def check_case(case: Case) -> None:
    """Check that the id is that of the content, because results of one id are compared."""
    if case.id != (same := Case.of(case.op, case.params, case.phase, wrt=case.wrt)).id:
        raise LimitExceeded(f"case `{case.id[:60]}` of `{case.op[:60]}`: its content has the id {same.id}")


def check_record(record: Record, limits: Limits) -> None:
    task = record.task
    names = {"op": task.case.op, "backend": task.backend, "implementation": task.implementation}
    for name, text in names.items():
        _check_length(name, text, limits.name)
        if not text and (name != "implementation" or record.measurements):  # a case that nothing implements has none
            raise LimitExceeded(f"{name}: expected a name, got none")
    for measurement in record.measurements:
        _check_length("quantity", measurement.quantity, limits.name)
        if record.status in MEASURED and not measurement.samples:
            raise LimitExceeded(f"{measurement.quantity}: expected samples of what was measured, got none")
        _check_samples(measurement.samples)
    if record.started:
        check_time("started", record.started)
    _check_column("threads", task.settings.threads)
    _check_column("process", task.settings.process)
    if record.untried:
        raise LimitExceeded("a record of what was not tried is not stored")


def _check_samples(samples: Iterable[float]) -> None:
    """Check the range of samples; NaN and infinity are kept as they were measured."""
    least, most = _SAMPLE
    for sample in samples:
        if sample != 0 and math.isfinite(sample) and not least <= abs(sample) <= most:
            raise LimitExceeded(f"samples: expected 0, or {least:g} to {most:g}, got {sample:g}")


def check_peaks(peaks: Peaks) -> None:
    """Check that peaks are those of a chip, because other results are compared with them."""
    for dtype, rate in peaks.flops.items():
        _check_range(f"flops of {dtype[:60]}", rate, _FLOPS)
    levels = [(level.name, level.bandwidth) for level in peaks.levels]
    for name, bandwidth in levels + [(way.name, way.bandwidth) for way in peaks.interconnect]:
        if bandwidth is not None:
            _check_range(f"bandwidth of {name[:60]}", bandwidth, _BANDWIDTH)
    for quantity, seconds in peaks.launch.items():
        _check_range(f"launch, {quantity[:60]}", seconds, _LAUNCH)
    for level in peaks.levels:
        if level.nbytes is not None and level.nbytes < 1:
            raise LimitExceeded(f"nbytes of {level.name[:60]}: expected at least 1, got {level.nbytes}")


def check_noise(noise: NoiseFloor) -> None:
    if not noise.floors:
        raise LimitExceeded("floors: expected at least one, got none")
    for floor in noise.floors:
        _check_range("seconds", floor.seconds, _SECONDS)
        _check_range("between", floor.between, _SPREAD)
        _check_range("within", floor.within, _SPREAD)


_BODIES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "peaks": (strict_struct(Peaks), check_peaks),
    "noise": (strict_struct(NoiseFloor), check_noise),
}
"""Types of findings, with the function that checks their content."""


def check_finding(finding: MachineFinding) -> None:
    check_not_future("started", finding.started)
    if finding.kind not in _BODIES:
        raise LimitExceeded(f"a finding of the kind `{finding.kind[:60]}`; expected {' or '.join(_BODIES)}")
    kind, check = _BODIES[finding.kind]
    check(msgspec.convert(finding.body, kind))


def check_tuned(entry: TunedEntry) -> None:
    """Check what a tuning has found: its case, its date, and times that are times."""
    check_not_future("made", entry.made)
    if not _CASE_ID.fullmatch(entry.case):
        raise LimitExceeded(f"tuned `{entry.op[:60]}`: its case has the id {entry.case[:60]!a}")
    for name in ("default_seconds", "tuned_seconds", "library_seconds"):
        if (value := getattr(entry, name)) is not None:
            _check_range(name, value, _TUNED_SECONDS)


_CASE_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_TUNED_SECONDS = (0.0, 1e6)


def _check_range(name: str, number: float, limits: tuple[float, float]) -> None:
    if not limits[0] <= number <= limits[1]:  # also refuses NaN
        raise LimitExceeded(f"{name}: expected {limits[0]:g} to {limits[1]:g}, got {number:g}")


def check_time(name: str, text: str) -> datetime:
    try:
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass  # for example a month 13
    raise LimitExceeded(f"{name}: expected a date as in 2030-12-31T18:00:00.000+00:00, got {text[:60]!a}")


def check_not_future(name: str, text: str) -> None:
    """Check that a date is not in the future: the newest finding counts, and such a one would count for ever."""
    if check_time(name, text) > datetime.now(timezone.utc) + _AHEAD:
        raise LimitExceeded(f"{name}: expected a date that is not to come, got {text}")


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise LimitExceeded(f"{name}: expected at most {most} characters, got {len(text)}")


def _check_column(name: str, number: int) -> None:
    if not 0 <= number < _INTEGER:
        raise LimitExceeded(f"{name}: expected a number of 31 bits, got {number}")
