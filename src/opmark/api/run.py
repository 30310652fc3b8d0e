"""Plan and measure a run: `opmark run`, `opmark run --dry-run`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from opmark.analysis.rows import Row, RowCollector
from opmark.api.fleet import homes_of, open_fleet
from opmark.api.keywords import keywords_of
from opmark.api.requests import PlanRequest, ProfileOptions, RunRequest
from opmark.api.result import Result, existing_store, journals_of, machine_at, open_store, result_of, storage_line
from opmark.errors import InvalidParameter
from opmark.plugin.registry import backend as find_backend
from opmark.runner.clocks import ClockLocks
from opmark.runner.executors.base import Executor, LocalExecutor, Resumed
from opmark.runner.executors.ray_executor import RayExecutor
from opmark.runner.guests.placement import why_missing
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.profilers.profile_run import (
    COMMAND,
    DEFAULT_FOLDER,
    ProfileQueue,
    Profiling,
    arguments_in,
    profiler_runners,
)
from opmark.runner.ranks.agent import serve_rank_zero
from opmark.runner.ranks.launcher import RankLauncher, start_ranks
from opmark.runner.selection import SelectedCases, default_backends, select_backends, select_cases
from opmark.runner.session import Retries, RunRecorder, new_run, run_to_resume
from opmark.runner.supervisor import WorkerOptions, WorkerPool
from opmark.runner.workload_source import file_requests, problem_lines
from opmark.schema import Environment, Record
from opmark.schema.options import MeasureOptions, PathLike, StoreOptions, as_list, options_of, split_names
from opmark.store.location import display_address
from opmark.units import count_noun

__all__ = [
    "Plan", "Profiling", "Row", "plan", "plan_cases", "plan_request", "problem_lines", "profiling_of", "run",
    "run_request", "storage_line",
]  # fmt: skip


@keywords_of(PlanRequest)
def plan(request: PlanRequest) -> Plan:
    """Return what `run` would measure: `opmark run --dry-run`."""
    return plan_request(request)


def plan_request(request: PlanRequest) -> Plan:
    db = request.db if isinstance(request, StoreOptions) else None
    return plan_cases(select_cases(request, request.seed), request, db=db)


def plan_cases(
    selected: SelectedCases,
    options: MeasureOptions,
    *,
    alone: bool = False,
    db: PathLike | None = None,
    fleet: RayExecutor | None = None,
) -> Plan:
    """Make the plan for selected cases. `alone`: functions that the options name do not run beside others. `db`: the
    store with what was tuned, for backends that apply it. `fleet`: the nodes that will do it, whose backends and cores
    count in place of those of this machine."""
    names = split_names(options.backend) or default_backends(selected.cases)
    pythons, missing_there = split_names(options.python), why_missing
    if fleet is None:
        chosen, absent = select_backends(names, pythons)
    else:
        chosen, absent = select_backends(names, pythons, fleet.why_missing)
        fleet.choose_kind(chosen)
        missing_there = fleet.why_missing
    settings = settings_for(options, fleet.threads if fleet else None)
    shared = not as_list(options.threads) and not os.environ.get("OMP_NUM_THREADS")
    whole = make_plan(
        selected.cases, chosen, settings, by_device=options.processes is None, divided=shared,
        impl=split_names(options.impl), alone=alone, missing_there=missing_there,
    )  # fmt: skip
    whole = _apply_tuned(whole, db)
    notes = (*selected.left_out, *absent, *whole.notes)
    source = selected.source
    if source is None:
        return dataclasses.replace(whole, notes=notes)
    requested = () if options.samples or options.warmup else tuple(file_requests(source.asked))
    return dataclasses.replace(whole, problems=source.problems, notes=(*source.notes, *requested, *notes))


def _apply_tuned(plan: Plan, db: PathLike | None) -> Plan:
    """Give tasks of `NAME/tuned` the configurations of the store, which need not exist."""
    if not any(find_backend(name).tuned for name in {task.backend for task in plan.tasks}):
        return plan
    from opmark.tuning.database import apply_tuned

    with existing_store(db) as store:
        return apply_tuned(plan, store)


def profiling_of(options: ProfileOptions) -> Profiling | None:
    """Return the profiler that the options name; `--profiler-command` alone implies the profiler `command`."""
    name = options.profiler or (COMMAND if options.profiler_command else None)
    if name is None:
        for option in ("profiler_bin", "profiler_args"):
            if getattr(options, option) is not None:
                flag = options_of(ProfileOptions)[option].flag
                raise InvalidParameter(f"{flag} goes with --profiler", "as in --profiler ncu")
        return None
    return Profiling(
        name,
        bin=options.profiler_bin,
        args=arguments_in(Path(options.profiler_args)) if options.profiler_args else (),
        command=options.profiler_command,
        folder=options.profile_dir or DEFAULT_FOLDER,
        iterations=options.profile_iterations,
        batch=options.profile_batch,
        timeout=options.profile_timeout,
    )


@keywords_of(RunRequest)
def run(request: RunRequest) -> Result:
    """Measure, store, and return the run with its records: `opmark run`.

    `session` marks the run as part of something larger, so that histories leave it out. `profile` names profilers that
    run the measured cases again, afterwards. `on_row` is called with each row as soon as its last process has a record,
    as `--json` prints them. Ctrl-C passes on; records that were made before are in the store.
    """
    return run_request(request)


def run_request(request: RunRequest) -> Result:
    say = request.say
    selected = select_cases(request, request.seed)
    if selected.place and selected.place.rank > 0:
        with closing(ClockLocks(request.clocks, say)) as clocks:
            return _serve_rank_zero(selected, request.label, request.db, say, clocks)
    # Before anything that can fail, so that all ranks hear of an error at once.
    with start_ranks(selected.place, selected.cases) as launcher:
        result = _measure(selected, request, launcher)
        stored = f"kept run {result.run.id} in a journal" if result.journals else f"stored run {result.run.id}"
        launcher.set_outcome(result.exit_code, f"rank 0 {stored}: {count_noun(len(result.records), 'record')}")
    return result


def _measure(selected: SelectedCases, request: RunRequest, launcher: RankLauncher) -> Result:
    """Measure what was selected, and store it. Once the store is closed, it is known what it could not take."""
    if request.executor == "local":
        return _measure_on(None, selected, request, launcher)
    with closing(open_fleet(request, request.profile)) as fleet:
        return _measure_on(fleet, selected, request, launcher)


def _measure_on(
    fleet: RayExecutor | None, selected: SelectedCases, request: RunRequest, launcher: RankLauncher
) -> Result:
    say = request.say
    executor: Executor = fleet or LocalExecutor(launcher)
    whole = plan_cases(selected, request, db=request.db, fleet=fleet)
    for line in problem_lines(whole.problems, whole.notes):
        say(line)
    with (
        closing(ClockLocks("" if fleet else request.clocks, say)) as clocks,
        closing(open_store(request.db, create=True, say=say)) as store,
    ):
        resume = request.resume
        if resume:
            this = run_to_resume(store, whole.id, request.label)
        else:
            this = replace(new_run(whole, request.label), session=request.session)
        records = store.records(this.id) if resume else []
        rest = whole.without({record.task.id for record in records})
        if request.on_start:
            request.on_start(this, rest, list(records))
        tasks = [*(record.task for record in (*records, *rest.skipped)), *rest.tasks]
        rows = RowCollector(this.id, tasks, partial(machine_at, store), request.on_row) if request.on_row else None
        for record in records:
            if rows:
                rows.add(record)

        def announce(record: Record) -> None:
            if request.on_record:
                request.on_record(record)
            if rows:
                rows.add(record)

        recorder = RunRecorder(store, this, announce, begun=resume)
        # A profiler's results are added to the records before they are stored; on a fleet, its nodes do that.
        profile = None if fleet else request.profile
        queue = ProfileQueue(profiler_runners(profile, this.id, say), recorder.add) if profile else None
        if fleet:
            fleet.begin(this.id)

        def keep(environment: Environment) -> None:
            store.add_environment(environment)
            if request.on_environment:
                request.on_environment(environment)

        pool = request.pool or WorkerPool()
        options = WorkerOptions(request.timeout, request.compile_timeout, say, keep, pool, clocks)
        try:
            retries = Retries(request.retries, request.fewer_threads)
            resumed = Resumed(not records, homes_of(store, records) if records else {})
            for arrived in executor.run(rest, options, retries, resumed):
                if queue:
                    for record in arrived:
                        queue.add(record)
                else:
                    recorder.add(*arrived)
            if queue:
                queue.finish()
        finally:
            if queue:
                queue.abandon()  # the queue is empty unless the run was interrupted
            if rows:
                rows.end()
        records += recorder.records
        result = dataclasses.replace(result_of(store, this, records, request.db), problems=whole.problems)
    return dataclasses.replace(result, journals=journals_of(request.db, [this.id]))


_INTERRUPTED = 130


def _serve_rank_zero(
    selected: SelectedCases, label: str, db: PathLike | None, say: Callable[[str], None], clocks: ClockLocks
) -> Result:
    """Do the part of a rank other than 0, and return a result without records: rank 0 has them."""
    assert selected.place is not None
    try:
        code = serve_rank_zero(selected.place, selected.cases, say, clocks)
    except KeyboardInterrupt:
        say("interrupted: what was measured is with rank 0")
        code = _INTERRUPTED
    return Result(new_run(Plan((), ()), label), [], display_address(db), rank=selected.place.rank, rank_exit_code=code)
