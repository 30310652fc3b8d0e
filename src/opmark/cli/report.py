"""opmark report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db, share
from opmark.cli.output import write_out
from opmark.errors import InvalidParameter

_FORMATS = ("html", "md", "pdf")
_ENDINGS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".pdf": "pdf"}
_STDOUT = "-"
_MAX_NAME = 120
"""Characters of a file name that is made of the names of runs."""


def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="A run, or several: each is compared with the first. As `compare` takes them. [default: the last run]",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Write it to this file; -: standard output. [default: opmark-report-RUN]"),
    ] = None,
    format: Annotated[str, typer.Option(help="html, md, pdf. [default: by the ending of the file, or html]")] = "",
    title: Annotated[str, typer.Option(help="Title of the report. [default: the label of the run]")] = "",
    run: Annotated[str | None, typer.Option(help="The run whose backends or interpreters are compared.")] = None,
    quantity: Annotated[str, typer.Option(help="Quantity to compare: latency, latency:cold, all.")] = "",
    margin: Annotated[str, typer.Option(help="Differences up to this are called the same: 0.01 or 1%.")] = "1%",
    drift: Annotated[str, typer.Option(help="How far apart two sessions of the same code may be.")] = "2%",
    unlike: Annotated[bool, typer.Option("--unlike", help="Also where the machines are not alike.")] = False,
    browser: Annotated[
        str | None, typer.Option(help="Browser used to print the PDF. [default: $OPMARK_BROWSER or an installed one]")
    ] = None,
    db: Db = None,
) -> None:
    from opmark.api.report import make_report

    chosen = choose_format(format, output)
    shares = {"margin": share(margin, "margin"), "drift": share(drift, "drift")}
    made = make_report(
        names or (), format=chosen, title=title, db=db, run=run, quantity=quantity, unlike=unlike, browser=browser,
        **shares,
    )  # fmt: skip
    if output == _STDOUT or (output is None and chosen == "md"):
        write_out(made, None)
        return
    path = Path(output) if output else default_name(names or [], run, db, chosen)
    write_out(made, path)
    size = len(made.encode() if isinstance(made, str) else made)
    from opmark.units import count_bytes

    talk(f"wrote {path} ({count_bytes(size)})")
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


def default_name(names: list[str], run: str | None, db: str | None, format: str) -> Path:
    """Return a file name in the current folder, made of the names of the runs."""
    import re

    if not names:
        from opmark.api.runs import runs

        names = [runs(last=1, db=db)[0].run.id]
    named = (*names, *([run] if run else []))
    safe = "-".join(re.sub(r"[^\w.~-]+", "_", name).strip("._") or "run" for name in named)
    return Path(f"opmark-report-{safe[:_MAX_NAME]}.{format}")
