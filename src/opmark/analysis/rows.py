"""The row model: what every table, page and file shows of a task, over all of its processes.

A row is made of the records of a task, one per process: of their heads, which are read without samples, or of whole
records. Rates and shares of peaks are computed when a row is made. Noise, texts of cautions and skew between ranks need
samples: they are computed on demand, from whole records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from opmark.analysis.bandwidth import LinkShare, Skew, bandwidths, link_share_of, skew
from opmark.analysis.load import LoadFigures, load_figures
from opmark.analysis.metrics import (
    APART,
    IS_ABOVE_DATASHEET,
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
from opmark.analysis.step import with_shares
from opmark.plugin.param import format_params
from opmark.plugin.registry import backend_or_none, items_of, parameters_of, way_of
from opmark.plugin.space import format_configuration
from opmark.schema import QUANTITIES, Cache, Case, Caution, Cost, Measurement, Record, Run, Task
from opmark.schema.case import MODEL_PREFIX, Phase, shown_case
from opmark.schema.chart import Unit
from opmark.schema.company import Company
from opmark.schema.cost import Link, Traffic
from opmark.schema.load import Load
from opmark.schema.machine import NoiseFloor, Peaks
from opmark.schema.measurement import NAMED_BY_TIMER, PREEMPTED, REQUEST_LATENCY
from opmark.schema.record import COUNTED, FAILED, NOT_TRIED, GraphCoverage, Overlap, Status, StoredFigure, severity
from opmark.schema.record_head import RecordHead
from opmark.schema.task import key_across_processes
from opmark.stats import geometric_mean, log_interval
from opmark.stats.measurement import SampledFigure, Summary, figure_of, join_figures
from opmark.units import percent, seconds

NO_WORK = frozenset({"host_time", *NAMED_BY_TIMER})
"""Times from which no rate follows: they do not include the work itself, or that of others as well."""


def unit_of(quantity: str) -> Unit:
    return QUANTITIES[quantity].unit if quantity in QUANTITIES else "s"


class MachineFacts(NamedTuple):
    """Peaks and noise of the chip that a row ran on; None if unknown."""

    measured: Peaks | None = None
    datasheet: Peaks | None = None
    noise: NoiseFloor | None = None
    """Noise floor of the backend on this machine."""
    calibrated_threads: int | None = None
    """Number of threads that the peaks of this processor were measured with, if there are none for this number."""


_UNKNOWN_MACHINE = MachineFacts()


class Timing(Struct, frozen=True):
    """The numbers of one quantity in one state of the caches."""

    quantity: str
    cache: Cache
    unit: str
    median: float | None
    """Seconds or joules per call; for several processes, the geometric mean of their medians. None: there is no
    number."""
    low: float | None
    high: float | None
    """Ends of its interval."""
    samples: int
    processes: int
    cautions: tuple[str, ...] = ()
    """Codes of cautions."""

    @property
    def key(self) -> Key:
        return self.quantity, self.cache

    @property
    def disturbed(self) -> bool:
        """Whether the scheduler spoilt the number: tables show it in brackets."""
        return PREEMPTED in self.cautions

    @property
    def usable(self) -> bool:
        """Whether the number is valid and was not spoilt by the scheduler."""
        positive = self.median is not None and math.isfinite(self.median) and self.median > 0
        return positive and not self.disturbed


class Row(Struct, frozen=True, dict=True):
    """A task and its results. The fields are those of the dashboard's JSON API; properties that need whole records are
    not part of it."""

    key: str
    """Id of its first task, which identifies the row within a run."""
    run: str
    case: str
    """The id of the case."""
    op: str
    phase: Phase
    params: dict[str, Any]
    parameters: str
    """The parameters as readable text."""
    backend: str
    implementation: str
    where: str
    """Backend, implementation if there are several, threads, processes: as tables name them."""
    threads: int
    processes: int
    effort: str
    mode: str
    status: Status
    """If processes differ, the most severe one."""
    reason: str
    timings: tuple[Timing, ...]
    """The first is the headline."""
    environment: str
    started: str
    duration: float
    """Seconds from the order to the record, summed over processes."""
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int | None = None
    """Least number of bytes that the operator has to move; for communication, the size of its buffers."""
    flops: int | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    """Rates of the headline, if it is a time. A view moves no bytes, and communication has `bus_bandwidth` instead."""
    of_peak: PeakShare | None = None
    of_datasheet: PeakShare | None = None
    traffic: int | None = None
    """For communication, bytes of the whole buffer."""
    link: Link | None = None
    ranks: int | None = None
    algorithm_bandwidth: float | None = None
    bus_bandwidth: float | None = None
    memory: int | None = None
    """Peak memory in bytes, inputs included."""
    compile_time: float | None = None
    """Seconds with empty caches, median over processes; None: nothing was compiled."""
    compile_cached: float | None = None
    """Seconds with filled caches, median over processes; None if the compiler has none."""
    export_time: float | None = None
    """Seconds that exporting the graph took; None: nothing was exported."""
    graphs: int | None = None
    """Number of graphs that were compiled: more than one after a graph break."""
    coverage: GraphCoverage | None = None
    """How much of what was given to a compiler it took."""
    verified: str = ""
    """`full`, `sampled`, `scaled` or `none`; empty if nothing ran."""
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed, if not all that have one."""
    memory_source: str = ""
    """Source of the memory figure: the framework's allocator or the kernel; empty if there is none."""
    memory_resolution: int = 1
    """Step in bytes in which memory was counted; smaller amounts are only known to be smaller."""
    seed: int = 0
    view: bool = False
    """Whether the result shares memory with an input, so that no data was moved."""
    of_link: LinkShare | None = None
    items: str = ""
    """What a call processes a number of: `samples` or `tokens`; empty if nothing is said of it."""
    items_per_second: float | None = None
    token_cache: int | None = None
    """Bytes of keys and values that a language model keeps for its next token."""
    stage: str = ""
    """Stage in which the task ended, if it did not reach its end."""
    load: Load | None = None
    """The load under which requests were measured."""
    company: Company | None = None
    """The operators that ran at the same time."""
    configuration: str = ""
    """The values of the knobs, as readable text; empty for the default."""
    count: int = 1
    """How often the program that the case comes from makes this call."""
    original: float | None = None
    """Seconds of one call in that program, where they are known."""
    step_share: float | None = None
    """Count times seconds, relative to the sum over the run on this backend; None where no case has a count."""

    @property
    def is_plain(self) -> bool:
        """Whether it was measured by itself: neither under load nor in company."""
        return self.load is None and self.company is None

    @property
    def is_model(self) -> bool:
        return self.op.startswith(MODEL_PREFIX)

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds that a language model takes to read its prompt."""
        return self._call_seconds if self.params.get("stage") == "prefill" else None

    @property
    def time_per_token(self) -> float | None:
        """Seconds that a language model takes for one more token of each sequence of its batch."""
        return self._call_seconds if self.params.get("stage") == "decode" else None

    @property
    def _call_seconds(self) -> float | None:
        """Seconds of a call as a caller sees it."""
        timed = call_timing(self.timings)
        return timed.median if timed and self.items else None

    @property
    def headline(self) -> Timing | None:
        return self.timings[0] if self.timings else None

    @property
    def seconds(self) -> float | None:
        """Median of the headline, if it is a time above 0, also of a disturbed one."""
        first = self.headline
        return first.median if first and first.unit == "s" and first.median and first.median > 0 else None

    @property
    def name(self) -> str:
        """Operator, parameters, and the phase if it is not `forward`."""
        backward = "" if self.phase == "forward" else self.phase_text
        return " ".join(filter(None, (self.op, self.parameters, backward)))

    @property
    def phase_text(self) -> str:
        """The phase with the inputs whose gradients are computed, if these were chosen: `backward dx`."""
        return " d".join((self.phase, *self.wrt)) if self.wrt else self.phase

    @property
    def place(self) -> str:
        """`where` without the number of processes."""
        return self.where.removesuffix(f" in {self.processes} processes")

    @property
    def dtype(self) -> str:
        return str(self.params.get("dtype", ""))

    @property
    def failed(self) -> bool:
        return self.status in FAILED

    @property
    def untried(self) -> bool:
        """Whether no worker was there to try the task. Such a row is shown at the end of a run, and stored nowhere."""
        return bool(self.records) and all(record.untried for record in self.records)

    @property
    def status_text(self) -> str:
        """The status for people, as `Record.status_text`."""
        return NOT_TRIED if self.untried else self.status

    @property
    def usable(self) -> bool:
        """Whether the task was measured and its headline counts."""
        return self.status in COUNTED and self.headline is not None and self.headline.usable

    @property
    def headline_cautions(self) -> tuple[str, ...]:
        """Codes of the cautions of the headline."""
        return self.headline.cautions if self.headline else ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Codes of the cautions of all timings."""
        return tuple(dict.fromkeys(code for timing in self.timings for code in timing.cautions))

    @property
    def keys(self) -> list[Key]:
        """Keys of all timings, the headline first."""
        return [timing.key for timing in self.timings]

    def timing(self, quantity: str, cache: Cache | None = None) -> Timing | None:
        """Return the first timing that fits and has a number."""
        fitting = (t for t in self.timings if t.quantity == quantity and cache in (None, t.cache))
        return next((t for t in fitting if t.median is not None), None)

    # The following properties need whole records.

    @property
    def records(self) -> tuple[Record, ...]:
        """One record per process; empty if the row was made of heads."""
        found: tuple[Record, ...] = self.__dict__.get("_records", ())
        return found

    @property
    def record(self) -> Record:
        """The record that represents all: a failed one if there is any."""
        return min(self.records, key=lambda record: severity(record.status))

    @property
    def machine(self) -> MachineFacts:
        found: MachineFacts = self.__dict__.get("_machine", _UNKNOWN_MACHINE)
        return found

    @property
    def gain(self) -> float | None:
        """Speed relative to the first implementation of the same case on the same backend; None if there is no other,
        or nothing was measured."""
        found: float | None = self.__dict__.get("_gain")
        return found

    @property
    def moved(self) -> Traffic | None:
        """Data that crosses links, for communication operators."""
        return self.record.cost.traffic if self.record.cost else None

    def measurements(self, key: Key) -> list[Measurement]:
        found = (record.measurement(*key) for record in self.records)
        return [measurement for measurement in found if measurement]

    def samples(self) -> list[float]:
        """Return the samples of the headline in the order taken, process after process."""
        first = self.headline
        return [value for m in self.measurements(first.key) for value in m.samples] if first else []

    def summary(self, key: Key | None = None) -> Summary | None:
        """Return the summary of a key, by default the headline; None if nothing was measured."""
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
        """Cache of summaries: tables read them many times."""
        return {}

    def warnings(self) -> list[tuple[Key, Caution]]:
        """Return the cautions with their texts. For several processes, the distance between them replaces the precision
        of each."""
        found: list[tuple[Key, Caution]] = []
        if len(self.records) == 1:
            found += [(_key(m), caution) for m in self.records[0].measurements for caution in m.cautions]
        elif self.records:
            found += [(timing.key, caution) for timing in self.timings for caution in self._over_processes(timing)]
        limits = (
            (self.of_peak, IS_ABOVE_PEAK, "the measured peak", "`opmark calibrate` again, on a quiet machine"),
            (self.of_datasheet, IS_ABOVE_DATASHEET, "the datasheet", "the datasheet, the cost or the clock is wrong"),
        )
        for share, code, limit, hint in limits:
            if share and is_above(share.share) and self.headline:
                message = f"{percent(share.share)} of {limit} ({share.bound}); at most 100 % is possible"
                found.append((self.headline.key, Caution(code, message, hint)))
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
    def load_figures(self) -> LoadFigures | None:
        """Throughput and percentiles under load; None without load."""
        return load_figures(self.measurements((REQUEST_LATENCY, "warm")), self.params) if self.load else None

    @cached_property
    def skew(self) -> Skew | None:
        """Skew between ranks in the headline, over the samples of all processes."""
        first = self.headline
        found = [m.by_rank for m in self.measurements(first.key) if m.by_rank] if first else []
        if not found or len({len(ranks) for ranks in found}) > 1:
            return None
        pooled = [[sample for ranks in found for sample in ranks[rank]] for rank in range(len(found[0]))]
        return skew(pooled, [self.params[name] for name in ("src", "dst") if name in self.params])

    @property
    def overlap(self) -> Overlap | None:
        """Overlap of two operations, median over processes."""
        found = [record.overlap for record in self.records if record.overlap]
        if not found:
            return None
        names = ("first_alone", "second_alone", "together")
        return replace(found[0], **{name: median([getattr(one, name) for one in found]) for name in names})


