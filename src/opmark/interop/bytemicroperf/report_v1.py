"""ByteMicroPerf's report of 2024: one file per operator and element type, as in `GPU/exp/result-float32.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from opmark.analysis.metrics import PeakShare, peak_share
from opmark.analysis.rows import Row, rows_of_records
from opmark.interop.bytemicroperf.operators import TASKS, batch_size, is_complete_in_v1, tensor_shapes, v1_name
from opmark.interop.bytemicroperf.report_figures import (
    HOST_COPY_NOTE,
    MICRO,
    V1_TRANSFER_NOTES,
    ReportFigures,
    Transfer,
    chip_remarks,
    environment_facts,
    figures_of,
    interval_us,
    memory_bandwidth,
    memory_cost,
    noise_percent,
    path_part,
    rates_of,
    round_figure,
    transfer_of,
)
from opmark.plugin import Results
from opmark.schema.machine import Peaks, chip
from opmark.schema.measurement import PREEMPTED
from opmark.version import VERSION

HARDWARE = {"torch-cuda": "GPU", "torch-cpu": "CPU"}
"""ByteMicroPerf's names of opmark's backends; the others keep their own."""

_MB = 1 << 20
_GB, _TERA = 1e9, 1e12

_NOTES = (
    "Avg latency(us) is the mean of the quantity that the entry names, as ByteMicroPerf defines it.",
    "QPS is 1e6 / Avg latency(us) x Batch. ByteMicroPerf printed a thousandth of it until August 2024, and its "
    "README still does (27321.24 for 27321237.99).",
)
_BYTES = {
    "topk": "Write IO Size: k values and k indices per row; ByteMicroPerf counts those of the whole row, whatever k.",
    "hash_table": "Read IO Size: a row of the table is counted once; ByteMicroPerf counts it once per lookup.",
    "unique": "Write IO Size: the distinct values and their counts; ByteMicroPerf counts as many of both as are read.",
    "swiglu": "Write IO Size: half as many values as are read; ByteMicroPerf's swiglu writes as many.",
    "exponential": "Read IO Size: drawing values reads nothing; ByteMicroPerf counts the tensor that it overwrites.",
    "host2device": HOST_COPY_NOTE,
    "device2host": HOST_COPY_NOTE,
    "layernorm": "Read IO Size: weight and bias, if there is one, are included; ByteMicroPerf counts the rows alone.",
}
"""Notes by ByteMicroPerf's operator, where its formula counts other bytes than an operator has to move."""


class V1Report:
    name = "bytemicroperf-v1"
    summary = "ByteMicroPerf's JSON reports of 2024: one folder per operator, one file per element type"

    def __init__(self, hardware: str | None = None) -> None:
        self._hardware = hardware
        """Name for the folder and `Backend`, in place of the backend's own."""

    def files(self, results: Results, op: str = "") -> Mapping[str, str]:
        """Return the text of each file by its path; only the files of `op`, if it is given."""
        grouped: dict[tuple[str, str, str, int | None], list[Row]] = {}
        for row in rows_of_records(results.records):
            task = row.record.task
            hardware = self._hardware or HARDWARE.get(task.backend, task.backend)
            grouped.setdefault((hardware, v1_name(task.case), _dtype(row), _ranks(row)), []).append(row)
        return {
            _path(*key): json.dumps(_report(key[0], key[1], found, results), indent=4, ensure_ascii=False) + "\n"
            for key, found in grouped.items()
            if op in ("", key[1])
        }


def _path(hardware: str, name: str, dtype: str, ranks: int | None) -> str:
    file = "-".join(["result", *([dtype] if dtype else []), *([f"group{ranks}"] if ranks else [])]) + ".json"
    return "/".join(map(path_part, (hardware, name, file)))


def _dtype(row: Row) -> str:
    return str(row.record.task.case.params.get("dtype", ""))


def _ranks(row: Row) -> int | None:
    """Return the number of ranks; None for an operator that works on one device."""
    ranks = row.record.task.case.params.get("ranks")
    return None if ranks is None else int(ranks)


def _report(hardware: str, name: str, found: Sequence[Row], results: Results) -> dict[str, Any]:
    facts = environment_facts(found, results)
    known = [(row, figures_of(row)) for row in found]
    general = (_NOTES[0], *V1_TRANSFER_NOTES) if _ranks(found[0]) else _NOTES
    empty = (line for row, values in known if values for line in _why_empty(row, values, results))
    notes = [
        *general, *([_BYTES[name]] if name in _BYTES else []), *chip_remarks(found, results), *dict.fromkeys(empty),
    ]  # fmt: skip
    report: dict[str, Any] = {
        "Operator": name.upper(),
        "Backend": hardware,
        "Host Info": facts.get("cpu"),
        "Numa Info": facts.get("numa"),
        "Device Info": chip(facts) if facts else None,
        "Version": f"opmark {results.run.version or VERSION}",
        "Execution Date": _date(results.run.started),
        "Run": results.run.id,
        "Performance": [_performance(row, values, results) for row, values in known if values],
        "Notes": notes,
    }
    failed = [row for row, values in known if values is None]
    return {**report, "Failed": [_failed(row) for row in failed]} if failed else report


def _date(started: str) -> str:
    """Return the time as ByteMicroPerf writes it: local, to the second."""
    return datetime.fromisoformat(started).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _case(row: Row) -> dict[str, Any]:
    case = row.record.task.case
    described: dict[str, Any] = {"Dtype": _dtype(row) or None, "Tensor Shapes": tensor_shapes(case)}
    if v1_name(case) not in TASKS or ("ranks" in case.params and not is_complete_in_v1(case)):
        described["Parameters"] = case.params
    if row.record.called:
        described["Called"] = row.record.called
    if case.phase != "forward":
        described["Phase"] = case.phase
    return described


