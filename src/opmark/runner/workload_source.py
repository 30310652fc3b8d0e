"""Reads a workload: a file of opmark's own format or of one that an importer knows, a folder of files, or an object."""

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
from opmark.catalogue.workload_file import PlainData, read_plain, workload_of
from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.hardware.datasheets import is_sheet, reconcile, sheet_of
from opmark.plugin import Importer
from opmark.plugin.formats import HEAD, FileImporter
from opmark.plugin.registry import importers, operators_like
from opmark.plugin.registry import operator as find_operator
from opmark.runner.allowed_callables import AllowedCallables
from opmark.runner.probe import missing_callables
from opmark.schema import PHASES, Case, Imported, ImportProblem, Peaks, Workload
from opmark.schema.codec import gc_disabled
from opmark.schema.options import Source
from opmark.schema.progress import OnStep, ignore_step
from opmark.schema.workload import VERSION
from opmark.units import count_noun

_ENDINGS = (".json", ".yaml", ".yml", ".csv")
_IN_CODE = Path("config")
_MAX_LISTED = 5
_RELAXED = "{path}: comments (//) and trailing commas were skipped; JSON has neither"


@dataclass(frozen=True)
class WorkloadSource:
    where: str
    workload: Workload
    foreign: str = ""
    """The importer that read it; none for a workload of our own format."""
    cases: tuple[Case, ...] = ()
    """For a foreign file: the cases of each entry in turn. A case is repeated as often as the file has it."""
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
    source: Source,
    *,
    seed: int = 0,
    phases: Sequence[str] = (),
    strict: bool = False,
    format: str = "",
    allow: Sequence[str] = (),
    on_step: OnStep = ignore_step,
) -> WorkloadSource:
    """Read a workload. Raise InvalidFile where nothing of it can be used, or with `strict` where something cannot.

    `phases` replace those of a foreign file; `format` names the importer, whatever the file looks like; `allow` names
    modules whose functions the file may call. `on_step` is called before each file.
    """
    if format and format not in importers():
        raise UnknownName("format of files", format, importers(), "opmark list formats")
    for phase in phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    try:
        with gc_disabled():
            found = _read_any(source, _ReadOptions(seed, phases, format, allow, on_step))
    finally:
        for importer in _file_importers():
            importer.release()
    if strict:
        found = dataclasses.replace(found, problems=(*found.problems, *_missing_callables(found)))
    if found.problems and (strict or not (found.cases or found.chips)):
        raise _refusal(found)
    if found.foreign and not (found.cases or found.chips):
        why = found.notes[0] if found.notes else "a list in it is empty where values are expected"
        raise InvalidFile(f"{found.where}: expands to no case", why)
    return found


class _ReadOptions(NamedTuple):
    seed: int
    phases: Sequence[str]
    format: str
    allow: Sequence[str]
    on_step: OnStep


def _read_any(source: Source, options: _ReadOptions) -> WorkloadSource:
    if isinstance(source, Workload):
        return WorkloadSource(source.name, source)
    if isinstance(source, Mapping):
        return _read_data(_IN_CODE, PlainData(dict(source)), options)
    path = Path(source)
    options.on_step(0, 0, f"reading {path.name}")
    return _read_folder(path, options) if os.path.isdir(path) else _read_file(path, options)  # noqa: PTH112 - any text


def _read_file(path: Path, options: _ReadOptions, named: str = "") -> WorkloadSource:
    """Read a file. `named` replaces its name in the sources of cases."""
    importer = _importer_of_file(path)
    if options.format:
        asked = importers()[options.format]
        importer = asked if isinstance(asked, FileImporter) else None
    if importer is not None:
        return _take(path, importer, importer.read(path, None, options.seed), options, named)
    return _read_data(path, read_plain(path), options, named)


def _file_importers() -> list[FileImporter]:
    return [one for one in importers().values() if isinstance(one, FileImporter)]


def _importer_of_file(path: Path) -> FileImporter | None:
    """Return the importer that reads a file by itself; None if there is none, or the file cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except (OSError, ValueError):
        return None
    return next((one for one in _file_importers() if one.takes_file(path, head)), None)


def _read_data(path: Path, content: PlainData, options: _ReadOptions, named: str = "") -> WorkloadSource:
    """Read the content of a file. `named` is as in `_read_file`."""
    data = content.data
    importer = _named_importer(path, data, options.format) if options.format else _find_importer(path, data)
    if importer is None:
        if content.relaxed and isinstance(data, dict) and "schema" in data:
            raise content.relaxed
        return _read_own_format(path, data, _allowed(path, options))
    found = importer.read(path, data, options.seed)
    if content.relaxed:
        found = replace(found, notes=(*found.notes, _RELAXED.format(path=path)))
    return _take(path, importer, found, options, named)


def _allowed(path: Path, options: _ReadOptions) -> AllowedCallables:
    return AllowedCallables(options.allow, None if path is _IN_CODE else path.parent)


def _take(path: Path, importer: Importer, found: Imported, options: _ReadOptions, named: str) -> WorkloadSource:
    """Return what an importer has found, with the phases that the user wants. `named` is as in `_read_file`."""
    if options.phases:
        found = replace(found, entries=tuple(replace(e, phases=list(options.phases)) for e in found.entries))
    if named and named != path.name:
        entries = (replace(e, source=named + e.source.removeprefix(path.name)) for e in found.entries)
        found = replace(found, entries=tuple(entries))
    return _check_entries(path, importer.name, found, _allowed(path, options))


def _read_own_format(path: Path, data: Any, allowed: AllowedCallables) -> WorkloadSource:
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
    workload = workload_of(data, str(path))
    for number, entry in enumerate(workload.cases):
        try:
            allowed.check(entry.op)
        except UserError as error:
            raise InvalidFile(f"{path}: {error.message}, at `$.cases[{number}].op`", error.hint) from None
    return WorkloadSource(str(path), workload)


def _find_importer(path: Path, data: Any) -> Importer | None:
    """The importer that recognises a file; None for opmark's own format, which has `schema` and `name`."""
    if isinstance(data, dict) and "schema" in data and "name" in data:
        return None
    return next((importer for importer in importers().values() if importer.recognises(path, data)), None)


