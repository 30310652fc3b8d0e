"""Records as results of opperf: forward and backward of the same inputs are one result, under opperf's names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from opmark.errors import UserError
from opmark.importers.opperf.names import plain_name
from opmark.importers.opperf.rows import foreign_inputs, ops
from opmark.importers.opperf.table import OPERATORS
from opmark.interfaces import Results
from opmark.registry import backend_or_none
from opmark.registry import operator as find_operator
from opmark.schema import Case, Record
from opmark.stats.summary import percentile

Profiler = Literal["native", "python"]

MEMORY = "max_storage_mem_alloc"
_MS = 1e3
_DIGITS = 6
_OTHERS = re.compile(r"; (DL Operator Benchmarks|itself).*")
_DEVICES = {"cuda": "gpu", "none": "cpu"}


@dataclass
class Line:
    name: str
    inputs: dict[str, Any]
    numbers: dict[str, float] = field(default_factory=dict)
    failed: list[dict[str, str]] = field(default_factory=list)
    """Phase, status and reason of each phase that was not measured."""
    cautions: list[str] = field(default_factory=list)
    """Reasons to doubt a number."""
    operator: str = ""
    """opmark's operator, where name and inputs do not determine it."""
    backend: str = ""
    """The backend, where a run has several."""
    wrt: list[str] = field(default_factory=list)
    """The gradients that were computed, if not all were."""
    memory_resolution: int = 0
    """Resolution of the memory counter, if the operator needs less than that."""

    def result(self) -> dict[str, Any]:
        about = {
            "memory_resolution": self.memory_resolution, "operator": self.operator, "wrt": self.wrt,
            "backend": self.backend, "cautions": self.cautions, "failed": self.failed,
        }  # fmt: skip
        return {"inputs": self.inputs, **self.numbers, **{key: value for key, value in about.items() if value}}

    def format_inputs(self) -> str:
        """Return the inputs as a dictionary of Python, with shapes as tuples."""
        return str({key: _tuple(value) for key, value in self.inputs.items()})


def profiler_of(results: Results) -> Profiler:
    """Return the profiler of a run: `python` measures forward and backward in one step."""
    return "python" if any(record.task.case.phase == "both" for record in results.records) else "native"


def lines(results: Results, profiler: Profiler | None = None, names: Iterable[str] | None = None) -> list[Line]:
    """Return the results of a run; with `names`, only results under these names."""
    profiler, selected = profiler or profiler_of(results), None if names is None else set(names)
    several = len({(r.task.backend, r.task.settings.threads) for r in results.records}) > 1
    found = []
    for group in groups(results.records):
        case = group[0].task.case
        for name in names_of(case.op, case.sources):
            if selected is None or name in selected:
                found.append(line_of(name, group, profiler, several=several))
    return found


def groups(records: Sequence[Record]) -> list[list[Record]]:
    """Group records by case: all phases and processes of a case are one group for each choice of gradients."""
    found: dict[str, list[Record]] = {}
    for record in records:
        task = record.task
        key = [task.case.op, task.case.params, task.backend, task.implementation, task.settings.threads]
        found.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(record)
    return [group for alike in found.values() for group in _by_gradients(alike)]


def _by_gradients(records: Sequence[Record]) -> list[list[Record]]:
    """Return a group for each choice of gradients; the forward pass belongs to all of them."""
    chosen = dict.fromkeys(record.task.case.wrt for record in records if record.task.case.phase != "forward")
    return [
        [record for record in records if record.task.case.phase == "forward" or record.task.case.wrt == wrt]
        for wrt in chosen or [()]
    ]


def line_of(name: str, group: Sequence[Record], profiler: Profiler, *, several: bool = False) -> Line:
    case = group[0].task.case
    inputs, operator = inputs_of(name, case)
    line = Line(name, inputs, operator=operator, wrt=list(max(record.task.case.wrt for record in group)))
    if several:
        line.backend = f"{group[0].task.backend}, {group[0].task.settings.threads} threads"
    if profiler == "native":
        _add_memory(line, group)
    for phase in ("forward", "backward", "both"):
        some = [record for record in group if record.task.case.phase == phase]
        samples = [s for record in some if record.measurements for s in record.measurements[0].samples]
        if samples:
            line.numbers |= _percentiles(name, samples) if profiler == "python" else _mean(name, phase, samples)
    doubts = [c for record in group for m in record.measurements[:1] for c in m.cautions]
    line.cautions = list(dict.fromkeys(f"{caution.code}: {caution.message}" for caution in doubts))
    line.failed = [
        {"phase": r.task.case.phase, "status": r.status, "reason": r.reason} for r in group if r.status != "ok"
    ]
    return line


def _add_memory(line: Line, group: Sequence[Record]) -> None:
    needs = [record.memory for record in group if record.memory]
    if needs:
        most = max(needs, key=lambda memory: memory.peak)
        line.numbers[f"{MEMORY}_{_device(group[0])}"] = most.peak
        line.memory_resolution = most.resolution if most.peak < most.resolution else 0


def _mean(name: str, phase: str, samples: Sequence[float]) -> dict[str, float]:
    """Return the mean, which opperf has alone, and the median, which an interruption hardly changes."""
    word = "" if phase == "both" else f"{phase}_"
    mean = _digits(sum(samples) / len(samples))
    return {f"avg_time_{word}{name}": mean, f"p50_time_{word}{name}": _digits(percentile(samples, 50))}


def _percentiles(name: str, samples: Sequence[float]) -> dict[str, float]:
    found = {f"avg_time_{name}": _digits(sum(samples) / len(samples))}
    return found | {f"p{p}_time_{name}": _digits(percentile(samples, p)) for p in (50, 90, 99)}


def _digits(seconds: float) -> float:
    return float(f"{seconds * _MS:.{_DIGITS}g}")


def _device(record: Record) -> str:
    info = backend_or_none(record.task.backend)
    device = info.device if info else record.task.backend.rpartition("-")[2]
    return f"{_DEVICES.get(device, device)}/0"


def names_of(op: str, sources: Iterable[str]) -> list[str]:
    """Return opperf's names of a case by its sources, or opmark's if there are none."""
    found: dict[str, None] = {}
    for source in sources:
        text = source.partition("#")[2] or _OTHERS.sub("", source)
        words = [plain_name(word) for word in re.findall(r"[\w.]+", text)]
        found |= {word: None for word in words if word in OPERATORS and op in _ops(word)}
    return list(found) or [op]


@cache
def _ops(name: str) -> frozenset[str]:
    found = set()
    for row in OPERATORS[name]:
        for op in ops(row):
            try:
                found.add(find_operator(op).name)
            except UserError:
                continue  # not every combination of words is an operator
    return frozenset(found)


def inputs_of(name: str, case: Case) -> tuple[dict[str, Any], str]:
    """Return inputs and opmark's operator; the operator is empty if opperf's names determine it."""
    params = {key: value for key, value in case.params.items() if value not in (None, [], {})}
    if name in OPERATORS and case.op in _ops(name):
        inputs = foreign_inputs(OPERATORS[name], case.op, case.params)
        if inputs is not None:
            return inputs, ""
    return params, "" if name == case.op and name not in OPERATORS else case.op


def _tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuple(item) for item in value)
    return value
