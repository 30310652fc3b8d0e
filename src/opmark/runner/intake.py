"""A workload from wherever it comes: a file of ours, one that an importer knows, a folder of them, an object."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.hardware.compare import reconciled
from opmark.hardware.sheet import is_sheet, sheet_of
from opmark.interfaces import Importer
from opmark.measure.collector import no_collector
from opmark.registry import importers, operators_like
from opmark.registry import operator as find_operator
from opmark.schema import PHASES, Case, Entry, Imported, Peaks, Problem, Workload
from opmark.schema.workload import VERSION
from opmark.units import counted
from opmark.workloads.expand import cases_of, expand, merged
from opmark.workloads.load import read, workload_of

Source: TypeAlias = "str | os.PathLike[str] | Workload | Mapping[str, Any]"
"""A file or a folder; a workload made in code; the content of a file, as data."""

_ENDINGS = (".json", ".yaml", ".yml", ".csv")
_IN_CODE = Path("config")
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Intake:
    where: str
    workload: Workload
    foreign: str = ""
    """The importer that read it; none for a workload of our own format."""
    cases: tuple[Case, ...] = ()
    """Of a foreign file: of each entry in turn. The same case stands as often as the file has it."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    chips: tuple[Peaks, ...] = ()

    def distinct(self) -> list[Case]:
        """Each case once, with the sources of all."""
        found: dict[str, Case] = {}
        for case in self.cases:
            found[case.id] = merged(found[case.id], case) if case.id in found else case
        return list(found.values())


def take_in(source: Source, *, seed: int = 0, phases: Sequence[str] = (), strict: bool = False) -> Intake:
    """InvalidFile where nothing of it can be used, or with `strict` where something cannot.

    `phases` go in place of those that a foreign file is run with.
    """
    with no_collector():
        taken = _taken(source, seed, phases)
    if taken.problems and (strict or not (taken.cases or taken.chips)):
        raise _refused(taken)
    if taken.foreign and not (taken.cases or taken.chips):
        raise InvalidFile(f"{taken.where}: expands to no case", "a list in it is empty where values are expected")
    return taken


def _taken(source: Source, seed: int, phases: Sequence[str]) -> Intake:
    for phase in phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    if isinstance(source, Workload):
        return Intake(source.name, source)
    if isinstance(source, Mapping):
        return _of_data(_IN_CODE, dict(source), seed, phases)
    path = Path(source)
    return _of_folder(path, seed, phases) if path.is_dir() else _of_data(path, read(path), seed, phases)


def _of_data(path: Path, data: Any, seed: int, phases: Sequence[str]) -> Intake:
    importer = _importer(path, data)
    if importer is None and is_sheet(data):
        chips = tuple(sheet_of(data, str(path)).chips)
        return Intake(str(path), Workload(VERSION, path.stem, []), "opmark hardware", chips=chips)
    if importer is None:
        return Intake(str(path), workload_of(data, str(path)))
    found = importer.read(path, data, seed)
    if phases:
        found = replace(found, entries=tuple(replace(e, phases=list(phases)) for e in found.entries))
    return _checked(path, importer.name, found)


def _importer(path: Path, data: Any) -> Importer | None:
    """Our own format says so itself, with `schema`."""
    if isinstance(data, dict) and "schema" in data and "name" in data:
        return None
    return next((importer for importer in importers().values() if importer.recognises(path, data)), None)


def _checked(path: Path, importer: str, found: Imported) -> Intake:
    """Every entry by itself, so that a broken one does not take the others with it."""
    entries, cases = [], []
    broken: Counter[Problem] = Counter()
    for entry in found.entries:
        try:
            cases += cases_of(entry, find_operator)
        except UserError as error:
            broken[Problem(_place(path, entry), error.message, error.hint or "")] += 1
        else:
            entries.append(entry)
    problems = (*found.problems, *(_counted(problem, points) for problem, points in broken.items()))
    dense = [reconciled(chip) for chip in found.chips]
    chips = tuple(chip for chip, _ in dense)
    notes = (*found.notes, *(note for _, said in dense for note in said))
    workload = Workload(VERSION, path.stem or str(path), entries, f"{importer}, imported from {path.name}")
    return Intake(
        str(path), workload, importer, tuple(cases), problems, notes, found.asked, chips
    )  # fmt: skip


def _counted(problem: Problem, points: int) -> Problem:
    """Points of one place that fail alike are one problem."""
    return replace(problem, message=f"{problem.message} ({points} points)") if points > 1 else problem


def _place(path: Path, entry: Entry) -> str:
    return f"{path}: {entry.source.partition('#')[2] or entry.op}"


def _of_folder(folder: Path, seed: int, phases: Sequence[str]) -> Intake:
    files = sorted(f for f in folder.rglob("*") if f.suffix in _ENDINGS and f.is_file())
    if not files:
        raise InvalidFile(f"{folder}: holds no workload", f"files that end in {', '.join(_ENDINGS)} are read")
    parts: list[Intake] = []
    problems: list[Problem] = []
    for file in files:
        try:
            parts.append(_expanded(_of_data(file, read(file), seed, phases)))
        except UserError as error:
            problems.append(Problem(str(file), error.message.removeprefix(f"{file}: "), error.hint or ""))
    formats = dict.fromkeys(part.foreign or "opmark" for part in parts)
    entries = [entry for part in parts for entry in part.workload.cases]
    return Intake(
        str(folder),
        Workload(VERSION, folder.name, entries, f"{', '.join(formats)}, imported from {folder.name}"),
        ", ".join(formats) or "folder",
        tuple(case for part in parts for case in part.cases),
        tuple(problems) + tuple(problem for part in parts for problem in part.problems),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        _agreed(parts),
        tuple(chip for part in parts for chip in part.chips),
    )


def _expanded(taken: Intake) -> Intake:
    """A workload of ours among foreign ones: with its cases, as they have them."""
    if taken.foreign:
        return taken
    cases = expand(taken.workload, find_operator, taken.where, operators_like)
    return Intake(taken.where, taken.workload, cases=tuple(cases))


def _agreed(parts: Sequence[Intake]) -> dict[str, Any]:
    """What every file asks for alike."""
    asked = [part.asked for part in parts]
    return {key: value for key, value in asked[0].items() if all(a.get(key) == value for a in asked)} if asked else {}


def _refused(taken: Intake) -> InvalidFile:
    lines = "\n".join(str(problem) for problem in taken.problems[:_MOST_SHOWN])
    more = len(taken.problems) - _MOST_SHOWN
    rest = f"\n... and {more} more" if more > 0 else ""
    known = len(taken.cases)
    hint = f"without --strict the other {counted(known, 'case')} would be taken" if known else None
    return InvalidFile(f"{taken.where}: {counted(len(taken.problems), 'problem')}:\n{lines}{rest}", hint)


def wishes(asked: Mapping[str, Any]) -> Iterator[str]:
    """How a file wants to be measured, for whoever does it in another way: fixed numbers are seldom enough."""
    if asked:
        options = " ".join(f"--{name} {value}" for name, value in asked.items())
        yield f"`opmark run {options}` calls exactly as often as the file says; without, until the median is known"


def complaints(problems: Sequence[Problem], notes: Sequence[str]) -> Iterator[str]:
    """What a person should know of what was taken in, a line each."""
    for problem in problems:
        yield f"not imported: {problem}"
    yield from notes
