"""A workload from wherever it comes: a file of ours, one that an importer knows, a folder of them, an object."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.catalogue.expansion import cases_of, expand, merge_cases
from opmark.catalogue.workload_file import read, workload_of
from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.hardware.datasheets import is_sheet, reconcile, sheet_of
from opmark.plugin import Importer
from opmark.plugin.registry import importers, operators_like
from opmark.plugin.registry import operator as find_operator
from opmark.runner.probe import missing_callables
from opmark.schema import PHASES, Case, Entry, Imported, ImportProblem, Peaks, Workload
from opmark.schema.codec import gc_disabled
from opmark.schema.options import Source
from opmark.schema.workload import VERSION
from opmark.units import count_noun

_ENDINGS = (".json", ".yaml", ".yml", ".csv")
_IN_CODE = Path("config")
_MOST_SHOWN = 5


@dataclass(frozen=True)
class WorkloadSource:
    where: str
    workload: Workload
    foreign: str = ""
    """The importer that read it; none for a workload of our own format."""
    cases: tuple[Case, ...] = ()
    """Of a foreign file: of each entry in turn. The same case stands as often as the file has it."""
    problems: tuple[ImportProblem, ...] = ()
    notes: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    chips: tuple[Peaks, ...] = ()

    def distinct(self) -> list[Case]:
        """Each case once, with the sources of all."""
        found: dict[str, Case] = {}
        for case in self.cases:
            found[case.id] = merge_cases(found[case.id], case) if case.id in found else case
        return list(found.values())


def read_source(
    source: Source, *, seed: int = 0, phases: Sequence[str] = (), strict: bool = False, format: str = ""
) -> WorkloadSource:
    """InvalidFile where nothing of it can be used, or with `strict` where something cannot.

    `phases` go in place of those that a foreign file is run with; `format` names the importer, whatever the file
    looks like.
    """
    if format and format not in importers():
        raise UnknownName("format of files", format, importers(), "opmark list formats")
    for phase in phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    with gc_disabled():
        taken = _taken(source, _Way(seed, phases, format))
    if strict:
        taken = dataclasses.replace(taken, problems=(*taken.problems, *_nowhere(taken)))
    if taken.problems and (strict or not (taken.cases or taken.chips)):
        raise _refused(taken)
    if taken.foreign and not (taken.cases or taken.chips):
        raise InvalidFile(f"{taken.where}: expands to no case", "a list in it is empty where values are expected")
    return taken


class _Way(NamedTuple):
    """How to read."""

    seed: int
    phases: Sequence[str]
    format: str


def _taken(source: Source, way: _Way) -> WorkloadSource:
    if isinstance(source, Workload):
        return WorkloadSource(source.name, source)
    if isinstance(source, Mapping):
        return _of_data(_IN_CODE, dict(source), way)
    path = Path(source)
    return _of_folder(path, way) if os.path.isdir(path) else _of_data(path, read(path), way)  # noqa: PTH112 - any text


def _of_data(path: Path, data: Any, way: _Way, named: str = "") -> WorkloadSource:
    """`named`: what sources are to say in place of the name of the file."""
    importer = _insisted(path, data, way.format) if way.format else _importer(path, data)
    if importer is None:
        return _ours(path, data)
    found = importer.read(path, data, way.seed)
    if way.phases:
        found = replace(found, entries=tuple(replace(e, phases=list(way.phases)) for e in found.entries))
    if named and named != path.name:
        entries = (replace(e, source=named + e.source.removeprefix(path.name)) for e in found.entries)
        found = replace(found, entries=tuple(entries))
    return _checked(path, importer.name, found)


def _ours(path: Path, data: Any) -> WorkloadSource:
    if is_sheet(data):
        chips = tuple(sheet_of(data, str(path)).chips)
        return WorkloadSource(str(path), Workload(VERSION, path.stem, []), "opmark hardware", chips=chips)
    if data is not None and (not isinstance(data, dict) or not data.keys() & {"schema", "cases"}):
        formats = ", ".join(importers())
        raise InvalidFile(
            f"{path}: is of no format that is known here",
            f"a workload of ours has `schema`, `name` and `cases`; others are {formats} (`opmark list formats`), and "
            "`opmark import --format NAME` says what is wrong with one of them",
        )
    return WorkloadSource(str(path), workload_of(data, str(path)))


def _importer(path: Path, data: Any) -> Importer | None:
    """Our own format says so itself, with `schema`."""
    if isinstance(data, dict) and "schema" in data and "name" in data:
        return None
    return next((importer for importer in importers().values() if importer.recognises(path, data)), None)


def _insisted(path: Path, data: Any, name: str) -> Importer:
    """An importer can say what is wrong with a mapping that it does not recognise, and with nothing else."""
    importer = importers()[name]
    if not isinstance(data, dict) and not importer.recognises(path, data):
        raise InvalidFile(f"{path}: expected a file of {name}, got a {type(data).__name__}", importer.summary)
    return importer


def _nowhere(taken: WorkloadSource) -> Iterator[ImportProblem]:
    """Callables that their framework does not have: it takes seconds to ask, so only who is strict does."""
    wrong = missing_callables({entry.op for entry in taken.workload.cases})
    for entry in taken.workload.cases if wrong else ():
        if entry.op in wrong:
            yield ImportProblem(f"{taken.where}: {entry.source.partition('#')[2] or entry.op}", wrong[entry.op])


def _checked(path: Path, importer: str, found: Imported) -> WorkloadSource:
    """Every entry by itself, so that a broken one does not take the others with it."""
    entries, cases = [], []
    broken: Counter[ImportProblem] = Counter()
    for entry in found.entries:
        try:
            cases += cases_of(entry, find_operator)
        except UserError as error:
            broken[ImportProblem(_place(path, entry), error.message, error.hint or "")] += 1
        else:
            entries.append(entry)
    problems = (*found.problems, *(_counted(problem, points) for problem, points in broken.items()))
    dense = [reconcile(chip) for chip in found.chips]
    chips = tuple(chip for chip, _ in dense)
    notes = (*found.notes, *(note for _, said in dense for note in said))
    workload = Workload(VERSION, path.stem or str(path), entries, f"{importer}, imported from {path.name}")
    return WorkloadSource(
        str(path), workload, importer, tuple(cases), problems, notes, found.asked, chips
    )  # fmt: skip


def _counted(problem: ImportProblem, points: int) -> ImportProblem:
    """Points of one place that fail alike are one problem."""
    return replace(problem, message=f"{problem.message} ({points} points)") if points > 1 else problem


def _place(path: Path, entry: Entry) -> str:
    return f"{path}: {entry.source.partition('#')[2] or entry.op}"


def _of_folder(folder: Path, way: _Way) -> WorkloadSource:
    found = (f for f in folder.rglob("*") if f.suffix in _ENDINGS and f.is_file())
    files = sorted(f for f in found if not any(part.startswith(".") for part in f.relative_to(folder).parts))
    if not files:
        raise InvalidFile(f"{folder}: holds no workload", f"files that end in {', '.join(_ENDINGS)} are read")
    parts: list[WorkloadSource] = []
    problems: list[ImportProblem] = []
    for file in files:
        try:
            parts.append(_expanded(_of_data(file, read(file), way, str(file.relative_to(folder)))))
        except UserError as error:
            problems.append(
                ImportProblem(str(file), error.message.removeprefix(f"{file}").lstrip(": "), error.hint or "")
            )
    formats = dict.fromkeys(part.foreign or "opmark" for part in parts)
    entries = [entry for part in parts for entry in part.workload.cases]
    name = folder.resolve().name or "root"
    return WorkloadSource(
        str(folder),
        Workload(VERSION, name, entries, f"{', '.join(formats)}, imported from {name}"),
        ", ".join(formats) or "folder",
        tuple(case for part in parts for case in part.cases),
        tuple(problems) + tuple(problem for part in parts for problem in part.problems),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        _agreed(parts),
        tuple(chip for part in parts for chip in part.chips),
    )


def _expanded(taken: WorkloadSource) -> WorkloadSource:
    """A workload of ours among foreign ones: with its cases, as they have them."""
    if taken.foreign:
        return taken
    cases = expand(taken.workload, find_operator, taken.where, operators_like)
    return WorkloadSource(taken.where, taken.workload, cases=tuple(cases))


def _agreed(parts: Sequence[WorkloadSource]) -> dict[str, Any]:
    """What every file asks for alike."""
    asked = [part.asked for part in parts]
    return {key: value for key, value in asked[0].items() if all(a.get(key) == value for a in asked)} if asked else {}


def _refused(taken: WorkloadSource) -> InvalidFile:
    lines = "\n".join(str(problem) for problem in taken.problems[:_MOST_SHOWN])
    more = len(taken.problems) - _MOST_SHOWN
    rest = f"\n... and {more} more" if more > 0 else ""
    known = len(taken.cases)
    hint = f"without --strict the other {count_noun(known, 'case')} would be taken" if known else None
    return InvalidFile(f"{taken.where}: {count_noun(len(taken.problems), 'problem')}:\n{lines}{rest}", hint)


def file_requests(asked: Mapping[str, Any]) -> Iterator[str]:
    """How a file wants to be measured, for whoever does it in another way: fixed numbers are seldom enough."""
    if asked:
        options = " ".join(f"--{name} {value}" for name, value in asked.items())
        yield f"`opmark run {options}` calls exactly as often as the file says; without, until the median is known"


def problem_lines(problems: Sequence[ImportProblem], notes: Sequence[str]) -> Iterator[str]:
    """What a person should know of what was taken in, a line each."""
    for problem in problems:
        yield f"not imported: {problem}"
    yield from notes
