"""opmark tuned"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opmark.api.requests import parse_params, talk
from opmark.cli.options import Db
from opmark.cli.output import console, print_json_lines
from opmark.errors import UserError
from opmark.units import count_noun


def tuned(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OP]", help="An operator; or `export [OP] -o FILE`, or `import FILE...`."),
    ] = None,
    params: Annotated[
        list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE: only cases with these parameters.")
    ] = None,
    near: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE: sizes to look for; the nearest shapes come first.")
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Only what was tuned on this backend.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File that `export` writes.")] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            help="Format of another system's tuning log: autotvm, metaschedule, lorien, "
            "triton, opbench. [default: import looks at the file; export writes opmark's JSON]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per entry.")] = False,
    db: Db = None,
) -> None:
    from opmark.api.tuned import export_tuned, found_view, import_tuned
    from opmark.api.tuned import tuned as find_tuned
    from opmark.report.console.tuning import print_tuned

    first, *rest = what or [""]
    if first == "export":
        if output is None or len(rest) > 1:
            raise UserError("expected one file to write", "as in `opmark tuned export -o tuned.json`")
        number, left_out = export_tuned(output, op=rest[0] if rest else None, format=format or "", db=db)
        for line in left_out:
            talk(f"not written: {line}")
        written = number or not format
        talk(f"wrote {count_noun(number, 'entry', 'entries')} to {output}" if written else "no entry to write: no file")
        raise typer.Exit(1 if left_out else 0)
    if first == "import":
        read = import_tuned(*rest, format=format or "", db=db)
        for line in (*read.problems, *read.notes):
            talk(line)
        talk(f"{count_noun(read.entries, 'entry', 'entries')}, {read.new} new")
        raise typer.Exit(1 if read.problems else 0)
    if rest:
        raise UserError(f"expected one operator, got {', '.join(what or [])}", "`opmark tuned` lists all of them")
    if output is not None:
        raise UserError("-o goes with export", "as in `opmark tuned export -o tuned.json`")
    if wrong := [text for text in near or [] if "=" not in text]:
        raise UserError(f"--near: expected NAME=VALUE, got `{wrong[0]}`", "as in `--near M=1000`")
    wanted = {option: _values(first, texts or []) for option, texts in (("params", params), ("near", near))}
    close = {name: values[0] for name, values in wanted["near"].items()}
    entries = find_tuned(first or None, params=wanted["params"], near=close, backend=backend, db=db)
    found = [found_view(one) for one in entries]
    if as_json:
        print_json_lines(found)
    elif found:
        print_tuned(found, console(), near=bool(close))
    else:
        talk("nothing of that kind is tuned" if what else "nothing is tuned yet: `opmark tune OP --backend B` does")


def _values(op: str, texts: list[str]) -> dict[str, Any]:
    if texts and not op:
        raise UserError("-p and --near go with an operator", "as in `opmark tuned matmul --near M=1000`")
    return parse_params([op], texts) if texts else {}
