"""opmark check"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import CheckRequest, RunRequest
from opmark.cli.options import Json, takes
from opmark.cli.output import console, write_out
from opmark.files import check_writable

if TYPE_CHECKING:
    from opmark.api.result import Result
    from opmark.schema.comparison import CheckResult

_STDOUT = "-"


@takes(CheckRequest)
def check(
    request: CheckRequest,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a summary for a pull request to this file; - is standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    as_json: Json = False,
) -> None:
    check_writable(None if str(markdown) == _STDOUT else markdown, junit)
    _report(_check(request), markdown, junit, as_json=as_json)


def measure_with_progress(request: RunRequest) -> Result:
    """Measure as `opmark run` does, with its bar and messages."""
    from opmark.api.run import run_request
    from opmark.cli.progress import ProgressBar

    with ProgressBar(as_json=False) as progress:
        return run_request(
            replace(request, on_start=progress.start, on_record=progress.advance, say=progress.say)
        )  # fmt: skip


def _check(request: CheckRequest) -> CheckResult:
    from opmark.api.check import check_request
    from opmark.api.progress import Turns

    turns = Turns()
    try:
        return check_request(replace(request, measure=measure_with_progress, on_turn=turns.turn, say=turns.say))
    except KeyboardInterrupt:
        turns.say("interrupted: what was measured until then is stored, and nothing is decided")
        raise typer.Exit(130) from None
    finally:
        turns.end()


def _report(checked: CheckResult, markdown: Path | None, junit: Path | None, *, as_json: bool) -> None:
    import msgspec

    from opmark.report.console.comparison import checked_view, print_checked
    from opmark.report.formats.junit import junit_xml
    from opmark.report.formats.markdown import summary_markdown

    to_stdout = markdown is not None and str(markdown) == _STDOUT
    if junit is not None:
        write_out(junit_xml(checked), junit)
    if markdown is not None:
        write_out(summary_markdown(checked), None if to_stdout else markdown)
    if as_json:
        write_out(msgspec.json.encode(checked_view(checked)).decode() + "\n", None)
    elif not to_stdout:
        print_checked(checked, console())
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)
