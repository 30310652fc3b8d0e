"""Databases of TVM's MetaSchedule: database_workload.json, one line [HASH, PROGRAM] per program, and
database_tuning_record.json, one line [NUMBER OF THE PROGRAM, [TRACE, SECONDS, TARGET, ARGUMENTS]] per trial.

A program is TVM's own serialisation, which only TVM reads. Nothing is guessed from it: an entry has the operator
`tvm:BLOCK`, after the first block that its trace schedules, with the shapes of its arguments, and keeps program and
trace, so that the database can be written again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.tuning_logs import (
    METASCHEDULE_KNOB,
    ForeignTrial,
    backend_of,
    describe_kept,
    keep_best,
    line_problem,
    read_lines,
    target_of_text,
    text_of_target,
)
from opmark.plugin.formats import TuningLog
from opmark.schema import Case, ImportProblem
from opmark.schema.tuned import TunedEntry

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
_PREFIX = "tvm:"
_TRACE, _PROGRAM = "trace", "program"
_HINT = "MetaSchedule writes both files into its work_dir"


class MetaScheduleFormat:
    name = "metaschedule"
    summary = f"TVM MetaSchedule's database: a folder with {WORKLOADS} and {RECORDS}"

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.name in (WORKLOADS, RECORDS) or (path.is_dir() and (path / RECORDS).is_file())

    def read(self, path: Path) -> TuningLog:
        folder = path if path.is_dir() else path.parent
        for name in (WORKLOADS, RECORDS):
            if not (folder / name).is_file():
                raise UserError(f"{folder} has no {name}", _HINT)
        problems: list[ImportProblem] = []
        programs: dict[int, tuple[str, str]] = {}
        for index, (number, line) in enumerate(read_lines(folder / WORKLOADS)):
            match _parse(line):
                case [str() | int() as key, str(program)]:
                    programs[index] = str(key), program
                case _:
                    problems.append(line_problem(folder / WORKLOADS, number, "expected [hash, program]", _HINT))
        trials: list[ForeignTrial] = []
        for number, line in read_lines(folder / RECORDS):
            try:
                trials.append(_read_record(_parse(line), programs))
            except UserError as error:
                problems.append(line_problem(folder / RECORDS, number, error.message, error.hint or ""))
        entries = keep_best(trials, self.name)
        return TuningLog(entries, problems, describe_kept(trials, entries))

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        programs: dict[str, int] = {}
        workloads, records, left_out = list[str](), list[str](), list[str]()
        for entry in entries:
            found = _found_here(entry) if entry.origin != self.name else _read_before(entry)
            if not found:
                left_out.append(f"{entry.op} on {entry.backend}: it has no trace and no program of MetaSchedule")
            for one in found:
                key, program = one["workload"]
                if program not in programs:
                    programs[program] = len(programs)
                    workloads.append(json.dumps([key, program]))
                records.append(json.dumps([programs[program], one["record"]]))
        texts = {WORKLOADS: workloads, RECORDS: records}
        return {name: "".join(f"{line}\n" for line in lines) for name, lines in texts.items()}, left_out


def _found_here(entry: TunedEntry) -> list[dict[str, Any]]:
    """Return the records that opmark's tuner `evolutionary` or `replay-trace` has left; a model has one per kernel."""
    found: list[dict[str, Any]] = json.loads(str(entry.configuration.get(METASCHEDULE_KNOB, "[]")))
    return found


def _read_before(entry: TunedEntry) -> list[dict[str, Any]]:
    """Return the record that an imported entry was made of."""
    if _TRACE not in entry.configuration:
        return []
    record = [
        json.loads(str(entry.configuration[_TRACE])), [entry.tuned_seconds],
        json.loads(text_of_target(entry.target)), json.loads(entry.params["args"]),
    ]  # fmt: skip
    return [{"workload": [entry.params["workload"], str(entry.configuration[_PROGRAM])], "record": record}]


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read_record(data: Any, programs: Mapping[int, tuple[str, str]]) -> ForeignTrial:
    match data:
        case [int(number), [[list(steps), list(decisions)], list() | None as times, dict(target), list(args)]]:
            pass
        case _:
            raise UserError(
                "expected [number, [trace, seconds, target, arguments]]", "was the tuning interrupted here?"
            )
    if number not in programs:
        raise UserError(f"there is no program {number} in {WORKLOADS}", _HINT)
    key, program = programs[number]
    seconds = tuple(float(one) for one in times or () if isinstance(one, int | float) and 0 < one < 1e9)
    versions = {"target": json.dumps(target)}
    place = target_of_text(str(target.get("kind", "unknown")), {})
    chip = str(target.get("mcpu") or target.get("arch") or "unknown")
    place = type(place)(place.device, chip, versions=versions, threads=_cores(target))
    blocks = [str(step[2][0]) for step in steps if _gets_block(step)]
    shapes = [one for one in args if isinstance(one, list) and len(one) == 3]
    params = {"args": json.dumps(args), "workload": key, **({"dtype": shapes[0][1]} if shapes else {})}
    return ForeignTrial(
        Case.of(f"{_PREFIX}{next(iter(blocks), 'unknown')}", params, "forward"),
        backend_of(place),
        "metaschedule",
        {_TRACE: json.dumps([steps, decisions]), _PROGRAM: program},
        place,
        seconds if all(map(math.isfinite, seconds)) else (),
        "" if seconds else "it could not be built or run",
    )


def _gets_block(step: Any) -> bool:
    """Whether a step of a trace looks a block up by its name; older versions call it GetBlock."""
    return isinstance(step, list) and len(step) > 2 and step[0] in ("GetSBlock", "GetBlock") and bool(step[2])


def _cores(target: Mapping[str, Any]) -> int:
    cores = target.get("num-cores", 0)
    return cores if isinstance(cores, int) and cores > 0 else 0


METASCHEDULE = MetaScheduleFormat()
