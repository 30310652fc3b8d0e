"""opmark run"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from opmark.api import run as api
from opmark.api.early_worker import start_early_worker
from opmark.api.requests import RunRequest
from opmark.api.show import show
from opmark.runner.executors.base import LocalExecutor
from opmark.runner.supervisor import Supervisor, WorkerPool
from opmark.schema import Caution, Measurement, Record, Task
from opmark.schema.measurement import PREEMPTED
from opmark.stats import log_interval

Command = Callable[..., Any]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SMALL = ["--size", "small", "--effort", "quick"]
NULL = [*SMALL, "--backend", "null"]
PROMISED = {"case", "op", "params", "phase", "backend", "status", "reason", "quantities"}


# The examples that must work.


@needs_torch
def test_lists_of_parameters_multiply(main: Command, db: Path) -> None:
    """opmark run matmul -p M=256 -p N=256 -p K=64,128 -p dtype=float32,bfloat16"""
    done = main(
        "run", "matmul", "-p", "M=256", "-p", "N=256", "-p", "K=64,128", "-p", "dtype=float32,bfloat16",
        "--effort", "quick",
    )  # fmt: skip
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines() if line.startswith("matmul")]
    assert [(row[3], row[4]) for row in rows[:4]] == [
        ("K=64", "float32"), ("K=64", "bfloat16"), ("K=128", "float32"), ("K=128", "bfloat16"),
    ]  # fmt: skip
    result = show(db=db)
    assert [record.status for record in result.records] == ["ok"] * 4
    assert {record.task.backend for record in result.records} == {"torch-cpu"}
    assert f"stored as run {result.run.id} in {db}" in done.err


def test_operators_sizes_phases_and_threads_multiply(main: Command) -> None:
    """opmark run exp softmax --size small,typical,large --phase forward,backward --threads 1,2"""
    done = main(
        "run", "exp", "softmax", "--size", "small,typical,large", "--phase", "forward,backward", "--threads", "1,2",
        "--backend", "null", "--json",
    )  # fmt: skip
    assert done.code == 0
    found = [(r["op"], r["params"]["shape"][0], r["phase"], r["threads"], r["effort"]) for r in done.objects]
    assert len(found) == len(set(found)) == 2 * 3 * 2 * 2
    assert {row[3] for row in found} == {1, 2}
    assert {row[4] for row in found} == {"standard"}


@needs_torch
def test_the_quick_suite_is_all_well(main: Command) -> None:
    """opmark run --suite quick --json"""
    done = main("run", "--suite", "quick", "--json", "--effort", "quick")
    assert done.code == 0
    records = done.objects
    assert {record["op"] for record in records} >= {
        "add", "exp", "gelu", "cast", "matmul", "batched_matmul", "softmax", "layer_norm", "rms_norm", "reduce_sum",
        "topk", "embedding", "conv2d", "scaled_dot_product_attention",
    }  # fmt: skip
    assert {record["status"] for record in records} == {"ok"}
    for record in records:
        assert record.keys() >= PROMISED
        assert record["verification"]["checked"] in {"full", "sampled"}
        (quantity,) = (values for by_cache in record["quantities"].values() for values in by_cache.values())
        low, high = quantity["interval"]
        assert 0 < low <= quantity["median"] <= high
        assert quantity["samples"] >= 3


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(
        "schema: 1\nname: mine\ncases:\n"
        "  - {op: matmul, params: {M: [1, 16], K.N: [[64, 32], [8, 4]]}, phases: [forward, backward], tags: [llm]}\n"
    )
    return path


def test_a_dry_run_prints_the_plan_and_stores_nothing(main: Command, workload: Path, db: Path) -> None:
    """opmark run -w my.yaml --dry-run"""
    done = main("run", "-w", str(workload), "--dry-run", "--backend", "null,numpy-cpu")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert sum(line.startswith("matmul") for line in lines) == 16
    assert sum("skipped: numpy-cpu has no automatic differentiation" in line for line in lines) == 4
    assert "12 tasks to run, some in several processes, 4 skipped" in done.out
    assert not db.exists()


def test_a_dry_run_is_also_data(main: Command, workload: Path, db: Path) -> None:
    done = main("run", "-w", str(workload), "--dry-run", "--backend", "null,numpy-cpu", "--json")
    assert len(done.objects) == 16
    assert sum(row["skipped"] is None for row in done.objects) == 12
    assert not db.exists()


def test_a_workload_is_measured(main: Command, workload: Path) -> None:
    done = main("run", "-w", str(workload), "--backend", "null", "--effort", "quick", "--json")
    assert done.code == 0
    assert [(r["params"]["M"], r["params"]["K"], r["params"]["N"], r["phase"]) for r in done.objects[:3]] == [
        (1, 64, 32, "forward"), (1, 64, 32, "backward"), (1, 8, 4, "forward"),
    ]  # fmt: skip
    assert {tuple(r["tags"]) for r in done.objects} == {("llm",)}


# Data and talk.


def test_the_table_goes_to_stdout_and_talk_to_stderr(opmark: Command, db: Path) -> None:
    done = opmark("run", "add", *NULL)
    assert done.out.splitlines()[0].split() == [
        "operator", "parameters", "backend", "phase", "median", "interval", "noise", "GB/s", "GFLOP/s", "memory",
        "status",
    ]  # fmt: skip
    assert "stored as run" not in done.out
    assert done.err.startswith("stored as run ")
    assert done.err.count("\n") == 1


CHATTY = """
import ctypes, os, sys
from opmark.frameworks.null.backend import NullBackend
from opmark.plugin import BackendInfo

