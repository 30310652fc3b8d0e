"""What of an upload a store has place for, and pages can show: lengths, depths, ranges, dates."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from opmark.dashboard.limits import Limits
from opmark.schema import Record, Run
from opmark.schema.pushed import Note
from opmark.store.merge import harmless_id

_WORD = 2**63
"""Whole numbers below it, and not below its negative, are those that databases and encoders have."""
_INTEGER = 2**31
"""The same of a column."""
_PLAN, _MOMENT = 16, 40
"""Characters of columns."""
_SAMPLES = "samples"


class Implausible(ValueError):
    """Why a line is refused."""


def check_size(value: Any, limits: Limits) -> None:
    """Of a whole line: how deep, how much, how long. Samples are limited by the line that they are in."""
    count = 0
    level = [part for key, part in value.items() if key != _SAMPLES] if isinstance(value, dict) else [value]
    for _ in range(limits.depth):
        count += len(level)
        if count > limits.values:
            raise Implausible(f"expected at most {limits.values} values, got more")
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
            return
        level = deeper
    raise Implausible(f"lists or objects are too deep in each other: expected at most {limits.depth} levels")


def _check_texts(texts: Iterable[str], limits: Limits) -> None:
    for text in texts:
        _check_plain(text, limits)


def _check_plain(value: Any, limits: Limits) -> None:
    if isinstance(value, str) and len(value) > limits.text:
        raise Implausible(f"expected texts of at most {limits.text} characters, got one of {len(value)}")
    if isinstance(value, int) and not -_WORD <= value < _WORD:
        raise Implausible("expected whole numbers of 64 bits, got a larger one")


def check_run(run: Run, notes: tuple[Note, ...], limits: Limits) -> None:
    if harmless_id(run.id) != run.id:
        raise Implausible(f"the id of the run is {run.id[:60]!a}; expected letters, digits, `.`, `_` and `-`, 1 to 48")
    moment("started", run.started)
    _at_most("plan", run.plan, _PLAN)
    for name in ("label", "version", "session", "revision"):
        _at_most(name, getattr(run, name), limits.name)
    _column("tasks", run.tasks)
    if run.description:
        raise Implausible("a run's description is one of its notes")
    if len(notes) > limits.notes:
        raise Implausible(f"expected at most {limits.notes} notes, got {len(notes)}")
    for note in notes:
        moment("noted", note.noted)
        if note.kind == "label":
            _at_most("label", note.text, limits.name)


def check_record(record: Record, limits: Limits) -> None:
    task = record.task
    names = {"op": task.case.op, "backend": task.backend, "implementation": task.implementation}
    for name, text in names.items():
        _at_most(name, text, limits.name)
        if not text and (name != "implementation" or record.measurements):  # what nothing computes has none
            raise Implausible(f"{name}: expected a name, got none")
    for measurement in record.measurements:
        _at_most("quantity", measurement.quantity, limits.name)
    if record.started:
        moment("started", record.started)
    _column("threads", task.settings.threads)
    _column("process", task.settings.process)
    if record.untried:
        raise Implausible("a record of what was not tried is not stored")


def moment(name: str, text: str) -> None:
    """A date, as they are sorted and compared as texts."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise Implausible(f"{name}: expected a date as in 2030-12-31T18:00:00.000+00:00, got {text[:60]!a}") from None
    _at_most(name, text, _MOMENT)


def _at_most(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Implausible(f"{name}: expected at most {most} characters, got {len(text)}")


def _column(name: str, number: int) -> None:
    if not 0 <= number < _INTEGER:
        raise Implausible(f"{name}: expected a number of 31 bits, got {number}")
