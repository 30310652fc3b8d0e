"""A stored run as PARAM's result file, and its run options."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opmark.exporters.param_header import MODES, PASSES, USUAL, finish, header
from opmark.exporters.param_lines import Place, line, places_of, text
from opmark.interfaces import Results
from opmark.schema import Record


class _Param:
    name = "param"
    summary = "PARAM's result file: JSON lines, milliseconds and MB"

    def files(self, results: Results) -> Mapping[str, str]:
        ends = max((record.started for record in results.records), default="")
        lines = [first_line(results), *case_lines(results), finish(ends)]
        return {f"benchmark_result_{results.run.id}.json": text(lines)}


class _Options:
    name = "param-options"
    summary = "PARAM's run options, as in the first line of its result file"

    def files(self, results: Results) -> Mapping[str, str]:
        return {"run_options.json": json.dumps({**USUAL, **options_of(results.records)}, indent=2) + "\n"}


def first_line(results: Results) -> dict[str, Any]:
    facts = next(iter(results.environments.values()), {})
    return header(options_of(results.records), facts, results.run.started)


def options_of(records: Sequence[Record]) -> dict[str, Any]:
    """Of the first record; what a PARAM run has one of, a run of opmark may have several of."""
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
    """In the order of the config; what did not come from one, in the order of the run."""
    found = [*_placed(results.records), *_counted([r for r in results.records if not places_of(r)])]
    files = {file: rank for rank, file in enumerate(dict.fromkeys(place.file for place, _ in found))}
    ops = {op: rank for rank, op in enumerate(dict.fromkeys((place.file, place.op) for place, _ in found))}
    found.sort(key=lambda pair: (files[pair[0].file], ops[pair[0].file, pair[0].op], pair[0].order))
    return [line(place, records, results.run.id) for place, records in found]


def _placed(records: Sequence[Record]) -> list[tuple[Place, list[Record]]]:
    """All phases of a place. A forward pass that stands in two places may go back differently in each."""
    groups: dict[tuple[Place, str], list[Record]] = {}
    for record in records:
        for place in places_of(record):
            groups.setdefault((place, _way(record)), []).append(record)
    return [(place, found) for (place, _), found in groups.items()]


def _counted(records: Sequence[Record]) -> Iterator[tuple[Place, list[Record]]]:
    counted: Counter[str] = Counter()
    for found in _by_call(records):
        op = found[0].task.case.op
        yield Place(op, f"0|0|{counted[op]}"), found
        counted[op] += 1


def _by_call(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records of the same call: its phases, its processes; once for each choice of gradients."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((_call(record), _way(record)), []).append(record)
    for group in groups.values():
        choices = dict.fromkeys(r.task.case.wrt for r in group if r.task.case.phase != "forward") or {(): None}
        for wrt in choices:
            yield [r for r in group if r.task.case.phase == "forward" or r.task.case.wrt == wrt]


def _call(record: Record) -> str:
    return json.dumps([record.task.case.op, record.task.case.params], sort_keys=True)


def _way(record: Record) -> str:
    """How it was run: each way is a line of its own."""
    task = record.task
    return f"{task.backend}|{task.implementation}|{task.settings.threads}"


PARAM = _Param()
OPTIONS = _Options()
