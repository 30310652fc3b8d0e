"""ByteMicroPerf's report of 2026 (xpu-perf): one folder per device, with JSON lines and a table for each operator."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from opmark.analysis.rows import Row, rows_of_records
from opmark.interop.bytemicroperf.operators import BETWEEN_DEVICES, ForeignCase, reported_cases
from opmark.interop.bytemicroperf.report_figures import (
    MICRO,
    TRANSFER_NOTES,
    TRANSFER_TARGETS,
    ReportFigures,
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
    transfer_targets,
)
from opmark.interop.bytemicroperf.report_v1 import HARDWARE
from opmark.plugin import Results
from opmark.plugin.registry import backend_or_none
from opmark.schema.machine import Peaks, chip

_GB, _TERA = 1e9, 1e12
_DECIMALS = 3
"""Decimals that xpu-perf prints."""

_PHASE, _ERROR = "phase", "error"
FIRST = ("sku_name", "op_name", "provider")
TARGETS = (
    "latency(us)", "read_bytes(B)", "write_bytes(B)", "io_bytes(B)", "mem_bw(GB/s)", "calc_flops",
    "calc_flops_power(tflops)", "calc_mem_ratio", "kernels",
)  # fmt: skip

_EXTRA = (
    "case", "status", "phase", "quantity", "cache", "median(us)", "low(us)", "high(us)", "noise(%)", "samples",
    "warnings", "verified", "mem_bw(%)",
)  # fmt: skip
"""Figures that the format has no room for: under `opmark` in a line, and the last columns of a table."""
_EXTRA_TRANSFER = (*_EXTRA[:-1], "bus_bw(%)")
"""The same for communication, with the share of the link."""
_FIXED = frozenset((*FIRST, *TARGETS, *TRANSFER_TARGETS, _ERROR, *_EXTRA, *_EXTRA_TRANSFER))
"""Columns of tables. An argument of such a name gets a prefix there."""

_NOTES = (
    "latency(us) is the mean of the quantity that the line names under `opmark`.",
    "read_bytes, write_bytes and calc_flops are what an operator cannot avoid. xpu-perf sometimes counts differently: "
    "topk writes its whole input, many operators have no flops, rotary_embedding reads the whole table of angles.",
)


class V3Report:
    name = "bytemicroperf-v3"
    summary = "xpu-perf's jsonl and csv of 2026: one folder per device, with one per operator and provider"

    def __init__(self, backend: str | None = None, ranks: int = 1) -> None:
        self._backend = backend
        """Name of the folder, in place of the backend's own."""
        self._ranks = ranks
        """Most ranks of any part of the run, where the report is written in parts."""

    def files(self, results: Results, op: str = "") -> Mapping[str, str]:
        """Return the text of each file by its path; only the files of `op`, if it is given."""
        devices: dict[tuple[str, str], list[Row]] = {}
        for row in rows_of_records(results.records):
            name = row.record.task.backend
            device = _device(environment_facts([row], results))
            devices.setdefault((self._backend or HARDWARE.get(name, name), device), []).append(row)
        files: dict[str, str] = {}
        for (backend, device), found in devices.items():
            folder = f"{path_part(backend)}/{path_part(device)}"
            files[f"{folder}/info.json"] = _info(backend, device, found, results, max(self._ranks, _most_ranks(found)))
            files |= {f"{folder}/{path}": text for path, text in _operator_files(device, found, results, op).items()}
        return files


def _device(facts: dict[str, Any]) -> str:
    return chip(facts) if facts else "unknown"


def _operator_files(device: str, found: Sequence[Row], results: Results, only: str) -> dict[str, str]:
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        provider, peaks = row.record.task.implementation or "none", results.chips.get(row.record.environment)
        for case in reported_cases(row.record.task.case):
            if only in ("", case.op):
                grouped.setdefault((case.op, provider), []).append(_line(device, case, provider, row, peaks))
    made = {}
    for (op, provider), lines in grouped.items():
        name = "{0}/{1}/{0}-{1}".format(path_part(op), path_part(provider))
        made[f"{name}.jsonl"] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        made[f"{name}.csv"] = _table(lines)
    return made


def _line(device: str, case: ForeignCase, provider: str, row: Row, peaks: Peaks | None) -> dict[str, Any]:
    record, values = row.record, figures_of(row)
    line: dict[str, Any] = {
        "sku_name": device,
        "op_name": case.op,
        "provider": provider,
        "arguments": case.arguments,
        "targets": _targets(row, values) if values else {},
    }
    if values is None:
        line[_ERROR] = f"{record.status}: {record.reason}" if record.reason else record.status
    return {**line, "opmark": _extra_figures(row, values, peaks)}


