"""Between two starts: the lock, the state, and which nights and parts are due."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from opmark.api import nightly_state
from opmark.api.nightly_file import NightlyPlan, read_nightly
from opmark.api.nightly_state import choose_night, hold_lock, parts_due, read_state, write_state
from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.schema.nightly import Night, NightlyState, NightRun

NOW = datetime.now(timezone.utc)
DAY = date(2030, 1, 10)


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., NightlyPlan]:
    def make(**job: Any) -> NightlyPlan:
        path = tmp_path / "nights.yaml"
        data = {"schema": 1, "jobs": [{"name": "small", "ops": ["exp"], "size": "small", "backend": "null", **job}]}
        path.write_text(yaml.safe_dump(data))
        return read_nightly(path)

    return make


def night(day: date, *parts: str, finished: bool = True, started: datetime = NOW) -> Night:
    runs = [NightRun("small", "nightly", part, run="20300101-000000-aaaa") for part in parts]
    return Night(
        day.isoformat(), started.isoformat(), "nightly", runs, finished=started.isoformat() if finished else ""
    )


def test_the_second_start_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with (
        hold_lock(tmp_path / "nights"),
        pytest.raises(UserError, match=f"a night is running already: process {os.getpid()} on .*, since "),
        hold_lock(tmp_path / "nights"),
    ):
        pass
    with hold_lock(tmp_path / "nights"):
        assert str(os.getpid()) in (tmp_path / "nights" / "lock").read_text()


def test_the_state_is_kept_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert read_state(tmp_path) == NightlyState()
    state = NightlyState([night(DAY, "1/3")], ["a change"])
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(InvalidFile, match=r"state.json: is damaged"):
        read_state(tmp_path)


def test_a_night_is_begun_once_and_again_only_on_demand(plan: Any) -> None:
    state = NightlyState()
    first, begun = choose_night(plan(), state, "2030-01-10", again=False)
    assert (first.date, begun, [run.label for run in first.runs]) == ("2030-01-10", False, ["nightly"])
    state.nights.append(first)
    assert choose_night(plan(), state, "2030-01-10", again=False) == (first, True)
    first.finished = NOW.isoformat()
    assert choose_night(plan(), state, "2030-01-10", again=False) == (first, True)
    other, begun = choose_night(plan(), state, "2030-01-10", again=True)
    assert (other is first, begun, other.missed) == (False, False, [])


def test_an_unfinished_night_goes_on_after_midnight_and_is_missed_a_day_later(plan: Any) -> None:
    yesterday = NOW.date() - timedelta(days=1)
    late = night(yesterday, "", finished=False, started=NOW - timedelta(hours=3))
    assert choose_night(plan(), NightlyState([late]), "", again=False) == (late, True)
    old = night(yesterday, "", finished=False, started=NOW - timedelta(hours=24))
    fresh, begun = choose_night(plan(), NightlyState([night(yesterday - timedelta(days=1)), old]), "", again=False)
    assert (fresh.date, begun, fresh.missed) == (NOW.date().isoformat(), False, [yesterday.isoformat()])


def test_a_night_that_is_named_goes_on_although_another_has_begun_since(plan: Any) -> None:
    first, second = night(DAY, "", finished=False), night(DAY + timedelta(days=1), "", finished=False)
    state = NightlyState([first, second])
    assert choose_night(plan(), state, DAY.isoformat(), again=False)[0] is first
    assert choose_night(plan(), state, "", again=False)[0] is second


def test_missed_nights_are_named(plan: Any) -> None:
    state = NightlyState([night(DAY - timedelta(days=4))])
    found, _ = choose_night(plan(), state, DAY.isoformat(), again=False)
    assert found.missed == ["2030-01-07", "2030-01-08", "2030-01-09"]


def test_every_part_comes_once_in_as_many_nights(plan: Any) -> None:
    (job,) = plan(spread=5).jobs
    state = NightlyState()
    due = []
    for number in range(5):
        (part,) = parts_due(job, DAY + timedelta(days=number), state, 1)
        due.append(part)
        state.nights.append(night(DAY + timedelta(days=number), part))
    assert sorted(due) == [f"{number}/5" for number in range(1, 6)]
    assert parts_due(job, DAY + timedelta(days=5), state, 1) == [due[0]]
    assert parts_due(plan().jobs[0], DAY, state, 1) == [""]


def test_parts_of_missed_nights_are_caught_up_the_oldest_first(plan: Any) -> None:
    (job,) = plan(spread=5).jobs
    days = [DAY + timedelta(days=number) for number in range(8)]
    parts = [f"{day.toordinal() % 5 + 1}/5" for day in days]
    state = NightlyState([night(days[0], parts[0])])  # then nobody came for two nights
    assert parts_due(job, days[3], state, 1) == [parts[3], parts[1]]
    assert parts_due(job, days[3], state, 5) == [parts[3], parts[1], parts[2]]
    assert parts_due(job, days[3], state, 0) == [parts[3]]
    state.nights.append(night(days[3], parts[3], parts[1]))
    assert parts_due(job, days[4], state, 1) == [parts[4], parts[2]]
    state.nights.append(night(days[4], parts[4], parts[2]))
    assert parts_due(job, days[5], state, 5) == [parts[5]]


def test_a_part_that_was_not_measured_counts_as_missed(plan: Any) -> None:
    (job,) = plan(spread=3).jobs
    failed = night(DAY, f"{DAY.toordinal() % 3 + 1}/3")
    failed.runs[0].run = ""
    due = parts_due(job, DAY + timedelta(days=1), NightlyState([failed]), 1)
    assert due[1:] == [failed.runs[0].part]


@pytest.mark.parametrize("text", ["tonight", "2030-13-01", "20300101x"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="night: expected a date"):
        nightly_state.parse_date(text)
