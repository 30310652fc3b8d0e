"""Runs a PARAM config, from a file or a dictionary, and returns results in the order of the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark import api
from opmark.compat.param.devices import Device
from opmark.compat.param.ids import select_range
from opmark.compat.param.options import Options
from opmark.compat.param.ordering import RecordsInOrder
from opmark.compat.param.result import CaseResult
from opmark.errors import UserError
from opmark.exporters.param_lines import Place, origin, place_of
from opmark.importers.param.kept import KeptSpecs, Said, keep_specs
from opmark.result import Result
from opmark.runner.intake import Intake
from opmark.schema import Case, Entry, Problem, Record, Workload
from opmark.schema.options import Source
from opmark.schema.workload import VERSION

OnResult = Callable[[CaseResult], None]


@dataclass(frozen=True)
class Spot:
    """One case of a config; each of its phases is a case of opmark."""

    place: Place
    entry: Entry
    cases: tuple[Case, ...]
    specs: Said | None = None
    """Its specs as they are in the file."""

    def result(self, records: tuple[Record, ...], run_id: str, counts: tuple[int, int] = (1, 1)) -> CaseResult:
        if self.specs is None:
            return CaseResult(self.place, self.cases, records, run_id, counts)
        ran = {case.phase for case in self.cases}
        left_out = {str(phase): self.specs.forward_only for phase in self.entry.phases if phase not in ran}
        return CaseResult(self.place, self.cases, records, run_id, counts, self.specs.config, left_out)


@dataclass(frozen=True)
class Config:
    """The part of a config that is to run."""

    name: str
    spots: list[Spot]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def read(source: Source, options: Options) -> Config:
    """Read a config and select cases; raise UserError if it is not a config of PARAM, or lacks an id."""
    with keep_specs() as kept:
        taken = api.read_workload(source, seed=options.seed, phase=options.phases, strict=options.strict)
    if taken.foreign != "param":
        what = f"a file of {taken.foreign}" if taken.foreign else "a workload of opmark"
        raise UserError(f"{taken.where}: expected a config of PARAM, got {what}", "`opmark run -w FILE` runs it")
    spots = list(_spots(taken, kept))
    selected = select_range([spot.place for spot in spots], options.resume_id, options.stop_id)
    return Config(taken.workload.name, spots[selected], taken.problems, taken.notes)


def _spots(taken: Intake, kept: KeptSpecs) -> Iterator[Spot]:
    """Pair entries and cases, which come in the same order, one case per phase."""
    cases = iter(taken.cases)
    for entry in taken.workload.cases:
        place = place_of(entry.source)
        assert place is not None, entry.source
        own = tuple(islice(cases, len(entry.phases)))
        assert all(case.sources == (entry.source,) for case in own), entry.source
        specs = kept.get((_path_of(taken.where, place.file), str(place)))
        if specs and specs.forward_only:
            own = tuple(case for case in own if case.phase == "forward")
        yield Spot(place, entry, own, specs)


def _path_of(where: str, name: str) -> str:
    """Return the path of a file that is `where`, or in that folder."""
    return where if Path(where).name == name else str(Path(where) / name)


def run(config: Config, options: Options, target: Device, on_result: OnResult, **more: Any) -> Result | None:
    """Run a config and report every result as soon as all before it are known; `more` are options of `opmark.run`."""
    if not options.times and not more.get("profile"):
        for spot in config.spots:
            on_result(spot.result((), ""))
        return None
    entries = [replace(spot.entry, phases=[case.phase for case in spot.cases]) for spot in config.spots]
    workload = Workload(VERSION, config.name, entries)
    counts = (options.warmup, options.iteration)

    def report(spot: Spot, records: tuple[Record, ...]) -> None:
        on_result(spot.result(records, in_order.run_id, counts))

    in_order = RecordsInOrder(config.spots, report)
    arguments = options.run_arguments(target)
    return api.run(workload=workload, **arguments, on_start=in_order.start, on_record=in_order.add, **more)


def rows_of(config: Config) -> Iterator[Mapping[str, Any]]:
    """Yield one line per case for `--dry-run`."""
    for spot in config.spots:
        yield {"id": str(spot.place), **spot.result((), "").config, "opmark": origin(spot.place)}
