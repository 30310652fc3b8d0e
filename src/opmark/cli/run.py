"""opmark run"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opmark.cli import case_options as options
from opmark.cli.options import Db, NoColor, Wide
from opmark.cli.output import Looks, console, print_json_lines, print_records
from opmark.cli.profile_options import profiling
from opmark.units import counted


def run(
    ops: options.Ops = None,
    workload: options.Workload = None,
    strict: options.Strict = False,
    suite: options.Suite = None,
    op: options.Op = None,
    category: options.Category = None,
    tag: options.Tag = None,
    params: options.Params = None,
    args: options.Args = None,
    kwargs: options.Kwargs = None,
    build: options.Build = None,
    size: options.Size = None,
    phase: options.Phase = None,
    backend: options.Backend = None,
    python: options.Python = None,
    threads: options.Threads = None,
    ranks: options.Ranks = None,
    group_size: options.GroupSize = None,
    effort: options.Effort = "standard",
    quantity: options.Quantity = None,
    cache: options.Cache = None,
    processes: options.Processes = None,
    rel_ci: options.RelCi = None,
    min_time: options.MinTime = None,
    max_time: options.MaxTime = None,
    warmup: options.Warmup = None,
    samples: options.Samples = None,
    mode: options.Mode = "",
    l2: options.CudaL2Cache = None,
    timer: options.Timer = "",
    wrt: options.Wrt = None,
    seed: options.Seed = 0,
    verify: options.Verify = True,
    profiler: Annotated[
        str | None, typer.Option(help="Look at what was measured, afterwards: trace, ncu, nsys, command.")
    ] = None,
    program: Annotated[
        str | None, typer.Option("--profiler-bin", help="The profiler's program. [default: found on PATH]")
    ] = None,
    arguments: Annotated[
        Path | None, typer.Option("--profiler-args", help="A file with more arguments for the profiler.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--profiler-command", help='Any other: "vendorprof -o {output}.csv {program}".')
    ] = None,
    seen: Annotated[int, typer.Option("--profile-iterations", help="Calls of each task that it sees.")] = 1,
    batch: Annotated[int, typer.Option("--profile-batch", help="Tasks a start of it, at most.")] = 50,
    within: Annotated[float, typer.Option("--profile-timeout", help="Seconds that a batch may take.")] = 600.0,
    folder: Annotated[
        Path | None, typer.Option("--profile-dir", help="Where its files go. [default: opmark-profiles]")
    ] = None,
    timeout: options.Timeout = 60.0,
    compile_timeout: options.CompileTimeout = 300.0,
    label: options.Label = "",
    db: Db = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, run nothing.")] = False,
    long: Annotated[bool, typer.Option("--long", help="A row a task, also where backends stand side by side.")] = False,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a record.")] = False,
) -> None:
    """Measure operators; print a table, store a run."""
    given = dict(locals())
    asked = options.asked(given)
    if dry_run:
        _print_plan(asked, as_json=as_json)
        return
    asked |= {name: given[name] for name in ("timeout", "compile_timeout", "label", "db", "resume")}
    asked["profile"] = profiling(profiler, program, arguments, command, folder, seen, batch, within)
    _measure(asked, Looks(long, wide, no_color), as_json=as_json)


def _measure(asked: dict[str, Any], looks: Looks, *, as_json: bool) -> None:
    from opmark import api
    from opmark.cli.progress import Progress

    with Progress(looks, as_json=as_json) as progress:
        try:
            result = api.run(
                **asked,
                on_start=progress.start,
                on_record=progress.advance,
                say=progress.say,
                on_row=progress.print_row if as_json else None,
            )
        except KeyboardInterrupt:
            progress.interrupted()
            raise typer.Exit(130) from None
    if result.rank:
        raise typer.Exit(result.exit_code)
    if not as_json:
        print_records(result.records, result.peaks, looks)
    untried = sum(record.untried for record in result.records)
    more = f", without {counted(untried, 'task')} that nobody was left to do: --resume goes on" if untried else ""
    api.talk(f"stored as run {result.run.id} in {result.db}{more}")
    if not any(record.status == "ok" for record in result.records):
        api.talk("nothing was measured")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _print_plan(asked: dict[str, Any], *, as_json: bool) -> None:
    from opmark import api
    from opmark.report.plan import plan_rows, plan_table
    from opmark.runner.intake import complaints

    plan = api.plan(**asked)
    for line in complaints(plan.problems, plan.notes):
        api.talk(line)
    if as_json:
        print_json_lines(plan_rows(plan.tasks, plan.skipped))
    else:
        console().print(plan_table(plan.tasks, plan.skipped))
    if plan.problems:
        raise typer.Exit(1)