def _named_importer(path: Path, data: Any, name: str) -> Importer:
    """The importer that the user names. It gets any mapping, also one that it does not recognise: it says what is
    wrong."""
    importer = importers()[name]
    if not isinstance(data, dict) and not importer.recognises(path, data):
        raise InvalidFile(f"{path}: expected a file of {name}, got a {type(data).__name__}", importer.summary)
    return importer


def _missing_callables(found: WorkloadSource) -> Iterator[ImportProblem]:
    """Yield the callables that their framework does not have. Asking takes seconds, so only `strict` does."""
    wrong = missing_callables({entry.op for entry in found.workload.cases})
    for entry in found.workload.cases if wrong else ():
        if entry.op in wrong:
            yield ImportProblem(f"{found.where}: {entry.source.partition('#')[2] or entry.op}", wrong[entry.op])


def _check_entries(path: Path, importer: str, found: Imported, allowed: AllowedCallables) -> WorkloadSource:
    """Expand every entry by itself, so that a broken one does not take the others with it."""
    entries, cases = [], []
    broken: Counter[ImportProblem] = Counter()
    for entry in found.entries:
        try:
            allowed.check(entry.op)
            cases += cases_of(entry, find_operator)
        except UserError as error:
            place = f"{path}: {entry.source.partition('#')[2] or entry.op}"
            broken[ImportProblem(place, error.message, error.hint or "")] += 1
        else:
            entries.append(entry)
    # Points of one place that fail alike are one problem.
    counted = (
        replace(problem, message=f"{problem.message} ({points} points)") if points > 1 else problem
        for problem, points in broken.items()
    )
    problems = (*found.problems, *counted)
    dense = [reconcile(chip) for chip in found.chips]
    chips = tuple(chip for chip, _ in dense)
    notes = (*found.notes, *(note for _, remarks in dense for note in remarks))
    workload = Workload(VERSION, path.stem or str(path), entries, f"{importer}, imported from {path.name}")
    return WorkloadSource(
        str(path), workload, importer, tuple(cases), problems, notes, found.asked, chips
    )  # fmt: skip


def _read_folder(folder: Path, options: _ReadOptions) -> WorkloadSource:
    found = (f for f in folder.rglob("*") if f.is_file() and (f.suffix in _ENDINGS or _importer_of_file(f)))
    files = sorted(f for f in found if not any(part.startswith(".") for part in f.relative_to(folder).parts))
    if not files:
        raise InvalidFile(f"{folder}: holds no workload", f"files that end in {', '.join(_ENDINGS)} are read")
    parts: list[WorkloadSource] = []
    problems: list[ImportProblem] = []
    for i, file in enumerate(files):
        options.on_step(i, len(files), f"reading {file.relative_to(folder)}")
        try:
            parts.append(_with_cases(_read_file(file, options, str(file.relative_to(folder)))))
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
        _common_requests(parts),
        tuple(chip for part in parts for chip in part.chips),
    )


def _with_cases(found: WorkloadSource) -> WorkloadSource:
    """The source with its cases: a workload of opmark's own format is not expanded when it is read."""
    if found.foreign:
        return found
    cases = expand(found.workload, find_operator, found.where, operators_like)
    return WorkloadSource(found.where, found.workload, cases=tuple(cases))


def _common_requests(parts: Sequence[WorkloadSource]) -> dict[str, Any]:
    """The measuring options that all files request alike."""
    asked = [part.asked for part in parts]
    return {key: value for key, value in asked[0].items() if all(a.get(key) == value for a in asked)} if asked else {}


def _refusal(found: WorkloadSource) -> InvalidFile:
    lines = "\n".join(str(problem) for problem in found.problems[:_MAX_LISTED])
    more = len(found.problems) - _MAX_LISTED
    rest = f"\n... and {more} more" if more > 0 else ""
    known = len(found.cases)
    hint = f"without --strict the other {count_noun(known, 'case')} would be taken" if known else None
    return InvalidFile(f"{found.where}: {count_noun(len(found.problems), 'problem')}:\n{lines}{rest}", hint)


def file_requests(asked: Mapping[str, Any]) -> Iterator[str]:
    """Messages about the measuring options that a file requests, for a run that does not follow them."""
    if asked:
        options = " ".join(f"--{name} {value}" for name, value in asked.items())
        yield f"`opmark run {options}` calls exactly as often as the file says; without, until the median is known"


def problem_lines(problems: Sequence[ImportProblem], notes: Sequence[str]) -> Iterator[str]:
    """Lines that tell a person what was not imported, and notes about the rest."""
    for problem in problems:
        yield f"not imported: {problem}"
    yield from notes
