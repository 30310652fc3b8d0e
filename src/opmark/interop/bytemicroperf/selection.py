"""Reads the tasks of files, of a folder or of the suite that ships, and selects those of `--task`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import read, suite
from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.interop.bytemicroperf.operators import GROUPS, TASKS, reported_cases, tasks_in_sources, v1_name
from opmark.plugin.registry import importers, operators_like
from opmark.plugin.registry import operator as find_operator
from opmark.runner.workload_source import WorkloadSource, read_source
from opmark.schema import Entry, ImportProblem, Workload
from opmark.schema.options import Names, split_names
from opmark.schema.workload import VERSION

SUITE = "bytemicroperf"
ALL = "all"
_FOLDERS = (Path("workloads/basic"), Path("workloads"))
"""Default folders of ByteMicroPerf; the first that exists is used."""
_ENDINGS = (".json", ".csv", ".yaml", ".yml")
_LISTING = "opmark micro-perf --show_task_list"


Kind = Literal["compute", "transfer", "ranks"]
"""Whether an operator runs on a device alone, on a device with its host, or on several processes."""


class EntryGroup(NamedTuple):
    """Entries that are measured in the same way."""

    requests: Mapping[str, Any]
    kind: Kind
    entries: list[Entry]


class WorkloadEntry(NamedTuple):
    """An entry of a workload."""

    entry: Entry
    v1: str
    v3: str
    names: frozenset[str]
    """All its names in `--task`."""
    cases: int
    requests: Mapping[str, Any]
    """Options of the measurement that its file sets."""
    kind: Kind = "compute"

    def title(self, *, v1: bool) -> str:
        return self.v1 if v1 else self.v3


class Offer(NamedTuple):
    where: str
    items: list[WorkloadEntry]
    problems: list[ImportProblem]
    notes: list[str]


class TaskChoice(NamedTuple):
    items: list[WorkloadEntry]
    missing: list[str]
    """One line for each requested case that cannot be measured."""
    remarks: list[str]
    """One line for each case that opmark takes differently from ByteMicroPerf."""


def read_offer(workload: Path | None, task_dir: Path | None, *, v1: bool, allow: Names = ()) -> Offer:
    """Read the tasks of a file, of a folder or of the suite; `allow` names modules whose functions files may call."""
    if workload is not None:
        return _read_file(workload, allow)
    folder = task_dir or next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        whole = WorkloadSource(f"suite {SUITE}", suite(SUITE))
        return Offer(whole.where, _items_of_generation(_items(whole), v1=v1), [], [])
    if not os.path.isdir(folder):  # noqa: PTH112 - any text
        raise UserError(f"--task_dir {folder}: no such folder", "leave it out to use the workloads that ship")
    return _read_folder(folder, allow)


def _items_of_generation(items: list[WorkloadEntry], *, v1: bool) -> list[WorkloadEntry]:
    """Select the sizes that this generation ships for a task; a task that it lacks has those of the others."""
    titles = {item.title(v1=v1) for item in items if _is_v1(item) == v1}
    return [item for item in items if _is_v1(item) == v1 or item.title(v1=v1) not in titles]


def _is_v1(item: WorkloadEntry) -> bool:
    """Whether an item of the suite is of 2024, whose groups are its tags."""
    return bool(GROUPS.keys() & set(item.entry.tags))


def _read_file(path: Path, allow: Names) -> Offer:
    try:
        taken = read_source(path, allow=split_names(allow))
    except InvalidFile:
        problems = _read_problems(path)
        if not problems:
            raise
        return Offer(str(path), [], problems, [])
    if not taken.workload.cases:
        raise UserError(f"{path}: the file has no task", "use --vendor_path for a hardware file")
    notes = list(taken.notes)
    return Offer(str(path), _items(taken), list(taken.problems), notes)


def _read_problems(path: Path) -> list[ImportProblem]:
    """Return the problems of a file that is recognised but has nothing that opmark can measure."""
    data = read(path)
    for importer in importers().values():
        if importer.recognises(path, data):
            found = importer.read(path, data, 0)
            return [] if found.entries else list(found.problems)
    return []


def _read_folder(folder: Path, allow: Names) -> Offer:
    """Read file by file, because each file sets its own options of the measurement."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    if not files:
        raise UserError(f"{folder}: the folder has no workload", f"files that end in {', '.join(_ENDINGS)} are read")
    offer = Offer(str(folder), [], [], [])
    for file in files:
        try:
            found = _read_file(file, allow)
        except UserError as error:
            message = error.message.removeprefix(f"{file}: ")
            offer.problems.append(ImportProblem(str(file), message, error.hint or ""))
        else:
            offer.items.extend(found.items)
            offer.problems.extend(found.problems)
            offer.notes.extend(note for note in found.notes if note not in offer.notes)
    return offer


