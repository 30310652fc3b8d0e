"""Backends side by side: a row a case, a column a way to compute it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from opmark.analysis.rows import MachineFacts, Row, rows_of_records
from opmark.metrics.lead import Contender, Key, ordered, shared_key, winner
from opmark.registry import backend_or_none, way_of
from opmark.schema import Record
from opmark.schema.case import content_id


class Column(NamedTuple):
    """One way to compute: where it runs, which implementation, with how many threads."""

    backend: str
    way: str
    """`/IMPLEMENTATION` where the framework has several."""
    threads: int


@dataclass(frozen=True)
class Line:
    """A case, however it was computed."""

    cells: Mapping[Column, Row]
    key: Key | None
    """What is shown of it: measured by all that measured anything; None where they share nothing."""
    best: Column | None
    """The one that is ahead of all others by more than chance and noise."""
    raced: int
    """How many of them count: verified, and measured alike."""

    @property
    def row(self) -> Row:
        return next(iter(self.cells.values()))

    def shown(self, column: Column) -> Key | None:
        """What is shown in a column; where the columns share nothing, each shows what it has."""
        measured = self.cells[column].keys
        return self.key if self.key in measured else measured[0] if measured and self.key is None else None


def several_backends(records: Iterable[Record]) -> bool:
    """Whether there is a case that more than one backend was asked for."""
    seen: dict[str, str] = {}
    return any(seen.setdefault(r.task.case.id, r.task.backend) != r.task.backend for r in records)


def lines(records: Sequence[Record], machines: Mapping[str, MachineFacts]) -> list[Line]:
    """The lines of a run, in the order of the backend that ran the most of them: what cannot run is recorded out of
    turn."""
    grouped: dict[str, dict[Column, Row]] = {}
    ran: dict[Column, list[str]] = {}
    for row in rows_of_records(records, machines=machines):
        alike = content_id([row.case, row.mode, row.seed, row.effort])
        column = Column(row.backend, way_of(row.backend, row.implementation), row.threads)
        grouped.setdefault(alike, {})[column] = row
        if row.status != "skipped":
            ran.setdefault(column, []).append(alike)
    planned = max(ran.values(), key=len, default=[])
    return [_line(grouped[alike]) for alike in dict.fromkeys((*planned, *grouped))]


def _line(cells: Mapping[Column, Row]) -> Line:
    key = shared_key(row.records for row in cells.values())
    if key is None:
        return Line(cells, None, None, 0)
    contenders = [Contender(row.records, "", _floor(row, key)) for row in cells.values()]
    place = winner(contenders, key)
    return Line(cells, key, None if place is None else list(cells)[place], len(ordered(contenders, key)))


def _floor(row: Row, key: Key) -> float | None:
    found, summary = row.machine.noise, row.summary(key)
    return found.floor_for(summary.median) if found and summary and summary.median > 0 else None


def columns(found: Sequence[Line]) -> list[Column]:
    """As they come; implementations that only some cases have stand last, so that they share a block."""
    listed = list(dict.fromkeys(column for line in found for column in line.cells))
    everywhere = {column for column in listed if not column.way or all(column in line.cells for line in found)}
    return sorted(listed, key=lambda column: column not in everywhere)


class Names(NamedTuple):
    """Heads of the columns, short enough to stand next to each other, and what was left out of them."""

    of: Mapping[Column, str]
    device: str
    """What all of the backends are on."""
    threads: int | None
    """With how many all of them ran; None where that differs and stands in the heads."""
    interpreters: Mapping[str, str]
    """Paths by the names that stand for them."""


def heads(listed: Sequence[Column]) -> Names:
    devices = {_device(column.backend) for column in listed}
    device = devices.pop() if len(devices) == 1 else ""
    numbers = {column.threads for column in listed}
    interpreters = _interpreters(column.backend.partition("@")[2] for column in listed)
    short = {path: name for name, path in interpreters.items()}
    of = {}
    for column in listed:
        rest, at, python = column.backend.partition("@")
        plain, slash, variant = rest.partition("/")
        plain = plain.removesuffix(f"-{device}") if device else plain
        threads = f" ×{column.threads}" if len(numbers) > 1 else ""
        of[column] = f"{plain}{slash}{variant}{at}{short.get(python, python)}{column.way}{threads}"
    shared = next(iter(numbers)) if len(numbers) == 1 else None
    return Names(of, device, shared, interpreters)


def _device(backend: str) -> str:
    """The device that stands at the end of a backend's name; empty where none does."""
    info, plain = backend_or_none(backend), backend.partition("@")[0].partition("/")[0]
    device = info.device if info else plain.rpartition("-")[2]
    return device if plain.endswith(f"-{device}") else ""


def _interpreters(paths: Iterable[str]) -> dict[str, str]:
    """A path goes by the folder of its environment, if that is enough to tell it from the others."""
    found = [path for path in dict.fromkeys(paths) if "/" in path]
    folders = {path: _environment(PurePath(path)) or path for path in found}
    alone = [path for path in found if list(folders.values()).count(folders[path]) == 1]
    return {folders[path]: path for path in alone if folders[path] != path}


def _environment(path: PurePath) -> str:
    """The folder of an environment, which may itself be what was named."""
    return path.parent.parent.name if path.parent.name in ("bin", "Scripts") else path.name


def called(line: Line, *, phase: bool, quantity: bool) -> tuple[str, str]:
    """(operator, parameters and what else tells it from the other lines)."""
    parts = [line.row.parameters]
    if phase:
        parts.append(line.row.phase_text)
    if quantity and line.key:
        parts.append(" ".join(line.key))
    return line.row.op, " ".join(filter(None, parts))
