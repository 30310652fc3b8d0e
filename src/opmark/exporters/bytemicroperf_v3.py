"""ByteMicroPerf's newest report (xpu-perf): a folder a device, and in it a JSON-lines file and a table an operator."""

from __future__ import annotations

import csv
import io
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
from opmark.exporters.bytemicroperf_names import v3_words
from opmark.exporters.bytemicroperf_v1 import HARDWARE
from opmark.importers.bytemicroperf.tasks import BETWEEN_DEVICES
from opmark.interfaces import Results
from opmark.metrics.throughput import rates
from opmark.registry import backend_or_none
from opmark.schema.peaks import Peaks, chip

_GB, _TERA = 1e9, 1e12
_DECIMALS = 3
"""As many as it prints."""

_PHASE, _ERROR = "phase", "error"
FIRST = ("sku_name", "op_name", "provider")
TARGETS = (
    "latency(us)", "read_bytes(B)", "write_bytes(B)", "io_bytes(B)", "mem_bw(GB/s)", "calc_flops",
    "calc_flops_power(tflops)", "calc_mem_ratio", "kernels",
)  # fmt: skip

_BESIDE = (
    "case", "status", "phase", "quantity", "cache", "median(us)", "low(us)", "high(us)", "noise(%)", "samples",
    "warnings", "verified", "mem_bw(%)",
)  # fmt: skip
"""What the format has no room for: under `opmark` in a line, and the last columns of a table."""
_BESIDE_BETWEEN = (*_BESIDE[:-1], "bus_bw(%)")
"""Of communication: held against the link."""
_FIXED = frozenset((*FIRST, *TARGETS, *between.TARGETS, _ERROR, *_BESIDE, *_BESIDE_BETWEEN))
"""Columns of tables. An argument of such a name is called otherwise there."""

_NOTES = (
    "latency(us) is the mean of the quantity that the line names under `opmark`.",
    "read_bytes, write_bytes and calc_flops are what an operator cannot avoid. xpu-perf counts otherwise in places: "
    "topk writes its whole input, many operators have no flops, rotary_embedding reads the whole table of angles.",
)


class V3Report:
    name = "bytemicroperf-v3"
    summary = "xpu-perf's jsonl and csv of 2026: a folder a device, below it one an operator and provider"

    def __init__(self, backend: str | None = None, ranks: int = 1) -> None:
        self._backend = backend
        """What the folder says in place of the name of the backend."""
        self._ranks = ranks
        """That any part of it has, where it is written in parts."""

    def files(self, results: Results) -> Mapping[str, str]:
        devices: dict[tuple[str, str], list[Row]] = {}
        for row in rows_of_records(results.records):
            name = row.record.task.backend
            device = _device(environment([row], results))
            devices.setdefault((self._backend or HARDWARE.get(name, name), device), []).append(row)
        made: dict[str, str] = {}
        for (backend, device), found in devices.items():
            folder = f"{path_part(backend)}/{path_part(device)}"
            made[f"{folder}/info.json"] = _info(backend, device, found, results, max(self._ranks, _ranks(found)))
            made |= {f"{folder}/{path}": text for path, text in _operators(device, found, results).items()}
        return made


def _device(facts: dict[str, Any]) -> str:
    return chip(facts) if facts else "unknown"


def _operators(device: str, found: Sequence[Row], results: Results) -> dict[str, str]:
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        task = row.record.task
        grouped.setdefault((v3_words(task.case)[0], task.implementation or "none"), []).append(row)
    made = {}
    for (op, provider), these in grouped.items():
        lines = [_line(device, op, provider, row, results.chips.get(row.record.environment)) for row in these]
        name = "{0}/{1}/{0}-{1}".format(path_part(op), path_part(provider))
        made[f"{name}.jsonl"] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        made[f"{name}.csv"] = _table(lines)
    return made


def _line(device: str, op: str, provider: str, row: Row, peaks: Peaks | None) -> dict[str, Any]:
    record, values = row.record, figures(row)
    line: dict[str, Any] = {
        "sku_name": device,
        "op_name": op,
        "provider": provider,
        "arguments": v3_words(record.task.case)[1],
        "targets": _targets(row, values) if values else {},
    }
    if values is None:
        line[_ERROR] = f"{record.status}: {record.reason}" if record.reason else record.status
    return {**line, "opmark": _beside(row, values, peaks)}


