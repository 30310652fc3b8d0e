"""opmark fit"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines, write_out
from opmark.errors import UserError

if TYPE_CHECKING:
    from opmark.api.fit import Fitted

_NO_TERMINAL = 100
"""Columns of a plot that goes to a file."""


def fit(
    run: Annotated[str | None, typer.Argument(help="Id (or its beginning) or label. [default: the last run]")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Draw time and bus bandwidth over size into this SVG file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per series of sizes.")] = False,
    db: Db = None,
) -> None:
    from opmark.api.fit import fit as api_fit
    from opmark.api.fit import fit_view
    from opmark.api.requests import talk
    from opmark.report.charts.communication import fit_charts
    from opmark.report.html.figure import standalone
    from opmark.units import count_noun

    if output is not None and output.suffix.lower() != ".svg":
        raise UserError(f"-o: expected a file that ends in .svg, got `{output}`", "--json is for programs")
    fitted = api_fit(run, db=db)
    if not fitted:
        raise UserError(
            "nothing in this run sends anything, or nothing of it was measured",
            "as in `opmark run all_reduce --ranks 2 -p size=8..64M`",
        )
    drawable = [one for one in fitted if one.drawable]
    if output is not None and not drawable:
        raise UserError("every series has times of 0, for which a logarithmic axis has no place", "use larger sizes")
    if as_json:
        print_json_lines(map(fit_view, fitted))
    else:
        _print(fitted, drawable)
    if output is not None:
        write_out(standalone(fit_charts(drawable)), output)
        talk(f"drew {count_noun(len(drawable), 'series', 'series')} into {output}")


def _print(fitted: Sequence[Fitted], drawable: Sequence[Fitted]) -> None:
    from opmark.report.console.fits import LEGEND, plot_text, print_fit_table

    out = console()
    width = out.width if out.is_terminal else _NO_TERMINAL
    print_fit_table(fitted, out)
    print(LEGEND)
    if drawable:
        print("\n" + plot_text(drawable, width), end="")
