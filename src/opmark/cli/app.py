"""opmark's own commands. A command is imported when it is asked for, and all of them for `opmark --help`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from opmark.cli.interop import DROP_INS, drop_in

COMMANDS = {
    "run": "run", "list": "list_", "describe": "describe", "show": "show", "runs": "runs", "report": "report",
    "compare": "compare", "check": "check", "ab": "ab", "bisect": "bisect", "rank": "rank", "fit": "fit",
    "history": "history", "doctor": "doctor", "calibrate": "calibrate", "coverage": "coverage", "env": "env",
    "import": "import_", "export": "export", "query": "query", "merge": "merge", "push": "push", "prune": "prune",
    "serve": "serve",
}  # fmt: skip
"""Name of a command -> the module of this package, which has a function or a group of commands of the same name."""


def make_app(command: str = "") -> typer.Typer:
    """The command line. If `command` names a command, it has this one alone: the others need not be imported."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Benchmarks for deep-learning operators: one workload, any framework, any device, true numbers.",
    )
    for name in [command] if command in COMMANDS else COMMANDS:
        module = COMMANDS[name]
        found: Any = getattr(import_module(f"opmark.cli.{module}"), module)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    if command not in COMMANDS:
        for name, (_, summary) in DROP_INS.items():
            given_on = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, help=summary, add_help_option=False, context_settings=given_on)(_as_written(name))
    app.callback(invoke_without_command=True)(_options)
    return app


def _as_written(name: str) -> Callable[[typer.Context], None]:
    """The command of another system, for the list of commands; from the shell it is called without this parser."""

    def command(context: typer.Context) -> None:
        raise typer.Exit(drop_in(name, context.args))

    return command


def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit
