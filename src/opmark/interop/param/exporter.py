"""A stored run as PARAM's result file and run options: one line per case. Figures that PARAM does not have are under
`opmark`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from opmark.analysis.metrics import Rates, rates
from opmark.analysis.rows import Row, rows_of_records, unit_of
from opmark.interop.param.config_exporter import NotExpressible, write_case
from opmark.plugin import Results
from opmark.schema import Case, ImportProblem, Measurement, Record
from opmark.version import VERSION

_MILLI = 1e3
_MEGA = float(1 << 20)
_GIGA = 1e9
_ONE_CALL = "1 sample, so that the spread is unknown; use -i 50"
_ONE_MEAN = "1 sample, the mean of calls back to back, so that the spread is unknown; use --exec-mode discrete"
PHASES = {"forward": "forward", "backward": "backward", "both": "forward_backward"}
"""PARAM's names of phases, as in the labels of its profiler ranges."""
METRICS = ("warmup.time", "warmup.gpu.memory", "measure.time", "measure.gpu.memory")


class ConfigPosition(NamedTuple):
    """The position of a case in a config: PARAM's op_run_id in two parts."""

    op: str
    id: str
    """Ids of config, build and input, as in `0|0|1_2`."""
    file: str = ""
    """The file of the config, if it is known."""

    @property
    def source(self) -> str:
        """The id with its file, because several configs of a folder may have the same id."""
        return f"{self.file}#{self}" if self.file else str(self)

    def __str__(self) -> str:
        return f"{self.op}|{self.id}"

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.id)))


def place_of(source: str) -> ConfigPosition | None:
    """Parse `FILE#op|config|build|input`; return None for a source of another kind."""
    file, _, name = source.rpartition("#")
    op, *ids = name.rsplit("|", 3)
    return ConfigPosition(op, "|".join(ids), file) if op and len(ids) == 3 else None


def places_of(record: Record) -> list[ConfigPosition]:
    """Return all places of a record's case: a config may have the same case several times."""
    return [place for place in map(place_of, record.task.case.sources) if place]


def echo(case: Case) -> dict[str, Any]:
    """Return `config` of a result line, with opmark's parameters for a case that PARAM cannot express."""
    try:
        specs = write_case(case)
    except NotExpressible:
        return {"build": None, "input": {"params": case.params}}
    return {"build": specs.build, "input": specs.input}


def line(
    place: ConfigPosition, records: Sequence[Record], run_id: str, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the line of one case; `records` are those of its phases, each in one process or several."""
    found = {PHASES[row.record.task.case.phase]: row for row in rows_of_records(records)}
    cases = [row.record.task.case for row in found.values()]
    whole: dict[str, Any] = {
        "op_name": place.op,
        "id": place.id,
        "metric": {phase: metric(row) for phase, row in found.items()} if any(map(_times, found.values())) else {},
        "config": config or echo(next((case for case in cases if case.wrt), cases[0])),
    }
    error = next((_error(phase, row) for phase, row in found.items() if _is_error(phase, row)), None)
    if error:
        whole["error"] = error
    whole["opmark"] = {"run": run_id, **origin(place), **{phase: extra_figures(row) for phase, row in found.items()}}
    return whole


def untimed_line(place: ConfigPosition, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a case that was not called at all."""
    return {"op_name": place.op, "id": place.id, "metric": {}, "config": config, "opmark": origin(place)}


def origin(place: ConfigPosition) -> dict[str, Any]:
    """Return the source of a case for `opmark`, if it comes from a file."""
    return {"source": place.source} if place.file else {}


def problem_line(problem: ImportProblem) -> dict[str, Any]:
    """Return the line of a problem of the config: a case by its id, or a place in the file."""
    place = place_of(problem.where.rpartition(": ")[2])
    error = {"status": "not imported", "where": problem.where, "reason": problem.message, "hint": problem.hint}
    return {
        "op_name": place.op if place else _operator_at(problem.where), "id": place.id if place else None,
        "metric": {}, "config": None, "error": error,
    }  # fmt: skip


def _operator_at(where: str) -> str | None:
    """Return the operator in a place as `c.json: $["torch.add"].config[0]`; places in a batch file have none."""
    found = re.search(r': \$\[("(?:[^"\\]|\\.)*")\]', where)
    return str(json.loads(found[1])) if found else None


def metric(row: Row) -> dict[str, list[float]]:
    """Return times in ms and GPU memory in MB, which is 0 on a CPU as in PARAM; `opmark` has the host's."""
    memory = row.record.memory
    device = row.record.task.backend.rpartition("-")[2] not in ("cpu", "null")
    used = memory.peak / _MEGA if memory and device else 0
    found = _times(row)
    warmup = [_MILLI * value for m in found for value in m.warmup_samples]
    times = [_MILLI * value for m in found for value in m.samples]
    return dict(zip(METRICS, (warmup, [used] * len(warmup), times, [used] * len(times)), strict=True))


def _times(row: Row) -> list[Measurement]:
    """Return the measurements of the first quantity that is a time, one per process."""
    key = next((key for key in row.keys if unit_of(key[0]) == "s"), None)
    return row.measurements(key) if key else []


def _is_error(phase: str, row: Row) -> bool:
    """Whether a phase is reported as an error; a backward pass may be skipped because there is no gradient."""
    return row.record.failed or (row.record.status == "skipped" and phase == "forward")


def _error(phase: str, row: Row) -> dict[str, str]:
    return {"status": row.record.status, "phase": phase, "reason": row.record.reason}


def extra_figures(row: Row) -> dict[str, Any]:
    """Return the figures that PARAM does not have."""
    record = row.record
    task = record.task
    found: dict[str, Any] = {"status": record.status, "case": task.case.id, "backend": task.backend}
    if task.implementation:
        found["implementation"] = task.implementation
    if record.reason:
        found["reason"] = record.reason
    if record.notes:
        found["notes"] = list(record.notes)
    if _times(row):
        found |= _figures(row)
    if record.verification:
        found["verified"] = record.verification.checked
    if record.memory:
        found["memory_mb"] = record.memory.peak / _MEGA
    if record.profiles:
        found["profiles"] = msgspec.to_builtins(record.profiles)
    return found


def _figures(row: Row) -> dict[str, Any]:
    measured = _times(row)[0]
    key, cost = (measured.quantity, measured.cache), row.record.cost
    summary = row.summary(key)
    assert summary is not None
    per_second = Rates() if measured.disturbed else rates(cost, summary.median)
    return {
        "quantity": measured.quantity,
        "cache": measured.cache,
        "timer": measured.timer,
        "samples": summary.samples,
        "median_ms": _MILLI * summary.median,
        "interval_ms": [_MILLI * summary.low, _MILLI * summary.high] if summary.samples > 1 else None,
        "bytes": cost.bytes_moved if cost else None,
        "flops": cost.flops if cost else None,
        "gb_per_s": _giga(None if row.record.view else per_second.bytes_per_second),
        "gflop_per_s": _giga(per_second.flops_per_second),
        "cautions": list(_cautions(row, summary.samples, measured)),
    }


def _cautions(row: Row, samples: int, measured: Measurement) -> Iterator[str]:
    """Yield cautions, also about a single sample, which is PARAM's default and says nothing about the spread."""
    yield from row.cautions
    if samples == 1:
        yield _ONE_MEAN if measured.quantity == "throughput" else _ONE_CALL


def _giga(rate: float | None) -> float | None:
    return None if rate is None else rate / _GIGA


def text(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


# The first line of PARAM's result file: run options, system and start.

PASSES = {False: "ExecutionPass.FORWARD", True: "ExecutionPass.BACKWARD"}
"""PARAM's value of `pass_type`, by whether there is a backward pass."""
MODES = {
    "discrete": "OpExecutionMode.DISCRETE",
    "continuous": "OpExecutionMode.CONTINUOUS",
    "continuous_events": "OpExecutionMode.CONTINUOUS_EVENTS",
}

DEFAULT_OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "pass_type": PASSES[False],
    "warmup": 1,
    "iteration": 1,
    "op_exec_mode": MODES["discrete"],
    "cuda_l2_cache": True,
    "time_unit": "millisecond",
    "out_file_prefix": None,
    "out_stream": None,
    "run_ncu": False,
    "ncu_bin": "ncu",
    "ncu_args": "",
    "ncu_warmup": 5,
    "ncu_iteration": 1,
    "run_nsys": False,
    "nsys_bin": "nsys",
    "nsys_args": "",
    "nsys_warmup": 5,
    "nsys_iteration": 10,
    "run_batch_size": 50,
    "batch_cuda_device": None,
    "batch_cmd": None,
    "resume_op_run_id": None,
    "stop_op_run_id": None,
    "pt2_model": False,
    "cuda_graph": False,
    "cmd_args": {},
}
"""PARAM's run options in its order, with its defaults."""


def header(options: Mapping[str, Any], facts: Mapping[str, Any], started: str) -> dict[str, Any]:
    """Return the first line; `facts` are those of the environment, and unknown ones are null."""
    machine_facts = {name: fact for name, fact in facts.items() if name not in ("pid", "cwd")}
    return {
        "run_options": {**DEFAULT_OPTIONS, **options},
        "sys_info": sys_info(facts),
        "start_time": format_time(started),
        "opmark": {"version": facts.get("opmark", VERSION), "environment": machine_facts},
    }


def last_line(ended: str) -> dict[str, Any]:
    return {"finish_time": format_time(ended)}


def format_time(stored: str) -> str:
    """Format a time to the second as PARAM does, but with its offset from UTC, which PARAM leaves out."""
    return datetime.fromisoformat(stored).isoformat(timespec="seconds") if stored else ""


def sys_info(facts: Mapping[str, Any]) -> dict[str, Any]:
    torch, on_cuda = facts.get("torch"), facts.get("device") == "cuda"
    without = torch is not None and torch.endswith("+cpu")
    found = {
        "hostname": facts.get("machine"),
        "pid": facts.get("pid"),
        "cwd": facts.get("cwd"),
        "python_version": facts.get("python"),
        "param_train_compute_version": f"opmark {facts.get('opmark', VERSION)}",
        "cuda_available": True if on_cuda else False if without else None,
    }
    if on_cuda:
        found |= {
            "cuda": facts.get("cuda"),
            "cuda_device_name": facts.get("gpu"),
            "cuda_device_property": {name: facts[name] for name in facts if name.startswith("gpu_")},
            "cudnn": facts.get("cudnn"),
        }
    return found | {"pytorch_version": torch, "pytorch_debug_build": None, "pytorch_build_config": None}


# A stored run as PARAM's result file, and as PARAM's run options.


class _ParamExporter:
    name = "param"
    summary = "PARAM's result file: JSON lines, milliseconds and MB"

    def files(self, results: Results) -> Mapping[str, str]:
        ends = max((record.started for record in results.records), default="")
        lines = [first_line(results), *case_lines(results), last_line(ends)]
        return {f"benchmark_result_{results.run.id}.json": text(lines)}


class _Options:
    name = "param-options"
    summary = "PARAM's run options, as in the first line of its result file"

    def files(self, results: Results) -> Mapping[str, str]:
        return {"run_options.json": json.dumps({**DEFAULT_OPTIONS, **options_of(results.records)}, indent=2) + "\n"}


def first_line(results: Results) -> dict[str, Any]:
    facts = next(iter(results.environments.values()), {})
    return header(options_of(results.records), facts, results.run.started)


def options_of(records: Sequence[Record]) -> dict[str, Any]:
    """Return run options by the first record; a run of opmark may have several values where PARAM has one."""
    task = records[0].task
    settings, sampling = task.settings, task.settings.sampling
    return {
        "device": task.backend.partition("-")[2] or task.backend,
        "pass_type": PASSES[any(record.task.case.phase != "forward" for record in records)],
        "warmup": sampling.warmup,
        "iteration": sampling.samples,
        "op_exec_mode": MODES.get(settings.mode, MODES["discrete"]),
        "cuda_l2_cache": "cold" not in settings.caches,
    }


def case_lines(results: Results) -> list[dict[str, Any]]:
    """Return a line for each case, in the order of the config, or of the run for cases without a config."""
    found = [*_group_by_place(results.records), *_number_cases([r for r in results.records if not places_of(r)])]
    files = {file: rank for rank, file in enumerate(dict.fromkeys(place.file for place, _ in found))}
    ops = {op: rank for rank, op in enumerate(dict.fromkeys((place.file, place.op) for place, _ in found))}
    found.sort(key=lambda pair: (files[pair[0].file], ops[pair[0].file, pair[0].op], pair[0].order))
    return [line(place, records, results.run.id) for place, records in found]


def _group_by_place(records: Sequence[Record]) -> list[tuple[ConfigPosition, list[Record]]]:
    """Group all phases of a place; a forward pass in two places may have a different backward pass in each."""
    groups: dict[tuple[ConfigPosition, str], list[Record]] = {}
    for record in records:
        for place in places_of(record):
            groups.setdefault((place, _setup(record)), []).append(record)
    return [(place, found) for (place, _), found in groups.items()]


def _number_cases(records: Sequence[Record]) -> Iterator[tuple[ConfigPosition, list[Record]]]:
    """Give ids to cases without a config, numbered by operator."""
    counts: Counter[str] = Counter()
    for found in _group_by_call(records):
        op = found[0].task.case.op
        yield ConfigPosition(op, f"0|0|{counts[op]}"), found
        counts[op] += 1


def _group_by_call(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Group records of the same call, all phases and processes, once for each choice of gradients."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        call = json.dumps([record.task.case.op, record.task.case.params], sort_keys=True)
        groups.setdefault((call, _setup(record)), []).append(record)
    for group in groups.values():
        choices = dict.fromkeys(r.task.case.wrt for r in group if r.task.case.phase != "forward") or {(): None}
        for wrt in choices:
            yield [r for r in group if r.task.case.phase == "forward" or r.task.case.wrt == wrt]


def _setup(record: Record) -> str:
    """Return backend, implementation and threads: each combination has a line of its own."""
    task = record.task
    return f"{task.backend}|{task.implementation}|{task.settings.threads}"


PARAM = _ParamExporter()
OPTIONS = _Options()
