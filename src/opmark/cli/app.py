"""opmark's own commands. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

from collections.abc import Callable

import typer

from opmark.cli import (
    ab,
    bisect,
    calibrate,
    check,
    compare,
    coverage,
    describe,
    doctor,
    env,
    export,
    fit,
    history,
    import_,
    list_,
    merge,
    prune,
    push,
    query,
    rank,
    report,
    run,
    runs,
    serve,
    show,
)
from opmark.cli.drop_in import DROP_INS, drop_in

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
app.add_typer(runs.runs, name="runs")
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("check")(check.check)
app.command("ab")(ab.ab)
app.command("bisect")(bisect.bisect)
app.command("rank")(rank.rank)
app.command("fit")(fit.fit)
app.command("history")(history.history)
app.command("doctor")(doctor.doctor)
app.command("calibrate")(calibrate.calibrate)
app.command("coverage")(coverage.coverage)
app.add_typer(env.env, name="env")
app.command("import")(import_.import_)
app.command("export")(export.export)
app.command("query")(query.query)
app.command("merge")(merge.merge)
app.command("push")(push.push)
app.command("prune")(prune.prune)
app.command("serve")(serve.serve)


def _as_written(name: str) -> Callable[[typer.Context], None]:
    """For the list of commands; from the shell they do not come by here."""

    def command(context: typer.Context) -> None:
        raise typer.Exit(drop_in(name, context.args))

    return command


for name, (_, summary) in DROP_INS.items():
    given_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=summary, add_help_option=False, context_settings=given_on)(_as_written(name))


@app.callback(invoke_without_command=True)
def options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit
