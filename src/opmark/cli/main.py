"""The command line: `opmark COMMAND`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys

import typer

from opmark.cli import calibrate, coverage, describe, doctor, drop_in, export, import_, list_, run, show
from opmark.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Benchmarks for deep-learning operators: one workload, any framework, any device, true numbers.",
)
app.command("run")(run.run)
app.command("list")(list_.list_)
app.command("describe")(describe.describe)
app.command("show")(show.show)
app.command("doctor")(doctor.doctor)
app.command("calibrate")(calibrate.calibrate)
app.command("coverage")(coverage.coverage)
app.command("import")(import_.import_)
app.command("export")(export.export)
for command in (drop_in.param, drop_in.micro_perf, drop_in.opperf):
    app.command(command.__name__.replace("_", "-"), **drop_in.AS_WRITTEN)(command)


@app.callback(invoke_without_command=True)
def options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit


def main() -> None:
    """Exit code 0: all well. 1: a case failed. 2: the user's mistake. 130: interrupted."""
    try:
        app()
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
