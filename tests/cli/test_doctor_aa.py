"""opmark doctor --aa"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opmark.api.result import open_store

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
    cases = (("add", {"shape": [4]}), ("matmul", {"M": 8, "N": 8, "K": 8}))
    monkeypatch.setattr("opmark.runner.doctor._CASES", cases)


def test_noise_that_waits_for_its_store_is_shown_and_not_called_stored(main: Command, waiting: Path) -> None:
    done = main("doctor", "--aa", "--backend", "null", "--processes", "4")
    assert done.code == 1
    assert f"kept in the journal {waiting}" in done.err
    assert "in 4 processes of null" in " ".join(done.out.split())


def test_the_noise_is_a_table_and_a_sentence(main: Command) -> None:
    done = main("doctor", "--aa", "--backend", "null", "--processes", "4")
    assert done.code == 0
    assert done.err.startswith("stored as run")
    head, add, matmul, *rest = (" ".join(line.split()) for line in done.out.splitlines())
    assert head == "case median between processes within a process false verdicts naive test"
    assert add.startswith("add 4 float32 1.0")
    assert matmul.startswith("matmul M=8 N=8 K=8")
    assert add.endswith("0 of 2 0 of 2")
    said = " ".join(rest)
    assert "in 4 processes of null" in said
    assert "opmark's verdict calls a difference in 0 %" in said


def test_the_noise_is_also_data_and_is_stored_and_kept(main: Command, db: Path) -> None:
    (noise,) = main("doctor", "--aa", "--backend", "null", "--processes", "4", "--json").objects
    assert (noise["backend"], noise["processes"], noise["labelings"]) == ("null", 4, 2)
    assert [floor["op"] for floor in noise["floors"]] == ["add", "matmul"]
    with closing(open_store(db)) as store:
        assert store.kept("noise", f"null on {noise['chip']} ×{noise['threads']}") == noise
        assert [run.label for run in store.runs()] == ["noise"]
    shown = main("show", "noise")
    assert shown.code == 0
    assert "null ×" in shown.out
    assert "in 4 processes" in shown.out


@pytest.mark.parametrize("processes", ["5", "2", "0", "-4"])
def test_processes_that_make_no_pairs_are_refused(main: Command, db: Path, processes: str) -> None:
    done = main("doctor", "--aa", "--backend", "null", "--processes", processes)
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == f"processes: expected an even number of at least 4, got {processes}"
    assert "--processes" in done.line("hint:")
    assert not db.exists()


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--processes", "many"), "--processes"), (("--backend", "nope"), "`nope`")]
)
def test_what_cannot_be_is_refused(main: Command, db: Path, arguments: tuple[str, str], named: str) -> None:
    done = main("doctor", "--aa", *arguments)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert not db.exists()


def test_a_backend_that_cannot_run_is_an_error_with_its_reason(
    opmark: Command, install: Callable[..., None], db: Path
) -> None:
    install("dead", UNAVAILABLE)
    done = opmark("doctor", "--aa", "--backend", "dead", "--processes", "4")
    assert (done.code, done.out) == (2, "")
    assert "the power is off" in done.line("error:")
    assert done.line("hint:")
    assert not db.exists()
