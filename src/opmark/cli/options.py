"""Options of the command line: made from the fields of requests, or shared by commands that have no request."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from opmark.api.requests import ProfileOptions, RunRequest, TurnOptions
from opmark.cli.help_text import COMMON
from opmark.cli.output import split
from opmark.errors import InvalidParameter, UserError
from opmark.schema.options import (
    LONGEST,
    ExecutorOptions,
    MeasureOptions,
    OptionField,
    Selection,
    StoreOptions,
    duration_text,
    options_of,
    read_duration,
)

Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Every column in whole lines, however narrow the terminal is, and the samples as a sparkline.",
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours, as with $NO_COLOR; a pipe or file gets none.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Db = Annotated[str | None, typer.Option(help=options_of(StoreOptions)["db"].option.help)]

Allow = Annotated[list[str] | None, typer.Option(help=options_of(Selection)["allow"].option.help)]

_LISTS = ("names", "numbers", "rates", "texts", "params")


def takes(*requests: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command whose first arguments are requests, so that their options become options of the command line.

    typer reads the signature that is made here. The command gets the requests as objects, and its other options as
    it declares them.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(*(make_request(request, given) for request in requests), **{name: given[name] for name in own})

        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters)[len(requests) :]
        parameters: list[inspect.Parameter] = []
        for request in requests:
            # Arguments come first, then the options of this command alone, then those that it shares with others.
            alone, fields = inspect.get_annotations(request), list(options_of(request).values())
            fields.sort(key=lambda one: (one.option.argument is None, one.name not in alone))
            parameters += [_parameter(one, _panel(request, one.name)) for one in fields]
        parameters += [
            parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(function).parameters.items() if name in own
        ]  # fmt: skip
        command.__name__ = function.__name__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


_USUAL = ("workload", "suite", "params", "size", "phase", "backend", "threads", "effort", "label")
"""Options of the shared classes that most command lines have."""
_LOAD = ("clients", "arrival", "rate", "requests", "request_timeout")
_PANELS = {
    Selection: "Which cases",
    MeasureOptions: "How to measure",
    TurnOptions: "How to measure",
    RunRequest: "How to measure",
    StoreOptions: "Where it is kept",
    ExecutorOptions: "On a fleet",
    ProfileOptions: "A profiler",
}


def _panel(request: type, name: str) -> str:
    """Return the panel of the help in which an option of a request stands. Options that a command has for itself come
    with the common ones."""
    owner = next(one for one in request.__mro__ if name in inspect.get_annotations(one))
    if owner is MeasureOptions and name in _LOAD:
        return "Under load"
    return COMMON if name in _USUAL else _PANELS.get(owner, COMMON)


def _parameter(found: OptionField, panel: str) -> inspect.Parameter:
    """Return the parameter from which typer makes the option."""
    kind, default = found.type, found.default
    if found.form in _LISTS:
        kind, default = list[str] | None, None
    elif found.form == "share":
        kind, default = (str | None, None) if default is None else (str, f"{100 * default:g}%")
    elif found.form == "duration":
        kind, default = (str | None, None) if default is None else (str, duration_text(default))
    elif found.form == "path":
        kind = Path | None
    elif found.form == "yaml" or str in found.members:
        kind = str | None if default is None else str
    flags = found.option.flags or ((found.flag,) if kind is bool and not default else ())
    if found.option.argument:
        option = typer.Argument(help=found.option.help, metavar=found.option.argument)
    else:
        option = typer.Option(*flags, help=found.option.help, rich_help_panel=panel)
    return inspect.Parameter(
        found.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, option],
    )


def make_request(request: type, given: Mapping[str, Any]) -> Any:
    """Make a request from the texts of the command line; an option that was not given keeps its default."""
    from opmark.api import requests

    values: dict[str, Any] = {}
    for name, found in options_of(request).items():
        text = given[name]
        if text is None:
            continue
        if found.form == "names":
            values[name] = split(text)
        elif found.form == "numbers":
            values[name] = whole_numbers(split(text), found.flag)
        elif found.form == "rates":
            values[name] = rates(split(text), found.flag)
        elif found.form == "share":
            values[name] = share(text, found.flag.removeprefix("--"))
        elif found.form == "params":
            values[name] = requests.parse_params(_operators_of(given), text)
        elif found.form == "yaml":
            values[name] = requests.parse_call(name, text)
        else:
            values[name] = text
    return request(**values)


def _operators_of(given: Mapping[str, Any]) -> list[str]:
    """Return the operators whose parameters `-p` gives."""
    from opmark.api.requests import model_name

    if "ops" in given:
        return split(given["ops"] or [])
    if "model" in given:
        return [model_name(given["model"])]
    if "program" in given:
        named = list(given["program"] or [])[:1]
        if named and ":" not in named[0] and named[0].endswith((".json", ".yaml", ".yml")):
            raise UserError(f"-p goes with a model or a trace; {named[0]} brings its own parameters", "leave -p out")
        return named
    return [given["like"]] if "like" in given else [given["what"] or ""]


def duration(flag: str, *, zero: bool = False) -> Callable[[str | float], float]:
    """Return what reads the seconds of an option that belongs to no request. `zero`: whether it may be none."""

    def read(value: str | float) -> float:
        found = read_duration(value, flag) if isinstance(value, str) else value
        if not (0 < found <= LONGEST or (zero and found == 0)):
            raise InvalidParameter(
                f"{flag}: expected seconds {'from' if zero else 'above'} 0 and up to {LONGEST:g}, got {found:g}",
                f"as in {flag} 90s or {flag} 10m",
            )
        return found

    return read


def whole_numbers(values: list[str], option: str) -> list[int]:
    for value in values:
        if not value.isdecimal():
            raise InvalidParameter(f"{option}: expected whole numbers, got `{value}`", f"as in {option} 1,2")
    return [int(value) for value in values]


def rates(values: list[str], option: str) -> list[float]:
    try:
        return [float(value) for value in values]
    except ValueError:
        raise InvalidParameter(
            f"{option}: expected numbers, got `{','.join(values)}`", f"as in {option} 50,100"
        ) from None


def share(text: str, option: str) -> float:
    """Parse a share from 0 to below 1: `0.03` and `3%` are the same."""
    number, scale = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        value = float(number) / scale
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise InvalidParameter(
            f"--{option}: expected a share from 0 to below 1, or in percent, got `{text}`",
            f"as in --{option} 0.03 or --{option} 3%",
        )
    return value


def reference_page() -> str:
    """Return the text of docs/options.md: every option of the commands that measure."""
    from opmark.api import program_requests, requests
    from opmark.schema import options as shared

    sections: tuple[tuple[str, type], ...] = (
        ("Which cases: `run`, `ab`, `check`, `bisect`", shared.Selection),
        ("How to measure: `run`, `ab`, `check`, `bisect`", shared.MeasureOptions),
        ("Where it is kept: `run`, `ab`, `check`, `bisect`", shared.StoreOptions),
        ("On a fleet: `run`, `ab`", shared.ExecutorOptions),
        ("`run` alone", requests.RunRequest),
        ("A profiler: `run` on the command line; Python takes `profile=Profiling(...)`", requests.ProfileOptions),
        ("`ab` and `bisect`, measured in turns", requests.TurnOptions),
        ("`ab` alone", requests.ABRequest),
        ("`bisect` alone", requests.BisectRequest),
        ("`check` alone", requests.CheckRequest),
        ("`nightly`", requests.NightlyRequest),
        ("`judge`", requests.JudgeRequest),
        ("`capture`", program_requests.CaptureRequest),
        ("`extract`", program_requests.ExtractRequest),
        ("`space`, beside which cases", requests.SpaceRequest),
        ("`tune`, beside which cases, how to measure and where it is kept", requests.TuneRequest),
        ("`corun`, beside where it is kept", program_requests.CorunRequest),
        ("`schedule`", program_requests.ScheduleRequest),
        ("`factors`, beside which cases, how to measure and where it is kept", requests.FactorsRequest),
        ("`evaluate`, beside where it is kept", program_requests.EvaluateRequest),
        ("`replay`, beside how to measure and where it is kept", program_requests.ReplayRequest),
        ("`ledger`, beside how to measure and where it is kept", program_requests.LedgerRequest),
    )
    lines = [
        "# Options of the commands that measure",
        "",
        "This page is made from the definitions in `opmark/schema/options.py`, `opmark/api/requests.py` and",
        "`opmark/api/program_requests.py`; a test compares it with them. An option of the command line has the same",
        "name in Python: `--rel-ci 0.01` is `opmark.run(..., rel_ci=0.01)`. Where several values are allowed, the",
        "command line takes them with commas between them or one by one, and Python takes a text with commas or a",
        "list. A duration is a number of seconds, or a text such as `90s`, `10m` or `2h`, in both.",
    ]
    for title, request in sections:
        lines += ["", f"## {title}", "", "| option | keyword | default | allowed | meaning |", "|---|---|---|---|---|"]
        lines += [
            _reference_row(found)
            for found in options_of(request).values()
            if found.name in inspect.get_annotations(request)
        ]
    return "\n".join(lines)


def _reference_row(found: OptionField) -> str:
    named = ", ".join(found.option.flags or (found.flag,))
    flags = "OPERATOR ..." if found.name == "ops" else found.option.argument or named
    in_help = re.search(r" ?\[default: (.*)\]", found.option.help)
    usual = duration_text(found.default) if found.form == "duration" and found.default else str(found.default)
    default = in_help[1] if in_help else "" if found.default in (None, "", (), MISSING) else usual
    meaning = found.option.help.replace(in_help[0], "") if in_help else found.option.help
    return "| " + " | ".join(
        text.replace("|", "\\|") for text in (f"`{flags}`", f"`{found.name}`", default, found.option.range, meaning)
    ) + " |"  # fmt: skip
