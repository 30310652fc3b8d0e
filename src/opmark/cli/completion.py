"""Shell completion of commands, operators, suites, backends, labels and parameters.

A shell calls `opmark` with what was typed; click finds the parameter to complete, and the functions here its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import typer

from opmark.cli.help_text import COMPLETE_VARIABLE
from opmark.errors import UnknownName, UserError

SHELLS = ("bash", "zsh", "fish")

# Newer versions of typer bring a click of their own.
_CLICK = typer.BadParameter.__module__.rpartition(".")[0]


_BEFORE = {
    # bash would split `dtype=bf` into three words otherwise.
    "bash": 'COMP_WORDBREAKS="${COMP_WORDBREAKS//=}"\n',
    # Without a configuration, zsh has not loaded what completes.
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n",
}
"""What a script begins with, by shell."""


def completion_script(shell: str) -> str:
    """Return the script that a shell has to evaluate."""
    if shell not in SHELLS:
        raise UnknownName("shell", shell, SHELLS)
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="opmark", complete_var=COMPLETE_VARIABLE, shell=shell)
    return _BEFORE.get(shell, "") + script


def completion_item(value: str, help: str = "") -> Any:
    return import_module(f"{_CLICK}.shell_completion").CompletionItem(value, help=help)


def with_completion(command: Any) -> Any:
    """Let the parameters of a command, or of the commands of a group, complete their values: by their names, which
    mean the same in most commands."""
    for part in getattr(command, "commands", {}).values():
        with_completion(part)
    for param in command.params:
        find = VALUES.get(f"{command.name} {param.name}") or VALUES.get(param.name)
        if find is not None:
            param._custom_shell_complete = _completer(find)
    return command


# Labels may come from anybody. Shells insert what is offered as it is; zsh also evaluates it, and the text beside it.
_PLAIN = re.compile(r"[\w@%+=:,./-]+")
_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")
"""Matches what typer does not escape for zsh, and control characters."""


def _completer(find: Callable[[Any], Iterable[tuple[str, str]]]) -> Callable[[Any, Any, str], list[Any]]:
    def complete(ctx: Any, param: Any, incomplete: str) -> list[Any]:
        """Complete the last of several values that are separated by commas."""
        done, comma, last = incomplete.rpartition(",")
        try:
            values = [(name, text) for name, text in find(ctx) if name.startswith(last) and _PLAIN.fullmatch(name)]
        except UserError:  # such as a store that is not there: there is nothing to offer, and no place for a message
            return []
        return [completion_item(f"{done}{comma}{name}", _UNSAFE.sub("?", text)) for name, text in values]

    return complete


def _operators(ctx: Any) -> Iterable[tuple[str, str]]:
    from opmark.api.list_ import operators

    return [(operator.name, operator.summary) for operator in operators()]


def _suites(ctx: Any) -> Iterable[tuple[str, str]]:
    from opmark.api.list_ import suites

    return [(suite.name, suite.description) for suite in suites()]


def _backends(ctx: Any) -> Iterable[tuple[str, str]]:
    from opmark.api.list_ import backends

    return [("all", "every backend that runs here"), *((info.name, info.summary) for info in backends())]


def _categories(ctx: Any) -> Iterable[tuple[str, str]]:
    from opmark.api.list_ import operators

    return [(category, "") for category in sorted({operator.category for operator in operators()})]


def _runs(ctx: Any) -> Iterable[tuple[str, str]]:
    """Labels and ids of the store that the command names, or of the usual one; the newest first."""
    from opmark.api.runs import runs

    listed = [summary.run for summary in runs(db=ctx.params.get("db"))]
    labels = dict.fromkeys(run.label for run in listed if run.label)
    return [*((label, "label") for label in labels), *((run.id, run.label or run.started) for run in listed)]


def _labels(ctx: Any) -> Iterable[tuple[str, str]]:
    return [(name, text) for name, text in _runs(ctx) if text == "label"]


def _parameters(ctx: Any) -> Iterable[tuple[str, str]]:
    """Parameters of the operators that were typed before, with `=` behind."""
    from opmark.api.describe import describe

    # click gives up at the option without a value, and leaves the operators before it in `args`.
    typed = ctx.params.get("ops") or ctx.params.get("like") or ctx.args
    names = [typed] if isinstance(typed, str) else [name for one in typed for name in one.split(",")]
    found: dict[str, str] = {}
    for name in names:
        try:
            operator = describe(name)
        except UnknownName:
            continue
        found |= {f"{param.name}={choice}": param.doc for param in operator.params for choice in param.choices or [""]}
    return found.items()


def _formats(ctx: Any) -> Iterable[tuple[str, str]]:
    """Formats that the command reads or writes."""
    from opmark.api.list_ import formats

    return [(name, text) for command, name, text in formats() if command.startswith(f"opmark {ctx.info_name}")]


def _quantities(ctx: Any) -> Iterable[tuple[str, str]]:
    from opmark.schema import QUANTITIES

    return [(quantity.name, quantity.meaning) for quantity in QUANTITIES.values()]


def _one_of(*names: str) -> Callable[[Any], Iterable[tuple[str, str]]]:
    return lambda ctx: [(name, "") for name in names]


VALUES: dict[str, Callable[[Any], Iterable[tuple[str, str]]]] = {
    "ops": _operators,
    "op": _operators,
    "like": _operators,
    "suite": _suites,
    "backend": _backends,
    "category": _categories,
    "params": _parameters,
    "size": _one_of("small", "typical", "large"),
    "phase": _one_of("forward", "backward", "both"),
    "effort": _one_of("quick", "standard", "thorough"),
    "kind": _one_of("ops", "categories", "suites", "backends", "quantities", "formats", "chips"),
    "label": _labels,
    "baseline": _runs,
    "current": _runs,
    "run": _runs,
    "runs": _runs,
    "a": _runs,
    "b": _runs,
    "against_backend": _backends,
    "quantity": _quantities,
    "cache": _one_of("cold", "warm", "rotated"),
    "mode": _one_of("discrete", "continuous", "continuous_events"),
    "timer": _one_of("cupti", "torch-profiler", "roctracer", "events", "graph"),
    "profiler": _one_of("trace", "ncu", "nsys", "command"),
    "only": _one_of("slower", "faster", "same", "undecided", "failed", "skipped"),
    "replay only": _one_of("compute", "comms", "all"),
    "fail_if": _one_of("slower", "faster", "undecided"),
    "fail_on": _one_of("slower", "failed", "unconfirmed", "missing", "undecided", "none"),
    "framework": _one_of("torch", "numpy"),
    "rank by": _one_of("operator", "dtype", "size", "case"),
    "coverage by": _one_of("framework", "backend"),
    "format": _one_of("table", "md", "json"),
    "show format": _one_of("table", "md", "csv", "json", "jsonl", "parquet"),
    "query format": _one_of("table", "md", "csv", "json", "jsonl", "parquet"),
    "report format": _one_of("html", "md", "pdf"),
    "import format": _formats,
    "export format": _formats,
    "tuned format": _formats,
}
"""By the name of a parameter, or of a command and its parameter: how to find its values, each with a short text."""