def _items(taken: WorkloadSource) -> list[WorkloadEntry]:
    entries = taken.workload.cases
    return [_item(replace(entry, op=name), taken) for entry in entries for name in operators_like(entry.op)]


def _item(entry: Entry, taken: WorkloadSource) -> WorkloadEntry:
    cases = expand(Workload(VERSION, taken.workload.name, [entry]), find_operator, taken.where)
    first = cases[0]
    v1, v3 = v1_name(first), reported_cases(first)[0].op
    names = {first.op, v1, v3, *find_operator(first.op).aliases, *tasks_in_sources(first.sources)}
    return WorkloadEntry(entry, v1, v3, frozenset(names), len(cases), taken.asked, _kind(first.op))


def _kind(name: str) -> Kind:
    found = find_operator(name)
    if found.ranks:
        return "ranks"
    return "transfer" if "ranks" in found.by_name else "compute"


def choose_tasks(offer: Offer, option: str) -> TaskChoice:
    """Select items by the names, groups or `all` of `--task`; raise UserError for an unknown name."""
    requested = [name.strip() for name in option.split(",") if name.strip()]
    if not requested:
        raise UserError("--task: no task is named", f"as in --task exp,gemm; `{_LISTING}` lists them")
    if ALL in requested:
        return TaskChoice(offer.items, [str(problem) for problem in offer.problems], offer.notes)
    names = list(dict.fromkeys(name for task in requested for name in GROUPS.get(task, (task,))))
    items = [item for item in offer.items if item.names & set(names)]
    problems = [problem for problem in offer.problems if _concerns(problem, names)]
    files = {item.entry.source.partition("#")[0] for item in items}
    notes = [note for note in offer.notes if note.partition(":")[0] in files]
    choice = TaskChoice(items, [str(problem) for problem in problems], notes)
    found = set().union(*(item.names for item in items))
    for name in names:
        if name not in found and not any(_concerns(problem, [name]) for problem in problems):
            _report_missing(name, offer, choice, by_group=name not in requested)
    return choice


def _concerns(problem: ImportProblem, names: Iterable[str]) -> bool:
    """Whether the place of a problem names one of these tasks, as a file or as a key in it."""
    place = re.split(r"[/\\]", problem.where)[-1]
    return any(re.search(rf"\b{re.escape(name)}\b", place) for name in names)


def _report_missing(name: str, offer: Offer, choice: TaskChoice, *, by_group: bool) -> None:
    try:
        find_operator(name)
    except UnknownName:
        known = {item.v1 for item in offer.items} | {item.v3 for item in offer.items} | TASKS | GROUPS.keys()
        raise UnknownName("task", name, sorted(known), _LISTING) from None
    except UserError as error:
        choice.missing.append(f"{name}: {error.message}")
        return
    line = f"{name}: {offer.where} has no case of this task"
    if not by_group:
        raise UserError(line, f"`{_LISTING}` lists its tasks; `opmark run {name}` measures it at sizes of its own")
    choice.remarks.append(line)


def count_cases(offer: Offer, *, v1: bool) -> list[tuple[str, int]]:
    """Return the number of cases of each task, in the order of the workload."""
    counts: dict[str, int] = {}
    for item in offer.items:
        counts[item.title(v1=v1)] = counts.get(item.title(v1=v1), 0) + item.cases
    return list(counts.items())


def group_items(items: Sequence[WorkloadEntry], *, v1: bool) -> list[EntryGroup]:
    """Group items that are measured in the same way, with the items of a task next to each other."""
    order = list(dict.fromkeys(item.title(v1=v1) for item in items))
    parts: list[EntryGroup] = []
    for item in sorted(items, key=lambda item: order.index(item.title(v1=v1))):
        part = next((part for part in parts if (part.requests, part.kind) == (item.requests, item.kind)), None)
        if part is None:
            parts.append(EntryGroup(item.requests, item.kind, [item.entry]))
        else:
            part.entries.append(item.entry)
    return parts
