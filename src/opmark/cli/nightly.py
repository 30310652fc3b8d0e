"""opmark nightly"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import NightlyRequest
from opmark.cli.check import measure_with_progress
from opmark.cli.options import Json, takes
from opmark.cli.output import print_json_lines
from opmark.units import count_noun

if TYPE_CHECKING:
    from opmark.api.nightly import NightPreview


@takes(NightlyRequest)
def nightly(
    request: NightlyRequest,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and print what would be done.")] = False,
    template: Annotated[
        bool, typer.Option("--template", help="Print a file to begin with: all operators of torch and MXNet.")
    ] = False,
    as_json: Json = False,
) -> None:
    if template:
        from opmark.api.nightly_file import shipped_file

        print(shipped_file(), end="")
        return
    if dry_run:
        from opmark.api.nightly import preview_night

        for line in _preview_lines(preview_night(request)):
            print(line)
        return
    from opmark.api.nightly import nightly_request
    from opmark.api.progress import Turns
    from opmark.report.formats.night import night_lines, night_view

    turns = Turns()
    try:
        night = nightly_request(replace(request, measure=measure_with_progress, on_turn=turns.turn, say=turns.say))
    except KeyboardInterrupt:
        turns.say("interrupted: what was measured is stored, and the same command goes on")
        raise typer.Exit(130) from None
    finally:
        turns.end()
    if as_json:
        print_json_lines([night_view(night)])
    else:
        for line in night_lines(night):
            print(line)
    if night.exit_code:
        raise typer.Exit(night.exit_code)


def _preview_lines(found: NightPreview) -> Iterator[str]:
    plan, night = found.plan, found.night
    state = "is done" if night.finished else "goes on" if found.begun else "would begin"
    yield f"night of {night.date}: {state}; files in {plan.folder}"
    if night.missed:
        yield f"missed before: {', '.join(night.missed)}"
    for name, what in found.environments.items():
        yield f"environment {name}: {what}"
    for one in found.runs:
        part = f" part {one.run.part}" if one.run.part else ""
        late = " (of a missed night)" if one.run.caught_up else ""
        whole = f" of {len(one.job.cases)}" if one.run.part else ""
        yield (
            f"{one.run.label}{part}{late}: {one.cases}{whole} {count_noun(one.cases, 'case').partition(' ')[2]} on "
            f"{', '.join(one.backends)}, {one.job.request.effort}; baseline "
            f"{one.job.baseline or (f'the newest that has them, {one.newest} or older' if one.newest else 'none yet')}"
        )
    gate = ", ".join(f"{key} {value}" for key, value in plan.gate.items()) or "as `opmark check` has it"
    yield f"gate: {gate}"
    if plan.file.bisect:
        versions = f"versions of {plan.bisect['package']}, or " if plan.bisect.get("package") else ""
        yield f"bisect: {versions}commits, for {count_noun(plan.bisect_most, 'case')} per run at most"
    hook = plan.file.hook
    told = [text for text in ("a command" * bool(hook.command), "an address" * bool(plan.url)) if text]
    yield f"hook: {' and '.join(told) or 'none'}" + (f", when {hook.when}" if told else "")
