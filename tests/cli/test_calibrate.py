"""opmark calibrate"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.api.result import open_store
from opmark.api.show import show

pytestmark = pytest.mark.machine

Command = Callable[..., Any]

UNAVAILABLE = """
    from opmark.frameworks.null.backend import NullBackend
    from opmark.plugin import BackendInfo

    INFO = BackendInfo(name="dead", framework="null", device="gpu", loads="dead:Backend", computes=False)

    class Backend(NullBackend):
        def why_unavailable(self):
            return "the power is off"
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.runner.calibration._PRODUCTS", {"cpu": (16,), "device": (16,)})


def test_peaks_that_wait_for_their_store_are_shown_and_not_called_stored(main: Command, waiting: Path) -> None:
    done = main("calibrate", "--backend", "null")
    assert done.code == 1
    assert f"kept in the journal {waiting}" in done.err
    assert "smallest call" in done.out


def test_peaks_are_a_table_and_the_runs_of_the_store_get_their_share_of_them(main: Command, db: Path) -> None:
    ran = main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick")
    assert "of peak" not in ran.out
    done = main("calibrate", "--backend", "null")
    assert done.code == 0
    assert done.err.startswith("stored as run")
    for part in ("level", "copy", "triad", "memory", "matrix product", "bfloat16", "FLOP/s", "smallest call: latency"):
        assert part in done.out
    table, _, _ = main("show").out.partition("\n\n")
    head, *rows = table.splitlines()
    assert "of peak" in head
    moving = [row for row in rows if row.startswith(("copy", "triad"))]
    assert moving
    assert all(row.count(" %") == 2 for row in moving), "the noise, and the share"
    earlier = show(db=db).run.id
    (first,) = (run.id for run in stored(db) if run.id != earlier)
    assert "of peak" in main("show", first).out.splitlines()[0]
    assert "of peak" in main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick").out


def stored(db: Path) -> list[Any]:
    with closing(open_store(db)) as store:
        return list(store.runs())


def test_peaks_are_also_data_and_what_is_shown_of_them_too(main: Command, db: Path) -> None:
    (peaks,) = main("calibrate", "--backend", "null", "--threads", "1", "--json").objects
    (run,) = stored(db)
    assert run.label == "calibrate"
    assert peaks["source"] == f"measured in run {run.id}"
    assert peaks["levels"][-1]["name"] == "memory"
    assert {"chip", "flops", "launch", "threads"} <= peaks.keys()
    with closing(open_store(db)) as store:
        assert store.kept("peaks", peaks["chip"] + " ×1") == peaks
    copies = [row for row in main("show", "--json").objects if row["op"] == "copy"]
    assert copies
    assert max(row["metrics"]["of_measured_peak"]["share"] for row in copies) == pytest.approx(1, rel=0.02)


def test_the_store_is_the_one_that_is_named(main: Command, db: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    assert main("calibrate", "--backend", "null", "--threads", "1", "--db", str(other)).code == 0
    assert len(stored(other)) == 1
    assert not db.exists()


def test_a_backend_that_cannot_run_is_an_error_with_its_reason(opmark: Command, install: Callable[..., None]) -> None:
    install("dead", UNAVAILABLE)
    done = opmark("calibrate", "--backend", "dead", "--threads", "1")
    assert (done.code, done.out) == (2, "")
    assert "the power is off" in done.line("error:")
    assert done.line("hint:")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--backend", "nope"), "nope"),
        (("--backend", "null", "--threads", "0"), "threads"),
        (("--backend", "null", "--threads", "-1"), "threads"),
        (("--backend", "null", "--timeout", "0"), "timeout"),
        (("--backend", "null", "--timeout", "nan"), "timeout"),
        (("--backend", "null", "--threads", "two"), "--threads"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_stored(
    main: Command, db: Path, arguments: tuple[str, ...], named: str
) -> None:
    done = main("calibrate", *arguments)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert not db.exists()
