"""PARAM's options as arguments of opmark."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from param_runs import Command, lines_of, op, tensor

from opmark.errors import UserError
from opmark.interop.param import run_config
from opmark.interop.param.command import main
from opmark.interop.param.options import ParamOptions, device_of, options_of, parser
from opmark.interop.param.results import read
from opmark.interop.visible_devices import set_variables


def asked(*arguments: str) -> dict[str, Any]:
    options = options_of(parser().parse_args(list(arguments)))
    return options.run_arguments(options.target())


def test_the_defaults_are_those_of_param() -> None:
    found = asked()
    assert (found["warmup"], found["samples"], found["threads"], found["backend"]) == (1, 1, 1, "torch-cpu")
    assert found["timeout"] == ParamOptions().timeout == 600
    assert (found["mode"], found["cache"], found["processes"], found["seed"]) == ("discrete", ["warm"], 1, 0)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["-w", "7"], "warmup", 7),
        (["--iteration", "9"], "samples", 9),
        (["-i", "0"], "samples", 1),
        (["-d", "cuda"], "backend", "torch-cuda"),
        (["-d", "xpu"], "backend", "torch-xpu"),
        (["-d", "mps"], "backend", "torch-mps"),
        (["-d", "null"], "backend", "null"),
        (["--exec-mode", "continuous"], "mode", "continuous"),
        (["--exec-mode"], "mode", "discrete"),
        (["--exec-mode", "continuous_events", "-d", "cuda"], "mode", "continuous_events"),
        (["--exec-mode", "continuous_events"], "mode", "discrete"),
        (["--cuda-l2-cache", "off", "-d", "cuda"], "cache", ["cold"]),
        (["--cuda-l2-cache", "-d", "cuda"], "cache", ["cold"]),
        (["--cuda-l2-cache", "on", "-d", "cuda"], "cache", ["warm"]),
        (["--cuda-l2-cache", "off"], "cache", ["warm"]),
        (["--cuda-l2-cache", "off", "-d", "cuda", "--exec-mode", "continuous"], "cache", ["warm"]),
        (["--cuda-graph", "-d", "cuda"], "timer", "graph"),
        (["--pt2-model"], "backend", "torch-compile-cpu"),
        (["--pt2-model", "-d", "cuda"], "backend", "torch-compile-cuda"),
        (["--pt2-model", "-d", "torch-cuda"], "backend", "torch-compile-cuda"),
        (["--pt2-model", "-d", "torch-compile-cpu"], "backend", "torch-compile-cpu"),
        (["--threads", "2"], "threads", 2),
        (["--seed", "3"], "seed", 3),
        (["--timeout", "5"], "timeout", 5.0),
        (["--db", "x.db"], "db", "x.db"),
        (["--db", "postgresql://someone@db/results"], "db", "postgresql://someone@db/results"),
    ],
    ids=str,
)
def test_each_option_is_passed_on(arguments: list[str], name: str, value: Any) -> None:
    assert asked(*arguments)[name] == value


def test_options_without_effect_are_noted() -> None:
    flush = ParamOptions(cuda_l2_cache=False)
    assert "only on a GPU in discrete mode" in flush.notes(flush.target())[0]
    events = ParamOptions(exec_mode="continuous_events")
    assert "has no events" in events.notes(events.target())[0]
    graph = ParamOptions(cuda_graph=True, exec_mode="continuous", device="cuda")
    assert "in one way only" in graph.notes(graph.target())[0]
    assert ParamOptions().notes(ParamOptions().target()) == []


def test_backward_means_both_phases() -> None:
    assert ParamOptions(backward=True).phases == ["forward", "backward"]
    assert ParamOptions().phases == ["forward"]


def test_one_of_several_devices_is_chosen_for_processes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    device = device_of("cuda:1")
    assert (device.backend, device.environ) == ("torch-cuda", {"CUDA_VISIBLE_DEVICES": "1"})
    with set_variables(device.environ):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with set_variables(device_of("cuda:1").environ):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"
    with pytest.raises(UserError, match="only 2 can be seen"):
        device_of("cuda:2")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("cudda", "no device named `cudda`", "cuda"),
        ("cuda:x", "expected a number behind the colon", "cuda:0"),
        ("mps:1", "cannot tell one mps from another", "use 0"),
    ],
)
def test_an_unknown_device_is_refused(text: str, said: str, hint: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        device_of(text)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-c", "x.json", "--pt2-model", "-d", "mps"], "no backend compiles"),
        (["-c", "x.json", "--pt2-model", "-d", "numpy-cpu"], "no backend compiles"),
        (["-c", "x.json", "--cupti-profiler"], "not implemented yet"),
        (["-c", "x.json", "--cupti-profiler-metrics", "a,b"], "not implemented yet"),
        (["-c", "x.json", "--cupti-profiler-measure-per-kernel"], "not implemented yet"),
        (["-c", "x.json", "--ncu-bin", "ncu"], "needs --ncu"),
        (["-c", "x.json", "--nsys-args-file", "f"], "needs --nsys"),
        (["-c", "x.json", "--batch-cmd", "python"], "needs --ncu or --nsys"),
        (["-c", "x.json", "--batch-cuda-device", "0"], "needs --ncu or --nsys"),
        (["-c", "x.json", "-w", "-1"], "--warmup: expected a whole number"),
        (["-c", "x.json", "--cuda-graph"], "a CPU captures no graph"),
        (["-c", "x.json", "-l", "loud"], "--log-level"),
        (["-c", "missing.json"], "missing.json"),
        ([], "no config is named"),
        (["-c", ""], "no config is named"),
    ],
    ids=str,
)
def test_an_impossible_option_is_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text('{"torch.add": {"config": [{"input": [{"args": [{"type": "int", "value": 1}]}]}]}}')
    with pytest.raises(UserError, match=said):
        main(arguments)
    assert not list(tmp_path.glob("benchmark_result*"))


def test_both_spellings_of_the_stop_id() -> None:
    assert parser().parse_args(["--stop_id", "a"]).stop_id == parser().parse_args(["--stop-id", "a"]).stop_id == "a"


@pytest.mark.parametrize("arguments", [["--version"], ["-h"]])
def test_version_and_help_import_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom opmark.interop.param.command import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('modules:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert "opmark" in done.stdout
    loaded = set(done.stderr.split())
    assert "argparse" in loaded
    assert not loaded & {"torch", "numpy", "msgspec", "rich", "sqlalchemy", "yaml", "opmark.api"}


def test_the_user_allows_functions_that_a_config_may_not_call(tmp_path: Path) -> None:
    """The hint of the refusal names an option that the command has."""
    config = {"torch.add": op([tensor(4), tensor(4)]), "torch.hub.load": op([tensor(4)])}
    command = Command(tmp_path)
    assert command.code(config, "--dry-run") == 1
    assert command.code(config, "--dry-run", "--allow", "other,torch.hub") == 0
    path = command.config(config)
    assert [spot.place.op for spot in read(path, ParamOptions()).spots] == ["torch.add"]
    for allow in ("torch.hub", ["torch.hub"]):
        assert [spot.place.op for spot in read(path, ParamOptions(allow=allow)).spots] == list(config)


BATCH = {
    "op_name": "torch.add",
    "config_build_id": "1|2",
    "op_info": op([tensor(8, 8), tensor(8, 8)]),
    "run_options": {"device": "null", "pass_type": "backward", "warmup": 3, "iteration": 7, "op-exec-mode": "discrete",
                    "run_ncu": True, "colour": "red"},
}  # fmt: skip


def run_batch(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run the batch file and return its run options as the result file has them, and the number of times by phase; on
    the null backend a backward pass is skipped."""
    file = tmp_path / "batch.json"
    file.write_text(json.dumps(BATCH))
    assert main(["-c", str(file), "-o", str(tmp_path / "out"), *options]) == 0
    (written,) = tmp_path.glob("out_*.json")
    header, case, *_ = lines_of(written)
    counts = {phase: len(metric["measure.time"]) for phase, metric in case["metric"].items()}
    used = header["run_options"]
    return {"counts": counts, **{name: used[name] for name in ("device", "warmup", "iteration", "pass_type")}}


