"""opmark show"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.api.result import open_store
from opmark.api.show import show
from opmark.schema import Run

Command = Callable[..., Any]


def test_what_was_run_is_shown_as_it_was_printed(main: Command, db: Path) -> None:
    ran = main("run", "exp", "add", "--size", "small", "--backend", "null", "--effort", "quick", "--label", "mine")
    shown = main("show")
    assert shown.code == 0
    assert shown.out == ran.out
    run = show(db=db).run
    assert shown.err == f"run {run.id} (mine) of {run.started}\n"


def test_json_is_the_same_as_that_of_the_run(main: Command) -> None:
    ran = main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick", "--json")
    assert main("show", "--json").out == ran.out
    assert len(ran.objects) == 1


def test_json_of_the_run_and_of_the_stored_run_tell_the_same_of_the_chip(
    opmark: Command, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("run", "exp", "--size", "small", "--backend", "numpy-cpu", "--threads", "1", "--effort", "quick", "--json")
    assert opmark(*how).objects[0]["metrics"]["of_datasheet_peak"] is None
    (facts,) = show(db=db).environments.values()
    sheet = {"chip": facts["cpu"], "source": "made up", "flops": {"float32": 1e12},
             "levels": [{"name": "memory", "bandwidth": 1e11}]}  # fmt: skip
    (tmp_path / "chip.yaml").write_text(json.dumps({"schema": 1, "chips": [sheet]}))
    monkeypatch.setenv("OPMARK_HARDWARE", str(tmp_path / "chip.yaml"))
    ran = opmark(*how)
    assert ran.objects[0]["metrics"]["of_datasheet_peak"]["share"] > 0
    assert opmark("show", "--json").objects == ran.objects


def test_a_run_is_chosen_by_id_beginning_or_label(main: Command, db: Path) -> None:
    with closing(open_store(db, create=True)) as store:
        for run_id, label in (("20300101-000000-aaaa", "first"), ("20300202-000000-bbbb", "")):
            store.begin(Run(run_id, "2030", "plan", 3, label))
    for name, chosen in (
        ([], "bbbb"), (["20300101-000000-aaaa"], "aaaa"), (["202"], None), (["203001"], "aaaa"), (["first"], "aaaa"),
    ):  # fmt: skip
        done = main("show", *name)
        assert done.code == (2 if chosen is None else 0)
        assert chosen is None or chosen in done.err


def test_what_is_missing_is_said(main: Command, db: Path) -> None:
    with closing(open_store(db, create=True)) as store:
        store.begin(Run("20300101-000000-aaaa", "2030", "plan", 3))
    assert "3 of 3 tasks not run" in main("show").err


def test_showing_changes_nothing(main: Command, db: Path) -> None:
    main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick")
    before = db.read_bytes()
    for _ in range(2):
        assert main("show").code == 0
    assert db.read_bytes() == before


def test_several_backends_stand_side_by_side_unless_the_long_table_is_asked_for(main: Command) -> None:
    asked = ("exp", "add", "--size", "small", "--effort", "quick", "--backend", "null,null-device")
    ran = main("run", *asked)
    titles, heads, *_ = ran.out.splitlines()
    assert re.findall(r"\w+ \w+", titles) == ["device_time cold", "device_time warm", "latency warm"]
    assert heads.split() == ["case", *["null", "null-device"] * 3]
    assert "null: exp, add: not measured: device_time cold, device_time warm; measured: latency warm" in ran.out
    assert main("show").out == ran.out
    long = main("show", "--long").out
    assert long.splitlines()[0].split()[:3] == ["operator", "parameters", "backend"]
    again = main("run", *asked, "--long").out
    assert again.splitlines()[0].split() == long.splitlines()[0].split()


def test_numerics_are_shown_where_they_are_asked_for(main: Command) -> None:
    main("run", "exp", "--size", "small", "--effort", "quick", "--backend", "numpy-cpu", "--processes", "1")
    done = main("show", "--numerics")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("exp ")
    assert "max ulp" in done.out.splitlines()[1]
    assert done.out.splitlines()[2].startswith("numpy-cpu")
    (record,) = main("show", "--json").objects
    assert record["verification"]["numerics"][0]["max_ulp"] > 0
    assert "compilation" in record