class RunView(Struct, frozen=True):
    """A run with its rows."""

    run: Run
    rows: tuple[Row, ...]
    """In the order in which their tasks were first tried."""
    environments: dict[str, dict[str, Any]] = {}
    """Facts by environment id."""
    machines: dict[str, MachineFacts] = {}
    """Machine facts by environment id."""
    records: int = 0
    """Number of stored records; `run.tasks` is the number of a complete run."""
    newest: str = ""
    """Start of the latest record."""


class RowNames:
    """Cache of readable names of cases and backends, shared between runs, since most runs have the same cases."""

    def __init__(self) -> None:
        self._parameters: dict[tuple[str, str], str] = {}
        self._where: dict[tuple[str, str, int, str, int], str] = {}

    def parameters(self, case: Case, called: str) -> str:
        key = (case.id, called)
        found = self._parameters.get(key)
        if found is None:
            found = self._parameters[key] = case_parameters(case, called)
        return found

    def where(self, head: RecordHead, processes: int) -> str:
        under = head.body.task.settings.conditions
        key = (head.backend, head.implementation, head.threads, under, processes)
        found = self._where.get(key)
        if found is None:
            several = f" in {processes} processes" if processes > 1 else ""
            way = way_of(head.backend, head.implementation)
            found = self._where[key] = f"{head.backend}{way} ×{head.threads}{under and f', {under}'}{several}"
        return found


