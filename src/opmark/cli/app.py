"""The typer application. Only the module of the given command is imported, and none for `opmark --help`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command
from opmark.errors import UserError, nearest

COMMANDS = {
    "run": ("run", "Measure operators; print a table, store a run."),
    "list": (
        "list_",
        "List operators, categories, suites, quantities, formats, chips, or backends and whether they can run here.",
    ),
    "describe": (
        "describe", "Describe an operator (parameters, presets, cost, implementations), a quantity, or a chip."
    ),
    "show": ("show", "Print a stored run, or write it to a file."),
    "runs": ("runs", "List the runs of a store, newest first; label and describe them."),
    "report": (
        "report", "Make one file to read and to send: failures, figures, every case; for several runs, what got slower."
    ),
    "compare": ("compare", "Is B faster or slower than A? Two runs, or two backends of one, case by case."),
    "check": (
        "check",
        "Has anything become slower than the baseline? Exit code 1 only where it is slower when measured again."
        "\n\nChecks a stored run (--run), or measures what is asked for as `opmark run` would.",
    ),
    "ab": (
        "ab",
        "Measure two sides in turns that differ in one thing; is B faster or slower?"
        "\n\n--backend, --impl, --python or --threads with two values, --env, --rev or --same says what A and B are.",
    ),
    "judge": (
        "judge",
        "Judge a kernel that nobody trusts: is it correct, and faster than a baseline? Exit code 1 if not accepted."
        "\n\nIt runs in a process of its own, without a way to the clock, the reference or the verdict.",
    ),
    "bisect": (
        "bisect", "Which commit made it slower? `git bisect` with a measured verdict, in a worktree of its own."
    ),
    "rank": ("rank", "Rank the implementations that were measured and verified, by chip, phase and threads."),
    "fit": (
        "fit",
        "Fit latency and bandwidth to communication over its sizes: time = alpha + size / beta, from a stored run.",
    ),
    "history": (
        "history", "Find what got slower or faster, when, and what else changed then: change points over stored runs."
    ),
    "doctor": (
        "doctor", "Is this machine fit to measure on? What it has, what runs, what would disturb; with --aa, its noise."
    ),
    "calibrate": (
        "calibrate", "Measure this machine's peaks: bandwidth of memory and caches, FLOP/s by dtype, launch cost."
    ),
    "coverage": (
        "coverage",
        "List the operators of a framework and how each can be measured; or the operators that each backend has.",
    ),
    "env": ("env", "Environments for frameworks that cannot share this one: guests."),
    "import": (
        "import_",
        "Convert another system's workload or hardware file to opmark's format. "
        "Exit code 1: a part was not understood.",
    ),
    "export": (
        "export",
        "Write a stored run as a table or in another system's format, or a workload in another system's format.",
    ),
    "query": ("query", "Query the store in SQL, read-only. --views lists the views and their columns."),
    "merge": ("merge", "Copy the runs of other stores into this one, except those that it has already."),
    "push": (
        "push", "Send runs to a dashboard. It ignores records that it has already; the local store stays as it is."
    ),
    "prune": (
        "prune",
        "Remove runs with their records for good, after listing them. A run is removed if it is named (if any are) and "
        "fits every option.",
    ),
    "serve": ("serve", "Serve a dashboard over a store, with pages for people and JSON for programs, until Ctrl-C."),
}  # fmt: skip
"""By command: its module in this package, with a function or a group of commands of the same name, and its help."""

# The base of click's errors about a command line. Newer versions of typer bring a click of their own.
_UsageError: Any = typer.BadParameter.__mro__[1]


class CommandGroup(TyperGroup):
    """The commands of opmark. A command is imported, and its options are made, when it is called or its help is asked
    for; a mistake in the command line is answered as every other mistake is."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *FOREIGN_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        if cmd_name in FOREIGN_COMMANDS:
            # This serves those who use the application as an object: from the shell, `main` calls that parser directly.
            def forward(context: typer.Context) -> None:
                raise typer.Exit(run_foreign_command(cmd_name, context.args))

            settings = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(cmd_name, add_help_option=False, context_settings=settings)(forward)
            return typer.main.get_command(app)
        if cmd_name not in COMMANDS:
            return None
        module, text = COMMANDS[cmd_name]
        found: Any = getattr(import_module(f"opmark.cli.{module}"), module)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=cmd_name, help=text)
            return typer.main.get_group(app).commands[cmd_name]
        app.command(cmd_name, help=text)(found)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by their help, without importing them."""
        summaries = {name: text for name, (_, text) in (COMMANDS | FOREIGN_COMMANDS).items()}
        TyperGroup(
            commands={name: TyperCommand(name, help=text) for name, text in summaries.items()}
        ).format_commands(ctx, formatter)  # fmt: skip

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except _UsageError as error:
            raise _explain(error) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            raise _explain(error) from None


def _explain(error: Any) -> Exception:
    """Return a mistake in the command line as an error of opmark. A command that only prints its help without arguments
    is no mistake."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error  # type: ignore[no-any-return]
    path = error.ctx.command_path if error.ctx else "opmark"
    message, near = error.format_message().rstrip("."), None
    if hasattr(error, "possibilities"):
        message, near = f"no option {error.option_name}", nearest(error.option_name, error.possibilities or ())
    hint = f"did you mean {near}? " * bool(near) + f"`{path} --help` says what can be typed"
    return UserError(f"{path}: {message[:1].lower()}{message[1:]}", hint)


def make_app() -> typer.Typer:
    """Make the command line."""
    app = typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Benchmarks for deep-learning operators: one workload, any framework, any device, true numbers.",
    )
    app.callback(invoke_without_command=True)(_options)
    return app


def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit
