"""The row model: what every table, page and file shows of a task, its processes together.

A row is made of the records of a task, one for each process: of their heads, which are read without samples, or of the
whole records. Rates, and shares of what the hardware can do, are computed when a row is made. Whatever takes samples
(noise, the words of a caution, skew between ranks) is computed when it is asked for, and takes the whole records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.bandwidth import LinkShare, Skew, bandwidths, link_share_of, skew
from opmark.analysis.metrics import (
    APART,
    IS_ABOVE_PEAK,
    PROCESSES_DIFFER,
    PeakShare,
    codes_over_processes,
    half_width,
    holds_over_processes,
    is_above,
    peak_share,
    rates,
)
from opmark.analysis.ranking import Key
from opmark.plugin.param import format_params
from opmark.plugin.registry import backend_or_none, parameters_of, way_of
from opmark.schema import QUANTITIES, Cache, Case, Caution, Cost, Measurement, Record, Run, Task
from opmark.schema.case import Phase
from opmark.schema.chart import Unit
from opmark.schema.cost import Link, Traffic
from opmark.schema.machine import NoiseFloor, Peaks
from opmark.schema.measurement import PREEMPTED
from opmark.schema.record import FAILED, Overlap, Status, StoredFigure
from opmark.schema.record_head import RecordHead
from opmark.schema.task import key_across_processes
from opmark.stats import log_interval
from opmark.stats.measurement import SampledFigure, Summary, figure_of, join_figures
from opmark.units import percent, seconds

NO_WORK = ("host_time",)
"""Times in which the work need not be done: no rate follows from them."""


def unit_of(quantity: str) -> Unit:
    return QUANTITIES[quantity].unit if quantity in QUANTITIES else "s"


class MachineFacts(NamedTuple):
    """What is known of the chip that a row ran on; None for what nobody has measured or written down."""

    measured: Peaks | None = None
    datasheet: Peaks | None = None
    noise: NoiseFloor | None = None
    """The noise of the backend that ran there."""


_UNKNOWN_MACHINE = MachineFacts()


class Timing(Struct, frozen=True):
    """One quantity in one state of the caches."""

    quantity: str
    cache: Cache
    unit: str
    median: float | None
    """Seconds or joules per call; for several processes, the median of theirs. None where there is no number."""
    low: float | None
    high: float | None
    """Ends of its interval."""
    samples: int
    processes: int
    cautions: tuple[str, ...] = ()
    """Codes."""

    @property
    def key(self) -> Key:
        return self.quantity, self.cache

    @property
    def usable(self) -> bool:
        """Whether its number says something of the operator."""
        positive = self.median is not None and math.isfinite(self.median) and self.median > 0
        return positive and PREEMPTED not in self.cautions


class Row(Struct, frozen=True, dict=True):
    """A task with what was measured of it. The fields are what the JSON API of the dashboard gives out; what a row
    knows besides, where it was made of whole records, is not part of that."""

    key: str
    """The id of its first task, by which it is found within a run."""
    run: str
    case: str
    """The id of the case."""
    op: str
    phase: Phase
    params: dict[str, Any]
    parameters: str
    """The parameters as people read them."""
    backend: str
    implementation: str
    where: str
    """Backend, implementation if there are several, threads, processes: as tables name them."""
    threads: int
    processes: int
    effort: str
    mode: str
    status: Status
    """Where processes differ, that of one which failed."""
    reason: str
    timings: tuple[Timing, ...]
    """The first is the headline."""
    environment: str
    started: str
    duration: float
    """Seconds from the order to the record, over all processes."""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int | None = None
    """Bytes that the operator has to move at least; for communication, the size of its buffers."""
    flops: int | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    """Rates of the headline, where that is a time. A view moves nothing, and communication has `bus_bandwidth`."""
    of_peak: PeakShare | None = None
    of_datasheet: PeakShare | None = None
    traffic: int | None = None
    """For communication, bytes of the whole buffer."""
    link: Link | None = None
    ranks: int | None = None
    algorithm_bandwidth: float | None = None
    bus_bandwidth: float | None = None
    memory: int | None = None
    """Bytes at the peak, inputs included."""
    compile_time: float | None = None
    """Seconds with empty caches, the median over processes; None where nothing was compiled."""
    verified: str = ""
    """`full`, `scaled`, `none`; empty where nothing ran."""
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed, where not all that have one are."""
    memory_source: str = ""
    """What counted the memory: the framework's allocator, or the kernel; empty where nothing did."""
    memory_resolution: int = 1
    """Steps in which memory was counted; a smaller need is known to be smaller and no more."""
    seed: int = 0
    view: bool = False
    """The result is another look at what went in: no data was moved."""
    of_link: LinkShare | None = None

    @property
    def headline(self) -> Timing | None:
        return self.timings[0] if self.timings else None

    @property
    def seconds(self) -> float | None:
        """Median of the headline, where that is a time above 0."""
        first = self.headline
        return first.median if first and first.unit == "s" and first.median and first.median > 0 else None

    @property
    def name(self) -> str:
        """Operator, parameters, and the phase where it is not the usual one."""
        backward = "" if self.phase == "forward" else self.phase_text
        return " ".join(filter(None, (self.op, self.parameters, backward)))

    @property
    def phase_text(self) -> str:
        """The phase with the inputs whose gradients are computed, where these are chosen: `backward dx`."""
        return " d".join((self.phase, *self.wrt)) if self.wrt else self.phase

    @property
    def place(self) -> str:
        """As `where`, without the number of processes."""
        return self.where.removesuffix(f" in {self.processes} processes")

    @property
    def dtype(self) -> str:
        return str(self.params.get("dtype", ""))

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    @property
    def usable(self) -> bool:
        """Whether it went well and its headline says something of the operator."""
        return self.status == "ok" and self.headline is not None and self.headline.usable

    @property
    def above_peak(self) -> bool:
        """Whether it did more than the chip was measured to do: then the peak, the cost or the clock is wrong."""
        return self.of_peak is not None and is_above(self.of_peak.share)

    @property
    def headline_cautions(self) -> tuple[str, ...]:
        """Codes of the number that stands for it, and of no other."""
        return self.headline.cautions if self.headline else ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Codes of all its numbers."""
        return tuple(dict.fromkeys(code for timing in self.timings for code in timing.cautions))

    @property
    def keys(self) -> list[Key]:
        """What was measured, the headline first."""
        return [timing.key for timing in self.timings]

    def timing(self, quantity: str, cache: Cache | None = None) -> Timing | None:
        """The first that fits and has a number."""
        fitting = (t for t in self.timings if t.quantity == quantity and cache in (None, t.cache))
        return next((t for t in fitting if t.median is not None), None)

    # What follows takes the whole records.

    @property
    def records(self) -> tuple[Record, ...]:
        """One for each process; none where the row was made of heads."""
        found: tuple[Record, ...] = self.__dict__.get("_records", ())
        return found

    @property
    def record(self) -> Record:
        """The record that stands for all: one that failed before one that did not."""
        return next((record for record in self.records if record.status != "ok"), self.records[0])

    @property
    def machine(self) -> MachineFacts:
        found: MachineFacts = self.__dict__.get("_machine", _UNKNOWN_MACHINE)
        return found

    @property
    def gain(self) -> float | None:
        """How many times faster it is than the first implementation of the same case on the same backend; None where
        there is no other, or nothing was measured."""
        found: float | None = self.__dict__.get("_gain")
        return found

    @property
    def moved(self) -> Traffic | None:
        """What crosses links, for communication."""
        return self.record.cost.traffic if self.record.cost else None

    def measurements(self, key: Key) -> list[Measurement]:
        found = (record.measurement(*key) for record in self.records)
        return [measurement for measurement in found if measurement]

    def samples(self) -> list[float]:
        """The samples of the headline in the order taken, one process behind the other."""
        first = self.headline
        return [value for m in self.measurements(first.key) for value in m.samples] if first else []

    def summary(self, key: Key | None = None) -> Summary | None:
        """The summary of the headline, if nothing else is asked for; None where nothing was measured."""
        key = key or (self.headline.key if self.headline else None)
        if key is None:
            return None
        if key not in self._summaries:
            figures = self.__dict__["_figures"].get(key, ())
            if not all(isinstance(one, SampledFigure) for one in figures):
                figures = [figure_of(measurement) for measurement in self.measurements(key)]
            self._summaries[key] = join_figures(figures) if figures else None
        return self._summaries[key]

    @cached_property
    def _summaries(self) -> dict[Key, Summary | None]:
        """What was summed up already: tables ask for it many times."""
        return {}

    def warnings(self) -> list[tuple[Key, Caution]]:
        """The cautions with their words. Several processes have how far they are apart instead of how sure each one
        was."""
        found: list[tuple[Key, Caution]] = []
        if len(self.records) == 1:
            found += [(_key(m), caution) for m in self.records[0].measurements for caution in m.cautions]
        elif self.records:
            found += [(timing.key, caution) for timing in self.timings for caution in self._over_processes(timing)]
        if self.above_peak and self.of_peak and self.headline:
            share = f"{percent(self.of_peak.share)} of the measured peak ({self.of_peak.bound})"
            message, hint = f"{share}; at most 100 % is possible", "`opmark calibrate` again, on a quiet machine"
            found.append((self.headline.key, Caution(IS_ABOVE_PEAK, message, hint)))
        return found

    def _over_processes(self, timing: Timing) -> Iterator[Caution]:
        measured = self.measurements(timing.key)
        if PROCESSES_DIFFER in timing.cautions and timing.median and timing.low is not None and timing.high is not None:
            medians = sorted(median(m.samples) for m in measured if m.samples)
            half = half_width(timing.median, timing.low, timing.high)
            yield Caution(
                PROCESSES_DIFFER,
                f"the medians of {len(measured)} processes lie between {seconds(medians[0])} and "
                f"{seconds(medians[-1])}: the centre is known to ± {percent(half)}; up to {percent(APART)} is usual",
                "use more --processes, or a quieter machine; `opmark doctor --aa` says what is usual here",
            )
        for measurement in measured:
            for caution in measurement.cautions:
                if holds_over_processes(caution.code):
                    yield replace(caution, message=f"in one of {len(measured)} processes, {caution.message}")

    @cached_property
    def skew(self) -> Skew | None:
        """How far the ranks of the headline are apart; over several processes, in all of their samples."""
        first = self.headline
        found = [m.by_rank for m in self.measurements(first.key) if m.by_rank] if first else []
        if not found or len({len(ranks) for ranks in found}) > 1:
            return None
        pooled = [[sample for ranks in found for sample in ranks[rank]] for rank in range(len(found[0]))]
        return skew(pooled, [self.params[name] for name in ("src", "dst") if name in self.params])

    @property
    def overlap(self) -> Overlap | None:
        """What hides behind what; the medians over several processes."""
        found = [record.overlap for record in self.records if record.overlap]
        if not found:
            return None
        names = ("first_alone", "second_alone", "together")
        return replace(found[0], **{name: median([getattr(one, name) for one in found]) for name in names})


class RunView(Struct, frozen=True):
    """A run as it is shown."""

    run: Run
    rows: tuple[Row, ...]
    """In the order in which they were first written."""
    environments: dict[str, dict[str, Any]] = {}
    """Facts by id."""
    machines: dict[str, MachineFacts] = {}
    """By the id of an environment."""
    records: int = 0
    """How many are stored: against `run.tasks` how far the run is."""
    newest: str = ""
    """When the last of them was begun."""


class RowNames:
    """Names of cases and places. Each is made once, and kept for the next run: most runs have the same cases."""

    def __init__(self) -> None:
        self._parameters: dict[tuple[str, str], str] = {}
        self._where: dict[tuple[str, str, int, int], str] = {}

    def parameters(self, case: Case, called: str) -> str:
        key = (case.id, called)
        found = self._parameters.get(key)
        if found is None:
            found = self._parameters[key] = case_parameters(case, called)
        return found

    def where(self, head: RecordHead, processes: int) -> str:
        key = (head.backend, head.implementation, head.threads, processes)
        found = self._where.get(key)
        if found is None:
            several = f" in {processes} processes" if processes > 1 else ""
            way = way_of(head.backend, head.implementation)
            found = self._where[key] = f"{head.backend}{way} ×{head.threads}{several}"
        return found


def case_parameters(case: Case, called: str = "") -> str:
    """The parameters of a case as people read them. `called`: the arguments of a foreign call."""
    return format_params(case, parameters_of(case.op), called)


def rows_of_records(
    records: Iterable[Record],
    run_id: str = "",
    machines: Mapping[str, MachineFacts] | None = None,
    *,
    named: bool = True,
) -> list[Row]:
    """The rows of whole records, in the order of the first record of each. `machines`: by the id of an environment.
    Without `named`, rows have no `parameters` and no `where`: to know how people read a parameter, the catalogue of
    operators has to be loaded, and files for programs do without."""
    heads = [_head_of(record, run_id) for record in records]
    cases = {head.case: head.body.task.case for head in heads if isinstance(head.body, Record)}
    found = make_rows(heads, cases, machines or {}, RowNames() if named else None)
    beside = [_beside(row.record.task) for row in found]
    several = Counter(beside)
    first: dict[object, Row] = {}
    for row, key in zip(found, beside, strict=True):
        first.setdefault(key, row)
        row.__dict__["_gain"] = _gain(row, first[key]) if several[key] > 1 else None
    return list(found)


def _head_of(record: Record, run_id: str) -> RecordHead:
    """Its task has no id yet: that of the first is enough."""
    task, case = record.task, record.task.case
    return RecordHead(
        0, run_id, "", case.id, case.op, case.phase, task.backend, task.implementation, task.settings.threads,
        task.settings.process, record.status, record.reason, record.environment, record.started, record.duration,
        [figure_of(measurement) for measurement in record.measurements], record,
    )  # fmt: skip


def _beside(task: Task) -> object:
    """Equal for tasks that differ only in their implementation."""
    return task.case.id, task.backend, task.settings.threads, task.settings.mode, task.settings.seed


def _gain(row: Row, first: Row) -> float | None:
    summary, base = row.summary(), first.summary()
    if summary is None or base is None or summary.median <= 0 or row.keys[0] != first.keys[0]:
        return None
    return base.median / summary.median


def make_rows(
    heads: Iterable[RecordHead],
    cases: Mapping[str, Case],
    machines: Mapping[str, MachineFacts],
    names: RowNames | None,
) -> tuple[Row, ...]:
    """The rows of records, in the order of the first record of each; records that differ only in the process are one
    row. `machines`: by the id of an environment. `names`: None leaves `parameters` and `where` empty."""
    groups: dict[tuple[Any, ...], list[RecordHead]] = {}
    for head in heads:
        key = key_across_processes(head.case, head.backend, head.implementation, head.body.task.settings)
        groups.setdefault(key, []).append(head)
    return tuple([_make_row(group, cases[group[0].case], machines, names) for group in groups.values()])


def _make_row(
    group: Sequence[RecordHead], case: Case, machines: Mapping[str, MachineFacts], names: RowNames | None
) -> Row:
    first = group[0] if len(group) == 1 else next((head for head in group if head.status != "ok"), group[0])
    body, settings = first.body, first.body.task.settings
    figures: dict[Key, list[StoredFigure]] = {}
    for head in group:
        for figure in head.figures:
            figures.setdefault((figure.quantity, figure.cache), []).append(figure)
    timings = tuple([_timing(*key, found, several=len(group) > 1) for key, found in figures.items()])
    machine = machines.get(first.environment, _UNKNOWN_MACHINE)
    found = _rates(body.cost, timings[0] if timings else None, case, first.backend, machine, view=body.view)
    share = found.get("of_peak")
    if share and is_above(share.share):  # the headline is more than the hardware can do
        timings = (replace(timings[0], cautions=(*timings[0].cautions, IS_ABOVE_PEAK)), *timings[1:])
    compiled = [head.body.compilation.cold for head in group if head.body.compilation]
    start = group[0]
    row = Row(
        start.task or (start.body.task.id if isinstance(start.body, Record) else ""),
        first.run,
        case.id,
        case.op,
        case.phase,
        case.params,
        names.parameters(case, body.called) if names else "",
        first.backend,
        first.implementation,
        names.where(first, len(group)) if names else "",
        first.threads,
        len(group),
        settings.effort,
        settings.mode,
        first.status,
        first.reason,
        timings,
        first.environment,
        first.started,
        sum([head.duration for head in group]),
        body.task.case.tags,
        _once([note for head in group for note in head.body.notes]),
        memory=body.memory.peak if body.memory else None,
        memory_source=body.memory.source if body.memory else "",
        memory_resolution=body.memory.resolution if body.memory else 1,
        wrt=case.wrt,
        seed=settings.seed,
        compile_time=median(compiled) if compiled else None,
        verified=body.verification.checked if body.verification else "",
        view=body.view,
        **found,
    )
    whole = tuple([head.body for head in group if isinstance(head.body, Record)])
    if whole:
        row.__dict__.update(_records=whole, _machine=machine, _figures=figures)
    return row


def _rates(
    cost: Cost | None, lead: Timing | None, case: Case, backend: str, machine: MachineFacts, *, view: bool
) -> dict[str, Any]:
    """What the headline says of the work, by the names of a row's fields."""
    if cost is None:
        return {}
    moved = cost.traffic
    found: dict[str, Any] = {"bytes": cost.bytes_moved, "flops": cost.flops}
    if moved:
        found |= {"traffic": moved.size, "link": moved.link, "ranks": moved.ranks}
    duration = lead.median if lead and lead.unit == "s" else None
    if lead is None or not duration or duration <= 0:
        return found
    if moved:
        link = bandwidths(cost, duration)
        found |= {"algorithm_bandwidth": link.algorithm, "bus_bandwidth": link.bus}
        return found | {"of_link": _link_share(cost, duration, backend, machine)}
    if lead.quantity in NO_WORK:
        return found
    work = rates(cost, duration)
    found |= {"bytes_per_second": None if view else work.bytes_per_second, "flops_per_second": work.flops_per_second}
    dtype = str(case.params.get("dtype", ""))
    for name, peaks in (("of_peak", machine.measured), ("of_datasheet", machine.datasheet)):
        found[name] = peak_share(cost, duration, dtype, peaks, cold=lead.cache == "cold") if peaks else None
    return found


