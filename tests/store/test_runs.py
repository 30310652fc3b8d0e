"""What is looked for in a store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import UnknownName, UserError
from opmark.schema import Run
from opmark.schema.machine import Floor, NoiseFloor
from opmark.store.memory import MemoryStore
from opmark.store.runs import find_run, label_in, noise_of, noise_under


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    for name, label in (("20300101-000000-aaaa", "mine"), ("20300202-000000-bbbb", "")):
        made.begin(Run(name, "2030", "plan", 1, label))
    return made


@pytest.mark.parametrize(
    ("name", "end"), [(None, "bbbb"), ("20300101-000000-aaaa", "aaaa"), ("203001", "aaaa"), ("mine", "aaaa")]
)
def test_a_run_goes_by_its_id_the_beginning_of_it_or_its_label(store: MemoryStore, name: str | None, end: str) -> None:
    assert find_run(store, name).id.endswith(end)


def test_a_beginning_of_several_and_a_name_of_none_are_mistakes(store: MemoryStore) -> None:
    with pytest.raises(UserError, match="begins 2 runs"):
        find_run(store, "2030")
    with pytest.raises(UnknownName, match="no run named `mien`"):
        find_run(store, "mien")
    with pytest.raises(UserError, match="holds no run yet"):
        find_run(MemoryStore(), None)


@pytest.fixture
def nightly() -> MemoryStore:
    """A store with two runs of one day and one of the day before, all with the same label."""
    made = MemoryStore()
    for name, started in (
        ("a", "2030-01-01T23:30:00.000"),
        ("b", "2030-01-02T00:30:00.000"),
        ("c", "2030-01-02T12:00:00.500"),
    ):
        made.begin(Run(name, f"{started}+00:00", "plan", 1, "nightly"))
    return made


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("2030-01-02", "c"),
        ("2030-01-02T00", "b"),
        ("2030-01-02T00:30+00:00", "b"),
        ("2030-01-02T00:30:00+01:00", "a"),
        ("2030-01-02T12:00:00", "c"),
        ("2030-01-02T12:00:00.500Z", "c"),
        ("nightly@{2030-01-01}", "a"),
        ("nightly@{2030-01-02}", "c"),
        ("nightly@{2030-01-02T01}", "b"),
        ("nightly@{2030-01-02T01:00+01:00}", "a"),
        ("nightly@{2030-01-01T22:00-03:00}", "b"),
        ("nightly@{2030-01-02T12:00:00.499}", "b"),
    ],
)
def test_a_date_is_a_period_in_utc_or_with_its_offset(nightly: MemoryStore, name: str, found: str) -> None:
    assert find_run(nightly, name).id == found


@pytest.mark.parametrize("date", ["9", "2030", "2030-13-01", "2030-01-02T", "2030-01-02T25:00", "2030-01-02+01:00"])
def test_what_is_no_date_is_not_taken_for_one(nightly: MemoryStore, date: str) -> None:
    with pytest.raises(UserError, match="expected a date or a time, or -1, got"):
        find_run(nightly, f"nightly@{{{date}}}")
    with pytest.raises(UnknownName):
        find_run(nightly, date)


@pytest.mark.parametrize(("which", "found"), [("2030-01-02", "c"), ("2030-01-02T00:30", "b"), ("-1", "b"), ("-2", "a")])
def test_the_braces_of_a_number_or_a_date_may_be_left_out(nightly: MemoryStore, which: str, found: str) -> None:
    assert find_run(nightly, f"nightly@{which}").id == find_run(nightly, f"nightly@{{{which}}}").id == found
    for name in (f"other@{which}", f"nightly@{{{which}", f"nightly@{which}}}"):
        with pytest.raises(UnknownName):
            find_run(nightly, name)


@pytest.mark.parametrize(("name", "oldest"), [("nightly@{-99}", "nightly@{-2}"), ("nightly~99", "nightly~2")])
def test_too_far_back_is_told_in_the_form_that_was_asked(nightly: MemoryStore, name: str, oldest: str) -> None:
    with pytest.raises(UserError, match="is of 3 runs") as caught:
        find_run(nightly, name)
    assert caught.value.hint == f"`{oldest}` is the oldest"


@pytest.mark.parametrize(
    ("name", "label"), [("a b", "a b"), ("a~2", "a"), ("a/b@{-1}", "a/b"), ("a@2030-01-02", "a"), ("a@b", "a@b")]
)
def test_the_label_in_a_name(name: str, label: str) -> None:
    assert label_in(name) == label


def test_labels_are_listed_once_where_nothing_is_found(nightly: MemoryStore) -> None:
    with pytest.raises(UnknownName) as caught:
        find_run(nightly, "@@@")
    assert caught.value.hint == "known: nightly, c, b, a"


def test_a_label_that_looks_like_one_with_a_date_is_itself(nightly: MemoryStore) -> None:
    nightly.begin(Run("d", "2030-01-01T00:00:00.000+00:00", "plan", 1, "nightly@2030-01-02"))
    assert find_run(nightly, "nightly@2030-01-02").id == "d"
    assert find_run(nightly, "nightly@{2030-01-02}").id == "c"


def test_a_date_of_several_runs_changes_none_of_them(nightly: MemoryStore) -> None:
    with pytest.raises(UserError, match="the date `2030-01-02` is of 2 runs: c, b"):
        find_run(nightly, "2030-01-02", to_change=True)
    with pytest.raises(UserError, match="the label `nightly` is of 3 runs"):
        find_run(nightly, "nightly", to_change=True)
    assert find_run(nightly, "2030-01-01", to_change=True).id == "a"
    assert find_run(nightly, "nightly~1", to_change=True).id == "b"


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), st.integers(-840, 840))
def test_a_run_is_found_by_its_start_in_every_time_zone(begun: datetime, minutes: int) -> None:
    store = MemoryStore()
    moment = begun.replace(tzinfo=timezone.utc)
    store.begin(Run("one", moment.isoformat(timespec="milliseconds"), "plan", 1))
    there = moment.astimezone(timezone(timedelta(minutes=minutes)))
    for timespec in ("hours", "minutes", "seconds", "milliseconds"):
        assert find_run(store, there.isoformat(timespec=timespec), to_change=True).id == "one"


def test_the_noise_of_a_backend_is_that_of_its_chip_and_threads(store: MemoryStore) -> None:
    facts = {"cpu": "a processor", "threads": 2, "backend": "torch-cpu"}
    floor = NoiseFloor("a processor", "torch-cpu", 2, "2030", 10, 10, [Floor("exp", "", 1.0, 0.1, 0.1)])
    store.keep("noise", noise_under("torch-cpu", facts), "2030", floor)
    assert noise_of(store, facts) == floor
    assert noise_of(store, {**facts, "threads": 1}) is None
    assert noise_of(store, {**facts, "backend": "numpy-cpu"}) is None
