"""opmark fit"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import opmark as package
from opmark.api.describe import describe
from opmark.api.fit import fit
from opmark.api.result import open_store
from opmark.schema import EFFORTS, Case, Cost, Measurement, Record, Run, Settings, Task
from opmark.schema.cost import Traffic

Command = Callable[..., Any]

LINE = {1000: 11e-6, 10_000: 20e-6, 100_000: 110e-6}
"""10 µs and 1 GB/s."""


def record(size: int, seconds: float) -> Record:
    params = describe("all_reduce").complete({"size": size, "ranks": 4})
    measured = Measurement("latency", "warm", "virtual", [seconds] * 7, 1, 0.0, 1, 0.0, "count")
    task = Task(Case.of("all_reduce", params, "forward"), "torch-cpu", "torch", Settings(1, "quick", EFFORTS["quick"]))
    return Record(task, "ok", "", (measured,), Cost(None, size, size, Traffic(size, 1.5 * size, 4)))


def keep(db: Path, run: str, times: dict[int, float], label: str = "") -> None:
    with closing(open_store(db, create=True)) as store:
        store.begin(Run(run, f"{run[:4]}-01-01", "plan", len(times), label))
        for size, seconds in times.items():
            store.append(run, record(size, seconds))


@pytest.fixture
def stored(db: Path) -> Path:
    keep(db, "20300101-000000-aaaa", LINE, "line")
    keep(db, "20310101-000000-bbbb", {8: 1e-5})
    return db


def test_the_fits_of_a_run_are_a_table_and_a_plot(main: Command, stored: Path) -> None:
    done = main("fit", "line")
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[1].startswith("all_reduce float32 ranks=4 torch-cpu ×1 3: 1000..100000 10.0 µs 1.00 1.50 9.77 KiB")
    assert sum(line.partition("|")[2].count("o") for line in done.out.splitlines()) == 3
    assert "o all_reduce float32 ranks=4 on torch-cpu ×1" in lines


def test_the_last_run_is_the_default_and_says_why_there_is_no_fit(main: Command, stored: Path) -> None:
    done = main("fit")
    assert done.code == 0
    assert "no fit: 1 of at least 3 sizes" in done.out


def test_as_json_and_from_python_it_is_the_same(main: Command, stored: Path) -> None:
    (seen,) = main("fit", "line", "--json").objects
    (found,) = fit("line", db=stored)
    assert found.fit is not None
    assert (seen["alpha"], seen["beta"]) == (found.fit.alpha, found.fit.beta)
    assert seen["bus_bandwidth"] == found.bus_bandwidth == pytest.approx(1.5e9)
    assert fit(package.show("line", db=stored)) == [found]


def test_a_picture_is_written_where_it_is_asked_for(main: Command, stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "fit.svg"
    done = main("fit", "line", "--json", "-o", str(path))
    assert done.code == 0
    assert done.err == f"drew 1 series into {path}\n"
    assert path.read_text(encoding="utf-8").startswith("<svg ")
    assert len(done.objects) == 1


def test_anything_but_svg_is_refused_before_anything_is_done(main: Command, stored: Path, tmp_path: Path) -> None:
    done = main("fit", "line", "-o", str(tmp_path / "fit.png"))
    assert (done.code, done.out) == (2, "")
    assert "expected a file that ends in .svg" in done.err


def test_a_run_in_which_nothing_is_sent_says_so(main: Command) -> None:
    main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick")
    done = main("fit")
    assert done.code == 2
    assert "nothing in this run sends anything" in done.err
    assert "hint: as in `opmark run all_reduce" in done.err


def test_times_of_zero_have_no_place_in_a_picture(main: Command, db: Path, tmp_path: Path) -> None:
    keep(db, "20300101-000000-aaaa", dict.fromkeys((8, 16, 32), 0.0))
    assert "no fit: a time is not above 0" in main("fit").out
    done = main("fit", "-o", str(tmp_path / "fit.svg"))
    assert done.code == 2
    assert "times of 0" in done.err