def case_parameters(case: Case, called: str = "") -> str:
    """Return the parameters of a case as readable text. `called`: the arguments of a foreign call."""
    return format_params(shown_case(case), parameters_of(case.op), called)


def rows_of_records(
    records: Iterable[Record],
    run_id: str = "",
    machines: Mapping[str, MachineFacts] | None = None,
    *,
    named: bool = True,
    every: bool = True,
) -> list[Row]:
    """Make rows of whole records, in the order in which their tasks were first tried. `machines` has facts by
    environment id. Without `named`, `parameters` and `where` stay empty, so that the catalogue of operators need not be
    loaded. `every`: these are all records of a run, so that rows have shares of the whole."""
    heads = [_head_of(record, run_id) for record in records]
    cases = {head.case: head.body.task.case for head in heads if isinstance(head.body, Record)}
    found = make_rows(heads, cases, machines or {}, RowNames() if named else None)
    beside = [_rivals_key(row.record.task) for row in found]
    several = Counter(beside)
    first: dict[object, Row] = {}
    for row, key in zip(found, beside, strict=True):
        first.setdefault(key, row)
        row.__dict__["_gain"] = _gain(row, first[key]) if several[key] > 1 else None
    return with_shares(found) if every else list(found)


def _head_of(record: Record, run_id: str) -> RecordHead:
    """Make the head of a record. The task id is left empty, because only that of the first record is needed."""
    task, case = record.task, record.task.case
    return RecordHead(
        0, run_id, "", case.id, case.op, case.phase, task.backend, task.implementation, task.settings.threads,
        task.settings.process, record.status, record.reason, record.environment, record.started, record.duration,
        [figure_of(measurement) for measurement in record.measurements], record,
    )  # fmt: skip


