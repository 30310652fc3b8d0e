"""Which operators of a program to run beside each other, and what it gains: `opmark schedule`."""

from __future__ import annotations

import platform
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as replace_fields
from functools import cache
from itertools import permutations
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.corun import stored_slowdowns
from opmark.api.ab import measure_sides
from opmark.api.extract import describe_case, model_case
from opmark.api.factors import counts_energy
from opmark.api.keywords import keywords_of
from opmark.api.predict import find_predictor
from opmark.api.program_requests import ScheduleRequest
from opmark.api.program_times import ENDS, HERE, End, ProgramTimes, case_of_call, name_unknown, predict_program
from opmark.api.requests import TurnOptions
from opmark.api.result import db_option, existing_store
from opmark.catalogue.expansion import cases_of
from opmark.errors import InvalidFile, InvalidParameter, Unsupported, UserError
from opmark.files import check_writable, whole_file
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.device_table import (
    DeviceTable,
    DeviceTransfer,
    TableOperator,
    device_times,
    read_tables,
    unit_transfers,
    write_table,
)
from opmark.prediction.equilibrium import DeviceTimes
from opmark.prediction.optimum import MOST_UNITS, why_no_solver
from opmark.prediction.predictor import ENERGY
from opmark.prediction.scheduling import (
    DeviceSchedules,
    PredictedSchedule,
    SharedResources,
    StageModel,
    StageSearch,
    TimeSchedules,
    device_lanes,
    schedule_devices,
    timeline_of,
)
from opmark.prediction.units import UnitGraph, make_units
from opmark.runner.executors.base import LocalExecutor
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import default_threads
from opmark.runner.worker_process import environ_for
from opmark.schema import Case, Entry, Record, Task
from opmark.schema.case import MODEL_PREFIX, TRACE_PREFIX
from opmark.schema.comparison import Pairing
from opmark.schema.messages import Side
from opmark.schema.options import StoreOptions, options_of, split_names
from opmark.schema.record import COUNTED
from opmark.schema.schedule import (
    SCHEDULE,
    SCHEDULED,
    DescribedProgram,
    Method,
    OperatorGraph,
    PlacedUnit,
    ProfiledProgram,
    Schedule,
    StageTimes,
    Timeline,
    lanes_of,
    one_by_one,
    read_schedule,
    sequential,
)
from opmark.stats import geometric_mean
from opmark.traces.schedule_question import ProgramProcess
from opmark.tuning.database import with_configuration
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.models.compiled import CompiledSchedule

METHODS = ("best", "sequential", "stages", "equilibrium", "optimum")
SAVED_VERSION = 1
_STREAMS = 4
"""Lanes that are looked at on a GPU."""
_LEAST_GAIN = 0.01
"""Predicted gain below which `best` stays sequential."""
_VIEW = 1e-9
"""Least seconds of an operator in a table: what only makes a view is predicted to take none."""
_TABLES = (".yaml", ".yml")
_OF_TABLES = ("program", "on", "method", "measure", "db")
"""Options that a schedule over tables takes, or that change nothing of it."""


class SavedSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule in a file."""

    opmark: str
    """`schedule`: what kind of file it is."""
    program: str
    params: dict[str, Any]
    backend: str
    method: Method
    predicted: float
    sequential: float
    """Predicted seconds of the schedule, and of the sequential one."""
    units: list[str]
    """Names of the units, for people."""
    schedule: Schedule
    version: int = SAVED_VERSION


@dataclass(frozen=True)
class Scheduling:
    """The result of `opmark schedule`."""

    program: str
    params: dict[str, Any]
    backend: str
    """Empty where the devices are those of a table."""
    threads: int
    units: tuple[str, ...]
    """Names of the units, as people read them."""
    predictions: tuple[PredictedSchedule, ...]
    chosen: PredictedSchedule
    compared: Pairing | None = None
    """Measured in turns: sequential (A) and the chosen schedule (B); the model as it is (A), where the chosen one is
    sequential."""
    against: str = ""
    timeline: tuple[PlacedUnit, ...] = ()
    """When units of the chosen schedule ran, measured."""
    devices: DeviceSchedules | None = None
    lanes: tuple[str, ...] = ()
    """Names of the lanes of the timeline."""
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    joules: tuple[float | None, float | None] = (None, None)
    """Measured energy of a call of what it is held against, and of the chosen schedule; None without a sensor."""
    slowdown: float | None = None
    """How much longer stages with lanes took than their longest lane alone."""

    @property
    def sequential(self) -> PredictedSchedule | None:
        return next((one for one in self.predictions if one.method == "sequential"), None)

    @property
    def measured(self) -> float | None:
        """Seconds of the chosen schedule, measured in turns."""
        return self.compared.b if self.compared else None

    @property
    def error(self) -> float | None:
        """Predicted over measured time of the chosen schedule, less 1."""
        return self.chosen.seconds / self.measured - 1 if self.measured else None

    def saved(self) -> SavedSchedule:
        if self.chosen.schedule is None:
            raise UserError(
                "a schedule over devices of a table cannot be run or saved: they are not here",
                "`opmark schedule model:NAME --on cpu` makes one for this machine",
            )
        before = self.sequential
        return SavedSchedule(
            "schedule", self.program, self.params, self.backend, self.chosen.method, self.chosen.seconds,
            before.seconds if before else self.chosen.seconds, list(self.units), self.chosen.schedule,
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the schedule to a file, which `opmark schedule FILE` and `opmark.schedule(FILE)` read."""
        text = msgspec.json.format(msgspec.json.encode(self.saved()), indent=1)
        with whole_file(Path(path)) as file:
            file.write(text)

    def compile(self, module: Any = None) -> CompiledSchedule:
        """Return the chosen schedule as a callable that takes the inputs of the model, as tensors, in their order.

        `module`: a torch.nn.Module of the same graph, with weights of your own; without it, the weights are those of
        the model. UserError if the model is not the one that the schedule was made for.
        """
        from opmark.models.compiled import compile_schedule

        saved = self.saved()
        return compile_schedule(saved.program, saved.params, find_backend(saved.backend).device, saved.schedule, module)