def _targets(row: Row, values: Figures) -> dict[str, Any]:
    sent = between.moved_between(row, values)
    if sent:
        return between.targets(sent, values.kernels, _DECIMALS)
    cost = moved(row)
    found = rates(cost, values.mean)
    ratio = cost.flops / cost.bytes_moved if cost and cost.flops is not None and cost.bytes_moved else None
    facts = (
        rounded(values.mean / MICRO, _DECIMALS),
        cost.bytes_read if cost else None,
        cost.bytes_written if cost else None,
        cost.bytes_moved if cost else None,
        _rounded(found.bytes_per_second, _GB),
        cost.flops if cost else None,
        0.0 if cost and cost.flops == 0 else _rounded(found.flops_per_second, _TERA),
        None if ratio is None else rounded(ratio, _DECIMALS),
        values.kernels,
    )
    return dict(zip(TARGETS, facts, strict=True))


def _rounded(value: float | None, unit: float) -> float | None:
    return None if value is None else rounded(value / unit, _DECIMALS)


def _beside(row: Row, values: Figures | None, peaks: Peaks | None) -> dict[str, Any]:
    record = row.record
    said = [record.task.case.id, record.status, record.task.case.phase]
    if values is None:
        return dict(zip(_BESIDE, said, strict=False))
    summary, share = values.summary, _utilisation(row, values, peaks)
    facts = (
        *said,
        *values.key,
        rounded(summary.median / MICRO, _DECIMALS),
        *(microseconds_between(summary, _DECIMALS) or (None, None)),
        noise_percent(summary, _DECIMALS),
        summary.samples,
        values.warnings,
        record.verification.checked if record.verification else "none",
        None if share is None else rounded(share, _DECIMALS),
    )
    sent = between.moved_between(row, values)
    return dict(zip(_BESIDE_BETWEEN if sent else _BESIDE, facts, strict=True))


def _utilisation(row: Row, values: Figures, peaks: Peaks | None) -> float | None:
    """Percent of what the memory gives; of communication, the link."""
    sent = between.moved_between(row, values)
    if sent:
        return sent.of_link(peaks)
    peak, bandwidth = memory_bandwidth(peaks), rates(moved(row), values.mean).bytes_per_second
    return 100 * bandwidth / peak if bandwidth and peak else None


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Columns in one order, each once: arguments as the lines first have them, then always the same.

    The phase has its column there, also where all lines are forward.
    """
    arguments = list(dict.fromkeys(name for line in lines for name in line["arguments"]))
    if all(line["arguments"].get(_PHASE) in (None, line["opmark"][_PHASE]) for line in lines):
        arguments = [name for name in arguments if name != _PHASE]
    titles = [f"arguments.{name}" if name in _FIXED else name for name in arguments]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    targets, beside = (between.TARGETS, _BESIDE_BETWEEN) if _communicates(lines) else (TARGETS, _BESIDE)
    writer.writerow([*FIRST, *titles, *targets, _ERROR, *beside])
    for line in lines:
        cells = [line[name] for name in FIRST]
        cells += [line["arguments"].get(name) for name in arguments]
        cells += [line["targets"].get(name) for name in targets]
        cells += [line.get(_ERROR), *(line["opmark"].get(name) for name in beside)]
        writer.writerow([_cell(cell) for cell in cells])
    return text.getvalue()


def _communicates(lines: Sequence[Mapping[str, Any]]) -> bool:
    """By what was measured; where all failed, by the operator."""
    known = [line["targets"] for line in lines if line["targets"]]
    return between.TARGETS[1] in known[0] if known else lines[0]["op_name"] in BETWEEN_DEVICES


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _info(backend: str, device: str, found: Sequence[Row], results: Results, ranks: int) -> str:
    facts = environment(found, results)
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
            "notes": [*_NOTES, *(between.NOTES if ranks > 1 else ()), *remarks(found, results)],
        },
    }
    return json.dumps(info, indent=4, ensure_ascii=False) + "\n"


def _ranks(found: Sequence[Row]) -> int:
    """That a case has at most."""
    return max((int(row.record.task.case.params.get("ranks", 1)) for row in found), default=1)


REPORT = V3Report()
