"""opmark rank"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import opmark
from opmark.api.rank import read_ranking
from opmark.api.result import open_store
from opmark.schema import (  # fmt: skip
    EFFORTS,
    Case,
    Environment,
    Measurement,
    Record,
    Run,
    Settings,
    Task,
    Verification,
)

Command = Callable[..., Any]

RUN, LATER = "20300101-000000-aaaa", "20310101-000000-bbbb"


def record(backend: str, seconds: float | dict[str, float], environment: str) -> Record:
    """The record of a backend with a latency, or with several quantities."""
    case = Case.of("exp", {"shape": [4], "dtype": "float32"}, "forward")
    times = seconds if isinstance(seconds, dict) else {"latency warm": seconds}
    found = tuple(
        Measurement(*key.split(), "virtual", [s * factor for factor in (0.99, 1.0, 1.01)] * 5, 1, 0.0, 1, 0.0, "count")  # type: ignore[arg-type]
        for key, s in times.items()
    )
    task = Task(case, backend, backend.partition("-")[0], Settings(2, "quick", EFFORTS["quick"]))
    return Record(task, "ok", "", found, verification=Verification("full"), environment=environment)


def keep(db: Path, run: str, label: str, times: Mapping[str, float | dict[str, float]]) -> None:
    here = Environment.of({"cpu": "a processor", "device": "cpu"})
    with closing(open_store(db, create=True)) as store:
        store.begin(Run(run, f"{run[:4]}-01-01", "plan", len(times), label))
        store.add_environment(here)
        for backend, seconds in times.items():
            store.append(run, record(backend, seconds, here.id))


@pytest.fixture
def stored(db: Path) -> Path:
    keep(db, RUN, "first", {"torch-cpu": 1e-3, "numpy-cpu": 3e-3})
    keep(db, LATER, "", {"torch-cpu": 9e-3, "jax-cpu": 6e-3})
    return db


def test_all_runs_count_and_the_newest_number_of_each(main: Command, stored: Path) -> None:
    (place,) = json.loads(main("rank", "--json").out)["cases"]
    assert [one["backend"] for one in place["order"]] == ["numpy-cpu", "jax-cpu", "torch-cpu"]
    assert [one["run"] for one in place["order"]] == [RUN, LATER, LATER]


@pytest.mark.parametrize("name", ["first", RUN, "203001"])
def test_a_run_is_chosen_as_it_is_for_show(main: Command, stored: Path, name: str) -> None:
    found = json.loads(main("rank", name, "--json").out)
    assert found["runs"] == [RUN]
    assert found["cases"][0]["best"] == {
        "backend": "torch-cpu", "implementation": "torch", "variant": "", "python": "", "median": 1e-3, "decided": True,
    }  # fmt: skip


def test_a_table_is_printed_and_a_file_written(main: Command, stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "best.json"
    done = main("rank", "first", "--by", "case", "-o", str(path))
    assert done.code == 0
    assert "a processor, 2 threads, forward, backends NAME-cpu, by latency warm: " in done.out
    assert "numpy 3.00x" in done.out
    assert done.err == f"wrote 1 case to {path}\n"
    best = read_ranking(path).choose("exp", {"shape": [4]})
    assert best is not None
    assert best.backend == "torch-cpu"


def test_the_same_from_python(stored: Path) -> None:
    found = opmark.rank("first", by="operator", db=stored)
    assert [group.key for group in found.groups] == [{"op": "exp"}]
    assert found.choose("exp", {"shape": [4]}, threads=2, chip="a processor") == found.cases[0].best


@pytest.mark.parametrize(
    ("arguments", "by", "order"),
    [
        ([], "device_time cold", ["jax-cuda", "torch-cuda"]),
        (["--cache", "warm"], "device_time warm", ["torch-cuda", "jax-cuda"]),
        (["--quantity", "latency"], "latency warm", ["torch-cuda", "jax-cuda"]),
        (["--quantity", "device_time", "--cache", "warm"], "device_time warm", ["torch-cuda", "jax-cuda"]),
    ],
)
def test_the_quantity_that_was_asked_for_is_ranked_by_and_named(
    main: Command, db: Path, tmp_path: Path, arguments: list[str], by: str, order: list[str]
) -> None:
    torch = {"device_time cold": 5e-5, "device_time warm": 1e-5, "latency warm": 1e-4}
    jax = {"device_time cold": 2e-5, "device_time warm": 2e-5, "latency warm": 2e-4}
    keep(db, RUN, "device", {"torch-cuda": torch, "jax-cuda": jax})
    (place,) = json.loads(main("rank", "--json", *arguments).out)["cases"]
    assert f"{place['quantity']} {place['cache']}" == by
    assert [one["backend"] for one in place["order"]] == order
    for grouping in ("operator", "case"):
        assert f", by {by}: 1 case" in main("rank", "--by", grouping, *arguments).out
    main("rank", "-o", str(tmp_path / "best.json"), *arguments)
    written = read_ranking(tmp_path / "best.json")
    assert {f"{one.quantity} {one.cache}" for one in (*written.cases, *written.summary, *written.groups)} == {by}
    options = dict(zip([name.removeprefix("--") for name in arguments[::2]], arguments[1::2], strict=True))
    assert opmark.rank(**options, db=db).cases == written.cases  # type: ignore[arg-type]
    assert opmark.rank(**options, db=db).choose("exp", {"shape": [4]}) == written.cases[0].best  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by", "opertor"], "no grouping named `opertor`"),
        (["nosuch"], "no run named `nosuch`"),
        (["--quantity", "latncy"], "no quantity named `latncy`"),
        (["--cache", "hot"], "no state of the caches named `hot`"),
        (["--quantity", "energy"], "no verified energy in these runs to rank by"),
    ],
)
def test_what_is_not_there_is_the_users_mistake(main: Command, stored: Path, arguments: list[str], said: str) -> None:
    done = main("rank", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == said


def test_without_a_store_there_is_nothing_to_rank(main: Command, db: Path) -> None:
    assert main("rank").code == 2
    assert not db.exists()


def test_a_run_that_verified_nothing_ranks_nothing(main: Command) -> None:
    main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick")
    assert main("rank").out == "nothing in these runs was verified and measured undisturbed; `opmark show` says why\n"
