"""Replay a trace, say what is covered, and compare replayed with recorded times: `opmark replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from opmark.api.keywords import keywords_of
from opmark.api.program_requests import ReplayRequest
from opmark.api.requests import RunRequest
from opmark.api.result import Result
from opmark.api.run import run_request
from opmark.errors import InvalidParameter, UserError
from opmark.files import check_writable, whole_file
from opmark.schema.case import TRACE_PREFIX
from opmark.schema.options import MeasureOptions, StoreOptions, options_of, split_names
from opmark.schema.record import MEASURED
from opmark.schema.replay import ReplayReport
from opmark.traces.family import find_files
from opmark.traces.reading import read_trace
from opmark.traces.replay_part import ReplayPart, choose_calls, parse_sizes
from opmark.traces.replay_question import look_at_replay
from opmark.traces.replay_report import chrome_trace
from opmark.units import count_noun


@dataclass(frozen=True)
class ReplayResult:
    """A measured replay: the run, and what each backend and rank has covered."""

    result: Result
    reports: list[ReplayReport]

    def rows(self) -> list[dict[str, Any]]:
        """Return what `--json` prints: one object per backend and rank, with the median of the whole step."""
        medians = {
            record.task.backend: median(record.measurements[0].samples)
            for record in self.result.records
            if record.measurements and record.measurements[0].samples
        }
        found = []
        for report in self.reports:
            plain = to_builtins(replace(report, timeline=[]))
            plain.pop("timeline")
            found.append({"run": self.result.run.id, "median": medians.get(report.backend), **plain})
        return found


@keywords_of(ReplayRequest)
def replay(request: ReplayRequest) -> ReplayResult:
    """Replay a trace on the backends that are asked for, as `run` measures everything else."""
    return replay_request(request)


def replay_request(request: ReplayRequest) -> ReplayResult:
    name = str(request.trace)
    check_writable(request.trace_out)
    params = _check(request, name)
    shared = {**options_of(MeasureOptions), **options_of(StoreOptions)}
    options = {option: getattr(request, option) for option in shared}
    if request.iterations is not None:
        if request.samples is not None:
            raise InvalidParameter("--iterations and --samples say the same thing", "leave one of them out")
        options["samples"] = request.iterations
    options["processes"] = request.processes or 1
    result = run_request(
        RunRequest(
            ops=[TRACE_PREFIX + name], params=params, **options, retries=request.retries, on_start=request.on_start,
            on_record=request.on_record, say=request.say,
        )
    )  # fmt: skip
    reports: list[ReplayReport] = []
    looked: set[str] = set()
    for record in result.records:
        task = record.task
        if record.status in MEASURED and task.backend not in looked:
            looked.add(task.backend)
            ranks = int(task.case.params.get("ranks", 1))
            reports += look_at_replay(
                name, task.case.params, task.backend, task.settings.threads, ranks, request.timeout
            )
    if request.trace_out is not None and reports:
        with whole_file(Path(request.trace_out)) as file:
            file.write(chrome_trace(reports).encode())
    return ReplayResult(result, reports)


def _check(request: ReplayRequest, name: str) -> dict[str, Any]:
    """Return the parameters of the case. Read the trace first, so that a mistake is told before anything starts."""
    if not name or not (Path(name).parent.is_dir()):
        raise UserError(f"there is no trace {name}", "name a file or a folder, as in `opmark replay step.json`")
    files = find_files(name)
    trace = read_trace(files.files[0])
    if trace.problems:
        more = f"; {len(trace.problems) - 1} more" if len(trace.problems) > 1 else ""
        request.say(f"not read: {trace.problems[0]}{more}")
    params: dict[str, Any] = {
        "step": request.step, "subgraph": request.subgraph, "only": request.only,
        "skip": ",".join(split_names(request.skip)), "scale": ",".join(split_names(request.scale)),
    }  # fmt: skip
    parse_sizes(params["scale"])
    chosen, _ = choose_calls(trace, ReplayPart(params["step"], params["subgraph"], params["only"], params["skip"]))
    request.say(f"{name}: {trace.format}, {count_noun(len(chosen), 'call')} to replay")
    if request.ranks is not None:
        if not files.ranks:
            raise UserError(
                f"--ranks: {name} is the trace of one process", "name the folder with the files of all ranks"
            )
        params["ranks"] = request.ranks
    return params
