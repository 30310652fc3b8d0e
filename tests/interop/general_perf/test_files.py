"""Workload and model-zoo files of general_perf, as ByteMLPerf and its vendors write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmark.catalogue.workload_file import read_plain
from opmark.errors import InvalidFile, UserError
from opmark.interop.general_perf import files

README = """{
    "model": "bert-torch-fp32",   //The name of the model to be evaluated, see https://example.org/zoo
    "test_perf": true,            //Evaluate model performance
    "test_accuracy": true,        //Evaluate model accuracy
    "test_numeric": true,         //Accuracy：Evaluate model numeric
    "clients": 3,                 //Performance：Client threads that submit data
    "iterations": 100,            //Performance
    "batch_sizes":[1,4,8,16,32,64],//Performance
    "data_percent": 50,           //Accuracy：Ratio of data to assess accuracy, [1-100]
    "compile_only": false,           //Compile the model only
}
"""
TASK: dict[str, Any] = {
    "model": "bert-torch-fp32", "test_perf": True, "test_accuracy": True, "test_numeric": True, "clients": 3,
    "iterations": 100, "batch_sizes": [1, 4], "data_percent": 100, "compile_only": False,
}  # fmt: skip
BERT: dict[str, Any] = {
    "model": "bert-ixrt-fp16", "model_path": "a/b.pt", "onnx_model_path": "a/b.onnx", "engine_path": "a/b.engine",
    "framework": "Pytorch", "framework_version": "1.9.1", "framework_iluvatar": "IXRT",
    "framework_iluvatar_version": "tensorrt.__version__", "model_format": "pt", "model_precision": "FP16",
    "inputs": "input_ids.1,attention_mask.1,token_type_ids.1", "outputs": "start_logits,end_logits",
    "input_shape": {"input_ids.1": [1, 384], "attention_mask.1": [1, 384], "token_type_ids.1": [1, 384]},
    "input_type": "LONG,LONG,LONG", "dataset_name": "open_squad", "max_batch_size": 64, "is_quantized": False,
}  # fmt: skip


def model(tmp_path: Path, **changes: Any) -> tuple[files.ModelFile, list[str]]:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**BERT, **changes}))
    return files.read_model_file(path)


def test_the_fragment_of_the_readme_is_read_as_printed(tmp_path: Path) -> None:
    path = tmp_path / "bert.json"
    path.write_text(README, encoding="utf-8")
    found, notes = files.read_task_file(read_plain(path).data, str(path))
    assert found.sizes == (1, 4, 8, 16, 32, 64)
    assert (found.clients, found.iterations, found.data_percent, found.compile_only) == (3, 100, 50, False)
    assert notes == []


def test_fields_of_vendors_are_read_and_say_that_they_decide_nothing() -> None:
    _, notes = files.read_task_file({**TASK, "multi_cores": True, "fake_data": False, "color": 1}, "w.json")
    assert [note.split("`")[1] for note in notes] == ["multi_cores", "fake_data", "color"]


def test_missing_fields_have_the_usual_values_and_are_named() -> None:
    found, notes = files.read_task_file({"model": "bert-torch-fp32", "test_perf": True}, "w.json")
    assert (found.clients, found.iterations) == (3, 100)
    assert "w.json: no `clients`; it is taken as 3" in notes


def test_one_batch_size_may_stand_without_a_list() -> None:
    assert files.read_task_file({**TASK, "batch_sizes": 8}, "w.json")[0].sizes == (8,)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"clients": "3"}, "$.clients"),
        ({"clients": 0}, "$.clients"),
        ({"iterations": 0.5}, "$.iterations"),
        ({"batch_sizes": [1, 0]}, "$.batch_sizes"),
        ({"batch_sizes": []}, "$.batch_sizes"),
        ({"data_percent": 0}, "$.data_percent"),
        ({"data_percent": 101}, "$.data_percent"),
        ({"test_perf": "yes"}, "$.test_perf"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        files.read_task_file({**TASK, **changes}, "w.json")
    assert "w.json" in caught.value.message
    assert place in caught.value.message


def test_a_mistyped_key_is_refused_where_the_right_one_is_missing() -> None:
    data = {key: value for key, value in TASK.items() if key != "iterations"} | {"iteration": 5}
    with pytest.raises(InvalidFile) as caught:
        files.read_task_file(data, "w.json")
    assert caught.value.hint == "did you mean `iterations`?"


@pytest.mark.parametrize("data", [None, [], "x", {"cases": []}, {"model": 3, "test_perf": True}, {"model": "a"}])
def test_other_files_are_not_taken_for_workloads(data: Any) -> None:
    assert not files.is_workload(data)


def test_a_model_file_of_a_vendor(tmp_path: Path) -> None:
    found, notes = model(tmp_path)
    assert found.input_names == ["input_ids.1", "attention_mask.1", "token_type_ids.1"]
    assert found.shapes == ((1, 384),) * 3
    assert [note.split("`")[1] for note in notes] == ["engine_path", "framework_iluvatar", "framework_iluvatar_version"]


def test_a_model_file_without_inputs(tmp_path: Path) -> None:
    empty = dict.fromkeys(("inputs", "outputs", "input_shape", "input_type", "dataset_name", "max_batch_size"))
    found, _ = model(tmp_path, **empty)
    assert (found.input_names, found.shapes, found.max_batch_size) == ([], (), None)


def test_inputs_are_drawn_over_a_range_and_masks_are_flags(tmp_path: Path) -> None:
    found, _ = model(tmp_path)
    assert files.describe_inputs(found, "m.json") == {
        "input_ids.1": "1x384 int64 0..1000",
        "attention_mask.1": "1x384 int64 0..2",
        "token_type_ids.1": "1x384 int64 0..2",
    }
    assert files.is_scaled_as_batch(found)


def test_the_first_axis_times_the_batch_and_text_stays(tmp_path: Path) -> None:
    shapes = {"new_categorical_placeholder:0": [26, 2], "text": [100, 77], "mask": [1, 8], "pixels": [1, 3, 4, 4]}
    found, _ = model(tmp_path, inputs=",".join(shapes), input_shape=shapes, input_type="INT64,LONG,BOOL,FLOAT16")
    assert not files.is_scaled_as_batch(found)
    assert files.describe_inputs(found, "m.json", 4) == {
        "new_categorical_placeholder:0": "104x2 int64 0..1000",
        "text": "100x77 int64 0..1000",
        "mask": "4x8 bool",
        "pixels": "4x3x4x4 float16",
    }


@pytest.mark.parametrize(
    "changes", [{"input_type": "LONG,LONG"}, {"input_type": "LONG,LONG,COMPLEX"}, {"input_shape": None}]
)
def test_inputs_that_do_not_fit_together_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    found, _ = model(tmp_path, **changes)
    with pytest.raises(InvalidFile, match=r"m\.json"):
        files.describe_inputs(found, "m.json")


def test_a_broken_file_is_refused_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{\n  "model": "a",\n  "model_path": \n}')
    with pytest.raises(InvalidFile, match=r"model\.json:4:1"):
        files.read_model_file(path)


def test_folders_are_found_where_bytemlperf_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.find_folder(None, "workloads", "--workload_dir") is None
    (tmp_path / "general_perf" / "workloads").mkdir(parents=True)
    (tmp_path / "general_perf" / "workloads" / "mine.json").write_text(json.dumps(TASK))
    (tmp_path / "general_perf" / "workloads" / "other.json").write_text("{}")
    (tmp_path / "general_perf" / "workloads" / "broken.json").write_text("{")
    folder = files.find_folder(None, "workloads", "--workload_dir")
    assert files.names_in(folder) == ["mine"]
    with pytest.raises(UserError, match="--model_zoo nowhere"):
        files.find_folder(Path("nowhere"), "model_zoo", "--model_zoo")


def test_a_model_path_is_looked_for_from_the_file_upwards(tmp_path: Path) -> None:
    (tmp_path / "general_perf" / "model_zoo" / "regular").mkdir(parents=True)
    wanted = tmp_path / "general_perf" / "model_zoo" / "regular" / "net.pt"
    wanted.write_bytes(b"")
    file = tmp_path / "general_perf" / "model_zoo" / "net.json"
    assert files.find_model("general_perf/model_zoo/regular/net.pt", file) == wanted
    assert files.find_model("general_perf/model_zoo/regular/other.pt", file) is None