def _rivals_key(task: Task) -> object:
    """Return a key that is equal for tasks that differ only in their implementation."""
    settings = task.settings
    return task.case.id, task.backend, settings.threads, settings.mode, settings.seed, settings.conditions


def _gain(row: Row, first: Row) -> float | None:
    if any(one.headline is not None and one.headline.disturbed for one in (row, first)):
        return None
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
    """Make rows of records, in the order in which their tasks were first tried. Records that differ only in the process
    become one row, to which a process that never tried the task adds nothing. `machines` has facts by environment id;
    without `names`, `parameters` and `where` stay empty."""
    groups: dict[tuple[Any, ...], list[RecordHead]] = {}
    given = list(heads)
    latest = accumulate((head.started for head in given), max)  # the place of records of what never started
    starts = [head.started or last for head, last in zip(given, latest, strict=True)]
    for _, head in sorted(zip(starts, given, strict=True), key=itemgetter(0)):
        key = key_across_processes(head.case, head.backend, head.implementation, head.body.task.settings)
        groups.setdefault(key, []).append(head)
    tried = [[head for head in group if not _is_untried(head)] or group for group in groups.values()]
    return tuple([_make_row(group, cases[group[0].case], machines, names) for group in tried])


def split_by_headline(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each headline apart, so that a column of a table has one quantity in one state of the caches.
    Rows without a number stay with those of their backend that have one, or else with the first rows."""
    known = {row.backend: row.headline.key for row in reversed(rows) if row.headline}
    first = next((row.headline.key for row in rows if row.headline), None)
    found: dict[Key | None, list[Row]] = {}
    for row in rows:
        found.setdefault(row.headline.key if row.headline else known.get(row.backend, first), []).append(row)
    return list(found.values())


def headline_name(rows: Sequence[Row]) -> str:
    """Return the quantity and the state of the caches of rows that share them."""
    return next((" ".join(row.headline.key) for row in rows if row.headline), "")


def _is_untried(head: RecordHead) -> bool:
    return isinstance(head.body, Record) and head.body.untried


def _make_row(
    group: Sequence[RecordHead], case: Case, machines: Mapping[str, MachineFacts], names: RowNames | None
) -> Row:
    first = min(group, key=lambda head: severity(head.status))
    body, settings = first.body, first.body.task.settings
    figures: dict[Key, list[StoredFigure]] = {}
    for head in group:
        for figure in head.figures:
            figures.setdefault((figure.quantity, figure.cache), []).append(figure)
    timings = tuple([_timing(*key, found, several=len(group) > 1) for key, found in figures.items()])
    machine = machines.get(first.environment, _UNKNOWN_MACHINE)
    found = _rates(body.cost, timings[0] if timings else None, case, first.backend, machine, view=body.view)
    for name, code in (("of_peak", IS_ABOVE_PEAK), ("of_datasheet", IS_ABOVE_DATASHEET)):
        share = found.get(name)
        if share and is_above(share.share):  # the headline is more than the hardware can do
            timings = (replace(timings[0], cautions=(*timings[0].cautions, code)), *timings[1:])
    compiled = [head.body.compilation for head in group if head.body.compilation]
    cached = [one.cached for one in compiled if one.cached is not None]
    made = compiled[0] if compiled else None
    start = group[0]
    row = Row(
        start.task or (start.body.task.id if isinstance(start.body, Record) else ""),
        first.run,
        case.id,
        shown_case(case).op,
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
        _unique([note for head in group for note in head.body.notes]),
        memory=body.memory.peak if body.memory else None,
        memory_source=body.memory.source if body.memory else "",
        memory_resolution=body.memory.resolution if body.memory else 1,
        wrt=case.wrt,
        seed=settings.seed,
        compile_time=median([one.cold for one in compiled]) if compiled else None,
        compile_cached=median(cached) if cached else None,
        export_time=made.export if made else None,
        graphs=made.graphs if made else None,
        coverage=made.coverage if made else None,
        stage=body.stage,
        verified=body.verification.checked if body.verification else "",
        view=body.view,
        load=settings.load,
        company=settings.company,
        configuration=format_configuration(dict(settings.configuration)),
        count=body.task.case.count,
        original=body.task.case.duration,
        **found,
        **_item_rate(case, timings),
    )
    whole = tuple([head.body for head in group if isinstance(head.body, Record)])
    if whole:
        row.__dict__.update(_records=whole, _machine=machine, _figures=figures)
        row = _with_load_rate(row) if row.load else row
    return row


def _with_load_rate(row: Row) -> Row:
    """Return the row with the samples or tokens per second of all clients together."""
    found, rate = items_of(row.record.task.case.op, row.params), row.load_figures
    if found is None or rate is None or rate.requests_per_second.value is None:
        return row
    changed = replace(row, items_per_second=found.number * rate.requests_per_second.value)
    changed.__dict__.update(row.__dict__)
    return changed


def _rates(
    cost: Cost | None, lead: Timing | None, case: Case, backend: str, machine: MachineFacts, *, view: bool
) -> dict[str, Any]:
    """Return the fields of a row that follow from the cost and the headline."""
    if cost is None:
        return {}
    moved = cost.traffic
    found: dict[str, Any] = {"bytes": cost.bytes_moved, "flops": cost.flops}
    if moved:
        found |= {"traffic": moved.size, "link": moved.link, "ranks": moved.ranks}
    duration = lead.median if lead and lead.unit == "s" else None
    if lead is None or not duration or duration <= 0 or lead.disturbed:
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


def call_timing(timings: Sequence[Timing]) -> Timing | None:
    """Return the timing that says how long a caller waits: the latency, else the first that is a time of the work."""
    usable = [one for one in timings if one.usable and one.unit == "s" and one.quantity not in NO_WORK and one.median]
    return next((one for one in usable if one.quantity == "latency"), next(iter(usable), None))


def _item_rate(case: Case, timings: Sequence[Timing]) -> dict[str, Any]:
    """Return the fields of a row about samples or tokens per second, as a caller gets them."""
    found = items_of(case.op, case.params)
    if found is None:
        return {}
    timed = call_timing(timings)
    rate = found.number / timed.median if timed and timed.median else None
    return {"items": found.noun, "items_per_second": rate, "token_cache": found.token_cache or None}


def _link_share(cost: Cost, duration: float, backend: str, machine: MachineFacts) -> LinkShare | None:
    """Return the share of a link's peak; None on a CPU, whose processes communicate through memory."""
    info = backend_or_none(backend)
    if info is not None and info.device == "cpu":
        return None
    found = (link_share_of(cost, duration, peaks) for peaks in (machine.datasheet, machine.measured) if peaks)
    return next((share for share in found if share), None)


def seconds_of(figures: Sequence[StoredFigure]) -> float | None:
    """Return `Row.seconds` of a row with these figures of a single record."""
    if not figures:
        return None
    first = figures[0]
    same = [figure for figure in figures if (figure.quantity, figure.cache) == (first.quantity, first.cache)]
    lead = _timing(first.quantity, first.cache, same, several=False)
    return lead.median if lead.unit == "s" and lead.median and lead.median > 0 else None


def _timing(quantity: str, cache: Cache, figures: Sequence[StoredFigure], *, several: bool) -> Timing:
    """Join the figures of one key. `several`: the task ran in more than one process, even if not all have a number."""
    unit = unit_of(quantity)
    if not several and len(figures) == 1:  # the most frequent case
        one = figures[0]
        known = one.median is not None and math.isfinite(one.median)
        numbers = (one.median, one.low, one.high) if known else (None, None, None)
        return Timing(quantity, cache, unit, *numbers, one.samples, 1, one.cautions)
    codes = [code for figure in figures for code in figure.cautions]
    medians = [figure.median for figure in figures if figure.median is not None and math.isfinite(figure.median)]
    count = sum([figure.samples for figure in figures])
    if not medians:
        told = _unique(codes_over_processes(codes, 0, 0.0))
        return Timing(quantity, cache, unit, None, None, None, count, len(figures), told)
    centre = geometric_mean(medians)
    if len(medians) == 1:
        only = next(figure for figure in figures if figure.median == medians[0])
        told = _unique(codes_over_processes(codes, 1, 0.0))
        return Timing(quantity, cache, unit, centre, only.low, only.high, count, len(figures), told)
    low, high, _ = log_interval(medians)
    told = _unique(codes_over_processes(codes, len(medians), half_width(centre, low, high)))
    return Timing(quantity, cache, unit, centre, low, high, count, len(figures), told)


def _unique(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values)) if values else ()


