"""opmark history"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nights import case, flat, nights, step, upgraded

import opmark
from opmark.api.history import parse_time
from opmark.api.result import open_store

pytestmark = pytest.mark.verdicts

Command = Callable[..., Any]

EXP, ADD = case(), case("add")


@pytest.fixture
def stored(db: Path) -> Path:
    with closing(open_store(db, create=True)) as store:
        nights([(EXP, step(60, 1.05)), (ADD, flat())], facts=upgraded, store=store)
    return db


def test_what_got_slower_lately(main: Command, stored: Path) -> None:
    done = main("history")
    assert (done.code, done.err) == (0, "")
    (row,) = (line for line in done.out.splitlines() if line.startswith("2030-"))
    assert row.startswith("2030-03-02  exp")
    assert "slower" in row
    assert "torch 2.12 -> 2.13" in row
    assert "2 series of 6 runs or more, 1 with a change" in done.out


def test_a_night_fails_on_a_change_that_made_something_slower(main: Command, stored: Path) -> None:
    done = main("history", "--fail-on-change")
    assert done.code == 1
    assert done.err.endswith("1 series slower since the newest change, or in the newest runs\n")
    assert main("history").code == 0
    assert main("history", "add", "--fail-on-change").code == 0


def test_all_lists_what_did_not_change(main: Command, stored: Path) -> None:
    assert "add" not in main("history").out
    assert "add" in main("history", "--all").out


def test_one_case_is_told_in_full(main: Command, stored: Path) -> None:
    by_id = main("history", "--case", EXP.id).out
    assert by_id.startswith("exp 4 float32, torch-cpu ×2, latency warm, a processor\n")
    assert main("history", "exp", "-p", "shape=4").out == by_id
    assert main("history", "exp", "--backend", "torch*", "--phase", "forward", "--quantity", "latency").out == by_id


def test_runs_are_chosen(main: Command, stored: Path) -> None:
    assert "40 runs" in main("history", "exp", "--last", "40").out
    assert "30 runs, 2030-03-12" in main("history", "exp", "--since", "2030-03-12").out
    assert "100 runs" in main("history", "exp", "--label", "night*").out


def test_formats_and_files(main: Command, stored: Path, tmp_path: Path) -> None:
    (series,) = main("history", "--json").objects
    assert (series["op"], series["changes"][0]["direction"]) == ("exp", "slower")
    assert main("history", "--format", "json").objects == [series]
    assert main("history", "--format", "md").out.startswith("| since | operator |")
    for format, begins in (("table", "since"), ("md", "| since"), ("json", "{")):
        path = tmp_path / "new" / f"history.{format}"
        done = main("history", "--format", format, "-o", str(path))
        assert (done.code, done.out, done.err) == (0, "", f"wrote 1 series to {path}\n")
        assert path.read_text().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exo"], "no stored case is exo"),
        (["--format", "mb"], "no format named `mb`"),
        (["-p", "shape=4"], "-p goes with operators"),
        (["exp", "-p", "shap=4"], "operator `exp` has no parameter `shap`"),
        (["--since", "yesterday"], "since: expected a date or how long ago, got `yesterday`"),
        (["--last", "0"], "last: expected a whole number of at least 1, got 0"),
        (["--margin", "2"], "--margin: expected a share from 0 to below 1, or in percent, got `2`"),
        (["--quantity", "latncy"], "no quantity named `latncy`"),
        (["--label", "'; drop table run; --"], "no run is left to follow"),
    ],
)
def test_a_users_mistake_is_said(main: Command, stored: Path, arguments: list[str], said: str) -> None:
    done = main("history", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.line("error:").startswith(said)


def test_a_margin_may_be_in_percent(main: Command, stored: Path) -> None:
    assert main("history", "--margin", "0.02").out == main("history", "--margin", "2%").out


def test_what_takes_long_is_announced(main: Command, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.cli.history._MANY", 2)
    assert main("history").err == "looking at 2 cases\n"
    assert main("history", "exp").err == ""


def test_without_a_store_there_is_no_history(main: Command, db: Path) -> None:
    assert main("history").code == 2
    assert not db.exists()


def test_the_same_from_python(stored: Path) -> None:
    (changed,) = opmark.history(db=stored)
    assert changed.op == "exp"
    (quiet,) = opmark.history("add", params={"shape": [4]}, last=50, db=stored)
    assert (quiet.changes, len(quiet.points)) == ((), 50)
    assert [one.op for one in opmark.history(everything=True, db=stored)] == ["exp", "add"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", ""),
        ("2030-12-31", "2030-12-31T00:00:00.000+00:00"),
        ("2030-12-31T18:00", "2030-12-31T18:00:00.000+00:00"),
        ("2030-12-31T18:00+02:00", "2030-12-31T16:00:00.000+00:00"),
        ("2030-12-31T18:00Z", "2030-12-31T18:00:00.000+00:00"),
        ("12h", "2030-01-09T12:00:00.000+00:00"),
        ("3d", "2030-01-07T00:00:00.000+00:00"),
        ("1w", "2030-01-03T00:00:00.000+00:00"),
    ],
)
def test_moments(text: str, meant: str) -> None:
    from datetime import datetime, timezone

    assert parse_time(text, datetime(2030, 1, 10, tzinfo=timezone.utc)) == meant


def test_the_output_is_json_that_programs_read(main: Command, stored: Path) -> None:
    points = json.loads(main("history", "add", "--json").out)["points"]
    assert len(points) == 100
    assert points[0]["low"] is None


def test_what_has_no_levels_is_called_what_it_is(main: Command, db: Path) -> None:
    with closing(open_store(db, create=True)) as store:
        nights([
            (EXP, lambda night: 1e-3 * (1 + 0.0006 * night)),
            (ADD, lambda night: 1e-3 * (1.05 if night // 5 % 2 else 1.0)),
        ], noise=0.004, store=store)  # fmt: skip
    assert "1 slowly drift, 1 go to and fro between two states: no change; --all lists them" in main("history").out
    assert "no change of its level, but slow drift, +" in main("history", "exp").out
    told = main("history", "add").out
    assert re.search("no change of its level, but two states: [0-9.]+ [mµ]s and 1.05 ms, [+][45]", told)
    listed = main("history", "--all").out
    assert "slow drift" in listed
    assert "two states" in listed


def test_a_step_that_may_be_a_state_says_so(main: Command, db: Path) -> None:
    with closing(open_store(db, create=True)) as store:
        nights([(EXP, step(20, 1.05))], count=30, noise=0.003, store=store)
    done = main("history").out
    assert "1 change may be states of the machine: --all lists them with a `?`; `opmark ab` decides" in done
    assert "; may be a state of the machine: no level has lasted 60 runs, or it wanders" in main("history", "exp").out
    assert "slower ?" in main("history", "--all").out