@keywords_of(ScheduleRequest)
def schedule(request: ScheduleRequest) -> Scheduling:
    """Find a schedule of a model or a trace, run it, and compare it with the sequential one in turns.

    `schedule("model:inception_v3").compile()` is the chosen schedule as a callable.
    """
    return schedule_request(request)


def schedule_request(request: ScheduleRequest) -> Scheduling:
    if request.method not in METHODS:
        raise InvalidParameter(f"--method: expected {', '.join(METHODS)}, got `{request.method}`")
    if request.far and not request.predict:
        raise InvalidParameter("--far goes with --predict: measured times are never far off", "leave --far out")
    programs = [request.program] if isinstance(request.program, str) else list(request.program)
    if not programs:
        raise UserError("expected a program", "as in `opmark schedule model:inception_v3`")
    if all(Path(one).suffix in _TABLES for one in programs):
        return _schedule_tables(request, [Path(one) for one in programs])
    if len(programs) > 1:
        raise UserError(f"expected one program, got {len(programs)}: {', '.join(programs)}",
                        "several files are taken where all are tables (.yaml)")  # fmt: skip
    if programs[0].endswith(".json") and not programs[0].startswith((MODEL_PREFIX, TRACE_PREFIX)):
        return _ProgramScheduling(request, read_saved(Path(programs[0]))).run()
    return _ProgramScheduling(request).run()


def schedule_view(found: Scheduling) -> dict[str, Any]:
    """Return a scheduling as plain data, as `--json` prints it."""
    pair = found.compared
    return {
        "program": found.program, "params": found.params, "backend": found.backend, "threads": found.threads,
        "units": list(found.units), "lanes": list(found.lanes),
        "predictions": [
            {"method": one.method, "seconds": one.seconds, "low": one.low, "high": one.high, "note": one.note,
             "joules": one.joules, "energy_delay": one.joules * one.seconds if one.joules is not None else None,
             "schedule": msgspec.to_builtins(one.schedule)}
            for one in found.predictions
        ],
        "chosen": found.chosen.method, "predicted": found.chosen.seconds, "measured": found.measured,
        "error": found.error, "anarchy": found.devices.anarchy if found.devices else None,
        "energy": {"against": _energy(found.joules[0], pair.a if pair else None),
                   "chosen": _energy(found.joules[1], found.measured)},
        "slowdown": found.slowdown, "against": found.against, "compared": msgspec.to_builtins(found.compared),
        "timeline": {"predicted": msgspec.to_builtins(found.chosen.timeline),
                     "measured": msgspec.to_builtins(found.timeline)},
        "runs": list(found.runs), "notes": list(found.notes),
    }  # fmt: skip


def _energy(joules: float | None, seconds: float | None) -> dict[str, float] | None:
    """Return joules and energy-delay product of a call; None where one of them was not measured."""
    if joules is None or seconds is None:
        return None
    return {"joules": joules, "energy_delay": joules * seconds}


def read_saved(path: Path) -> SavedSchedule:
    """Return a saved schedule; InvalidFile says what is wrong with the file."""
    if not path.is_file():
        raise UserError(f"there is no file {path}", "`opmark schedule model:NAME --save FILE` writes one; a trace is "
                        "named as trace:FILE")  # fmt: skip
    try:
        found = msgspec.json.decode(path.read_bytes(), type=SavedSchedule)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidFile(f"{path}: this is no saved schedule: {error}", f"a trace is named as trace:{path}") from None
    if found.opmark != "schedule" or found.version != SAVED_VERSION:
        raise InvalidFile(f"{path}: a schedule of version {found.version}; this opmark reads {SAVED_VERSION}")
    read_schedule(found.schedule.encode())
    return found


def _schedule_tables(request: ScheduleRequest, paths: Sequence[Path]) -> Scheduling:
    """Predict schedules over the devices of tables; nothing of them is here to run."""
    others = options_of(ScheduleRequest).keys() - _OF_TABLES
    _refuse_options(request, others, "a table has times of its own, and nothing is measured, run or written")
    _refuse_method(request.method, apart=True, no_optimum=why_no_solver())
    for path in paths:
        if not path.is_file():
            raise UserError(
                f"there is no file {path}", "`opmark schedule PROGRAM --no-run --times FILE` writes a table"
            )
    table = read_tables(paths)
    names = list(dict.fromkeys(split_names(request.on))) or table.devices
    note = "predicted, not run: these devices are columns of a table"
    return _schedule_table(table, names, request.method, table.program or ", ".join(map(str, paths)), (note,))


