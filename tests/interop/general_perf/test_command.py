"""opmark general-perf: from ByteMLPerf's command line to its report tree."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UserError
from opmark.interop.general_perf.command import main
from opmark.runner.workload_source import read_source

pytestmark = pytest.mark.models

WORKLOAD: dict[str, Any] = {
    "model": "widedeep-tf-fp32", "test_perf": True, "test_accuracy": False, "test_numeric": True, "clients": 2,
    "iterations": 15, "batch_sizes": [2, 4], "data_percent": 100, "compile_only": False,
}  # fmt: skip

Put = Callable[[str, Any], Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Writes files of the folder that commands are called in, where no browser is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPMARK_BROWSER", "no-browser")
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "runs.db"))

    def write(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    return write


def report(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("reports", path).read_text())
    return found


def test_a_task_runs_from_its_file_to_its_report(put: Put, capfd: pytest.CaptureFixture[str]) -> None:
    put("workloads/mine-torch-fp32.json", WORKLOAD)
    code = main(["--task", "mine-torch-fp32", "--hardware-type", "torch-cpu", "--size", "small", "--threads", "1"])
    found = report("TORCH-CPU/mine-torch-fp32/result-fp32.json")
    assert code == 0, found
    assert [(line["BS"], line["Clients"], line["Requests"]) for line in found["Performance"]] == [
        (2, 2, 30),
        (4, 2, 30),
    ]
    assert all(line["QPS"] > 0 for line in found["Performance"])
    assert found["Accuracy"]["Verdict"] == "PASS"
    assert found["Accuracy"]["Max Diff"] < 1e-3
    assert found["Accuracy"]["Diff Dist"] == "mine-torch-fp32-to-fp32.svg"
    assert "Tensorflow asked for, torch ran" in found["Notes"][0]
    assert any("stands for a PNG" in note for note in found["Notes"])
    assert Path("reports/TORCH-CPU/mine-torch-fp32/mine-torch-fp32-to-fp32-load.svg").is_file()
    page = Path("reports/TORCH-CPU/mine-torch-fp32/mine-torch-fp32-to-fp32.html").read_text()
    assert "Samples per second of mine-torch-fp32 over batch sizes" in page
    assert "mine-torch-fp32 BS 2: QPS" in capfd.readouterr().out


def test_a_missing_data_set_costs_the_accuracy_alone(put: Put) -> None:
    put("workloads/mine.json", {**WORKLOAD, "test_accuracy": True, "batch_sizes": [2]})
    assert main(["--task", "mine", "--hardware_type", "null", "--size", "small"]) == 1
    found = report("NULL/mine/result-fp32.json")
    assert "--data criteo=PATH" in found["Accuracy"]["Reason"]
    assert found["Performance"][0]["QPS"] > 0


def clicks(label: str = "1") -> str:
    rows = [
        [str(i % 2), *(str((i * j) % 9) for j in range(13)), *(f"{i * 7 + j:08x}" for j in range(26))]
        for i in range(20)
    ]
    rows[3][0] = label
    return "".join("\t".join(row) + "\n" for row in rows)


def test_accuracy_is_evaluated_on_data_of_the_user(put: Put) -> None:
    put("workloads/mine.json", {**WORKLOAD, "test_accuracy": True, "test_perf": False, "test_numeric": False})
    put("data/train.txt", clicks())
    command = ["--task", "mine", "--hardware_type", "torch-cpu", "--threads", "1", "--data", "open_criteo_kaggle=data"]
    assert main([*command, "--data_percent", "50"]) == 0
    found = report("TORCH-CPU/mine/result-fp32.json")
    assert (found["Accuracy"]["Samples"], found["Accuracy"]["Samples Available"]) == (10, 20)
    assert 0 <= found["Accuracy"]["AUC"] <= 1
    assert {"Top-1", "Top-1 Interval", "log-loss"} <= found["Accuracy"].keys()
    assert "Performance" not in found

    put("data/train.txt", clicks(label="maybe"))
    assert main(command) == 1
    assert "maybe" in report("TORCH-CPU/mine/result-fp32.json")["Accuracy"]["Reason"]
    assert main([*command[:-1], "criteo=nowhere"]) == 1
    assert "nowhere" in report("TORCH-CPU/mine/result-fp32.json")["Unfinished"]["Accuracy"]


def test_accuracy_is_compared_with_a_reference_on_the_same_samples(put: Put) -> None:
    put("workloads/mine.json", {**WORKLOAD, "test_accuracy": True, "test_perf": False, "test_numeric": False})
    put("data/train.txt", clicks())
    command = ["--task", "mine", "--hardware_type", "onnxruntime-cpu", "--threads", "1", "--data", "criteo=data"]
    assert main([*command, "--reference", "torch-cpu"]) == 0
    found = report("ONNXRUNTIME-CPU/mine/result-fp32.json")["Accuracy"]
    against = found["Against Reference"]
    assert "torch-cpu" in against["Backend"]
    assert not against["Refused"]
    assert abs(against["AUC"]["Difference"]) < 0.01
    assert against["Top-1"]["Interval"][0] <= against["Top-1"]["Difference"] <= against["Top-1"]["Interval"][1]
    assert {against[name]["Verdict"] for name in ("AUC", "Top-1")} <= {"same", "undecided"}
    assert main(command) == 0
    assert "Against Reference" not in report("ONNXRUNTIME-CPU/mine/result-fp32.json")["Accuracy"]


def test_several_numbers_of_clients_are_told_apart_and_results_of_others_stand_beside(
    put: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    put("workloads/mine.json", {**WORKLOAD, "batch_sizes": [2]})
    vendor = {"Model": "WIDEDEEP-TF-FP32", "Backend": "STC", "Performance": [{"BS": 2, "QPS": 7.5, "AVG_Latency": 3}]}
    put("theirs/STC/widedeep-tf-fp32/result.json", vendor)
    command = ["--task", "mine", "--hardware_type", "null", "--size", "small", "--clients", "1,2"]
    assert main([*command, "--results", "theirs"]) == 0
    printed = capsys.readouterr().out
    assert "mine BS 2, 1 client: QPS" in printed
    assert "mine BS 2, 2 clients: QPS" in printed
    (beside,) = report("NULL/mine/result-fp32.json")["Reference"]
    assert (beside["Machine"], beside["Performance"][0]["QPS"]) == ("STC", 7.5)


def test_hardware_that_is_not_here_is_a_report_with_the_reason(put: Put) -> None:
    put("workloads/mine-torch-fp32.json", {**WORKLOAD, "batch_sizes": [2]})
    assert main(["--task", "mine-torch-fp32", "--hardware_type", "HPU", "--size", "small"]) == 1
    (line,) = report("HPU/mine-torch-fp32/result-fp32.json")["Performance"]
    assert (line["BS"], line["QPS"]) == (2, None)
    assert "habana" in line["Reason"]


def test_compile_only_writes_a_report_and_says_what_became_of_each_batch_size(
    put: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    put("workloads/mine.json", {**WORKLOAD, "batch_sizes": [2]})
    assert main(["--task", "mine", "--hardware_type", "null", "--size", "small", "--compile_only"]) == 0
    assert "mine BS 2: ok, null compiles nothing" in capsys.readouterr().out
    found = report("NULL/mine/result-fp32.json")
    assert "Performance" not in found
    assert "Graph Compile" in found


def test_a_model_of_the_user_runs_from_its_file(put: Put, tmp_path: Path) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(torch.nn.Linear(8, 3)), str(tmp_path / "net.pt"))
    put("workloads/net-torch-fp32.json", {**WORKLOAD, "model": "net-torch-fp32", "batch_sizes": [3]})
    zoo = {"model": "net-torch-fp32", "model_path": "net.pt", "framework": "Pytorch", "inputs": "x.1",
           "input_shape": {"x.1": [1, 8]}, "input_type": "FLOAT32", "dataset_name": None}  # fmt: skip
    put("model_zoo/net-torch-fp32.json", zoo)
    command = ["--task", "net-torch-fp32", "--hardware_type", "CPU", "--threads", "1"]
    assert main(command) == 0
    found = report("CPU/net-torch-fp32/result-fp32.json")
    assert found["Framework"]["Weights"] == str(tmp_path / "net.pt")
    assert found["Accuracy"]["Elements"] == 9

    whole = (tmp_path / "net.pt").read_bytes()
    (tmp_path / "net.pt").write_bytes(whole[: len(whole) // 2])
    assert main(command) == 1
    broken = report("CPU/net-torch-fp32/result-fp32.json")
    assert "net.pt" in json.dumps([broken["Unfinished"], broken["Performance"]])


def test_a_workload_file_is_a_workload_of_opmark(put: Put) -> None:
    path = put("workload_bert-torch-fp32.json", {**WORKLOAD, "model": "bert-torch-fp32"})
    found = read_source(path)
    assert found.foreign == "general-perf"
    assert [(case.op, case.params["batch"]) for case in found.cases] == [("model:bert-base", 2), ("model:bert-base", 4)]
    assert any("--clients 2 --requests 15" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "bert-torch-fp32"], "--hardware_type"),
        (["--hardware_type", "CPU"], "--task"),
        (["--task", "bert-torch-fp32", "--hardware_type", "CPU", "--data", "imagenet"], "NAME=PATH"),
        (["--task", "x", "--hardware_type", "CPU", "--model_zoo", "nowhere"], "nowhere"),
        (["--workload", "nowhere.json", "--hardware_type", "CPU"], "there is no file nowhere.json"),
        (["--task", "bert-torch-fp32", "--hardware_type", "CPU", "--data", "sqad=x"], "data set named `sqad`"),
        (["--task", "bert-torch-fp32", "--hardware_type", "CPU", "--reference", "tortch"], "backend named `tortch`"),
    ],
)
def test_what_is_missing_is_named(put: Put, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(arguments)


def test_the_lists(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    put("workloads/mine.json", WORKLOAD)
    assert main(["--show-task-list"]) == 0
    shown = capsys.readouterr().out.split()
    assert shown[0] == "mine"
    assert "bert-torch-fp32" in shown