def _targets(row: Row, values: ReportFigures) -> dict[str, Any]:
    sent = transfer_of(row, values)
    if sent:
        return transfer_targets(sent, values.kernels, _DECIMALS)
    cost = memory_cost(row)
    found = rates_of(row, values)
    ratio = cost.flops / cost.bytes_moved if cost and cost.flops is not None and cost.bytes_moved else None
    facts = (
        round_figure(values.mean / MICRO, _DECIMALS),
        cost.bytes_read if cost else None,
        cost.bytes_written if cost else None,
        cost.bytes_moved if cost else None,
        _round_in(found.bytes_per_second, _GB),
        cost.flops if cost else None,
        0.0 if cost and cost.flops == 0 else _round_in(found.flops_per_second, _TERA),
        None if ratio is None else round_figure(ratio, _DECIMALS),
        values.kernels,
    )
    return dict(zip(TARGETS, facts, strict=True))


def _round_in(value: float | None, unit: float) -> float | None:
    return None if value is None else round_figure(value / unit, _DECIMALS)


def _extra_figures(row: Row, values: ReportFigures | None, peaks: Peaks | None) -> dict[str, Any]:
    record = row.record
    identity = [record.task.case.id, record.status, record.task.case.phase]
    if values is None:
        return dict(zip(_EXTRA, identity, strict=False))
    summary, share = values.summary, _utilisation(row, values, peaks)
    facts = (
        *identity,
        *values.key,
        round_figure(summary.median / MICRO, _DECIMALS),
        *(interval_us(summary, _DECIMALS) or (None, None)),
        noise_percent(summary, _DECIMALS),
        summary.samples,
        values.warnings,
        record.verification.checked if record.verification else "none",
        None if share is None else round_figure(share, _DECIMALS),
    )
    return dict(zip(_EXTRA_TRANSFER if transfer_of(row, values) else _EXTRA, facts, strict=True))


def _utilisation(row: Row, values: ReportFigures, peaks: Peaks | None) -> float | None:
    """Return the bandwidth in percent of the memory's; for communication, in percent of the link's."""
    sent = transfer_of(row, values)
    if sent:
        return sent.link_percent(peaks)
    peak, bandwidth = memory_bandwidth(peaks), rates_of(row, values).bytes_per_second
    return 100 * bandwidth / peak if bandwidth and peak else None


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Write lines as a table: arguments in the order of their first use, then always the same columns.

    The phase has a column of its own, so that the argument `phase` is left out if it says the same.
    """
    arguments = list(dict.fromkeys(name for line in lines for name in line["arguments"]))
    if all(line["arguments"].get(_PHASE) in (None, line["opmark"][_PHASE]) for line in lines):
        arguments = [name for name in arguments if name != _PHASE]
    titles = [f"arguments.{name}" if name in _FIXED else name for name in arguments]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    targets, extra = (TRANSFER_TARGETS, _EXTRA_TRANSFER) if _are_transfers(lines) else (TARGETS, _EXTRA)
    writer.writerow([*FIRST, *titles, *targets, _ERROR, *extra])
    for line in lines:
        cells = [line[name] for name in FIRST]
        cells += [line["arguments"].get(name) for name in arguments]
        cells += [line["targets"].get(name) for name in targets]
        cells += [line.get(_ERROR), *(line["opmark"].get(name) for name in extra)]
        writer.writerow([_cell(cell) for cell in cells])
    return text.getvalue()


def _are_transfers(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Decide by the results; where all lines failed, by the operator."""
    known = [line["targets"] for line in lines if line["targets"]]
    return TRANSFER_TARGETS[1] in known[0] if known else lines[0]["op_name"] in BETWEEN_DEVICES


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _info(backend: str, device: str, found: Sequence[Row], results: Results, ranks: int) -> str:
    facts = environment_facts(found, results)
    name = found[0].record.task.backend
    known = backend_or_none(name)
    framework = known.framework if known else name
    memory = facts.get("gpu_memory") or facts.get("memory")
    info = {
        "backend_type": backend,
        "common": {"python_version": facts.get("python"), "cpu": facts.get("cpu"), "system": facts.get("system")},
        "provider": {framework: facts.get(framework)},
        "backend": {
            "device_name": device,
            "device_memory_mb": memory / (1 << 20) if memory else None,
            "torch_version": facts.get("torch"),
            "torch_cuda_version": facts.get("cuda"),
        },
        "runtime": {
            "device_ids": list(range(ranks)),
            "node_world_size": 1,
            "node_rank": 0,
            "cores": facts.get("affinity"),
        },
        "opmark": {
            "run": results.run.id,
            "started": results.run.started,
            "version": results.run.version,
            "backend": name,
            "notes": [*_NOTES, *(TRANSFER_NOTES if ranks > 1 else ()), *chip_remarks(found, results)],
        },
    }
    return json.dumps(info, indent=4, ensure_ascii=False) + "\n"


def _most_ranks(found: Sequence[Row]) -> int:
    return max((int(row.record.task.case.params.get("ranks", 1)) for row in found), default=1)


REPORT = V3Report()
