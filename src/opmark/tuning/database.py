"""The database of tuned configurations: what was found for a case, for the nearest one, and whether it still holds.

Entries are never changed. Of several for a case, a backend and a target the newest counts: every tuning begins with
what is known, so that a later one is no worse, or says why it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import log2, sqrt
from statistics import median
from typing import Any, get_args

import msgspec
from msgspec.structs import replace as replace_fields

from opmark.errors import UserError
from opmark.plugin import BackendInfo
from opmark.plugin.operator import size_places
from opmark.plugin.registry import TUNED, backend_or_none, catalogue, implementations, tuning_formats
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.space import THREADS, TUNED_OPERATORS, Configuration, format_configuration
from opmark.runner.plan import Plan
from opmark.schema import Case, Task
from opmark.schema.comparison import Verdict
from opmark.schema.record import COUNTED
from opmark.schema.tuned import TunedEntry, TuningTarget
from opmark.store.protocol import Store
from opmark.tuning.spaces import as_pairs, find_tunables, source_of
from opmark.tuning.target import read_target
from opmark.units import significant

FORMAT = "opmark-tuned"
FORMAT_VERSION = 1
NEAR = 1.0
"""Distance up to which the configuration of another shape is applied: one size is twice or half as large, or several
differ by less. `opmark tuned --near` also lists what is further away."""
_PAIRS = 8
"""Pairs of shapes that an expected loss is taken from, at most."""


@dataclass(frozen=True)
class FoundEntry:
    """An entry of the database as it looks from here."""

    entry: TunedEntry
    distance: float = 0.0
    """Distance of its shape from the one that is asked for: root of the summed squares of the differences of its sizes'
    logarithms (base 2)."""
    stale: tuple[str, ...] = ()
    """Why it may not hold here: in what the target or the sources differ."""
    loss: float | None = None
    """By how much slower it is expected to be than the best for the shape that is asked for; None if unknown."""
    pairs: int = 0
    """Pairs of shapes that the loss was estimated from."""


def base_name(info: BackendInfo) -> str:
    """Return the name under which a backend's configurations are kept: without `/tuned`, without an interpreter."""
    return info.name.partition("@")[0].removesuffix(f"/{TUNED}")


def refuse_tuned(info: BackendInfo, instead: str) -> None:
    """Raise UserError for `NAME/tuned` in a command that does not look up what was tuned: the default would run under
    its name."""
    if info.tuned:
        raise UserError(f"{info.name} applies what was tuned, which is not done here", f"{instead}; leave /tuned away")


def store_tuned(store: Store, entries: Sequence[TunedEntry]) -> int:
    """Store entries, imported ones as well, and return how many were new."""
    return store.add_tuned(entries)


def newest(entries: Iterable[TunedEntry]) -> list[TunedEntry]:
    """Return of each case, backend and target the newest entry, in the order written."""
    found: dict[tuple[str, str, str], TunedEntry] = {}
    for entry in entries:
        key = (entry.case, entry.backend, entry.target.id)
        if key not in found or entry.made >= found[key].made:
            found[key] = entry
    return list(found.values())


def why_stale(entry: TunedEntry, info: BackendInfo, target: TuningTarget) -> tuple[str, ...]:
    """Return why an entry may not hold here; nothing if it does."""
    found = entry.target.differences(target)
    if entry.source and not entry.default_stays and entry.implementation:
        known = implementations(find_operator(entry.op), info, every=True)
        own = next((one for one in known if one.label == entry.implementation), None)
        if own is None:
            found.append(f"implementation {entry.implementation}, now not there")
        elif (now := source_of(own, info)) != entry.source:
            found.append(f"source {entry.source[:8]}, now {now[:8]}")
    return tuple(found)


