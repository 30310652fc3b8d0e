"""The tables of `python -m benchmarks.tuning tables --device cuda`, measured here on a backend of the CPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import tuning, tuning_device
from worker_fixtures import add_to_path

from opmark.plugin import registry
from opmark.schema import Task
from opmark.tuning.spaces import Tunable

KNOBS = Path(__file__).parent / "helpers" / "knobs"


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Tunable]]:
    add_to_path(KNOBS, monkeypatch)

    def case_with(faults: str) -> Tunable:
        monkeypatch.setenv("OPMARK_KNOBS", faults)
        found = tuning.find_case("knobs-cpu", "exp", {"shape": [8, 4]})
        assert found is not None
        return found

    yield case_with
    registry.forget()


@pytest.fixture
def lanes(knobs: object) -> Iterator[Callable[[], tuning_device.Lanes]]:
    opened: list[tuning_device.Lanes] = []

    def begin() -> tuning_device.Lanes:
        opened.append(tuning_device.Lanes("knobs-cpu", 2))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def _job(tunable: Tunable, cache: Path, most: int | None = None) -> tuning_device.Job:
    settings = tuning.settings_of(tunable.backend, 1)
    return tuning_device.Job(
        Task(tunable.case, "knobs-cpu", tunable.implementation.label, settings), most, str(cache)
    )  # fmt: skip


def test_a_table_is_measured_and_goes_on(
    knobs: Callable[[str], Tunable], lanes: Callable[[], tuning_device.Lanes], tmp_path: Path
) -> None:
    tunable, file = knobs(""), tmp_path / "table.json"
    begun = lanes()
    assert "left" in tuning.measure_device_table(tunable, 24, file, begun, tmp_path, time.monotonic() - 1)
    assert tuning.measure_device_table(tunable, 24, file, begun, tmp_path, time.monotonic() + 60) == ""
    table = tuning._read_table(file, tunable, tuning.part_of(tunable, 24))
    assert set(table.times) == set(table.space.allowed()) == set(table.costs)
    assert all(len(turns) == tuning.TURNS for turns in table.turns.values())
    text = file.read_text()
    assert tuning.measure_device_table(tunable, 24, file, begun, tmp_path, time.monotonic() - 1) == ""
    assert file.read_text() == text


@pytest.mark.parametrize(("fault", "reason"), [("crash", "process died"), ("refuse", "refuses"), ("wrong", "")])
def test_what_fails_is_a_reason_and_the_rest_goes_on(
    fault: str,
    reason: str,
    knobs: Callable[[str], Tunable],
    lanes: Callable[[], tuning_device.Lanes],
    tmp_path: Path,
) -> None:
    tunable, file = knobs(fault), tmp_path / "table.json"
    assert tuning.measure_device_table(tunable, None, file, lanes(), tmp_path, time.monotonic() + 120) == ""
    table = tuning._read_table(file, tunable, tuning.part_of(tunable, None))
    failed = {number for number, seconds in table.times.items() if seconds is None}
    bad = 4 if fault == "wrong" else 8
    assert failed == {number for number in table.times if table.space.at(number)["unroll"] == bad} == set(table.reasons)
    assert all(reason in one for one in table.reasons.values())


def test_a_configuration_that_hangs_is_ended(
    knobs: Callable[[str], Tunable],
    lanes: Callable[[], tuning_device.Lanes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tunable = knobs("hang")
    monkeypatch.setattr(tuning_device, "_PATIENCE", 8.0)
    job = _job(tunable, tmp_path)
    numbers = [tunable.space.index({**tunable.space.default, "unroll": unroll}) for unroll in (8, 1)]
    found = lanes().build(job, numbers, time.monotonic() + 60)
    assert "8 s" in found[numbers[0]].reason
    assert found[numbers[1]].reason == ""


class _Config:
    """As in Triton."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps, "num_ctas": 1, "num_stages": self.num_stages}


class _Autotuner:
    """What Triton's does with the function: times the first call of each configuration, which builds, as well."""

    def __init__(self, fn: Any, configs: list[_Config]) -> None:
        assert list(fn.arg_names) == []
        assert not hasattr(fn.fn, "__self__")  # Triton looks for a plain function
        self._fn, self._configs = fn, configs

    def run(self) -> Any:
        timings = {config: self._fn.run(**config.all_kwargs()) is None for config in self._configs}
        self.best_config = min(timings, key=lambda config: config.kwargs["unroll"])
        return self._fn.run(**self.best_config.all_kwargs())


def test_the_autotuner_of_triton_gets_the_same_configurations(
    knobs: Callable[[str], Tunable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decorate(configs: list[_Config], key: list[str]) -> Callable[[Any], _Autotuner]:
        return lambda fn: _Autotuner(fn, configs)

    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(Config=_Config, autotune=decorate))
    monkeypatch.setattr(tuning_device, "_bench", None)
    tunable = knobs("")
    numbers = list(tuning.part_of(tunable, 24).allowed())
    with monkeypatch.context() as context:
        context.setenv("OPMARK_COMPILE_CACHE", "")
        context.setenv("TRITON_CACHE_DIR", "")
        found = tuning_device.autotune(_job(tunable, tmp_path, 24), numbers)
    assert isinstance(found, dict), found
    assert found["configurations"] == len(numbers)
    assert found["choice"] in numbers


def test_an_autotuner_that_failed_is_asked_again_and_one_that_has_chosen_is_not(
    knobs: Callable[[str], Tunable], tmp_path: Path
) -> None:
    tunable, file, until = knobs(""), tmp_path / "table.json", time.monotonic() + 60
    answers: list[Any] = ["it took more than 5 s", {"choice": 1, "seconds": 2.0, "configurations": 3}]
    lanes: Any = SimpleNamespace(build=lambda *_: {}, autotune=lambda *_: answers.pop(0))
    found = [tuning.autotune_table(tunable, 24, file, lanes, tmp_path, until) for _ in range(3)]
    assert (found, answers) == (["it took more than 5 s", "", ""], [])
    table = tuning._read_table(file, tunable, tuning.part_of(tunable, 24))
    assert table.autotune == {"choice": 1, "seconds": 2.0, "configurations": 3}


def test_the_tables_of_a_device_end_with_a_line_for_each(
    knobs: Callable[[str], Tunable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunable = knobs("")

    def fail(*_: object) -> str:
        raise ValueError("planted")

    given = SimpleNamespace(processes=2, most=12, out=tmp_path)
    said: list[str] = []
    outcomes = tuning.device_tables([tunable], given, time.monotonic() + 60, said.append)  # type: ignore[arg-type]
    assert list(outcomes.values()) == [""]
    monkeypatch.setattr(tuning, "measure_device_table", fail)
    outcomes = tuning.device_tables([tunable], given, time.monotonic() + 60, said.append)  # type: ignore[arg-type]
    assert list(outcomes.values()) == ["ValueError: planted"]
    assert "goes on" in said[-1]


def test_a_process_that_cannot_start_is_said(knobs: Callable[[str], Tunable]) -> None:
    with pytest.raises(RuntimeError, match="nothing-cpu"), closing(tuning_device.Lanes("nothing-cpu", 1)):
        pass
