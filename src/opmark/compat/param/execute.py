"""A PARAM config from its file or dictionary to results, in the order of the config."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark import api
from opmark.compat.param.devices import Device
from opmark.compat.param.ids import between
from opmark.compat.param.options import Options
from opmark.compat.param.result import CaseResult
from opmark.errors import UserError
from opmark.exporters.param_lines import Place, origin, place_of
from opmark.importers.param.kept import Kept, Said, keeping
from opmark.result import Result
from opmark.runner.intake import Intake
from opmark.runner.plan import Plan
from opmark.schema import Case, Entry, Problem, Record, Run, Workload
from opmark.schema.options import Source
from opmark.schema.workload import VERSION

OnResult = Callable[[CaseResult], None]


@dataclass(frozen=True)
class Spot:
    """One case of a config: its phases are cases of opmark."""

    place: Place
    entry: Entry
    cases: tuple[Case, ...]
    said: Said | None = None
    """As it stands in the file."""

    def result(self, records: tuple[Record, ...], run_id: str, counts: tuple[int, int] = (1, 1)) -> CaseResult:
        if self.said is None:
            return CaseResult(self.place, self.cases, records, run_id, counts)
        ran = {case.phase for case in self.cases}
        left_out = {str(phase): self.said.forward_only for phase in self.entry.phases if phase not in ran}
        return CaseResult(self.place, self.cases, records, run_id, counts, self.said.config, left_out)


@dataclass(frozen=True)
class Config:
    """What is to run of a config."""

    name: str
    spots: list[Spot]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def read(source: Source, options: Options) -> Config:
    """UserError where it is no config of PARAM's, or where an id is not in it."""
    with keeping() as kept:
        taken = api.read_workload(source, seed=options.seed, phase=options.phases, strict=options.strict)
    if taken.foreign != "param":
        what = f"a file of {taken.foreign}" if taken.foreign else "a workload of opmark's own"
        raise UserError(f"{taken.where}: expected a config of PARAM, got {what}", "`opmark run -w FILE` runs it")
    spots = list(_spots(taken, kept))
    chosen = between([spot.place for spot in spots], options.resume_id, options.stop_id)
    return Config(taken.workload.name, spots[chosen], taken.problems, taken.notes)


def _spots(taken: Intake, kept: Kept) -> Iterator[Spot]:
    """Entries and cases come in the same order, a case for each phase."""
    cases = iter(taken.cases)
    for entry in taken.workload.cases:
        place = place_of(entry.source)
        assert place is not None, entry.source
        own = tuple(islice(cases, len(entry.phases)))
        assert all(case.sources == (entry.source,) for case in own), entry.source
        said = kept.get((_file(taken.where, place.file), str(place)))
        if said and said.forward_only:
            own = tuple(case for case in own if case.phase == "forward")
        yield Spot(place, entry, own, said)


def _file(where: str, name: str) -> str:
    """The path of a file that is `where`, or in that folder."""
    return where if Path(where).name == name else str(Path(where) / name)


def run(config: Config, options: Options, target: Device, on_result: OnResult, **more: Any) -> Result | None:
    """Every result as soon as it and all before it are there. `more`: for `opmark.run`."""
    if not options.times and not more.get("profile"):
        for spot in config.spots:
            on_result(spot.result((), ""))
        return None
    entries = [replace(spot.entry, phases=[case.phase for case in spot.cases]) for spot in config.spots]
    workload = Workload(VERSION, config.name, entries)
    in_order = InOrder(config.spots, on_result, (options.warmup, options.iteration))
    return api.run(workload=workload, **options.asked(target), on_start=in_order.start, on_record=in_order.add, **more)


@dataclass
class InOrder:
    """Puts records together as the config has them: forward and backward are one, the same case twice are two.

    Of an operator with several implementations the first stands for it; the others are in the store.
    """

    spots: Sequence[Spot]
    on_result: OnResult
    counts: tuple[int, int] = (1, 1)
    _run_id: str = ""
    _records: dict[str, Record] = field(default_factory=dict)
    _waiting: deque[Spot] = field(default_factory=deque)

    def start(self, run: Run, plan: Plan, done: list[Record]) -> None:
        self._run_id = run.id
        self._waiting.extend(self.spots)
        coming = {task.case.id for task in plan.tasks}
        self._records = {r.task.case.id: r for r in plan.skipped if r.task.case.id not in coming}
        self._tell()

    def add(self, record: Record) -> None:
        self._records.setdefault(record.task.case.id, record)
        self._tell()

    def _tell(self) -> None:
        while self._waiting and all(case.id in self._records for case in self._waiting[0].cases):
            spot = self._waiting.popleft()
            records = tuple(self._records[case.id] for case in spot.cases)
            self.on_result(spot.result(records, self._run_id, self.counts))


def rows_of(config: Config) -> Iterator[Mapping[str, Any]]:
    """What would run: `--dry-run`."""
    for spot in config.spots:
        yield {"id": str(spot.place), **spot.result((), "").config, "opmark": origin(spot.place)}