def _schedule_table(
    table: DeviceTable, names: Sequence[str], method: str, program: str, notes: Sequence[str]
) -> Scheduling:
    units, times = device_times(table, names)
    if len(units) < len(table.operators):
        many = count_noun(len(table.operators), "operator")
        notes = [*notes, f"{many} are joined into {count_noun(len(units), 'unit')}, which no schedule takes apart: "
                 "the optimum is that of the units"]  # fmt: skip
    found = schedule_devices(times)
    predictions = _device_predictions(found, times)
    return Scheduling(
        program, {}, "", 0, _unit_names(table.graph(), units), predictions, _choose(predictions, method),
        devices=found, lanes=tuple(names), notes=(*notes, *_device_notes(found)),
    )  # fmt: skip


def _refuse_options(request: ScheduleRequest, names: Collection[str], why: str) -> None:
    """Refuse options that would be ignored."""
    for name, option in options_of(ScheduleRequest).items():
        given = getattr(request, name)
        if name in names and given and given != option.default:
            raise InvalidParameter(f"{option.flag}: {why}", f"leave it out; `opmark schedule model:NAME {option.flag}` "
                                   "makes a schedule with it")  # fmt: skip


def _refuse_method(method: str, *, apart: bool, no_optimum: str) -> None:
    """Refuse a method that has no schedule here before anything is searched. `apart`: resources are not shared."""
    if method == "stages" and apart:
        raise UserError("no stages: they share resources, and these are not shared",
                        "--method equilibrium; or --on cpu")  # fmt: skip
    if method == "equilibrium" and not apart:
        raise UserError("no equilibrium: it needs several resources that are not shared",
                        "--on cpu:1,cpu:1, --on cpu,cuda, or tables of devices; or --method stages")  # fmt: skip
    if method == "optimum" and no_optimum:
        raise UserError(f"no optimum: {no_optimum}", f"--method {'equilibrium' if apart else 'stages'}")


def _device_predictions(found: DeviceSchedules, times: DeviceTimes) -> tuple[PredictedSchedule, ...]:
    predictions = []
    if found.alone:
        name = min(found.alone, key=lambda one: found.alone[one])
        predictions.append(PredictedSchedule(
            "sequential", found.alone[name], note=f"everything on {name}, the fastest device alone"
        ))  # fmt: skip
    if found.equilibria:
        best, worst = found.equilibria.best, found.equilibria.worst
        note = (
            f"{count_noun(found.equilibria.found, 'equilibrium', 'equilibria')} from {found.equilibria.started} starts"
        )
        if worst.makespan > best.makespan:
            note += f"; the worst takes {worst.makespan / best.makespan:.3g} times as long"
        predictions.append(PredictedSchedule("equilibrium", best.makespan, timeline=timeline_of(best), note=note))
    if found.optimum:
        placed = tuple(
            PlacedUnit(one.unit, _device_of(times, one.unit, one.mode), one.start, one.end)
            for one in found.optimum.placed
        )
        note = "" if found.optimum.proven else f"not proven, the bound is {found.optimum.bound:.3g} s"
        predictions.append(PredictedSchedule("optimum", found.optimum.seconds, timeline=placed, note=note))
    return tuple(predictions)


def _device_of(times: DeviceTimes, unit: int, mode: int) -> int:
    """Return the device of a mode: modes are the devices that can run the unit."""
    return [device for device, seconds in enumerate(times.seconds[unit]) if seconds < float("inf")][mode]


def _device_notes(found: DeviceSchedules) -> list[str]:
    notes = []
    if found.no_optimum:
        notes.append(f"no optimum and no price of anarchy: {found.no_optimum}")
    if found.equilibria and found.optimum and not found.optimum.proven and found.optimum.bound > 0:
        most = found.equilibria.worst.makespan / found.optimum.bound
        notes.append(f"the optimum is not proven: the price of anarchy may be up to {most:.4g}")
    if found.equilibria is None:
        notes.append("no equilibrium: from every start, units move round in a circle")
    return notes


def _choose(predictions: Sequence[PredictedSchedule], method: str) -> PredictedSchedule:
    """Return the schedule of a method; of `best`, the fastest that is not only a model's optimum."""
    known: dict[str, PredictedSchedule] = {one.method: one for one in predictions}
    if method != "best":
        if method not in known:
            raise UserError(f"there is no schedule by `{method}` here: there is {', '.join(known) or 'none'}",
                            "`--method best` takes the fastest that there is, and says why others are not")  # fmt: skip
        return known[method]
    usual = [one for one in predictions if one.method != "optimum"] or list(predictions)
    if not usual:
        raise UserError("no schedule was found: no device can run everything, and no equilibrium exists",
                        "--method optimum needs ortools: pip install 'opmark[schedule]'")  # fmt: skip
    fastest = min(usual, key=lambda one: one.seconds)
    plain = next((one for one in usual if one.method == "sequential"), fastest)
    return fastest if fastest.seconds < (1 - _LEAST_GAIN) * plain.seconds else plain


