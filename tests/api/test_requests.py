"""One request: every option is defined once, and the command line, Python and the reference page follow from it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.api.ab import ab
from opmark.api.bisect import bisect
from opmark.api.check import check
from opmark.api.compare import compare
from opmark.api.program_requests import CorunRequest, ScheduleRequest
from opmark.api.report import make_report
from opmark.api.requests import (
    ABRequest,
    BisectRequest,
    CheckRequest,
    CompareOptions,
    CompareRequest,
    FactorsRequest,
    PlanRequest,
    ProfileOptions,
    ReportRequest,
    RunRequest,
    TuneRequest,
    TurnOptions,
)
from opmark.api.run import plan, profiling_of, run
from opmark.cli.ab import ab as ab_command
from opmark.cli.bisect import bisect as bisect_command
from opmark.cli.check import check as check_command
from opmark.cli.compare import compare as compare_command
from opmark.cli.options import reference_page
from opmark.cli.report import report as report_command
from opmark.cli.run import run as run_command
from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.runner.profilers.profile_run import Profiling
from opmark.schema import EFFORTS
from opmark.schema.options import MeasureOptions, Selection, duration_text, options_of, read_duration

ROOT = Path(__file__).parents[2]
REQUESTS: dict[str, Any] = {
    "run": RunRequest, "plan": PlanRequest, "ab": ABRequest, "check": CheckRequest, "bisect": BisectRequest,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "run": run, "plan": plan, "ab": ab, "check": check, "bisect": bisect,
}  # fmt: skip
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run_command, "ab": ab_command, "check": check_command, "bisect": bisect_command,
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_function_has_the_signature_of_its_request(name: str) -> None:
    function, fields = FUNCTIONS[name], {field.name: field for field in dataclasses.fields(REQUESTS[name])}
    found = inspect.signature(function).parameters
    assert found.keys() == fields.keys()
    assert {parameter.default for parameter in found.values()} == {field.default for field in fields.values()}
    options = options_of(REQUESTS[name])
    assert {key: found[key].annotation for key in options} == {key: option.type for key, option in options.items()}
    kinds = {parameter.name: parameter.kind for parameter in found.values()}
    assert [key for key, kind in kinds.items() if kind != inspect.Parameter.KEYWORD_ONLY] == ["ops"]


@pytest.mark.parametrize(
    ("function", "command", "request_type"),
    [(compare, compare_command, CompareRequest), (make_report, report_command, ReportRequest)],
)
def test_commands_that_compare_stored_runs_share_their_options(
    function: Callable[..., Any], command: Callable[..., None], request_type: Any
) -> None:
    fields, options = [field.name for field in dataclasses.fields(request_type)], options_of(request_type)
    assert sorted(inspect.signature(function).parameters) == sorted(fields)
    assert options_of(CompareOptions).keys() < options.keys() <= inspect.signature(command).parameters.keys()
    arguments = [name for name, found in options.items() if found.option.argument]
    assert list(inspect.signature(command).parameters)[: len(arguments)] == arguments
    with pytest.raises(InvalidParameter, match="margin: expected a share from 0 to below 1, got 2"):
        function(*["main"] * len(arguments), margin=2.0)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_every_option_of_its_request(name: str) -> None:
    assert options_of(REQUESTS[name]).keys() <= inspect.signature(COMMANDS[name]).parameters.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_commands_that_measure_share_their_options(name: str) -> None:
    """`check` once lacked `--ranks`, `--mode` and `--timer`."""
    shared = {*options_of(Selection), *options_of(MeasureOptions)}
    assert shared <= options_of(REQUESTS[name]).keys()
    assert {"ranks", "mode", "timer"} <= shared


@pytest.mark.parametrize("request_type", [*REQUESTS.values(), ProfileOptions])
def test_every_option_has_help_and_a_default_that_is_allowed(request_type: Any) -> None:
    for name, option in options_of(request_type).items():
        assert option.option.help.strip(), name
        option.check(option.default)


def test_an_option_has_one_type_wherever_it_stands() -> None:
    known: dict[str, Any] = {}
    for request_type in REQUESTS.values():
        for name, option in options_of(request_type).items():
            assert known.setdefault(name, option.type) == option.type


@pytest.mark.parametrize("name", REQUESTS)
def test_a_number_out_of_range_is_refused_with_what_was_expected(name: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        FUNCTIONS[name]("matmul", min_samples=-3)
    assert caught.value.message == "min_samples: expected a whole number from 1 to 10000000, got -3"
    assert caught.value.hint == "as in --min-samples 30"


def test_the_least_number_of_samples_reaches_the_plan() -> None:
    (task,) = opmark.plan("add", backend="null", threads=1, effort="quick", min_samples=77).tasks
    assert task.settings.sampling.min_samples == 77
    assert EFFORTS["quick"].min_samples != 77


@pytest.mark.parametrize("name", REQUESTS)
def test_a_keyword_that_does_not_exist_is_named_with_the_nearest(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'efort'; did you mean 'effort'"
    ):
        FUNCTIONS[name]("matmul", efort="quick")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "quik"}, "no effort named `quik`"),
        ({"effort": ""}, "no effort named ``"),
        ({"phase": "backwards"}, "no phase named `backwards`"),
        ({"quantity": ["latency", "tie"]}, "no quantity named `tie`"),
        ({"threads": 0}, "threads: expected a whole number from 1 to 4096, got 0"),
        ({"ranks": [2, 1.5]}, "ranks: expected a whole number from 1 to 65536, got 1.5"),
        ({"verify": "no"}, "verify: expected True or False, got 'no'"),
        ({"rel_ci": "narrow"}, "rel_ci: expected a fraction of the median above 0 and up to 1, got 'narrow'"),
        ({"max_time": float("inf")}, "max_time: expected seconds above 0 and up to 1e+06, got inf"),
        ({"label": "a\nb"}, r"label: expected printable text, got 'a\nb'"),
    ],
)
def test_every_option_is_checked_before_anything_is_done(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        opmark.run("matmul", **options)
    assert caught.value.message == message


def test_a_baseline_and_a_good_revision_have_to_be_named() -> None:
    with pytest.raises(UserError, match="no baseline is named"):
        opmark.check("add")
    with pytest.raises(UserError, match="--good names a revision that was fast"):
        bisect("add")


def test_a_stored_run_is_checked_without_options_of_measuring() -> None:
    with pytest.raises(UserError, match="--effort is for what is measured now"):
        opmark.check(baseline="main", current="pull", effort="quick")


def test_sides_are_measured_in_short_processes() -> None:
    assert (ABRequest().effort, BisectRequest().effort, CheckRequest().effort) == ("quick", "quick", "standard")


def test_a_profile_has_the_same_defaults_in_python_and_on_the_command_line() -> None:
    assert profiling_of(ProfileOptions()) is None
    assert profiling_of(ProfileOptions(profiler="trace")) == Profiling("trace")


def test_the_reference_page_is_what_the_options_are() -> None:
    """To write it anew: python -c "from opmark.cli.options import reference_page as r; print(r())" > docs/options.md"""
    assert (ROOT / "docs" / "options.md").read_text() == reference_page() + "\n"


def test_unknown_names_are_a_users_mistake() -> None:
    assert issubclass(UnknownName, UserError)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5 m", 90), ("10min", 600), ("2h", 7200), ("1e-3", 1e-3)]
)
def test_a_duration_is_written_the_same_way_everywhere(text: str, seconds: float) -> None:
    assert read_duration(text) == pytest.approx(seconds)
    for request in (TuneRequest, FactorsRequest, TurnOptions, CorunRequest, CheckRequest):
        made: Any = request(budget=text)  # type: ignore[call-arg]
        assert made.budget == pytest.approx(seconds)
    assert ScheduleRequest(search=text, timeout=text).search == pytest.approx(seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["soon", "10 hours", "", "m", "1d"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidParameter, match="expected a duration, got") as refused:
        read_duration(text, "--budget")
    assert "90s, 10m or 2h" in str(refused.value.hint)


def test_what_is_no_duration_is_refused_by_the_name_with_the_flag_in_the_hint() -> None:
    with pytest.raises(InvalidParameter, match=r"^compile_timeout: expected a duration, got `soon`") as refused:
        RunRequest(compile_timeout="soon")  # type: ignore[arg-type]
    assert refused.value.hint == "as in --compile-timeout 90s, 10m or 2h"


@pytest.mark.parametrize("text", ["0s", "-1", "inf", "nan"])
def test_a_duration_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="budget: expected seconds above 0"):
        TuneRequest(budget=text)  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "text"), [(60.0, "1m"), (90.0, "90s"), (7200.0, "2h"), (0.5, "0.5s")])
def test_a_duration_is_shown_as_people_type_it(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert read_duration(text) == seconds
