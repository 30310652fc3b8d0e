"""A stored run as PARAM's result file, and as PARAM's run options."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opmark.exporters.param_header import DEFAULT_OPTIONS, MODES, PASSES, header, last_line
from opmark.exporters.param_lines import Place, line, places_of, text
from opmark.interfaces import Results
from opmark.schema import Record


class _Param:
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


def _group_by_place(records: Sequence[Record]) -> list[tuple[Place, list[Record]]]:
    """Group all phases of a place; a forward pass in two places may have a different backward pass in each."""
    groups: dict[tuple[Place, str], list[Record]] = {}
    for record in records:
        for place in places_of(record):
            groups.setdefault((place, _setup(record)), []).append(record)
    return [(place, found) for (place, _), found in groups.items()]


def _number_cases(records: Sequence[Record]) -> Iterator[tuple[Place, list[Record]]]:
    """Give ids to cases without a config, numbered by operator."""
    counts: Counter[str] = Counter()
    for found in _group_by_call(records):
        op = found[0].task.case.op
        yield Place(op, f"0|0|{counts[op]}"), found
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


PARAM = _Param()
OPTIONS = _Options()
