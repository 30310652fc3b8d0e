"""The typer application. Only the module of the given command is imported, and none for `opmark --help`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from opmark.cli.completion import completion_item, with_completion
from opmark.cli.help_text import COMMON, COMPLETE_VARIABLE, EXAMPLES, REST, SUMMARY
from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command
from opmark.errors import UserError, nearest

COMMANDS = {
    "run": ("run", "Measure operators; print a table, store a run."),
    "list": (
        "list_",
        "List operators, models, suites, backends, quantities, formats, data sets, chips."
        "\n\nThe list of backends says whether they can run here.",
    ),
    "describe": (
        "describe",
        "Describe an operator, a quantity or a chip."
        "\n\nAn operator has parameters, presets, cost and implementations.",
    ),
    "show": ("show", "Print a stored run, or write it to a file."),
    "runs": ("runs", "List the runs of a store, newest first; label and describe them."),
    "report": (
        "report",
        "Make one file of runs, to read and to send."
        "\n\nIt has failures, figures and every case; for several runs, what got slower.",
    ),
    "compare": (
        "compare",
        "Is B faster or slower than A? Compares stored runs.\n\nTwo runs, or two backends of one, case by case.",
    ),
    "check": (
        "check",
        "Has anything become slower than the baseline? A gate."
        "\n\nExit code 1 only where it is slower when measured again."
        "\n\nChecks a stored run (--run), or measures what is asked for as `opmark run` would.",
    ),
    "ab": (
        "ab",
        "Is B faster or slower than A? Measures both in turns."
        "\n\nThe sides differ in one thing: --backend, --impl, --python or --threads with two values, --env, --rev or "
        "--same says in what.",
    ),
    "corun": (
        "corun",
        "Does it pay to run operators at the same time?"
        "\n\nHow much each is slowed down beside each other one, and the time of all together against one after the "
        "other. With --tune, cores, threads and knobs are searched together.",
    ),
    "judge": (
        "judge",
        "Is a kernel correct, and faster than a baseline?"
        "\n\nNobody has to trust it: it runs in a process of its own, without a way to the clock, the reference or the "
        "verdict. Exit code 1 if it is not accepted.",
    ),
    "bisect": (
        "bisect",
        "Which commit or version made it slower?"
        "\n\n`git bisect` with a measured verdict, in a worktree of its own; or versions of a --package.",
    ),
    "capture": (
        "capture",
        "What does a PyTorch program compute? Captures its calls."
        "\n\nRuns the program as python would, and writes an execution trace and times of some of its steps. "
        "With --top: its operators by share of time, on one screen.",
    ),
    "extract": (
        "extract",
        "Which operators does a model call, and how often?"
        "\n\nA workload of its distinct operators, with shapes, element types, layouts and counts.",
    ),
    "ledger": (
        "ledger",
        "Which operators of a model are worth optimising?"
        "\n\nOperators, measured one by one, beside the whole model: share of its time, distance from the roofline, "
        "gain. Shows a stored run, or measures a model with its operators.",
    ),
    "space": (
        "space",
        "Which knobs does an operator have, and which values?"
        "\n\nThe space of configurations that can be tuned, without tuning it: knobs, values, rules, size, and how a "
        "number becomes a configuration.",
    ),
    "tune": (
        "tune",
        "Which configuration is the fastest, and is it worth it?"
        "\n\nSearches the knobs of operators, workloads or models on one backend. Every candidate is verified. It ends "
        "with default, tuned and vendor library measured in turns; what is not surely faster is not kept.",
    ),
    "tuned": (
        "tuned",
        "What was tuned, for which shapes, and does it still hold?"
        "\n\n`--backend NAME/tuned` of other commands applies it. `tuned export -o FILE` and `tuned import FILE` carry "
        "it to other machines.",
    ),
    "schedule": (
        "schedule",
        "Which operators to run beside each other, and what does it gain?"
        "\n\nPredicts schedules of a model or a trace from measured times, runs the best one, verifies it, and "
        "compares it with the sequential one in turns. Over several devices, from tables of times: equilibrium and "
        "optimum.",
    ),
    "factors": (
        "factors",
        "What decides the time of an operator: sizes, types, threads, knobs, placement?"
        "\n\nVaries one thing at a time and in pairs, more finely where the time bends. Share of the variance, "
        "interactions, knees and turning points, each with its interval. --list: what can be varied here.",
    ),
    "replay": (
        "replay",
        "How long does a recorded program take here?"
        "\n\nReplays the calls of a trace as one launch. Says what is covered and what not, and compares replayed with "
        "recorded time per operator.",
    ),
    "predict": (
        "predict",
        "How long would it take on a chip, without running it?"
        "\n\nTime and a 90 % interval, learnt from the store or from tables; with both baselines.",
    ),
    "evaluate": (
        "evaluate",
        "How accurate is a model on labelled data, on each backend?"
        "\n\nEvery figure has an interval, and is compared with the reference on the same samples.",
    ),
    "nightly": (
        "nightly",
        "Measure, gate, bisect and report every night, from one file."
        "\n\nSafe to start twice; goes on after a kill, and catches up after a missed night. Exit code 1 if something "
        "is slower, failed, or could not be measured.",
    ),
    "rank": (
        "rank",
        "Which implementation is the fastest, and where?"
        "\n\nRanks what was measured and verified, by chip, phase and threads.",
    ),
    "fit": (
        "fit",
        "Fit latency and bandwidth to communication over its sizes.\n\ntime = alpha + size / beta, from a stored run.",
    ),
    "history": (
        "history",
        "Since when is it slower or faster, and what changed then?\n\nFinds change points over stored runs.",
    ),
    "doctor": (
        "doctor",
        "Is this machine fit to measure on, and what to do next?"
        "\n\nWhat it has, what runs, what would disturb; with --aa, its noise.",
    ),
    "fleet": (
        "fleet",
        "Nodes of a Ray cluster: what they have, and who measures there."
        "\n\nAlso why a node takes no work, and whether nodes of one kind agree.",
    ),
    "calibrate": (
        "calibrate",
        "Measure this machine's peaks, for the column `of peak`."
        "\n\nBandwidth of memory and caches, FLOP/s by dtype, launch cost.",
    ),
    "coverage": (
        "coverage",
        "Which operators of a framework can be measured, and how?"
        "\n\nOr the operators that each backend has.",
    ),
    "model": (
        "model",
        "Look at whole models: where can they be used, and which layer differs?"
        "\n\nA matrix of models and backends (exported, compiled, ran, right), and the first layer that differs.",
    ),
    "env": ("env", "Environments for frameworks that cannot share this one."),
    "import": (
        "import_",
        "Convert another system's file to opmark's format."
        "\n\nA workload or a hardware file. Exit code 1: a part was not understood.",
    ),
    "export": (
        "export",
        "Write a run or a workload in another system's format.\n\nA stored run also as a table.",
    ),
    "query": ("query", "Query the store in SQL, read-only.\n\n--views lists the views and their columns."),
    "merge": ("merge", "Copy the runs of other stores into this one.\n\nThose that it has already are left out."),
    "push": (
        "push",
        "Send runs to a dashboard.\n\nIt ignores records that it has already; the local store stays as it is.",
    ),
    "prune": (
        "prune",
        "Remove runs with their records for good, after listing them.\n\nA run is removed if it is named (if any are) "
        "and fits every option.",
    ),
    "serve": ("serve", "Serve a dashboard over a store, until Ctrl-C.\n\nPages for people and JSON for programs."),
}  # fmt: skip
"""By command: its module in this package, with a function or a group of commands of the same name, and its help."""

PANELS = {
    "Measure": (
        "run", "corun", "list", "describe", "coverage", "factors", "judge", "capture", "replay", "extract", "ledger",
        "evaluate", "predict",
    ),
    "Tune": ("space", "tune", "tuned", "schedule"),
    "Compare": ("compare", "ab", "check", "bisect", "nightly", "rank", "history"),
    "Look at results, keep and share them": (
        "show", "runs", "report", "model", "serve", "query", "fit", "merge", "push", "prune"
    ),
    "This machine, and others": ("doctor", "calibrate", "env", "fleet"),
    "Other systems": ("import", "export", *FOREIGN_COMMANDS),
}  # fmt: skip
"""Commands by task, in the order of `opmark --help`."""

# The base of click's errors about a command line. Newer versions of typer bring a click of their own.
_UsageError: Any = typer.BadParameter.__mro__[1]


class PanelCommand(TyperCommand):
    """A command whose help has its options in panels, the common ones first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            is_argument = param.param_type_name == "argument"
            if record is not None:
                title = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or REST
                panels.setdefault(title, []).append(record)
        shown = sorted(panels, key=lambda title: (title != "Arguments", title != COMMON, title == REST))
        for title in shown:
            with formatter.section(title if title != REST or COMMON in panels else "Options"):
                formatter.write_dl(panels[title])


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
        examples = "\n  ".join(("\b\nExamples:", *EXAMPLES[cmd_name]))
        found: Any = getattr(import_module(f"opmark.cli.{module}"), module)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=cmd_name, help=text, epilog=examples)
            return with_completion(typer.main.get_group(app).commands[cmd_name])
        app.command(
            cmd_name, cls=PanelCommand, help=text, epilog=examples,
            context_settings=getattr(found, "context_settings", None),
        )(found)  # fmt: skip
        return with_completion(typer.main.get_command(app))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by task with their help, without importing them."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in PANELS.items():
            with formatter.section(title):
                texts = [(COMMANDS | FOREIGN_COMMANDS)[name][1].partition("\n")[0] for name in names]
                formatter.write_dl([(name.ljust(width), text) for name, text in zip(names, texts, strict=True)])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete names of commands without importing them."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [completion_item(name, (COMMANDS | FOREIGN_COMMANDS)[name][1].partition("\n")[0]) for name in names]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _explained():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _explained():
            return super().invoke(ctx)


_PARAMETERS = ("--dtype", "--shape")
"""Parameters of most operators, which are often taken for options."""


@contextmanager
def _explained() -> Iterator[None]:
    """Say what is wrong with a command line, and that it was interrupted, which typer would not say."""
    try:
        yield
    except _UsageError as error:
        raise _explain(error) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from None


def _explain(error: Any) -> Exception:
    """Return a mistake in the command line as an error of opmark. A command that only prints its help without arguments
    is no mistake."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error  # type: ignore[no-any-return]
    path = error.ctx.command_path if error.ctx else "opmark"
    message, near = error.format_message().rstrip("."), None
    if hasattr(error, "possibilities"):
        message, near = f"no option {error.option_name}", nearest(error.option_name, error.possibilities or ())
        if error.option_name in _PARAMETERS and any("-p" in param.opts for param in error.ctx.command.params):
            near = f"-p {error.option_name.removeprefix('--')}=..."
    elif mistyped := re.fullmatch(r"No such command '(.+)'", message):
        near = nearest(mistyped[1], [*COMMANDS, *FOREIGN_COMMANDS])
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
        help=SUMMARY,
    )
    app.callback(invoke_without_command=True)(_options)
    if COMPLETE_VARIABLE in os.environ:  # a shell asks
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    return app


def _options(
    version: bool = typer.Option(False, "--version", help="Print the version."),
    completion: str = typer.Option(
        "", metavar="SHELL", help='Print what makes bash, zsh or fish complete: eval "$(opmark --completion bash)".'
    ),
) -> None:
    if version:
        from opmark.version import VERSION

        print(VERSION)
        raise typer.Exit
    if completion:
        from opmark.cli.completion import completion_script

        print(completion_script(completion))
        raise typer.Exit
