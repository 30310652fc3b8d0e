"""The typer application. Only the module of the given command is imported; all of them for `opmark --help`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command

COMMANDS = {
    "run": "run", "list": "list_", "describe": "describe", "show": "show", "runs": "runs", "report": "report",
    "compare": "compare", "check": "check", "ab": "ab", "bisect": "bisect", "rank": "rank", "fit": "fit",
    "history": "history", "doctor": "doctor", "calibrate": "calibrate", "coverage": "coverage", "env": "env",
    "import": "import_", "export": "export", "query": "query", "merge": "merge", "push": "push", "prune": "prune",
    "serve": "serve",
}  # fmt: skip
"""Module of each command in this package. It has a function or a group of commands of the same name."""


def make_app(command: str = "") -> typer.Typer:
    """Make the command line. If `command` names a command, only this one is imported and added."""
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
        for name, (_, summary) in FOREIGN_COMMANDS.items():
            settings = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, help=summary, add_help_option=False, context_settings=settings)(_forward(name))
    app.callback(invoke_without_command=True)(_options)
    return app


def _forward(name: str) -> Callable[[typer.Context], None]:
    """Return a command that forwards its arguments to another system's parser. It serves `opmark --help`: from the
    shell, `main` calls that parser directly."""

    def command(context: typer.Context) -> None:
        raise typer.Exit(run_foreign_command(name, context.args))

    return command


def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit
