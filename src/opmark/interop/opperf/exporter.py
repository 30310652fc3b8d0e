"""Records as results of opperf: JSON, and tables in Markdown and CSV.

Forward and backward of the same inputs are one result, under opperf's names. Failures are included with reasons.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from opmark.errors import UserError
from opmark.interop.opperf.operators import OPERATORS, plain_name
from opmark.interop.opperf.rows import foreign_inputs, ops
from opmark.plugin import Results
from opmark.plugin.registry import backend_or_none
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Case, Record
from opmark.schema.record import MEASURED
from opmark.stats.summary import percentile

Profiler = Literal["native", "python"]

MEMORY = "max_storage_mem_alloc"
_MS = 1e3
_DIGITS = 6
_OTHERS = re.compile(r"; (DL Operator Benchmarks|itself).*")
_DEVICES = {"cuda": "gpu", "none": "cpu"}


@dataclass
class OpperfResult:
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
    memory_resolution: float = 0
    """Resolution of the memory counter, if the operator needs less than that."""
    memory_unit: str = ""
    """The unit of memory, if it is not bytes."""

    def result(self) -> dict[str, Any]:
        about = {
            "memory_resolution": self.memory_resolution, "memory_unit": self.memory_unit, "operator": self.operator,
            "wrt": self.wrt, "backend": self.backend, "cautions": self.cautions, "failed": self.failed,
        }  # fmt: skip
        return {"inputs": self.inputs, **self.numbers, **{key: value for key, value in about.items() if value}}

    def format_inputs(self) -> str:
        """Return the inputs as text."""
        return str(self.inputs_with_tuples())

    def inputs_with_tuples(self) -> dict[str, Any]:
        """Return the inputs with shapes as tuples, as `run_performance_test` takes them."""
        return {key: _tuple(value) for key, value in self.inputs.items()}


def profiler_of(results: Results) -> Profiler:
    """Return the profiler of a run: `python` measures forward and backward in one step."""
    return "python" if any(record.task.case.phase == "both" for record in results.records) else "native"


def lines(results: Results, profiler: Profiler | None = None, names: Iterable[str] | None = None) -> list[OpperfResult]:
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


def line_of(name: str, group: Sequence[Record], profiler: Profiler, *, several: bool = False) -> OpperfResult:
    case = group[0].task.case
    inputs, operator = inputs_of(name, case)
    line = OpperfResult(name, inputs, operator=operator, wrt=list(max(record.task.case.wrt for record in group)))
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
        {"phase": r.task.case.phase, "status": r.status, "reason": r.reason} for r in group if r.status not in MEASURED
    ]
    return line


def _add_memory(line: OpperfResult, group: Sequence[Record]) -> None:
    needs = [record.memory for record in group if record.memory]
    if needs:
        most = max(needs, key=lambda memory: memory.peak)
        line.numbers[f"{MEMORY}_{_device(group[0])}"] = most.peak
        line.memory_resolution = most.resolution if most.peak < most.resolution else 0


def in_kilobytes(line: OpperfResult) -> OpperfResult:
    """Return a result with its memory in units of 1000 bytes, as MXNet's profiler counts under opperf's "(Bytes)"."""
    numbers = {key: value / 1000 if key.startswith(MEMORY) else value for key, value in line.numbers.items()}
    if numbers == line.numbers and not line.memory_resolution:
        return line
    return replace(line, numbers=numbers, memory_resolution=line.memory_resolution / 1000, memory_unit="kB")


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


# A run as opperf writes its results: JSON, and tables in Markdown and CSV. Failures are included with reasons.

_NATIVE = {"Max Mem Usage (Storage) (Bytes)": MEMORY, "Avg Forward Time (ms)": "avg_time_forward",
           "Avg. Backward Time (ms)": "avg_time_backward"}  # fmt: skip
_PYTHON = {f"{word} Time (ms)": f"{word.lower()}_time" for word in ("Avg", "P50", "P90", "P99")}
_NOTHING = "---"
_DOUBTFUL = " !"
_PRIVATE = ("machine", "variables", "sensors")
"""Facts of the environment that are not features of the software."""


class _Json:
    name = "opperf-json"
    summary = "MXNet opperf's results: times in ms and memory by operator and inputs"

    def files(self, results: Results) -> Mapping[str, str]:
        return {"opperf.json": json_text(lines(results))}


class _Markdown:
    name = "opperf-md"
    summary = "MXNet opperf's results as a table"

    def files(self, results: Results) -> Mapping[str, str]:
        found = lines(results)
        return {"opperf.md": markdown_text(found, profiler_of(results), results.environments)}


JSON = _Json()
MARKDOWN = _Markdown()


def document(found: Iterable[OpperfResult]) -> dict[str, list[dict[str, Any]]]:
    """Return results by operator, one for each set of inputs, as opperf returns and writes them."""
    whole: dict[str, list[dict[str, Any]]] = {}
    for line in found:
        whole.setdefault(line.name, []).append(line.result())
    return whole


def lines_in(whole: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[OpperfResult]:
    """Return the results of a dictionary that `document` made, or opperf."""
    known = {item.name for item in fields(OpperfResult)} - {"name", "numbers"}
    found = []
    for name, results in whole.items():
        for result in results:
            numbers = {key: value for key, value in result.items() if key not in known}
            about = {key: value for key, value in result.items() if key in known and key != "inputs"}
            found.append(OpperfResult(name, dict(result.get("inputs", {})), numbers, **about))
    return found


def json_text(found: Iterable[OpperfResult]) -> str:
    return json.dumps(document(found), indent=4) + "\n"


def markdown_text(
    found: Sequence[OpperfResult], profiler: Profiler, environments: Mapping[str, Mapping[str, Any]]
) -> str:
    titles = _titles(profiler)
    text = ["# Runtime Features", *_features(environments), "# Benchmark Results", _row(titles)]
    text.append(_row([":---:"] * (len(titles) - 1) + [":---"]))
    ordered = sorted(found, key=lambda line: line.name)
    for line in ordered:
        name, *others = map(str, _cells(line, titles))
        text.append(_row([name + _DOUBTFUL * bool(line.cautions), *others]))
    doubts = [(line, caution) for line in ordered for caution in line.cautions]
    if doubts:
        text += [f"# To Be Doubted ({_DOUBTFUL.strip()})", _row(("Operator", "Inputs", "Reason")), _row([":---"] * 3)]
        text += [_row([line.name, line.format_inputs(), _one_line(caution)]) for line, caution in doubts]
    failed = [(line, failure) for line in found for failure in line.failed]
    if failed:
        text += ["# Not Measured", _row(("Operator", "Inputs", "Phase", "Status", "Reason")), _row([":---"] * 5)]
        text += [_row([line.name, line.format_inputs(), *map(_one_line, failure.values())]) for line, failure in failed]
    return "\n".join(text) + "\n"


def csv_text(found: Sequence[OpperfResult], profiler: Profiler) -> str:
    """Write the columns of the Markdown table; cautions and failures are in the last two."""
    titles = _titles(profiler)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*titles, "To Be Doubted", "Not Measured"])
    for line in found:
        reasons = "; ".join(f"{f['phase']}: {f['status']}: {f['reason']}" for f in line.failed)
        writer.writerow([*_cells(line, titles), "; ".join(line.cautions), reasons])
    return text.getvalue()


def _titles(profiler: Profiler) -> list[str]:
    return ["Operator", *_PYTHON, "Inputs"] if profiler == "python" else ["Operator", "Inputs", *_NATIVE]


def _cells(line: OpperfResult, titles: Sequence[str]) -> list[Any]:
    return [_cell(line, title) for title in titles]


def _cell(line: OpperfResult, title: str) -> Any:
    if title == "Operator":
        return line.name
    if title == "Inputs":
        return line.format_inputs()
    start = (_NATIVE | _PYTHON)[title]
    if start == MEMORY and line.memory_resolution:
        return f"< {line.memory_resolution}"
    return next((value for key, value in line.numbers.items() if key.startswith(start)), _NOTHING)


def _features(environments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the features as a list; as in MXNet, all are numbered 0."""
    found: dict[str, None] = {}
    for facts in environments.values():
        for key, value in facts.items():
            if key not in _PRIVATE and value is not None:
                found[f"0. {key.upper()} : {value}"] = None
    return list(found)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: Any) -> str:
    """Return a text as a cell of a table, without line breaks and bars."""
    return " ".join(str(text).split()).replace("|", "\\|")
