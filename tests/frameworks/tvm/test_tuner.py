"""MetaSchedule in a child process: its records are applied, and a tuning that was killed goes on with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from spaces import configured_task

pytest.importorskip("tvm")

from opmark.frameworks.tvm.operators import METASCHEDULE
from opmark.frameworks.tvm.tuner import MetaScheduleTuner, best_of_each, fastest, load_records, run_metaschedule
from opmark.plugin import Space, TuningProblem
from opmark.plugin.registry import operator
from opmark.worker.task_runner import TaskRunner

pytestmark = pytest.mark.tuning
MATMUL = {"M": 32, "N": 64, "K": 32}
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def make_tuner(folder: Path) -> MetaScheduleTuner:
    params = operator("matmul").complete(MATMUL)
    return MetaScheduleTuner(TuningProblem("matmul", params, "tvm-cpu", "onnx", Space(()), threads=1, folder=folder))


@pytest.mark.slow
def test_metaschedule_tunes_in_a_child_and_its_records_are_applied(tmp_path: Path, runner: TaskRunner) -> None:
    params = operator("matmul").complete(MATMUL)
    order = {
        "op": "matmul", "params": params, "folder": str(tmp_path), "threads": 1, "trials": 4,
        "strategy": "replay-trace", "seed": 1,
    }  # fmt: skip
    assert run_metaschedule(order, seconds=200) == ""
    records = best_of_each(fastest(load_records(tmp_path)))
    assert len(records) == 1
    text = json.dumps(records)
    assert runner.run(configured_task("matmul", MATMUL, "tvm-cpu", "onnx", {METASCHEDULE: text})).status == "ok"
    fused = {"M": 32, "N": 64, "K": 32}
    other = runner.run(configured_task("matmul", {**fused, "M": 16}, "tvm-cpu", "onnx", {METASCHEDULE: text}))
    assert "no kernel of this graph" in other.reason


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    order = {"op": "matmul", "params": dict(MATMUL), "folder": str(tmp_path), "threads": 1, "trials": 1000}
    assert "stopped after 1 s" in run_metaschedule(order, seconds=1)


PROGRAM = """
import sys
from opmark.frameworks.tvm.tuner import run_metaschedule
sizes = {"M": 32, "N": 64, "K": 32, "dtype": "float32"}
order = {"op": "matmul", "params": sizes, "folder": sys.argv[1], "threads": 1, "trials": 1000}
run_metaschedule(order, 600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's end")
def test_after_kill_9_nothing_that_was_measured_is_lost_or_measured_again(
    tmp_path: Path, wait_for: Callable[..., None], alive: Callable[[int], bool]
) -> None:
    """The child ends with opmark: it would go on for minutes, on the cores of the command that is started again."""
    records, workloads = tmp_path / RECORDS, tmp_path / WORKLOADS
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    wait_for(lambda: records.exists() and records.read_bytes().count(b"\n") >= 3, "three records", 200)
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(int(child)), "the child to end", 20)
    before = load_records(tmp_path)
    assert len(before) % 16  # not only whole batches are on disk
    for file, beginning in ((records, "[0,[[["), (workloads, '["123","ab')):
        with file.open("a") as opened:
            opened.write(beginning)
    tuner = make_tuner(tmp_path)
    assert tuner.ask(32)
    after = load_records(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == tuner.own_trials == 32
    assert len({json.dumps(one["record"][0]) for one in after}) == 32


def write_records(folder: Path, records: str, workloads: str = '["hash","module"]\n') -> None:
    (folder / WORKLOADS).write_text(workloads)
    (folder / RECORDS).write_text(records)


SLOW, FAST, FAILED = (f"[0,[[[],[]],[{seconds}],{{}},[]]]\n" for seconds in ("0.002", "0.001", "1e10"))


def test_the_fastest_records_come_first() -> None:
    found = fastest({"workload": ["hash"], "record": json.loads(one)[1]} for one in (SLOW, FAST, FAILED))
    assert [one["record"][1] for one in found] == [[0.001], [0.002]]
    assert best_of_each(found) == found[:1]


@pytest.mark.parametrize("rest", ["[0,[[[", FAST.rstrip(), FAST.replace("[0,", "[1,"), "\0\0\0\n" + FAST])
def test_what_a_killed_child_had_begun_to_write_is_cut_off(tmp_path: Path, rest: str) -> None:
    """Half a line, a line without its end, a record of a workload that is not there, and blocks that never came."""
    write_records(tmp_path, SLOW + FAILED + rest, '["hash","module"]\n["ha')
    assert [one["record"][1] for one in load_records(tmp_path)] == [[0.002], [1e10]]
    assert (tmp_path / RECORDS).read_text() == SLOW + FAILED
    assert (tmp_path / WORKLOADS).read_text() == '["hash","module"]\n'
    assert load_records(tmp_path / "nowhere") == []


def test_a_tuning_that_goes_on_asks_only_for_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first call of the child was done, the second one had measured one of 20 candidates."""
    write_records(tmp_path, SLOW * 16)
    orders = []

    def run(order: dict[str, object], seconds: float) -> str:
        orders.append(order)
        with (tmp_path / RECORDS).open("a") as file:
            file.write(FAST * int(str(order["trials"])))
        return ""

    monkeypatch.setattr("opmark.frameworks.tvm.tuner.run_metaschedule", run)
    tuner = make_tuner(tmp_path)
    first = tuner.ask(16)
    assert (orders, tuner.own_trials) == ([], 16)
    with (tmp_path / RECORDS).open("a") as file:
        file.write(FAST)
    tuner = make_tuner(tmp_path)
    assert list(tuner.ask(16)) == list(first)
    second = tuner.ask(20)
    assert ([order["trials"] for order in orders], tuner.own_trials) == ([19], 36)
    tuner = make_tuner(tmp_path)
    assert [tuner.ask(16), tuner.ask(20)] == [first, second]
    assert len(orders) == 1


def test_the_child_fails_with_a_reason(tmp_path: Path) -> None:
    order = {"op": "no_such_operator", "params": {}, "folder": str(tmp_path), "threads": 1, "trials": 1}
    assert "no_such_operator" in run_metaschedule(order, seconds=100)
    assert not any(tmp_path.iterdir())
