"""opmark run"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import ProfileOptions, RunRequest, talk
from opmark.cli.options import NoColor, Wide, takes
from opmark.cli.output import TableStyle, console, print_json_lines, print_records
from opmark.errors import InvalidParameter
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.api.run import Plan
    from opmark.schema import Record, Run


@takes(RunRequest, ProfileOptions)
def run(
    request: RunRequest,
    profile: ProfileOptions,
    cuda_l2_cache: Annotated[
        str | None, typer.Option(help="As in PARAM: on is --cache warm, off is --cache cold.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, run nothing.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="One row per task, even where backends stand side by side.")
    ] = False,
    wide: Wide = False,
    no_color: NoColor = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per record.")] = False,
) -> None:
    if cuda_l2_cache is not None:
        request = _with_l2_cache(request, cuda_l2_cache)
    if dry_run:
        _print_plan(request, as_json=as_json)
    else:
        _measure(request, profile, TableStyle(long, wide, no_color), as_json=as_json)


def _measure(request: RunRequest, profile: ProfileOptions, style: TableStyle, *, as_json: bool) -> None:
    from opmark.api.early_worker import start_early_worker
    from opmark.cli.progress import ProgressBar
    from opmark.schema.record import MEASURED

    with closing(start_early_worker(request)) as pool, ProgressBar(style, as_json=as_json) as progress:
        from opmark.api.run import profiling_of, run_request

        profiling = profiling_of(profile)

        def begin(run: Run, plan: Plan, records: list[Record]) -> None:
            pool.end_unneeded(plan.groups())
            progress.start(run, plan, records)

        try:
            result = run_request(
                replace(
                    request,
                    profile=profiling,
                    pool=pool,
                    on_start=begin,
                    on_record=progress.advance,
                    on_row=progress.print_row if as_json else None,
                    say=progress.say,
                )
            )
        except KeyboardInterrupt:
            progress.interrupted(request.db)
            raise typer.Exit(130) from None
    if result.rank:
        raise typer.Exit(result.exit_code)
    if not as_json:
        print_records(result.records, result.peaks, style)
    untried = sum(record.untried for record in result.records)
    more = (
        f", without {count_noun(untried, 'task')} for which no worker was available: --resume goes on"
        if untried and result.stored
        else ""
    )
    talk(result.storage + more)
    for record in result.records:
        if record.status in MEASURED and record.task.artifact_path:
            talk(f"artefact: {record.task.artifact_path}")
    if not any(record.status in MEASURED for record in result.records):
        talk("nothing was measured")
    if disturbed := sum(record.status == "disturbed" for record in result.records):
        talk(
            f"{count_noun(disturbed, 'record')} of {len(result.records)} disturbed: other work took the cores, so the "
            "numbers in brackets count nowhere\nhint: stop other work (`opmark doctor` names it) and run again; or use "
            "fewer --threads than there are idle cores, or --fewer-threads"
        )
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _print_plan(request: RunRequest, *, as_json: bool) -> None:
    from opmark.api.run import plan_request, problem_lines
    from opmark.report.console.runs import plan_rows, plan_table

    plan = plan_request(request)
    for line in problem_lines(plan.problems, plan.notes):
        talk(line)
    if as_json:
        print_json_lines(plan_rows(plan.tasks, plan.skipped))
    else:
        console().print(plan_table(plan.tasks, plan.skipped))
    if plan.problems:
        raise typer.Exit(1)


def _with_l2_cache(request: RunRequest, word: str) -> RunRequest:
    caches = {"on": "warm", "off": "cold"}
    if word not in caches:
        raise InvalidParameter(f"--cuda-l2-cache: expected on or off, got `{word}`")
    if request.cache:
        raise InvalidParameter("--cuda-l2-cache and --cache say the same thing", "leave one of them out")
    return replace(request, cache=caches[word])
