"""opmark report"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import ReportRequest, talk
from opmark.cli.options import takes
from opmark.cli.output import write_out
from opmark.errors import InvalidParameter
from opmark.schema.options import split_names

_FORMATS = ("html", "md", "pdf")
_ENDINGS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".pdf": "pdf"}
_STDOUT = "-"
_MAX_NAME = 120
"""Characters of a file name that is made of the names of runs."""


@takes(ReportRequest)
def report(
    request: ReportRequest,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Write it to this file; -: standard output. [default: opmark-report-RUN]"),
    ] = None,
    format: Annotated[str, typer.Option(help="html, md, pdf. [default: by the ending of the file, or html]")] = "",
) -> None:
    from opmark.api.report import report_request

    chosen = choose_format(format, output)
    made = report_request(replace(request, format=chosen))
    if output == _STDOUT or (output is None and chosen == "md"):
        write_out(made, None)
        return
    path = Path(output) if output else default_name(request, chosen)
    write_out(made, path)
    size = len(made.encode() if isinstance(made, str) else made)
    from opmark.units import count_bytes

    talk(f"wrote {path} ({count_bytes(size)})")
    if output and not format and not path.suffix:
        others = ", ".join(f"-o {path}{ending}" for ending in (".html", ".md", ".pdf"))
        talk(f"hint: it is HTML, because a name without an ending does not say otherwise: {others}, or --format")
    if chosen == "html":
        talk(f"open {path.absolute().as_uri()} in a browser; it needs no network")


def choose_format(format: str, output: str | None) -> str:
    ending = Path(output).suffix.lower() if output and output != _STDOUT else ""
    chosen = format or (_ENDINGS.get(ending, "") if ending else "html")
    if chosen not in _FORMATS:
        expected = f"expected {', '.join(_FORMATS)}"
        got = (
            f"--format: {expected}, got `{format}`" if format else f"-o {output}: no format has this ending: {expected}"
        )
        raise InvalidParameter(got, f"endings that say it: {', '.join(_ENDINGS)}; or --format html")
    return chosen


def default_name(request: ReportRequest, format: str) -> Path:
    """Return a file name in the current folder, made of the names of the runs."""
    import re

    names = split_names(request.runs)
    if not names:
        from opmark.api.runs import runs

        names = [runs(last=1, db=request.db)[0].run.id]
    named = (*names, *([request.run] if request.run else []))
    safe = "-".join(re.sub(r"[^\w.~-]+", "_", name).strip("._") or "run" for name in named)
    return Path(f"opmark-report-{safe[:_MAX_NAME]}.{format}")