def shape_distance(op: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """Return how far two cases of an operator are apart in their sizes; None if they differ in anything else."""
    known = find_operator(op)
    sizes = [
        {place: size for place, size in size_places(known, params).items() if place[0] in params}
        for params in (one, other)
    ]
    named = {place[0] for place in sizes[0]}
    rest = [{name: value for name, value in params.items() if name not in named} for params in (one, other)]
    if sizes[0].keys() != sizes[1].keys() or rest[0] != rest[1]:
        return None
    ratios = [(sizes[0][place], sizes[1][place]) for place in sizes[0]]
    if any(a != b and not (a and b) for a, b in ratios):
        return None
    return sqrt(sum(log2(a / b) ** 2 for a, b in ratios if a != b))


def find_entries(
    store: Store,
    op: str | None = None,
    info: BackendInfo | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    near: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> list[FoundEntry]:
    """Return entries, the nearest first, then those that are not stale, then the newest. Cases with other parameters
    than `params` are near if they differ in sizes alone; `near` compares only the sizes that it names. Without
    `threads`, each entry is judged for the number of threads that it was tuned for."""
    found = []
    for entry in newest(store.tuned(op, base_name(info) if info else None)):
        distance: float | None = 0.0
        if params is not None:
            distance = shape_distance(entry.op, entry.params, params)
        elif near:
            part = {name: entry.params.get(name) for name in near}
            distance = shape_distance(entry.op, part, near)
        if distance is not None:
            own = info or backend_or_none(entry.backend)
            wanted = entry.target.threads if threads is None else threads
            stale = why_stale(entry, own, read_target(own, wanted)) if own else (f"no backend {entry.backend} here",)
            found.append(FoundEntry(entry, distance, stale))
    found.sort(key=lambda one: one.entry.made, reverse=True)
    found.sort(key=lambda one: (one.distance, bool(one.stale)))
    return found


def choose_entry(store: Store, case: Case, info: BackendInfo, threads: int) -> FoundEntry | None:
    """Return the entry to apply to a case: its own, else that of the nearest shape, with the configuration that fits
    this one; never a stale one, and none whose configuration the case does not allow."""
    target = read_target(info, threads)
    exact = newest(store.tuned(case.op, base_name(info), case.id))
    for entry in exact:
        if not why_stale(entry, info, target):
            return FoundEntry(entry)
    near = [
        (distance, entry)
        for entry in store.tuned(case.op, base_name(info))
        if entry.case != case.id and entry.phase == case.phase
        if (distance := shape_distance(case.op, entry.params, case.params)) is not None and distance <= NEAR
    ]
    near.sort(key=lambda pair: pair[0])
    for distance, group in groupby(near, key=lambda pair: pair[0]):
        for entry in newest(entry for _, entry in group):
            if why_stale(entry, info, target):
                continue
            if entry.default_stays:
                return FoundEntry(entry, distance)
            for tunable in find_tunables(case, info, entry.implementation):
                if (fitting := tunable.space.fit(entry.configuration)) is not None:
                    return FoundEntry(replace_fields(entry, configuration=fitting), distance)
    return None


# Applying: tasks of `NAME/tuned` get their configuration when they are planned.


def apply_tuned(plan: Plan, store: Store | None) -> Plan:
    """Give the tasks of tuned backends the configurations of the database. Notes say what was used, and where nothing
    is tuned, so that the default runs."""
    tuned = {name for name in {task.backend for task in plan.tasks} if find_backend(name).tuned}
    if not tuned:
        return plan
    notes: dict[str, None] = {}
    chosen: dict[tuple[str, str, int], FoundEntry | None] = {}
    tasks: dict[str, Task] = {}
    for task in plan.tasks:
        if task.backend not in tuned:
            tasks[task.id] = task
            continue
        key = (task.backend, task.case.id, task.settings.threads)
        if key not in chosen:
            info = find_backend(task.backend)
            chosen[key] = choose_entry(store, task.case, info, task.settings.threads) if store else None
            notes[_explain(task, chosen[key], store, info)] = None
        applied = configured(task, chosen[key].entry) if chosen[key] else task  # type: ignore[union-attr]
        tasks[applied.id] = applied
    return replace(plan, tasks=tuple(tasks.values()), notes=(*plan.notes, *notes))


def configured(task: Task, entry: TunedEntry) -> Task:
    """Return a task with the configuration of an entry; where the default stays, as it is."""
    if entry.default_stays:
        return task
    return with_configuration(task, entry.configuration, entry.implementation)


def with_configuration(task: Task, configuration: Configuration, implementation: str) -> Task:
    """Return a task with a configuration. The number of threads is a setting of its worker."""
    threads = configuration.get(THREADS, task.settings.threads)
    settings = replace_fields(task.settings, configuration=as_pairs(configuration), threads=threads)
    return replace_fields(task, implementation=implementation or task.implementation, settings=settings)


def _explain(task: Task, found: FoundEntry | None, store: Store | None, info: BackendInfo) -> str:
    """Return what is applied to a task, and why, as one line."""
    what = f"{task.backend}: {task.case.op} {format_configuration(task.case.params)}".rstrip()
    if found is None:
        stale = store and [
            one
            for one in find_entries(store, task.case.op, info, task.case.params, threads=task.settings.threads)
            if one.stale
        ]
        if stale and stale[0].distance == 0:
            return f"{what}: tuned, but stale ({'; '.join(stale[0].stale)}): the default is used"
        return f"{what}: nothing is tuned: the default is used"
    entry = found.entry
    shape = f" for {format_configuration(entry.params)}, the nearest shape" if found.distance else ""
    if entry.default_stays:
        return f"{what}: tuned{shape} on {entry.made[:10]}, and nothing was surely faster: the default is used"
    gain = f", {significant(entry.default_seconds / entry.tuned_seconds, 3)}x as fast as the default" if (
        entry.default_seconds and entry.tuned_seconds
    ) else ""  # fmt: skip
    return f"{what}: tuned{shape} on {entry.made[:10]}{gain}: {format_configuration(entry.configuration)}"


# Expected loss of the configuration of another shape.


def with_losses(store: Store, found: Sequence[FoundEntry]) -> list[FoundEntry]:
    """Return the entries with their expected losses: how much slower the best configuration of one shape is on another,
    wherever both were measured there, at distances like the one in question."""
    entries = [one.entry for one in found if not one.entry.default_stays and one.entry.run]
    times = {entry.id: _times(store, entry) for entry in entries}
    known: list[tuple[float, float]] = []
    for here in entries:
        best = times[here.id].get(_key(here))
        for other in entries:
            if here is other or (here.op, here.backend) != (other.op, other.backend):
                continue
            distance = shape_distance(here.op, here.params, other.params)
            if best and distance and (seconds := times[here.id].get(_fitted_key(other, here))):
                known.append((distance, seconds / best - 1))
    result = []
    for one in found:
        near = sorted(known, key=lambda pair: abs(pair[0] - one.distance))[:_PAIRS]
        near = [pair for pair in near if pair[0] / 2 <= one.distance <= 2 * pair[0]]
        if one.distance == 0:
            result.append(replace(one, loss=0.0))
        elif near and not one.entry.default_stays:
            result.append(replace(one, loss=max(0.0, median(loss for _, loss in near)), pairs=len(near)))
        else:
            result.append(one)
    return result


def _key(entry: TunedEntry) -> tuple[str, Any]:
    return entry.implementation, as_pairs(entry.configuration)


def _fitted_key(other: TunedEntry, here: TunedEntry) -> tuple[str, Any]:
    """Return what the configuration of one entry is for the case of another: splits depend on the shape."""
    info = backend_or_none(here.backend)
    known = implementations(find_operator(here.op), info, every=True) if info and here.op in catalogue() else ()
    if info is None or other.implementation not in {one.label for one in known}:
        return _key(other)  # of another system: its knobs are not known here
    try:
        params = find_operator(here.op).complete(here.params)  # an older opmark may have known fewer of them
    except UserError:
        return _key(other)
    for tunable in find_tunables(Case.of(here.op, params, here.phase), info, other.implementation):
        if (fitting := tunable.space.fit(other.configuration)) is not None:
            return other.implementation, as_pairs(fitting)
    return _key(other)


def _times(store: Store, entry: TunedEntry) -> dict[tuple[str, Any], float]:
    """Return the time of each configuration that was tried for an entry."""
    found: dict[tuple[str, Any], float] = {}
    for record in store.records(entry.run):
        measured = record.measurement()
        if record.task.case.id == entry.case and record.status in COUNTED and measured:
            key = (record.task.implementation, record.task.settings.configuration)
            seconds = median(measured.samples)
            found[key] = min(seconds, found.get(key, seconds))
    return found


# Files.


class TunedFile(msgspec.Struct):
    format: str
    version: int
    entries: list[TunedEntry]


class _TunedHead(msgspec.Struct):
    format: str = ""
    version: int = 0


def file_text(entries: Sequence[TunedEntry]) -> bytes:
    packed = msgspec.json.encode(TunedFile(FORMAT, FORMAT_VERSION, list(entries)))
    return msgspec.json.format(packed, indent=1) + b"\n"


def read_file(content: bytes, where: str) -> list[TunedEntry]:
    """Return the entries of a file. UserError if it is no such file, or of a newer version."""
    hint = f"`opmark tuned export -o FILE` writes such files; other formats: {', '.join(tuning_formats())}"
    try:
        head = msgspec.json.decode(content, type=_TunedHead)
    except msgspec.MsgspecError as error:
        raise UserError(f"{where}: expected the JSON of tuned configurations: {error}", hint) from None
    if head.format != FORMAT:
        raise UserError(f"{where}: expected the format {FORMAT}, got `{head.format or 'nothing'}`", hint)
    if head.version > FORMAT_VERSION:
        raise UserError(
            f"{where}: is of version {head.version}; this opmark reads up to {FORMAT_VERSION}", "upgrade opmark"
        )
    try:
        return msgspec.json.decode(content, type=TunedFile).entries
    except msgspec.MsgspecError as error:
        raise UserError(f"{where}: an entry is damaged: {error}", hint) from None


def why_refused(entry: TunedEntry) -> str | None:
    """Return why an entry of a file cannot be true: an unknown verdict, or a configuration that its space, where the
    same one is known here, does not have; None if nothing is wrong with it."""
    for verdict in (entry.verdict, entry.library_verdict):
        if verdict not in ("", *get_args(Verdict)):
            return f"expected a verdict of {', '.join(get_args(Verdict))}, got `{verdict}`"
    info = backend_or_none(entry.backend)
    if info is None or entry.op not in catalogue() or entry.default_stays:
        return None
    if entry.origin != "opmark" or entry.tuner in info.tuners or TUNED_OPERATORS in entry.configuration:
        return None  # they are no knobs of a space that is known here
    # How many threads there are to choose from differs from machine to machine.
    chosen = {name: value for name, value in entry.configuration.items() if name != THREADS}
    try:
        case = Case.of(entry.op, find_operator(entry.op).complete(entry.params), entry.phase)
        for tunable in find_tunables(case, info, entry.implementation):
            if source_of(tunable.implementation, info) == entry.source:
                tunable.space.check(chosen)
    except UserError as error:
        return error.message
    return None