def _unit_names(graph: OperatorGraph, units: UnitGraph) -> tuple[str, ...]:
    """Return the units as people read them: their most frequent operators."""
    found = []
    for members in units.members:
        counts = Counter(graph.operators[i].rpartition("::")[2] for i in members)
        first = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in counts.most_common(3))
        found.append(first + (", ..." if len(counts) > 3 else ""))
    return tuple(found)


@dataclass
class _ProgramScheduling:
    """Schedules a program on this machine."""

    request: ScheduleRequest
    known: SavedSchedule | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Scheduling:
        request, known = self.request, self.known
        if known is not None and (request.params or request.size):
            raise UserError(
                "the parameters of a saved schedule are those that it was made for", "leave -p and --size out"
            )
        if known is not None:
            needless = ("predict", "slowdowns", "method", "times", "search")
            _refuse_options(request, needless, "a saved schedule was searched already")
        self.beside = self._devices_beside()
        self.shares = [] if self.beside else self._core_shares()
        if self.shares and request.slowdowns:
            raise InvalidParameter("--slowdowns: cores of their own are not shared, and nothing is slowed down there",
                                   "leave --slowdowns out, or --on cpu:1,cpu:1")  # fmt: skip
        self.elsewhere = [name for name in split_names(request.predict) if name.casefold() not in HERE]
        if self.elsewhere and (request.save is not None or request.slowdowns or self.shares):
            raise InvalidParameter(
                f"--predict {','.join(self.elsewhere)}: nothing of these chips is here to run, to save, or to share",
                "--predict here; or leave out --save, --slowdowns and cores",
            )
        self.case = self._find_case()
        self.info = self._find_backend()
        named = known is not None and any(lane.device for *_, lane in lanes_of(known.schedule))
        self.on_threads = self.info.device == "cpu" or bool(self.beside) or named
        usual = known.schedule.threads if known else default_threads()
        self.threads = request.threads or usual if self.on_threads else 1
        if known is not None and known.schedule.threads != self.threads:
            raise UserError(
                f"the schedule is for {count_noun(known.schedule.threads, 'thread')}, not {self.threads}",
                "`opmark schedule` makes one for another number of threads",
            )
        check_writable(request.save, request.times)
        if known is None:
            _refuse_method(request.method, apart=self._apart, no_optimum=self._why_no_optimum())
        elif not request.measure:
            return self._of_saved(known)
        environ = environ_for(self.info, self.threads)
        try:
            with ProgramProcess(
                self.case.op, dict(self.case.params), self.info.name, self.threads, environ, request.compile_timeout
            ) as process:
                if self.elsewhere:
                    return self._search_elsewhere(process)
                found = self._of_saved(known) if known else self._search(process)
                chosen = found.chosen.schedule
                assert chosen is not None
                timeline = tuple(process.trace(chosen)) if request.measure and self.on_threads else ()
        except Unsupported as error:
            raise UserError(f"{describe_case(self.case)} cannot be scheduled: {error.message}", error.hint) from None
        found = replace_fields(found, timeline=timeline, notes=tuple(self.notes))
        if request.save is not None:
            found.save(Path(request.save))
        return self._measure(found) if request.measure else found

    # What is scheduled, and on what.

    def _find_case(self) -> Case:
        request, known = self.request, self.known
        if known is not None:
            cases = cases_of(Entry(known.program, dict(known.params)), find_operator)
            return cases[0]
        name = request.program if isinstance(request.program, str) else request.program[0]
        if name.startswith(TRACE_PREFIX):
            if request.size:
                raise InvalidParameter("--size is for models: a trace has the sizes that it was captured with",
                                       "leave --size out; -p scale=32=64 changes a recorded size")  # fmt: skip
            cases = cases_of(Entry(name, dict(request.params or {})), find_operator)
            if find_operator(name).ranks or len(cases) != 1:
                raise UserError(f"{name}: expected a program of one process", "`opmark replay` takes several ranks")
            return cases[0]
        if Path(name).suffix == ".json":
            raise UserError(f"{name}: no such schedule", f"a trace is named as trace:{name}")
        return model_case(name, request.params, request.size)

    def _devices_beside(self) -> list[str]:
        """Return the devices of this machine that `--on cpu,cuda` names; none where there is one, or shares of cores.

        The other one than the processor is where the model lives."""
        names = list(dict.fromkeys(name.removeprefix("torch-") for name in split_names(self.request.on)))
        if len(names) != 2 or any(":" in name for name in names) or "cpu" not in names:
            return []
        if self.request.predict or self.request.slowdowns:
            raise InvalidParameter(
                f"--on {','.join(names)}: schedules over two devices are made of measured times",
                "leave --predict and --slowdowns out",
            )
        return names

    def _core_shares(self) -> list[int]:
        """Return the threads of each resource that `--on cpu:1,cpu:1` names; none where resources are shared."""
        names = split_names(self.request.on)
        if len(names) < 2 and not any(":" in name for name in names):
            return []
        shares = []
        for name in names:
            kind, _, count = name.partition(":")
            if kind != "cpu" or not count.isdecimal() or int(count) < 1:
                raise UserError(
                    f"--on {','.join(names)}: `{name}` is no share of the cores of this machine",
                    "cores: --on cpu:1,cpu:1. Other devices: write a table of times on each machine with --times FILE, "
                    "then `opmark schedule TABLE.yaml TABLE.yaml`",
                )
            shares.append(int(count))
        total = self.request.threads or default_threads()
        if sum(shares) > total:
            raise UserError(f"--on {','.join(names)}: {sum(shares)} cores, and there are {total}")
        return shares

    def _find_backend(self) -> BackendInfo:
        names = split_names(self.request.on) or (["cpu"] if self.known is None else [self.known.backend])
        name = "cpu" if self.shares else next((one for one in self.beside if one != "cpu"), names[0])
        info = find_backend(name if name.startswith("torch-") else f"torch-{name}")
        if missing := why_missing(info) or LocalExecutor().why_no_device(info.device):
            raise UserError(
                f"{info.name} cannot run here: {missing}",
                f"where it can: `opmark schedule {self.case.op} --on {name} --no-run --times FILE` writes a table of "
                "times, which `opmark schedule FILE` takes anywhere",
            )
        if self.known is not None and info.name != self.known.backend:
            raise UserError(f"the schedule is for {self.known.backend}, not {info.name}")
        return info

    # The search.

    def _of_saved(self, known: SavedSchedule) -> Scheduling:
        plain = sequential(known.schedule.digest, known.schedule.units, known.schedule.threads, range(len(known.units)))
        predictions = (
            PredictedSchedule("sequential", known.sequential, schedule=plain),
            *([PredictedSchedule(known.method, known.predicted, schedule=known.schedule)]
              if known.method != "sequential" else []),
        )  # fmt: skip
        return self._result(tuple(known.units), predictions, predictions[-1])

    def _search(self, process: ProgramProcess) -> Scheduling:
        request = self.request
        request.on_step(0, 0, "times of the operators")
        program = process.describe() if request.predict or request.slowdowns else None
        predicted = self._predict(program, "here") if program and request.predict else None
        # What cannot be predicted is measured, and so is everything without --predict.
        measured = process.profile() if predicted is None or predicted.unknown else None
        if predicted and measured:
            self._note_unknown(predicted, measured.graph)
        found_graph = program or measured
        assert found_graph is not None
        graph = found_graph.graph
        seconds = _mixed(predicted, measured, 1.0)
        units = make_units(graph, seconds)
        names = _unit_names(graph, units)
        _refuse_method(request.method, apart=self._apart, no_optimum=self._why_no_optimum(len(units)))
        if request.times is not None:
            write_table(_table(self.case.op, graph, {self.info.device: seconds}), Path(request.times))
        budget = request.search

        def time_stages(schedules: list[Schedule], seconds: float) -> list[StageTimes]:
            request.on_step(0, 0, f"{count_noun(len(schedules), 'schedule')}, stage by stage")
            return process.time_schedules(schedules, seconds)

        resources = (
            SharedResources(self.threads) if self.info.device == "cpu" else SharedResources(_STREAMS, intra=False)
        )
        time: TimeSchedules = time_stages
        model = None
        if program is not None:
            if predicted is not None:
                alone = self._predicted_units(units, predicted, measured)
            else:
                alone = self._measured_units(units, graph, time_stages, resources, budget)
            slowdown = self._known_slowdowns(program, units, seconds) if request.slowdowns else _no_slowdown
            time = model = StageModel(alone, slowdown, units.needs)
        if self.beside:
            return self._over_devices(process, graph, units, names, budget)
        if self.shares:
            return self._share_cores(process, graph, units, names, time, budget)
        search = StageSearch(units, graph.digest, resources, time, budget)
        predictions = list(search.find())
        if model is not None:  # its makespans are computed, not sampled
            predictions = [replace_fields(one, low=None, high=None) for one in predictions]
        if predicted is not None and model is not None:
            if not request.slowdowns:
                self.notes.append("operators are taken not to slow each other down: --slowdowns says what is known")
            low, high = (
                replace_fields(model, seconds=self._predicted_units(units, predicted, measured, end)) for end in ENDS
            )
            predictions = [
                replace_fields(one, low=_makespan(one.schedule, low), high=_makespan(one.schedule, high))
                for one in predictions
            ]
        if reason := self._why_no_optimum(len(units)):
            self.notes.append(f"no optimum: {reason}")
        elif request.method != "sequential":
            request.on_step(0, 0, "the optimum")
            predictions.append(search.optimum())
        if predicted is not None and (joules := self._predict_joules(cast("DescribedProgram", program), "here")):
            predictions = [replace_fields(one, joules=sum(joules)) for one in predictions]
        chosen = _choose(predictions, request.method)
        return self._result(names, tuple(predictions), chosen, slowdown=search.slowdown())

    def _predict(self, program: DescribedProgram, chip: str) -> ProgramTimes:
        here = chip.casefold() in HERE
        return predict_program(
            program, chip, find_predictor(self.info.name if here else None, chip), far=self.request.far
        )

    def _predict_joules(self, program: DescribedProgram, chip: str) -> list[float] | None:
        """Return the energy of each operator; None where no model has learnt it, or all of them."""
        here = chip.casefold() in HERE
        try:
            predictor = find_predictor(self.info.name if here else None, chip, None, ENERGY)
        except UserError:
            return None
        found = predict_program(program, chip, predictor, far=self.request.far)
        return None if found.unknown else found.seconds()

    def _note_unknown(self, times: ProgramTimes, graph: OperatorGraph) -> None:
        many = count_noun(len(times.unknown), "operator")
        self.notes.append(f"{many} measured, not predicted: {name_unknown(times, graph.operators)}")

    def _predicted_units(
        self, units: UnitGraph, predicted: ProgramTimes, measured: ProfiledProgram | None, end: End = "seconds"
    ) -> Callable[[int, int], float]:
        """Return seconds(unit, threads) from predictions: the model has learnt this machine with all of its cores."""
        whole = default_threads() if self.info.device == "cpu" else 1

        @cache
        def operators(threads: int) -> list[float]:
            return _mixed(predicted, measured, min(1.0, threads / whole), end)

        return lambda unit, threads: sum(operators(threads)[member] for member in units.members[unit])

    def _measured_units(
        self, units: UnitGraph, graph: OperatorGraph, time: TimeSchedules, resources: SharedResources, budget: float
    ) -> Callable[[int, int], float]:
        """Return seconds(unit, threads) from a measurement of every unit alone."""
        counts = sorted({*resources.thread_counts(), self.threads, *self.shares})
        found = time([one_by_one(graph.digest, units.members, self.threads, count) for count in counts], budget)
        solo = {
            (unit, count): median(one[unit] for one in times.rounds)
            for count, times in zip(counts, found, strict=True)
            for unit in range(len(units))
        }
        return lambda unit, threads: solo[unit, threads]

    def _known_slowdowns(
        self, program: DescribedProgram, units: UnitGraph, seconds: Sequence[float]
    ) -> Callable[[int, int], float]:
        """Return slowdown(unit, other) from co-runs in the store: the mean over the pairs of their operators, by their
        times. Units of which no pair was measured have the median of the others."""
        if len(units) < 2:
            return _no_slowdown
        ids = [[case.id for one in called if (case := case_of_call(one))] for called in program.calls]
        table: dict[tuple[str, str], float] = {}
        with existing_store(self.request.db) as store:
            for (one, beside), found in stored_slowdowns(store, platform.node()) if store else ():
                if one.backend == beside.backend == self.info.name:
                    table.setdefault((one.case, beside.case), max(1.0, found.ratio))
        known: dict[tuple[int, int], float] = {}
        for unit, other in permutations(range(len(units)), 2):
            weighed = [
                (seconds[i] * seconds[j], table[one, beside])
                for i in units.members[unit] for j in units.members[other]
                for one in ids[i] for beside in ids[j] if (one, beside) in table
            ]  # fmt: skip
            if total := sum(weight for weight, _ in weighed):
                known[unit, other] = sum(weight * ratio for weight, ratio in weighed) / total
        if not known:
            raise UserError(
                f"--slowdowns: the store has no co-run of two operators of {describe_case(self.case)} on "
                f"{self.info.name} here",
                self._how_to_corun(),
            )
        usual = median(known.values())
        total_pairs = len(units) * (len(units) - 1)
        self.notes.append(
            f"slowdowns of {len(known)} of {count_noun(total_pairs, 'pair')} of units are from co-runs"
            + (f"; the others are taken for their median, {usual:.3g}" if len(known) < total_pairs else "")
        )
        return lambda unit, other: known.get((unit, other), usual)

    def _how_to_corun(self) -> str:
        """Return the commands that measure co-runs of the operators of this program."""
        name, device = self.case.op, self.info.device
        listing = ["extract", name]
        if name.startswith(TRACE_PREFIX):
            listing = ["import", shlex.quote(name.removeprefix(TRACE_PREFIX))]
        else:
            listing += [f"--size {self.request.size}"] if self.request.size else []
            for key, value in (self.request.params or {}).items():
                listing.append(f"-p {key}={value[0] if isinstance(value, list) else value}")
            listing += [f"--device {device}"] if device != "cpu" else []
        return (
            f"`opmark {' '.join(listing)} -o ops.yaml` and "
            f"`opmark corun -w ops.yaml --backend {self.info.name}{db_option(self.request.db)}` measure them; "
            "leave what matters least out of the file, because a co-run takes at most 32 operators"
        )

    def _search_elsewhere(self, process: ProgramProcess) -> Scheduling:
        """Schedule over chips that are not here, by predicted times."""
        request = self.request
        request.on_step(0, 0, "what the operators compute")
        program = process.describe()
        columns: dict[str, list[float]] = {}
        names: dict[str, str] = {}
        for name in split_names(request.predict):
            times = self._predict(program, name)
            if times.unknown:
                many = count_noun(len(times.unknown), "operator")
                raise UserError(
                    f"{many} of {self.case.op} cannot be predicted on {times.chip}: "
                    f"{name_unknown(times, program.graph.operators)}",
                    f"where it is: `opmark schedule {self.case.op} --no-run --times FILE` measures all of them; "
                    "--far answers what lies far outside",
                )
            columns[times.chip], names[times.chip] = times.seconds(), name
        table = _table(self.case.op, program.graph, columns)
        if request.times is not None:
            write_table(table, Path(request.times))
        notes = ["predicted, not run: these chips are not here"]
        if len(columns) > 1:
            notes.append("transfers between chips cost nothing here: write a table with --times FILE, and add them")
        found = _schedule_table(table, table.devices, request.method, self.case.op, notes)
        energies = [self._predict_joules(program, names[chip]) for chip in table.devices]
        return _with_joules(found, table, energies)

    @property
    def _apart(self) -> bool:
        """Whether the resources are not shared."""
        return bool(self.beside or self.shares or self.elsewhere)

    def _why_no_optimum(self, units: int = 0) -> str:
        """Return why there is no optimum; empty if there is one. `units`: how many the graph has, where it is known."""
        if self.info.device != "cpu" and not self._apart:
            return "streams share a GPU in a way that no number of cores describes"
        if units > MOST_UNITS:
            return f"the graph has {units} units, and the solver is asked for at most {MOST_UNITS}"
        return why_no_solver()

    def _share_cores(
        self, process: ProgramProcess, graph: OperatorGraph, units: UnitGraph, names: tuple[str, ...],
        time_schedules: Any, budget: float,
    ) -> Scheduling:  # fmt: skip
        """Schedule over parts of the cores that are devices of their own: each unit has the threads of its part."""
        counts = sorted({self.threads, *self.shares})
        asked = [one_by_one(graph.digest, units.members, self.threads, count) for count in counts]
        found = time_schedules(asked, budget)
        solo = {
            count: [median([one[unit] for one in times.rounds]) for unit in range(len(units))]
            for count, times in zip(counts, found, strict=True)
        }
        devices = [f"cpu:{count} ({place + 1})" for place, count in enumerate(self.shares)]
        rows = tuple(tuple(solo[count][unit] for count in self.shares) for unit in range(len(units)))
        times = self._device_times(process, units, graph, devices, rows)
        scheduled = schedule_devices(times)
        self.notes += _device_notes(scheduled)
        plain = sequential(graph.digest, units.members, self.threads, range(len(units)))
        predictions = [PredictedSchedule("sequential", sum(solo[self.threads]), schedule=plain,
                                         note="everything with all cores")]  # fmt: skip
        for one in _device_predictions(scheduled, times):
            if one.method != "sequential":
                made = device_lanes(one.timeline, units, graph.digest, self.shares, self.threads, devices)
                predictions.append(replace_fields(one, schedule=made))
        chosen = _choose(predictions, self.request.method)
        return self._result(names, tuple(predictions), chosen, devices=scheduled, lanes=tuple(devices))

    def _device_times(
        self,
        process: ProgramProcess,
        units: UnitGraph,
        graph: OperatorGraph,
        devices: list[str],
        rows: tuple[tuple[float, ...], ...],
    ) -> DeviceTimes:
        """Return what units cost on devices, with what it takes to hand results over, which is measured here."""
        copies = {f"{one.source}>{one.target}": DeviceTransfer(one.seconds, one.bandwidth or inf)
                  for one in process.transfers(devices)}  # fmt: skip
        return DeviceTimes(tuple(devices), rows, units.needs, unit_transfers(units, graph, devices, copies))

    def _over_devices(
        self, process: ProgramProcess, graph: OperatorGraph, units: UnitGraph, names: tuple[str, ...], budget: float
    ) -> Scheduling:
        """Schedule over two devices of this machine, whose transfers are measured too."""
        devices = self.beside
        self.request.on_step(0, 0, f"every unit on {' and on '.join(devices)}")
        threads = [self.threads if name == "cpu" else 1 for name in devices]
        asked = [one_by_one(graph.digest, units.members, self.threads, count, name)
                 for name, count in zip(devices, threads, strict=True)]  # fmt: skip
        found = [[median(one[unit] for one in times.rounds) for unit in range(len(units))]
                 for times in process.time_schedules(asked, budget)]  # fmt: skip
        rows = tuple(tuple(own[unit] for own in found) for unit in range(len(units)))
        times = self._device_times(process, units, graph, devices, rows)
        scheduled = schedule_devices(times)
        self.notes += _device_notes(scheduled)
        fastest = min(range(len(devices)), key=lambda one: sum(found[one]))
        predictions = []
        for one in _device_predictions(scheduled, times):
            placed = one.timeline or tuple(PlacedUnit(unit, fastest, unit, unit) for unit in range(len(units)))
            made = device_lanes(placed, units, graph.digest, threads, self.threads, devices)
            predictions.append(replace_fields(one, schedule=made))
        chosen = _choose(predictions, self.request.method)
        return self._result(names, tuple(predictions), chosen, devices=scheduled, lanes=tuple(devices))

    def _result(
        self, names: tuple[str, ...], predictions: tuple[PredictedSchedule, ...], chosen: PredictedSchedule, **more: Any
    ) -> Scheduling:
        width = chosen.schedule.width if chosen.schedule else 1
        lanes = more.pop("lanes", tuple(f"lane {number + 1}" for number in range(width)))
        return Scheduling(
            self.case.op, dict(self.case.params), self.info.name, self.threads, names, predictions, chosen, lanes=lanes,
            notes=tuple(self.notes), **more,
        )  # fmt: skip

    # The verdict.

    def _measure(self, found: Scheduling) -> Scheduling:
        """Measure the sequential and the chosen schedule in turns; a sequential one is held against the model as it
        is."""
        request, plain = self.request, found.sequential
        assert plain is not None
        threads = self.threads if self.on_threads else default_threads()
        against = "sequential" if found.chosen.method != "sequential" else "as it is"
        assert found.chosen.schedule is not None
        timeline = Timeline(found.units, found.chosen.timeline, found.timeline)
        chosen_schedule = replace(found.chosen.schedule, timeline=timeline)
        schedules = {"a": plain.schedule if against == "sequential" else None, "b": chosen_schedule}
        sides = (
            Side(against, self.info.name, threads, implementation=SCHEDULED if schedules["a"] else "torch"),
            Side(found.chosen.method, self.info.name, threads, implementation=SCHEDULED),
        )

        quantities = ("latency", ENERGY) if counts_energy(self.info) else ("latency",)

        def configure(side: Side, task: Task) -> Task:
            settings = replace(task.settings, caches=("warm",), quantities=quantities)
            task = replace(task, settings=settings)
            chosen = schedules["a" if side is sides[0] else "b"]
            return with_configuration(task, {SCHEDULE: chosen.encode()}, SCHEDULED) if chosen else task

        request.on_step(0, 0, f"{against} and {found.chosen.method} in turns")
        own = {one.name for one in fields(TurnOptions)} & {one.name for one in fields(ScheduleRequest)}
        options = TurnOptions(**{**{name: getattr(request, name) for name in own}, "threads": threads})
        keep = StoreOptions(label=request.label or f"schedule {self.case.op}", db=request.db)
        compared = measure_sides(
            *sides, [self.case], options, keep,
            on_turn=request.on_turn, say=request.say, configure=configure,
        )  # fmt: skip
        pair = next((one for one in compared.pairs if one.quantity != ENERGY), None)
        joules: tuple[float | None, float | None] = (None, None)
        if ENERGY in quantities:
            with existing_store(request.db) as store:
                if store is not None:  # `:memory:` keeps nothing
                    a, b = (joules_of(store.records(run)) for run in compared.runs)
                    joules = (a, b)
        return replace_fields(found, compared=pair, against=against, runs=compared.runs, joules=joules)