def _link_share(cost: Cost, duration: float, backend: str, machine: MachineFacts) -> LinkShare | None:
    """Processes of one host have no link; nor is a processor one of the ends of its own."""
    info = backend_or_none(backend)
    if info is not None and info.device == "cpu":
        return None
    found = (link_share_of(cost, duration, peaks) for peaks in (machine.datasheet, machine.measured) if peaks)
    return next((share for share in found if share), None)


def seconds_of(figures: Sequence[StoredFigure]) -> float | None:
    """As `Row.seconds` of a row that has these figures of a single record."""
    if not figures:
        return None
    first = figures[0]
    same = [figure for figure in figures if (figure.quantity, figure.cache) == (first.quantity, first.cache)]
    lead = _timing(first.quantity, first.cache, same, several=False)
    return lead.median if lead.unit == "s" and lead.median and lead.median > 0 else None


def _timing(quantity: str, cache: Cache, figures: Sequence[StoredFigure], *, several: bool) -> Timing:
    """`several`: the task ran in more than one process, whether or not each of them has a number."""
    unit = unit_of(quantity)
    if not several and len(figures) == 1:  # as most are
        one = figures[0]
        known = one.median is not None and math.isfinite(one.median)
        numbers = (one.median, one.low, one.high) if known else (None, None, None)
        return Timing(quantity, cache, unit, *numbers, one.samples, 1, one.cautions)
    codes = [code for figure in figures for code in figure.cautions]
    medians = [figure.median for figure in figures if figure.median is not None and math.isfinite(figure.median)]
    count = sum([figure.samples for figure in figures])
    if not medians:
        told = _once(codes_over_processes(codes, 0, 0.0))
        return Timing(quantity, cache, unit, None, None, None, count, len(figures), told)
    centre = median(medians)
    if len(medians) == 1:
        only = next(figure for figure in figures if figure.median == medians[0])
        told = _once(codes_over_processes(codes, 1, 0.0))
        return Timing(quantity, cache, unit, centre, only.low, only.high, count, len(figures), told)
    low, high, _ = log_interval(medians)
    told = _once(codes_over_processes(codes, len(medians), half_width(centre, low, high)))
    return Timing(quantity, cache, unit, centre, low, high, count, len(figures), told)


