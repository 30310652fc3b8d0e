"""opmark compare"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.api.requests import CompareRequest
from opmark.cli.options import takes
from opmark.cli.output import console, split, write_out
from opmark.errors import InvalidParameter

if TYPE_CHECKING:
    from opmark.schema.comparison import Compared

_FORMATS = ("table", "md", "json")


@takes(CompareRequest)
def compare(
    request: CompareRequest,
    only: Annotated[
        list[str] | None, typer.Option(help="Show only these: slower, faster, same, undecided, failed, skipped.")
    ] = None,
    format: Annotated[str, typer.Option(help="table, md, json.")] = "table",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: --format json.")] = False,
) -> None:
    from opmark.api.compare import compare_request
    from opmark.report.comparison import check_words
    from opmark.schema.codec import gc_disabled

    words = check_words(split(only or []))
    chosen = "json" if as_json else format
    if chosen not in _FORMATS:
        raise InvalidParameter(f"--format: expected {', '.join(_FORMATS)}, got `{format}`")
    with gc_disabled():  # thousands of small objects, all of them needed until the end
        write_comparison(compare_request(request), chosen, output, words)
        gc.freeze()  # no collection when the process ends either


def write_comparison(found: Compared, format: str, output: Path | None, only: list[str]) -> None:
    """Write a comparison in one of the formats to a file or to standard output."""
    import msgspec

    from opmark.report.comparison import comparison_view
    from opmark.report.console.comparison import comparison_text, print_comparison
    from opmark.report.formats.markdown import comparison_markdown

    if format == "json":
        view = msgspec.json.encode(comparison_view(found, only))
        write_out(msgspec.json.format(view, indent=1).decode() + "\n", output)
    elif format == "md":
        write_out(comparison_markdown(found, only), output)
    elif output is None:
        print_comparison(found, console(), only)
    else:
        write_out(comparison_text(found, only), output)
