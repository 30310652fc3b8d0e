"""Which tasks there are, and which are meant: from files, from a folder, or from the suite that ships."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from opmark.errors import InvalidFile, UnknownName, UserError
from opmark.exporters.bytemicroperf_names import GROUPS, TASKS, filed_under, v1_name, v3_words
from opmark.registry import importers, operators_like
from opmark.registry import operator as find_operator
from opmark.runner.intake import Intake, take_in
from opmark.schema import Entry, Problem, Workload
from opmark.schema.workload import VERSION
from opmark.workloads.expand import expand
from opmark.workloads.load import read, suite

SUITE = "bytemicroperf"
ALL = "all"
_FOLDERS = (Path("workloads/basic"), Path("workloads"))
"""Where theirs look if nothing is said: the first that is there."""
_ENDINGS = (".json", ".csv", ".yaml", ".yml")
_LISTING = "opmark micro-perf --show_task_list"


Kind = Literal["compute", "transfer", "ranks"]
"""What is at work: a device alone, a device with its host, or several processes."""


class Part(NamedTuple):
    """Entries to measure in the same way."""

    asked: Mapping[str, Any]
    kind: Kind
    entries: list[Entry]


class Item(NamedTuple):
    """An entry of a workload."""

    entry: Entry
    v1: str
    v3: str
    names: frozenset[str]
    """All that it may be called in `--task`."""
    cases: int
    asked: Mapping[str, Any]
    """How its file wants it to be measured."""
    kind: Kind = "compute"

    def title(self, *, v1: bool) -> str:
        return self.v1 if v1 else self.v3


class Offer(NamedTuple):
    where: str
    items: list[Item]
    problems: list[Problem]
    notes: list[str]


class Choice(NamedTuple):
    items: list[Item]
    missing: list[str]
    """What was asked for and cannot be measured, a line each."""
    remarks: list[str]
    """What is understood in another way than it was written, a line each."""


def offered(workload: Path | None, task_dir: Path | None, *, v1: bool) -> Offer:
    if workload is not None:
        return _of_file(workload)
    folder = task_dir or next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        whole = Intake(f"suite {SUITE}", suite(SUITE))
        return Offer(whole.where, _of_generation(_items(whole), v1=v1), [], [])
    if not folder.is_dir():
        raise UserError(f"--task_dir {folder}: no such folder", "leave it out to take the workloads that ship")
    return _of_folder(folder)


def _of_generation(items: list[Item], *, v1: bool) -> list[Item]:
    """Of the suite, the sizes that this generation ships for a task; where it has none, those of the others."""
    has = {item.title(v1=v1) for item in items if _first(item) == v1}
    return [item for item in items if _first(item) == v1 or item.title(v1=v1) not in has]


def _first(item: Item) -> bool:
    """Whether it is of 2024: its tags are the groups of then."""
    return bool(GROUPS.keys() & set(item.entry.tags))


def _of_file(path: Path) -> Offer:
    try:
        taken = take_in(path)
    except InvalidFile:
        problems = _all_problems(path)
        if not problems:
            raise
        return Offer(str(path), [], problems, [])
    if not taken.workload.cases:
        raise UserError(f"{path}: holds no task", "a hardware file goes with --vendor_path")
    notes = list(taken.notes)
    return Offer(str(path), _items(taken), list(taken.problems), notes)


def _all_problems(path: Path) -> list[Problem]:
    """Of a file that is understood and holds nothing that can be measured here."""
    data = read(path)
    for importer in importers().values():
        if importer.recognises(path, data):
            found = importer.read(path, data, 0)
            return [] if found.entries else list(found.problems)
    return []


def _of_folder(folder: Path) -> Offer:
    """File by file, because each says for itself how it wants to be measured."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    if not files:
        raise UserError(f"{folder}: holds no workload", f"files that end in {', '.join(_ENDINGS)} are read")
    offer = Offer(str(folder), [], [], [])
    for file in files:
        try:
            found = _of_file(file)
        except UserError as error:
            message = error.message.removeprefix(f"{file}: ")
            offer.problems.append(Problem(str(file), message, error.hint or ""))
        else:
            offer.items.extend(found.items)
            offer.problems.extend(found.problems)
            offer.notes.extend(note for note in found.notes if note not in offer.notes)
    return offer