def _once(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values)) if values else ()


def _key(measurement: Measurement) -> Key:
    return measurement.quantity, measurement.cache


class RowCollector:
    """Makes rows while a run goes on. A row is ready when each of its processes has a record, and so has each process
    of the first implementation of the same case, which its gain is relative to."""

    def __init__(
        self,
        run_id: str,
        tasks: Iterable[Task],
        machine_of: Callable[[str], MachineFacts],
        on_row: Callable[[Row], None],
    ) -> None:
        """`tasks`: all that will have a record. `machine_of`: by the id of an environment."""
        self._run_id, self._machine_of, self._on_row = run_id, machine_of, on_row
        self._machines: dict[str, MachineFacts] = {}
        self._missing: Counter[str] = Counter()
        """Processes without a record, by what is the same for all processes of a task."""
        self._groups: dict[object, set[str]] = {}
        """Tasks that differ only in their implementation."""
        for task in tasks:
            key = task.across_processes.id
            self._missing[key] += 1
            self._groups.setdefault(_beside(task), set()).add(key)
        self._records: dict[object, list[Record]] = {}
        """By group, in the order stored."""
        self._given: set[str] = set()

    def add(self, record: Record) -> None:
        """Take a record, and hand out the rows that are ready with it."""
        self._missing[record.task.across_processes.id] -= 1
        if record.environment not in self._machines:
            self._machines[record.environment] = self._machine_of(record.environment)
        group = _beside(record.task)
        self._records.setdefault(group, []).append(record)
        self._hand_out(group)

    def end(self) -> None:
        """Hand out the rows of an interrupted run that lack processes."""
        self._missing.clear()
        for group in list(self._records):
            self._hand_out(group)

    def _hand_out(self, group: object) -> None:
        records, known = self._records[group], self._groups.get(group, set())
        order = list(dict.fromkeys(record.task.across_processes.id for record in records))
        due = [key for key in order if key not in self._given and self._missing[key] <= 0]
        if not due or self._missing[order[0]] > 0:
            return
        rows = dict(zip(order, rows_of_records(records, self._run_id, self._machines), strict=True))
        if len(rows) == 1 < len(known):  # the others come later
            first = rows[order[0]]
            first.__dict__["_gain"] = _gain(first, first)
        self._given.update(due)
        if self._given >= known:
            del self._records[group]
        for key in due:
            self._on_row(rows[key])