INFO = BackendInfo(name="chatty", framework="null", device="none", loads="chatty:Backend", computes=False)


class Backend(NullBackend):
    def tensor(self, spec, seed):
        print("loading kernels ...", flush=True)
        os.write(1, b'{"status": "ok"}\\n')
        return spec
"""


def test_what_a_framework_prints_reaches_neither_the_json_nor_the_talk(
    opmark: Command, install: Callable[[str, str], None]
) -> None:
    install("chatty", CHATTY)
    done = opmark("run", "add", *SMALL, "--backend", "chatty", "--json")
    assert done.code == 0
    assert [record["backend"] for record in done.objects] == ["chatty"]
    assert "loading" not in done.err


def test_json_has_a_record_a_line_whatever_became_of_it(main: Command) -> None:
    done = main(
        "run", "fault", "-p", "kind=none,error,wrong", "--phase", "forward,backward", "--backend", "numpy-cpu",
        "--effort", "quick", "--json",
    )  # fmt: skip
    assert done.code == 1
    assert [record["status"] for record in done.objects] == ["ok", "error", "wrong", *["skipped"] * 3]
    for record in done.objects:
        assert record.keys() >= PROMISED
        assert bool(record["reason"]) is (record["status"] != "ok")
        assert bool(record["quantities"]) is (record["status"] == "ok")


# Exit codes and failures.


def test_a_failed_case_is_exit_code_1_and_its_reason_is_told(main: Command, db: Path) -> None:
    done = main("run", "fault", "-p", "kind=none,exit,error", "--backend", "numpy-cpu", "--effort", "quick")
    assert done.code == 1
    assert "exit code 3" in done.out
    assert "RuntimeError: raised on purpose" in done.out
    assert "Traceback" not in done.err
    assert [record.status for record in show(db=db).records] == ["ok", "error", "error"]


def test_a_skipped_case_is_no_failure(main: Command) -> None:
    done = main("run", "exp", *SMALL, "--phase", "forward,backward", "--backend", "numpy-cpu")
    assert done.code == 0
    assert "skipped: numpy-cpu has no automatic differentiation" in done.out


def test_the_faults_that_ship_are_each_one_record(main: Command) -> None:
    done = main("run", "--suite", "faults", "--backend", "numpy-cpu", "--timeout", "8", "--effort", "quick", "--json")
    assert done.code == 1
    assert [(r["params"]["kind"], r["status"]) for r in done.objects] == [
        ("none", "ok"), ("wrong", "wrong"), ("error", "error"), ("segfault", "error"), ("exit", "error"),
        ("hang", "timeout"), ("oom", "oom"), ("none", "ok"),
    ]  # fmt: skip


def test_a_trapped_instruction_is_said_once_and_the_case_is_measured(main: Command, db: Path) -> None:
    asked = ("run", "fault", "-p", "kind=illegal_instruction,none", "--backend", "numpy-cpu", "--effort", "quick")
    for _ in range(2):
        done = main(*asked)
        assert done.code == 0
        assert done.err.count("ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16") == 1
        result = show(db=db)
        variables = [result.environments[record.environment]["variables"] for record in result.records]
        assert [found["ONEDNN_MAX_CPU_ISA"] for found in variables] == ["AVX512_CORE_BF16"] * 2


# Settings.


@needs_torch
def test_threads_are_in_force_and_part_of_the_record(main: Command, db: Path) -> None:
    done = main("run", "add", *SMALL, "--backend", "torch-cpu", "--threads", "1,2", "--json")
    assert [record["threads"] for record in done.objects] == [1, 2]
    facts = show(db=db).environments
    # What torch itself says, in the worker.
    assert [facts[record["environment"]]["threads"] for record in done.objects] == [1, 2]


def test_the_worker_begins_while_the_run_is_planned(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    planned_with, taken = [], []
    plan, take = api.plan_cases, WorkerPool.take

    def plan_cases(*given: Any, **options: Any) -> Any:
        planned_with.append(psutil.Process().children())
        return plan(*given, **options)

    def take_worker(*given: Any, **options: Any) -> Any:
        worker = take(*given, **options)
        taken.append(worker.pid)
        return worker

    monkeypatch.setattr(api, "plan_cases", plan_cases)
    monkeypatch.setattr(WorkerPool, "take", take_worker)
    assert main("run", "add", *NULL).code == 0
    ((early,),) = planned_with
    assert taken == [early.pid]
    assert not early.is_running()


def test_an_early_worker_that_the_plan_has_no_task_for_is_ended_before_anything_is_measured(
    main: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_beside = []
    measure = LocalExecutor.run

    def begin(*given: Any, **options: Any) -> Any:
        begun_beside.append(psutil.Process().children())
        return measure(*given, **options)

    monkeypatch.setattr(LocalExecutor, "run", begin)
    assert main("run", "add", *NULL, "--threads", "1,2").code == 0
    assert [len(found) for found in begun_beside] == [1]
    assert main("run", "add", *NULL, "--threads", "1,2", "--resume").code == 0
    assert [len(found) for found in begun_beside] == [1, 0]


def test_no_worker_begins_early_where_a_launcher_started_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    with closing(start_early_worker(RunRequest(ops="add", backend="null"))):
        assert psutil.Process().children() == []


def test_a_wrong_backend_is_reported_with_its_neighbours(main: Command) -> None:
    done = main("run", "add", *SMALL, "--backend", "torch-cpi")
    assert done.code == 2
    assert "torch-cpu" in done.err


def test_memory_is_what_the_operator_needs(main: Command) -> None:
    """An input and an output of 16 MiB each, and nothing kept beside them."""
    done = main(
        "run", "exp", "-p", "shape=2048x2048", "--backend", "numpy-cpu", "--effort", "quick", "--json"
    )  # fmt: skip
    (record,) = done.objects
    assert 0.95 < record["memory"]["peak"] / (32 * 2**20) < 1.10


def test_a_label_is_kept_as_it_is(main: Command) -> None:
    label = '\'; DROP TABLE run; -- [red]x[/red] "q"'
    assert main("run", "add", *NULL, "--label", label).code == 0
    shown = main("show", label)
    assert shown.code == 0
    assert f"({label})" in shown.err


def test_the_place_of_the_store_may_be_told(main: Command, db: Path, tmp_path: Path) -> None:
    other = tmp_path / "deep" / "other.db"
    done = main("run", "add", *NULL, "--db", str(other))
    assert str(other) in done.err
    assert other.exists()
    assert not db.exists()


def test_without_verification_nothing_is_checked(main: Command) -> None:
    done = main("run", "fault", "-p", "kind=wrong", "--backend", "numpy-cpu", "--effort", "quick", "--no-verify",
                  "--json")  # fmt: skip
    assert done.code == 0
    assert done.objects[0]["verification"]["checked"] == "none"


# Resuming.


def test_resuming_a_complete_run_adds_nothing(opmark: Command, db: Path) -> None:
    first = opmark("run", "add", *NULL, "--json")
    again = opmark("run", "add", *NULL, "--json", "--resume")
    assert again.code == 0
    assert again.out == first.out
    assert len(show(db=db).records) == 1


# How it is measured.


DEVICE = [*SMALL, "--backend", "null-device"]


def measured(done: Any) -> list[tuple[str, str]]:
    """Quantity and cache of all that the only record of a run has."""
    (record,) = done.objects
    return [(name, cache) for name, by_cache in record["quantities"].items() for cache in by_cache]


def test_a_case_in_several_processes_is_one_line_over_their_medians(main: Command, db: Path) -> None:
    done = main("run", "add", "exp", *NULL, "--processes", "3", "--json")
    assert done.code == 0
    assert [(r["op"], r["processes"]) for r in done.objects] == [("add", 3), ("exp", 3)]
    for record in done.objects:
        values = record["quantities"]["latency"]["warm"]
        medians = values["process_medians"]
        assert len(medians) == 3
        assert values["median"] == sorted(medians)[1]
        assert values["interval"] == pytest.approx(log_interval(medians)[:2])
    stored = show(db=db).records
    assert [(r.task.settings.process, r.task.case.op) for r in stored] == [
        (0, "add"), (0, "exp"), (1, "add"), (1, "exp"), (2, "add"), (2, "exp"),
    ]  # fmt: skip


PIDS = """
from opmark.frameworks.null.backend import NullBackend
from opmark.plugin import BackendInfo
INFO = BackendInfo(name="pids", framework="null", device="none", summary="tells its process", loads="pids:Backend",
                   dtypes=frozenset({"float32"}), computes=False)