def test_run_options_of_a_batch_file_are_used_as_param_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch(tmp_path) == {
        "counts": {"forward": 7, "backward": 0}, "device": "null", "warmup": 3, "iteration": 7,
        "pass_type": "ExecutionPass.BACKWARD",
    }  # fmt: skip
    err = capsys.readouterr().err
    used = "device null, pass_type backward, warmup 3, iteration 7, op_exec_mode discrete"
    assert f"run_options of {tmp_path / 'batch.json'}: {used}; what the command line says comes first" in err
    assert "`run_options`: `run_ncu` is ignored: --ncu and --nsys of the command line run profilers" in err
    assert "`run_options.colour` is not known and is ignored" in err


def test_the_command_line_comes_before_the_batch_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_batch(tmp_path, "-i", "2", "-d", "null-device", "--warmup=0")
    assert (found["iteration"], found["device"], found["warmup"]) == (2, "null-device", 0)
    assert found["counts"] == {"forward": 2, "backward": 0}
    assert "batch.json: pass_type backward, op_exec_mode discrete; what" in capsys.readouterr().err


def test_the_command_line_can_switch_off_what_the_batch_file_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_batch(tmp_path, "--no-backward")
    assert (found["pass_type"], found["counts"]) == ("ExecutionPass.FORWARD", {"forward": 7})
    assert "pass_type" not in capsys.readouterr().err
    switched_off = parser().parse_args(
        ["--no-cuda-graph", "--no-pt2-model"], argparse.Namespace(cuda_graph=True, pt2_model=True)
    )
    assert (switched_off.cuda_graph, switched_off.pt2_model, switched_off.backward) == (False, False, False)
    assert parser().parse_args(["-b", "--cuda-graph", "--pt2-model"]).backward


def test_batch_files_of_a_folder_share_the_options_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "batch.json").write_text(json.dumps(BATCH))
    assert main(["-c", str(folder), "-d", "null", "-i", "2", "-o", str(tmp_path / "out")]) == 0
    (written,) = tmp_path.glob("out_*.json")
    assert len(lines_of(written)[1]["metric"]["forward"]["measure.time"]) == 2
    said = "are ignored: options of the command line apply to all files of a folder"
    assert said in capsys.readouterr().err


def test_run_config_uses_the_run_options_of_a_batch() -> None:
    (result,) = run_config(BATCH, say=lambda line: None)
    assert [len(metric["measure.time"]) for metric in result.metric.values()] == [7, 0]
    (result,) = run_config(BATCH, say=lambda line: None, iteration=1)
    assert [len(metric["measure.time"]) for metric in result.metric.values()] == [1, 0]