def _table(program: str, graph: OperatorGraph, seconds: Mapping[str, Sequence[float]]) -> DeviceTable:
    """Return the times of operators by device as a table."""
    return DeviceTable(
        [
            TableOperator(
                name, {device: float(f"{max(times[place], _VIEW):.4g}") for device, times in seconds.items()},
                list(needs), nbytes,
            )
            for place, (name, needs, nbytes) in enumerate(zip(graph.operators, graph.needs, graph.nbytes, strict=True))
        ],
        program, graph.digest,
    )  # fmt: skip


def joules_of(records: Iterable[Record]) -> float | None:
    """Return the energy of a call: the geometric mean of the medians of processes; None where nothing counted it."""
    found = [one.measurement(ENERGY) for one in records if one.status in COUNTED]
    medians = [median(one.samples) for one in found if one and one.samples]
    return geometric_mean(medians) if medians else None


def _mixed(
    predicted: ProgramTimes | None, measured: ProfiledProgram | None, share: float, end: End = "seconds"
) -> list[float]:
    """Return the predicted time of each operator, or the measured one where there is none."""
    if predicted is None:
        assert measured is not None
        return measured.seconds
    times = predicted.seconds(share, end)
    if measured is not None:
        for number in predicted.unknown:
            times[number] = measured.seconds[number]
    return times


def _with_joules(found: Scheduling, table: DeviceTable, energies: Sequence[list[float] | None]) -> Scheduling:
    """Return a scheduling over chips with the energy of its schedules: that of each unit on its chip, added up."""
    assert found.devices is not None
    units, _ = device_times(table, table.devices)
    alone = found.devices.alone

    def joules(one: PredictedSchedule) -> float | None:
        everywhere = table.devices.index(min(alone, key=lambda name: alone[name])) if alone else 0
        places = {placed.unit: placed.lane for placed in one.timeline}
        total = 0.0
        for unit, members in enumerate(units.members):
            own = energies[places.get(unit, everywhere)]
            if own is None:
                return None
            total += sum(own[member] for member in members)
        return total

    known = {id(one): replace_fields(one, joules=joules(one)) for one in found.predictions}
    return replace_fields(found, predictions=tuple(known.values()), chosen=known[id(found.chosen)])


def _makespan(schedule: Schedule | None, model: StageModel) -> float | None:
    return sum(map(model.stage, schedule.stages)) if schedule else None


def _no_slowdown(unit: int, other: int) -> float:
    return 1.0
