"""ByteMicroPerf's first report: `GPU/exp/result-float32.json`, an operator and an element type a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opmark.analysis.rows import Row, rows_of_records
from opmark.exporters import bytemicroperf_traffic as between
from opmark.exporters.bytemicroperf_figures import (
    MICRO,
    Figures,
    environment,
    figures,
    memory_bandwidth,
    microseconds_between,
    moved,
    noise_percent,
    path_part,
    remarks,
    rounded,
)
from opmark.exporters.bytemicroperf_names import TASKS, batch, said_by_shape, tensor_shapes, v1_name
from opmark.interfaces import Results
from opmark.metrics.throughput import rates
from opmark.schema.peaks import Peaks, chip
from opmark.version import VERSION

HARDWARE = {"torch-cuda": "GPU", "torch-cpu": "CPU"}
"""Its names of our backends; the others keep ours."""

_MB = 1 << 20
_GB = 1e9

_NOTES = (
    "Avg latency(us) is the mean of the quantity that the entry names, as ByteMicroPerf defines it.",
    "QPS is 1e6 / Avg latency(us) x Batch. ByteMicroPerf printed a thousandth of that until August 2024, and its "
    "README still does (27321.24 for 27321237.99).",
)
_BYTES = {
    "topk": "Write IO Size: k values and k indices a row; ByteMicroPerf counts those of the whole row, whatever k.",
    "hash_table": "Read IO Size: a row of the table is counted once; ByteMicroPerf counts it once a lookup.",
    "unique": "Write IO Size: the distinct values; ByteMicroPerf counts all values and an index of each.",
    "swiglu": "Write IO Size: half as many values as go in; ByteMicroPerf's swiglu gives as many.",
    "exponential": "Read IO Size: drawing reads nothing; ByteMicroPerf counts the tensor that it overwrites.",
    "host2device": between.SUM_NOTE,
    "device2host": between.SUM_NOTE,
    "layernorm": "Read IO Size: with weight and bias; ByteMicroPerf's workload names the rows alone.",
}
"""By its name of the operator: where its formula counts other bytes than cannot be avoided."""


class V1Report:
    name = "bytemicroperf-v1"
    summary = "ByteMicroPerf's JSON reports of 2024: a folder an operator, a file an element type"

    def __init__(self, hardware: str | None = None) -> None:
        self._hardware = hardware
        """What the folder and `Backend` say in place of the name of the backend."""

    def files(self, results: Results) -> Mapping[str, str]:
        grouped: dict[tuple[str, str, str, int | None], list[Row]] = {}
        for row in rows_of_records(results.records):
            task = row.record.task
            hardware = self._hardware or HARDWARE.get(task.backend, task.backend)
            grouped.setdefault((hardware, v1_name(task.case), _dtype(row), _ranks(row)), []).append(row)
        return {
            _path(*key): json.dumps(_report(key[0], key[1], found, results), indent=4, ensure_ascii=False) + "\n"
            for key, found in grouped.items()
        }


def _path(hardware: str, name: str, dtype: str, ranks: int | None) -> str:
    file = "-".join(["result", *([dtype] if dtype else []), *([f"group{ranks}"] if ranks else [])]) + ".json"
    return "/".join(map(path_part, (hardware, name, file)))


def _dtype(row: Row) -> str:
    return str(row.record.task.case.params.get("dtype", ""))


def _ranks(row: Row) -> int | None:
    """None where one device is at work."""
    ranks = row.record.task.case.params.get("ranks")
    return None if ranks is None else int(ranks)


def _report(hardware: str, name: str, found: Sequence[Row], results: Results) -> dict[str, Any]:
    facts = environment(found, results)
    known = [(row, figures(row)) for row in found]
    said = (_NOTES[0], *between.NOTES) if _ranks(found[0]) else _NOTES
    notes = [*said, *(_BYTES[name] for name in [name] if name in _BYTES), *remarks(found, results)]
    report: dict[str, Any] = {
        "Operator": name.upper(),
        "Backend": hardware,
        "Host Info": facts.get("cpu"),
        "Device Info": chip(facts) if facts else None,
        "Version": f"opmark {results.run.version or VERSION}",
        "Execution Date": results.run.started,
        "Run": results.run.id,
        "Performance": [
            _performance(row, values, results.chips.get(row.record.environment)) for row, values in known if values
        ],
        "Notes": notes,
    }
    failed = [row for row, values in known if values is None]
    return {**report, "Failed": [_failed(row) for row in failed]} if failed else report


def _case(row: Row) -> dict[str, Any]:
    case = row.record.task.case
    said: dict[str, Any] = {"Dtype": _dtype(row) or None, "Tensor Shapes": tensor_shapes(case)}
    if v1_name(case) not in TASKS or ("ranks" in case.params and not said_by_shape(case)):
        said["Parameters"] = case.params
    if row.record.called:
        said["Called"] = row.record.called
    if case.phase != "forward":
        said["Phase"] = case.phase
    return said


def _performance(row: Row, values: Figures, peaks: Peaks | None) -> dict[str, Any]:
    summary, verification = values.summary, row.record.verification
    sent = between.moved_between(row, values)
    return {
        **_case(row),
        **(_communicated(row, values, sent, peaks) if sent else _computed(row, values, peaks)),
        "Quantity": values.key[0],
        "Cache": values.key[1],
        "Median latency(us)": rounded(summary.median / MICRO),
        "Interval(us)": microseconds_between(summary),
        "Noise(%)": noise_percent(summary),
        "Samples": summary.samples,
        "Warnings": values.warnings,
        "Verified": verification.checked if verification else "none",
        "Implementation": row.record.task.implementation,
    }


def _computed(row: Row, values: Figures, peaks: Peaks | None) -> dict[str, Any]:
    cost, peak, count = moved(row), memory_bandwidth(peaks), batch(row.record.task.case)
    bandwidth = rates(cost, values.mean).bytes_per_second
    return {
        "Read IO Size(MB)": rounded(cost.bytes_read / _MB) if cost else None,
        "Write IO Size(MB)": rounded(cost.bytes_written / _MB) if cost else None,
        "Memory Size(MB)": rounded(cost.bytes_moved / _MB) if cost else None,
        "Kernel bandwidth(GB/s)": rounded(bandwidth / _GB) if bandwidth else None,
        "Bandwidth Utilization(%)": rounded(100 * bandwidth / peak) if bandwidth and peak else None,
        "Avg latency(us)": rounded(values.mean / MICRO),
        "QPS": rounded(count / values.mean) if values.mean > 0 else None,
        "Batch": count,
    }


def _communicated(row: Row, values: Figures, sent: between.Moved, peaks: Peaks | None) -> dict[str, Any]:
    params, seconds = row.record.task.case.params, sent.seconds
    kernel = sent.algorithm_sum if sent.traffic.link == "host" else sent.algorithm(seconds)
    return {
        "Memory Size(MB)": rounded(sent.traffic.size / _MB),
        "Group": params.get("group") or params.get("ranks", sent.traffic.ranks),
        "Kernel bandwidth(GB/s)": _brief(kernel),
        "Bus bandwidth(GB/s)": _brief(sent.bus(seconds)),
        "Bandwidth Utilization(%)": _brief(sent.of_link(peaks)),
        "Avg latency(us)": rounded(values.mean / MICRO),
        "device_list": sent.ranks,
        "latency_list": [rounded(one / MICRO) for one in sent.by_rank],
        "kernel_bw_list": [_brief(sent.algorithm(one)) for one in sent.by_rank],
        "bus_bw_list": [_brief(sent.bus(one)) for one in sent.by_rank],
    }


def _brief(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def _failed(row: Row) -> dict[str, Any]:
    return {**_case(row), "Status": row.record.status, "Reason": row.record.reason}


REPORT = V1Report()
