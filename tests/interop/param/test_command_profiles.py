"""--ncu, --nsys and -p, with programs that behave like the profilers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from param_runs import ADD, IDS, THREE, Command

from opmark.errors import UserError

Fake = Callable[[str], str]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_ncu_looks_at_batches_and_its_metrics_are_with_the_cases(command: Command, fake: Fake) -> None:
    ran = command(THREE, "--ncu", "--ncu-bin", fake("ncu"), "--run-batch-size", "2")
    assert ran.code == 0
    assert ran.ids == IDS
    for line in ran.cases:
        (profile,) = line["opmark"]["forward"]["profiles"]
        assert profile["profiler"] == "ncu"
        assert profile["kernels"]
    batches = [line for line in ran.lines if "ncu_file" in line]
    assert [line["opmark"]["start_op_run_id"] for line in batches] == [IDS[0], IDS[2]]
    assert [line["opmark"]["end_op_run_id"] for line in batches] == [IDS[1], IDS[2]]
    assert batches[0]["start_run_id"] == "0|0|0"
    assert all(Path(line["ncu_file"]).exists() for line in batches)
    assert all("ncu" in line["ncu_cmd_str"] for line in batches)
    # A batch is named behind its last case.
    assert ran.lines.index(batches[0]) == ran.lines.index(ran.cases[1]) + 1
    assert ran.header["run_options"]["run_ncu"] is True


def test_a_batch_runs_as_often_as_asked_and_on_the_device_asked(command: Command, fake: Fake) -> None:
    args = command.folder / "ncu_args.txt"
    args.write_text("--metrics gpu__time_duration.sum  # time alone\n")
    options = ("--ncu-warmup", "2", "--ncu-iteration", "3", "--batch-cuda-device", "0", "--ncu-args-file", str(args))
    ran = command(ADD, "--ncu", "--ncu-bin", fake("ncu"), *options)
    assert ran.header["run_options"]["ncu_args"] == "--metrics gpu__time_duration.sum"
    (batch,) = (line for line in ran.lines if "ncu_file" in line)
    said = batch["ncu_cmd_str"]
    assert "--warmup 2 --iterations 3" in said
    assert "--metrics gpu__time_duration.sum" in said


def test_the_batch_command_takes_the_place_of_ours(command: Command, fake: Fake) -> None:
    own = f"{sys.executable} -u -m opmark.worker.profile_batch"
    ran = command(ADD, "--nsys", "--nsys-bin", fake("nsys"), "--batch-cmd", own)
    assert ran.code == 0
    (batch,) = (line for line in ran.lines if "nsys_file" in line)
    assert " -u -m opmark.worker.profile_batch " in batch["nsys_cmd_str"]


def test_a_missing_profiler_is_reported_before_anything_runs(command: Command) -> None:
    with pytest.raises(UserError, match="--ncu: ") as error:
        command.code(ADD, "--ncu", "--ncu-bin", str(command.folder / "nowhere"))
    assert "--ncu-bin" in (error.value.hint or "")
    assert not list(command.folder.glob("out*.json"))


def test_no_timing_but_a_profile(command: Command, fake: Fake) -> None:
    ran = command(ADD, "--ncu", "--ncu-bin", fake("ncu"), "-w", "0", "-i", "0")
    (line,) = ran.cases
    assert line["metric"] == {}
    assert line["opmark"]["forward"]["profiles"]


def test_a_trace_for_perfetto_and_its_name_in_the_last_line(command: Command) -> None:
    ran = command(THREE, "-p", "-i", "2")
    assert ran.code == 0
    trace = Path(ran.lines[-1]["trace_file"])
    assert trace.name == ran.file.name.replace(".json", "_trace.json")
    assert list(ran.lines[-2]) == ["finish_time"]
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {f"[param|{place}|measure|forward]" for place in IDS} <= names