def _items(taken: Intake) -> list[Item]:
    entries = taken.workload.cases
    return [_item(replace(entry, op=name), taken) for entry in entries for name in operators_like(entry.op)]


def _item(entry: Entry, taken: Intake) -> Item:
    cases = expand(Workload(VERSION, taken.workload.name, [entry]), find_operator, taken.where)
    first = cases[0]
    v1, v3 = v1_name(first), v3_words(first)[0]
    names = {first.op, v1, v3, *find_operator(first.op).aliases, *filed_under(first.sources)}
    return Item(entry, v1, v3, frozenset(names), len(cases), taken.asked, _kind(first.op))


def _kind(name: str) -> Kind:
    found = find_operator(name)
    if found.ranks:
        return "ranks"
    return "transfer" if "ranks" in found.by_name else "compute"


def chosen(offer: Offer, asked: str) -> Choice:
    """The items that names, groups or `all` stand for; UserError for a name that nothing has."""
    wanted = [name.strip() for name in asked.split(",") if name.strip()]
    if not wanted:
        raise UserError("--task: no task is named", f"as in --task exp,gemm; `{_LISTING}` lists them")
    if ALL in wanted:
        return Choice(offer.items, [str(problem) for problem in offer.problems], offer.notes)
    names = list(dict.fromkeys(name for task in wanted for name in GROUPS.get(task, (task,))))
    items = [item for item in offer.items if item.names & set(names)]
    problems = [problem for problem in offer.problems if _concerns(problem, names)]
    files = {item.entry.source.partition("#")[0] for item in items}
    notes = [note for note in offer.notes if note.partition(":")[0] in files]
    choice = Choice(items, [str(problem) for problem in problems], notes)
    found = set().union(*(item.names for item in items))
    for name in names:
        if name not in found and not any(_concerns(problem, [name]) for problem in problems):
            _explain(name, offer, choice, by_group=name not in wanted)
    return choice


def _concerns(problem: Problem, names: Iterable[str]) -> bool:
    """Its place names the file, which there goes by its task, or the task in it."""
    place = re.split(r"[/\\]", problem.where)[-1]
    return any(re.search(rf"\b{re.escape(name)}\b", place) for name in names)


def _explain(name: str, offer: Offer, choice: Choice, *, by_group: bool) -> None:
    try:
        find_operator(name)
    except UnknownName:
        known = {item.v1 for item in offer.items} | {item.v3 for item in offer.items} | TASKS | GROUPS.keys()
        raise UnknownName("task", name, sorted(known), _LISTING) from None
    except UserError as error:
        choice.missing.append(f"{name}: {error.message}")
        return
    line = f"{name}: {offer.where} has no case of it"
    if not by_group:
        raise UserError(line, f"`{_LISTING}` lists what it has; `opmark run {name}` measures it at sizes of its own")
    choice.remarks.append(line)


def listing(offer: Offer, *, v1: bool) -> list[tuple[str, int]]:
    """(task, cases), in the order of the workload."""
    counts: dict[str, int] = {}
    for item in offer.items:
        counts[item.title(v1=v1)] = counts.get(item.title(v1=v1), 0) + item.cases
    return list(counts.items())


def in_turn(items: Sequence[Item], *, v1: bool) -> list[Part]:
    """Those of a task next to each other."""
    order = list(dict.fromkeys(item.title(v1=v1) for item in items))
    parts: list[Part] = []
    for item in sorted(items, key=lambda item: order.index(item.title(v1=v1))):
        part = next((part for part in parts if (part.asked, part.kind) == (item.asked, item.kind)), None)
        if part is None:
            parts.append(Part(item.asked, item.kind, [item.entry]))
        else:
            part.entries.append(item.entry)
    return parts
