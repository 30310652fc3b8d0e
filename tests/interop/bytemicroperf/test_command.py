"""opmark micro-perf: from the command line of ByteMicroPerf to its report trees."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from micro_perf_runs import quickly

from opmark.errors import UnknownName, UserError
from opmark.interop.bytemicroperf.command import main

Write = Callable[[str, Any], Path]

V1 = {
    "operator": "exp",
    "iterations": 20,
    "input_shape_groups": {"inputs": [[[4, 256], [8192]]]},
    "dtype": ["float32", "float16"],
}
V3 = {
    "exp": [{"arg_type": "default", "dtype": "float32", "batch_size": [1, 2], "dim_size": 64}],
    "gemm": [{"arg_type": "default", "dtype": "float16", "M": 128, "K": 64, "N": 32}],
}
_SIZES = {"dtype": "float32", "batch_size": 4, "dim_size": 8, "world_size": 2}
ALL_REDUCE = {"all_reduce": [{"arg_type": "default", **_SIZES}]}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Files of the folder that commands are called in."""
    monkeypatch.chdir(tmp_path)
    quickly(monkeypatch)

    def put(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    return put


def report(path: str) -> Any:
    return json.loads(Path(path).read_text())


def test_the_first_generation_by_the_virtual_clock(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    write("workloads/exp.json", V1)
    assert main(["--task", "exp", "--hardware_type", "null"]) == 0
    found = report("reports/null/exp/result-float32.json")
    assert (found["Operator"], found["Backend"]) == ("EXP", "null")
    assert [entry["Tensor Shapes"] for entry in found["Performance"]] == [[[4, 8192]], [[256, 8192]]]
    large = found["Performance"][1]
    # The virtual clock: a microsecond a call and 100 GB/s for what goes in, with half a percent of jitter above that.
    seconds = 1e-6 + 8 * 2**20 / 1e11
    assert seconds <= large["Avg latency(us)"] / 1e6 <= 1.02 * seconds
    latency = large["Avg latency(us)"]
    assert large["Memory Size(MB)"] == large["Read IO Size(MB)"] + large["Write IO Size(MB)"] == 16.0
    assert large["Kernel bandwidth(GB/s)"] == pytest.approx(16 * 2**20 / latency / 1e3, rel=1e-3)
    assert large["QPS"] == pytest.approx(1e6 / latency * 256, rel=1e-3)
    assert (large["Samples"], large["Quantity"], large["Cache"]) == (20, "latency", "cold")
    assert report("reports/null/exp/result-float16.json")["Performance"][0]["Dtype"] == "float16"
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("exp float32 [[4, 8192]]: ")
    assert f": {latency} us (median {large['Median latency(us)']}), " in lines[1]


def test_the_third_generation_by_the_virtual_clock(write: Write) -> None:
    path = write("mine.json", V3)
    assert main(["--workload", str(path), "--backend", "null", "--report_dir", "out"]) == 0
    (info,) = Path("out/null").glob("*/info.json")
    assert report(str(info))["backend_type"] == "null"
    lines = [json.loads(line) for line in (info.parent / "gemm/null/gemm-null.jsonl").read_text().splitlines()]
    (line,) = lines
    assert line["arguments"] == {"arg_type": "default", "M": 128, "K": 64, "N": 32, "dtype": "float16"}
    found = line["targets"]
    flops, moved = 2 * 128 * 64 * 32, 2 * (128 * 64 + 64 * 32 + 128 * 32)
    assert (found["calc_flops"], found["io_bytes(B)"]) == (flops, moved)
    assert found["calc_flops_power(tflops)"] == pytest.approx(flops / found["latency(us)"] / 1e6, rel=1e-2)
    assert found["mem_bw(GB/s)"] == pytest.approx(moved / found["latency(us)"] / 1e3, rel=1e-2)
    rows = csv.DictReader((info.parent / "exp/null/exp-null.csv").read_text().splitlines())
    assert [row["batch_size"] for row in rows] == ["1", "2"]


def test_on_a_device_it_is_the_time_of_the_kernels(write: Write) -> None:
    path = write("mine.json", {"exp": V3["exp"][:1]})
    assert main(["--workload", str(path), "--backend", "null-device"]) == 0
    (lines,) = Path("reports/null-device").glob("*/exp/null/exp-null.jsonl")
    line = json.loads(lines.read_text().splitlines()[0])
    assert (line["opmark"]["quantity"], line["opmark"]["cache"]) == ("device_time", "cold")
    assert line["targets"]["kernels"] == ["first", "second"]


def test_without_the_profiler_it_is_events(write: Write) -> None:
    path = write("exp.json", {**V1, "dtype": "float32"})
    assert main(["--workload", str(path), "--hardware_type", "null-device", "--disable_profiling"]) == 0
    (first, _) = report("reports/null-device/exp/result-float32.json")["Performance"]
    assert first["Quantity"] == "event_time"


def test_as_many_threads_as_asked_for(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.api.run import run as api_run

    usual, seen = api_run, []

    def run(**how: Any) -> Any:
        seen.append(usual(**how))
        return seen[-1]

    monkeypatch.setattr("opmark.interop.bytemicroperf.command.run", run)
    path = write("exp.json", {**V1, "dtype": "float32"})
    assert main(["--workload", str(path), "--hardware_type", "null", "--threads", "1"]) == 0
    assert {record.task.settings.threads for record in seen[0].records} == {1}


def test_what_was_in_the_folder_stays(write: Write) -> None:
    other = write("reports/null/log/result-float32.json", {"mine": 1})
    same = write("reports/null/exp/result-int8.json", {"mine": 2})
    write("workloads/exp.json", V1)
    assert main(["--task", "exp", "--hardware_type", "null"]) == 0
    assert (json.loads(other.read_text()), json.loads(same.read_text())) == ({"mine": 1}, {"mine": 2})
    assert not list(Path("reports").rglob("*.part"))


def test_each_file_has_its_own_number_of_iterations(write: Write) -> None:
    write("workloads/exp.json", {**V1, "dtype": "float32"})
    write("workloads/log.json", {**V1, "operator": "log", "iterations": 7, "dtype": "float32"})
    assert main(["--hardware_type", "null"]) == 0
    for name, samples in (("exp", 20), ("log", 7)):
        assert report(f"reports/null/{name}/result-float32.json")["Performance"][0]["Samples"] == samples


def test_a_report_names_the_run_that_its_numbers_are_of(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    """Files with other numbers of iterations are runs of their own, even where they have an operator in common."""
    for name, operator, iterations in (("a", "add", 20), ("b", "exp", 20), ("c", "log", 7), ("d", "exp", 7)):
        file = {**V1, "operator": operator, "iterations": iterations, "dtype": "float32"}
        write(f"workloads/{name}_{operator}.json", file | ({"input_shape_groups": {"inputs": [[[3], [64]]] * 2}}
                                                           if operator == "add" else {}))  # fmt: skip
    assert main(["--task_dir", "workloads", "--hardware_type", "null"]) == 0
    stored = re.search(r"stored as runs (\S+) and (\S+) in \S+; `opmark show", capfd.readouterr().err)
    assert stored is not None
    first, second = stored.groups()
    told = {name: report(f"reports/null/{name}/result-float32.json") for name in ("add", "exp", "log")}
    assert {name: found["Run"] for name, found in told.items()} == {
        "add": first, "exp": f"{first}, {second}", "log": second
    }  # fmt: skip
    assert told["add"]["Execution Date"] <= told["log"]["Execution Date"]


def test_a_run_that_waits_for_its_store_is_not_called_stored(
    write: Write, waiting: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write("workloads/exp.json", V1)
    assert main(["--task", "exp", "--hardware_type", "null"]) == 1
    err = capfd.readouterr().err
    assert f"kept in the journal {waiting}" in err
    assert "stored as" not in err


def test_a_case_that_fails_is_in_the_report_and_in_the_exit_code(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    huge = {"exp": [{"arg_type": "default", "dtype": "float32", "batch_size": [1, 2**40], "dim_size": 64}]}
    path = write("huge.json", huge)
    assert main(["--workload", str(path), "--hardware_type", "numpy-cpu"]) == 1
    found = report("reports/numpy-cpu/exp/result-float32.json")
    assert len(found["Performance"]) == 1
    (failed,) = found["Failed"]
    assert (failed["Status"], failed["Tensor Shapes"]) == ("oom", [[2**40, 64]])
    assert failed["Reason"] in capfd.readouterr().err
    assert main(["--workload", str(path), "--backend", "numpy-cpu"]) == 1
    (lines,) = Path("reports/numpy-cpu").glob("*/exp/*/exp-*.jsonl")
    good, bad = (json.loads(line) for line in lines.read_text().splitlines())
    assert good["targets"]["latency(us)"] > 0
    assert good["opmark"]["verified"] == "full"
    assert (bad["targets"], bad["error"].startswith("oom")) == ({}, True)


def test_the_runs_are_in_the_store_too(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    from opmark.api.export import export
    from opmark.api.show import show

    path = write("mine.json", {"exp": V3["exp"]})
    assert main(["--workload", str(path), "--backend", "null"]) == 0
    stored = show()
    assert f"run {stored.run.id}" in capfd.readouterr().err
    assert stored.records[0].task.case.sources[0].startswith("mine.json#")
    exported = export(stored.run.id, format="bytemicroperf-v3")
    assert {Path(name).name for name in exported} == {"info.json", "exp-null.jsonl", "exp-null.csv"}


@pytest.mark.parametrize("given", [["--task", "all_reduce"], ["--task", "ccl_ops"], ["--task", "allreduce,p2p"]])
def test_communication_on_a_backend_without_ranks_is_an_error(write: Write, given: list[str]) -> None:
    with pytest.raises(UserError, match="`all_reduce` has no implementation for null"):
        main([*given, "--hardware_type", "null"])


def test_what_needs_several_devices_does_not_keep_the_rest_from_running(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write("mine.json", {**ALL_REDUCE, **V3})
    assert main(["--workload", str(path), "--hardware_type", "null"]) == 1
    said = capfd.readouterr()
    assert said.err.count("not measured: all_reduce: nothing can run") == 1
    assert len(said.out.splitlines()) == 3
    assert main(["--workload", str(path), "--hardware_type", "null", "--task", "gemm"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("task", "near"), [("epx", "exp"), ("gemmm", "gemm"), ("unary_op", "unary_ops"), ("exp,rms_nrm", "rms_norm")]
)
def test_an_unknown_task_is_an_error_with_the_nearest_name(write: Write, task: str, near: str) -> None:
    with pytest.raises(UnknownName, match="no task named") as error:
        main(["--task", task, "--hardware_type", "null"])
    assert f"`{near}`" in str(error.value.hint)


def test_a_task_that_the_workload_does_not_have_is_an_error(write: Write) -> None:
    path = write("mine.json", V3)
    with pytest.raises(UserError, match="has no case of this task") as error:
        main(["--workload", str(path), "--task", "tanh", "--backend", "null"])
    assert "opmark run tanh" in str(error.value.hint)


def test_a_broken_file_of_a_folder_is_named_and_the_others_run(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    write("mine/exp.json", V1)
    write("mine/broken.json", "{")
    assert main(["--task_dir", "mine", "--hardware_type", "null"]) == 1
    assert "broken.json" in capfd.readouterr().err
    assert Path("reports/null/exp/result-float32.json").is_file()
    assert main(["--task_dir", "mine", "--task", "exp", "--hardware_type", "null"]) == 0


@pytest.mark.parametrize(
    "given", [["--workload", "none.json"], ["--task_dir", "none"], ["--task_dir", "empty"], ["--task", ","]]
)
def test_nothing_to_read_is_an_error(write: Write, tmp_path: Path, given: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError):
        main([*given, "--hardware_type", "null"])


def test_an_interrupted_run_leaves_its_reports(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from opmark.interop.bytemicroperf.command import Reports

    write("workloads/exp.json", V1)
    usual, seen = Reports.add, []

    def add(self: Reports, record: Any) -> None:
        usual(self, record)
        seen.append(record)
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reports, "add", add)
    assert main(["--hardware_type", "null"]) == 130
    assert len(report("reports/null/exp/result-float32.json")["Performance"]) == 2
    said = "interrupted; the reports hold the cases that were measured\nstored as run "
    assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(write: Write) -> None:
    write("reports", "a file")
    with pytest.raises(UserError, match="--report_dir"):
        main(["--task", "exp", "--hardware_type", "null"])


def test_the_environment_is_as_it_was(write: Write) -> None:
    before = dict(os.environ)
    write("workloads/exp.json", V1)
    path = write("env.json", {"common": {"OPMARK_TEST_VARIABLE": "1"}})
    assert main(["--hardware_type", "null", "--env", str(path)]) == 0
    assert dict(os.environ) == before


COMMAND = """
import sys
sys.argv = ["opmark", "micro-perf", *sys.argv[1:]]
from opmark.cli.main import main
try:
    main()
finally:
    print("frameworks:", *sorted({"torch", "jax", "mxnet"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.parametrize(("given", "code", "says"), [(["--task", "exp"], 0, ""), (["--task", "epx"], 2, "error: ")])
def test_the_command_itself_has_its_exit_code_and_imports_no_framework(
    write: Write, given: list[str], code: int, says: str
) -> None:
    write("workloads/exp.json", V1)
    command = [sys.executable, "-c", COMMAND, *given, "--hardware_type", "null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, says in done.stderr) == (code, True)
    assert done.stderr.splitlines()[-1].strip() == "frameworks:"