class Backend(NullBackend):
    def environment(self):
        import os
        return {"pid": os.getpid()}
"""


def test_every_round_is_a_fresh_process(opmark: Command, install: Callable[[str, str], None], db: Path) -> None:
    install("pids", PIDS)
    done = opmark("run", "add", "exp", *SMALL, "--backend", "pids", "--processes", "3")
    assert done.code == 0
    result = show(db=db)
    pids = [result.environments[record.environment]["pid"] for record in result.records]
    assert len(set(pids)) == 3
    assert pids[0] == pids[1]
    assert "in 3 processes" in done.out


def test_a_stored_run_of_several_processes_is_shown_as_it_was(main: Command) -> None:
    made = main("run", "add", *NULL, "--processes", "2", "--json")
    shown = main("show", "--json")
    assert shown.objects == made.objects


def test_so_many_samples_and_warm_up_calls_are_taken_as_are_asked_for(main: Command, db: Path) -> None:
    assert main("run", "add", *NULL, "--samples", "37", "--warmup", "5").code == 0
    (record,) = show(db=db).records
    (measurement,) = record.measurements
    assert (len(measurement.samples), measurement.calls, measurement.stop) == (37, 1, "count")
    assert measurement.warmup_calls == 5


def test_the_rule_to_stop_by_may_be_told(main: Command, db: Path) -> None:
    done = main("run", "add", *NULL, "--rel-ci", "1e-9", "--min-time", "0.001", "--max-time", "0.004")
    assert done.code == 0
    (record,) = show(db=db).records
    rule = record.task.settings.sampling
    assert (rule.rel_ci, rule.min_time, rule.max_time) == (1e-9, 0.001, 0.004)
    assert record.measurements[0].stop == "budget"
    assert "! imprecise" in done.out


def test_a_wide_interval_is_soon_enough(main: Command, db: Path) -> None:
    assert main("run", "add", *NULL, "--rel-ci", "0.5", "--json").objects[0]["quantities"]["latency"]["warm"][
        "stop"
    ] == ("precise")


def test_quantities_and_caches_multiply(main: Command) -> None:
    asked = ("--quantity", "throughput,device_time", "--cache", "cold", "--cache", "warm")
    assert measured(main("run", "add", *DEVICE, *asked, "-p", "shape=1024x1024", "--json")) == [
        ("device_time", "cold"), ("device_time", "warm"), ("throughput", "cold"), ("throughput", "warm"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "quantity"), [("discrete", "latency"), ("continuous", "throughput"), ("continuous_events", "event_time")]
)
@pytest.mark.parametrize(("l2", "cache"), [("on", "warm"), ("off", "cold")])
def test_the_modes_of_param(main: Command, mode: str, quantity: str, l2: str, cache: str) -> None:
    done = main(
        "run", "add", *DEVICE, "-p", "shape=1024x1024", "--mode", mode, "--cuda-l2-cache", l2, "--warmup", "5",
        "--samples", "50", "--json",
    )  # fmt: skip
    assert measured(done) == [(quantity, cache)]
    assert done.objects[0]["mode"] == mode


def test_a_timer_may_be_named(main: Command) -> None:
    done = main("run", "add", *DEVICE, "--quantity", "device_span", "--cache", "warm", "--timer", "graph", "--json")
    assert done.objects[0]["quantities"]["device_span"]["warm"]["timer"] == "graph"


def test_gradients_of_some_inputs_may_be_asked_for(main: Command) -> None:
    done = main("run", "matmul", *NULL, "--wrt", "b", "--phase", "forward,backward,both", "--json")
    assert [(r["phase"], r["wrt"]) for r in done.objects] == [("forward", []), ("backward", ["b"]), ("both", ["b"])]
    assert "backward db" in main("run", "matmul", *NULL, "--wrt", "b").out


@needs_torch
def test_forward_and_backward_in_one_step(main: Command) -> None:
    done = main(
        "run", "softmax", "--size", "small", "--phase", "both", "--samples", "5", "--threads", "1", "--json",
    )  # fmt: skip
    (record,) = done.objects
    assert (record["status"], record["phase"]) == ("ok", "both")
    assert (record["verification"]["checked"], record["verification"]["after"]) == ("full", "same")


def test_a_device_has_a_column_a_quantity(main: Command) -> None:
    head, row = main("run", "add", *DEVICE).out.splitlines()[:2]
    for name in ("quantity", "device_time warm", "device_span cold", "latency warm", "host_time warm"):
        assert name in head
    assert "device_time cold" in row


def test_what_cannot_be_had_is_said_and_the_rest_is_measured(main: Command) -> None:
    done = main("run", "add", *NULL, "--quantity", "device_time,latency")
    assert done.code == 0
    assert "not measured: device_time: null has no clock of its own on a device" in done.out


def test_where_nothing_of_it_can_be_had_the_case_is_skipped(main: Command) -> None:
    done = main("run", "add", *NULL, "--quantity", "device_time", "--json")
    assert done.code == 1
    assert done.err.endswith("nothing was measured\n")
    (record,) = done.objects
    assert (record["status"], record["quantities"]) == ("skipped", {})
    assert "no clock of its own" in record["reason"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no-profiler", "not measured: device_time cold: the profiler cannot start: it is already in use"),
        ("all-lost", "not measured: device_time cold: cupti lost the records of all"),
        ("lost", "! records-lost"),
        ("stray", "! stray-work"),
        ("idle", "! no-kernels"),
        ("events-off", "! timers-disagree"),
        ("throttled", "clocks-moved"),  # below a cause of it where this machine is not quiet either
    ],
)
def test_a_bad_day_of_a_device_is_said(main: Command, monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    monkeypatch.setenv("OPMARK_NULL_DEVICE", fault)
    done = main("run", "add", *DEVICE, "-p", "shape=2048x2048", "--samples", "20", "--cache", "cold,warm")
    assert done.code == 0
    assert said in done.out


@needs_torch
def test_implementations_of_one_case_are_held_against_the_first(main: Command) -> None:
    done = main("run", "multi_sum_sq", "--size", "small", "--backend", "torch-cpu", "--effort", "quick", "--json")
    assert done.code == 0
    rows = {row["implementation"]: row for row in done.objects}
    assert list(rows) == ["torch", "torch-foreach"]
    assert len({row["case"] for row in rows.values()}) == 1
    shown = main("show", "--json").objects
    gains = {row["implementation"]: row["metrics"]["gain"] for row in shown}
    medians = {row["implementation"]: row["quantities"]["latency"]["warm"]["median"] for row in shown}
    assert gains == {"torch": 1.0, "torch-foreach": pytest.approx(medians["torch"] / medians["torch-foreach"])}
    table = main("show").out
    assert "gain" in table.splitlines()[0].split()
    assert "torch-cpu/torch-foreach" in table
    assert "1.00x" in table


def test_an_implementation_alone_has_no_gain(main: Command) -> None:
    done = main("run", "add", "--size", "small", "--backend", "null", "--effort", "quick", "--json")
    assert [row["metrics"]["gain"] for row in done.objects] == [None]
    assert "gain" not in main("show").out


def test_what_stays_disturbed_is_counted_and_no_failure(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code stays 0: the machine was busy, and nothing is wrong with the operator."""

    def spoilt(supervisor: Supervisor, task: Task) -> Record:
        caution = Caution(PREEMPTED, "the core was taken away", "stop other work")
        measurement = Measurement("latency", "warm", "monotonic", [8e-3] * 7, 1, 0.0, 2, 0.1, "precise", (caution,))
        return Record(task, "disturbed", caution.message, (measurement,))

    monkeypatch.setattr(Supervisor, "run", spoilt)
    done = main("run", "add", "--retries", "0", *NULL)
    assert done.code == 0
    assert "(8.00 ms)" in done.out
    assert "1 record of 1 disturbed: " in done.err
    assert "hint: stop other work" in done.err


BUSY = """
from opmark.frameworks.null.backend import NullBackend
from opmark.plugin import BackendInfo
from opmark.schema import Caution

INFO = BackendInfo(name="busy", framework="null", device="none", loads="busy:Backend", computes=False)


class Backend(NullBackend):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        from opmark.worker.measure import stability

        stability._check_preemption = lambda observed: [Caution("preempted", "the core was taken away")]
"""


def test_the_load_of_tests_disturbs_no_process_that_they_start(
    opmark: Command, install: Callable[[str, str], None]
) -> None:
    """Tests run beside each other, and on machines that do other things: what they say may not depend on it."""
    install("busy", BUSY)
    done = opmark("run", "add", *SMALL, "--backend", "busy", "--json")
    assert [record["status"] for record in done.objects] == ["ok"]
    assert "disturbed" not in done.err