def _key(measurement: Measurement) -> Key:
    return measurement.quantity, measurement.cache


class RowCollector:
    """Makes rows during a run. A row is ready when it and the other implementations of its case, among them the one to
    which its gain is relative, have records in all of their processes."""

    def __init__(
        self,
        run_id: str,
        tasks: Iterable[Task],
        machine_of: Callable[[str], MachineFacts],
        on_row: Callable[[Row], None],
    ) -> None:
        """`tasks` are all tasks that will have a record; `machine_of` returns the facts of an environment by its id."""
        self._run_id, self._machine_of, self._on_row = run_id, machine_of, on_row
        self._machines: dict[str, MachineFacts] = {}
        self._missing = Counter(map(_rivals_key, tasks))
        """Number of tasks without a record, by what they have in common beside the implementation."""
        self._records: dict[object, list[Record]] = {}
        """Records of rows that are not ready."""

    def add(self, record: Record) -> None:
        """Take a record, and hand out the rows that are ready with it."""
        if record.environment not in self._machines:
            self._machines[record.environment] = self._machine_of(record.environment)
        key = _rivals_key(record.task)
        self._records.setdefault(key, []).append(record)
        self._missing[key] -= 1
        if self._missing[key] <= 0:
            self._hand_out(key)

    def end(self) -> None:
        """Hand out the rows of an interrupted run that lack processes or other implementations."""
        for key in list(self._records):
            self._hand_out(key)

    def _hand_out(self, key: object) -> None:
        for row in rows_of_records(self._records.pop(key), self._run_id, self._machines, every=False):
            self._on_row(row)