def _performance(row: Row, values: ReportFigures, results: Results) -> dict[str, Any]:
    summary, verification = values.summary, row.record.verification
    sent, peaks = transfer_of(row, values), results.chips.get(row.record.environment)
    return {
        **_case(row),
        **(_transfer_figures(row, values, sent, peaks) if sent else _compute_figures(row, values, results)),
        "Quantity": values.key[0],
        "Cache": values.key[1],
        "Median latency(us)": round_figure(summary.median / MICRO),
        "Interval(us)": interval_us(summary),
        "Noise(%)": noise_percent(summary),
        "Samples": summary.samples,
        "Warnings": values.warnings,
        "Verified": verification.checked if verification else "none",
        "Implementation": row.record.task.implementation,
    }


def _compute_figures(row: Row, values: ReportFigures, results: Results) -> dict[str, Any]:
    peaks, measured = (known.get(row.record.environment) for known in (results.chips, results.peaks))
    cost, peak, count = memory_cost(row), memory_bandwidth(peaks), batch_size(row.record.task.case)
    bandwidth, flops = rates_of(row, values).bytes_per_second, rates_of(row, values).flops_per_second
    flop_peak, calibrated = peaks.flops.get(_dtype(row)) if peaks else None, memory_bandwidth(measured)
    roofline = _roofline(row, values, peaks) or _roofline(row, values, measured)
    return {
        "Read IO Size(MB)": round_figure(cost.bytes_read / _MB) if cost else None,
        "Write IO Size(MB)": round_figure(cost.bytes_written / _MB) if cost else None,
        "Memory Size(MB)": round_figure(cost.bytes_moved / _MB) if cost else None,
        "Kernel bandwidth(GB/s)": round_figure(bandwidth / _GB) if bandwidth else None,
        "Bandwidth Utilization(%)": round_figure(100 * bandwidth / peak) if bandwidth and peak else None,
        "Avg latency(us)": round_figure(values.mean / MICRO),
        "QPS": round_figure(count / values.mean) if values.mean > 0 else None,
        "Batch": count,
        "FLOP rate(TFLOP/s)": round_figure(flops / _TERA) if flops else None,
        "Compute Utilization(%)": round_figure(100 * flops / flop_peak) if flops and flop_peak else None,
        "Bound": roofline.bound if roofline else None,
        "Calibrated bandwidth(GB/s)": round_figure(calibrated / _GB) if calibrated else None,
        "Calibrated Utilization(%)": round_figure(100 * bandwidth / calibrated) if bandwidth and calibrated else None,
    }


def _roofline(row: Row, values: ReportFigures, peaks: Peaks | None) -> PeakShare | None:
    cold = values.key[1] == "cold"
    return peak_share(memory_cost(row), values.mean, _dtype(row), peaks, cold=cold) if peaks else None


def _why_empty(row: Row, values: ReportFigures, results: Results) -> Iterator[str]:
    """Say why a utilisation of an entry is empty."""
    peaks, name = results.chips.get(row.record.environment), chip(environment_facts([row], results))
    sent, dtype = transfer_of(row, values), _dtype(row)
    if sent:
        if sent.link_percent(peaks) is None:
            yield f"Bandwidth Utilization(%) is empty: the bandwidth of a link of `{name}` is not known."
        return
    if PREEMPTED in values.warnings:
        yield "Bandwidth and utilisation are empty where other work disturbed the measurement (Warnings)."
        return
    rates = rates_of(row, values)
    if peaks is None:
        yield (
            f"Bandwidth Utilization(%) and Compute Utilization(%) are empty: no datasheet of `{name}` is known; "
            "--vendor_path names one, and `opmark calibrate` measures the peaks for Calibrated Utilization(%)."
        )
    elif not peaks.memory_bandwidth:
        yield f"Bandwidth Utilization(%) is empty: the datasheet of `{peaks.chip}` has no bandwidth of the memory."
    elif not rates.bytes_per_second:
        yield "Bandwidth Utilization(%) is empty where the bytes that a case moves are not known."
    if peaks is not None and not rates.flops_per_second:
        yield "Compute Utilization(%) is empty for cases without arithmetic, or with an unknown amount of it."
    elif peaks is not None and dtype not in peaks.flops:
        yield f"Compute Utilization(%) is empty: the datasheet of `{peaks.chip}` has no peak for {dtype}."


def _transfer_figures(row: Row, values: ReportFigures, sent: Transfer, peaks: Peaks | None) -> dict[str, Any]:
    params, seconds = row.record.task.case.params, sent.seconds
    kernel = sent.algorithm_sum if sent.traffic.link == "host" else sent.algorithm(seconds)
    return {
        "Memory Size(MB)": round_figure(sent.traffic.size / _MB),
        "Group": params.get("group") or params.get("ranks", sent.traffic.ranks),
        "Kernel bandwidth(GB/s)": _round_known(kernel),
        "Bus bandwidth(GB/s)": _round_known(sent.bus(seconds)),
        "Bandwidth Utilization(%)": _round_known(sent.link_percent(peaks)),
        "Avg latency(us)": round_figure(values.mean / MICRO),
        "device_list": sent.ranks,
        "latency_list": [round_figure(one / MICRO) for one in sent.by_rank],
        "kernel_bw_list": [_round_known(sent.algorithm(one)) for one in sent.by_rank],
        "bus_bw_list": [_round_known(sent.bus(one)) for one in sent.by_rank],
    }


def _round_known(value: float | None) -> float | None:
    return None if value is None else round_figure(value)


def _failed(row: Row) -> dict[str, Any]:
    return {**_case(row), "Status": row.record.status, "Reason": row.record.reason}


REPORT = V1Report()
