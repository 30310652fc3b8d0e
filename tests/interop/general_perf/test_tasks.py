"""Names of tasks: which model of the zoo, which element type and which backend they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opmark.errors import UnknownName, UserError
from opmark.interop.general_perf import resolution, tasks
from opmark.interop.general_perf.resolution import (
    ResolvedTask,
    TaskFolders,
    choose_backend,
    read_workload,
    resolve_task,
)
from opmark.plugin.registry import backends, operators_like

NOWHERE = TaskFolders()


def resolved(name: str, folders: TaskFolders = NOWHERE, **changes: Any) -> ResolvedTask:
    return resolve_task(name, read_workload(name, folders)[0], folders, **changes)


@pytest.mark.parametrize("name", list(tasks.known_tasks()))
def test_every_task_of_bytemlperf_is_a_model_of_the_zoo(name: str) -> None:
    found = resolved(name)
    assert found.operator.removesuffix("-mhlo") in operators_like("model:*")
    assert {params["dtype"] for params in found.params} == {"float16" if name.endswith("fp16") else "float32"}
    assert [params["batch"] for params in found.params] == list(found.workload.sizes)
    assert choose_backend("CPU", found).backend in backends()


@pytest.mark.parametrize(
    ("name", "model", "framework", "precision"),
    [
        ("bert-torch-fp32", "bert", "torch", "fp32"),
        ("BERT-TF-FP16", "bert", "tensorflow", "fp16"),
        ("bert-base-torch-bf16", "bert", "torch", "bf16"),
        ("swin-large-torch-fp32", "swin-large", "torch", "fp32"),
        ("conformer-encoder-onnx-fp32", "conformer-encoder", "onnx", "fp32"),
        ("resnet50-mhlo-fp32", "resnet50", "mhlo", "fp32"),
        ("bert-ixrt-fp16", "bert", "torch", "fp16"),
        ("robert-torch-fp32", "roberta", "torch", "fp32"),
        ("vae-encoder-onnx-fp32", "vae-encoder", "onnx", "fp32"),
        ("gru-torch-fp16", "gru", "torch", "fp16"),
        ("resnet50", "resnet50", "", "fp32"),
    ],
)
def test_a_name_is_taken_apart(name: str, model: str, framework: str, precision: str) -> None:
    found = tasks.take_apart(name)
    assert (found.model, found.framework, found.precision) == (model, framework, precision)


def test_clip_is_the_text_encoder_and_videobert_is_clip() -> None:
    assert resolved("clip-onnx-fp32").operator == "model:stable-diffusion-text-encoder"
    assert resolved("videobert-onnx-fp32").operator == "model:videobert"


def test_an_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        resolved("bert-troch-fp32")
    assert "`bert-torch-fp32`" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet-torch-fp32", "`resnet50-torch-fp32`"),
        ("stable-diffusion-onnx-fp32", "`unet-onnx-fp32` or `vae-encoder-onnx-fp32`"),
        ("resnet50-paddle-fp32", "frameworks are torch, tf, onnx, mhlo"),
        ("bert-torch-fp64", "precisions are fp32, fp16"),
    ],
)
def test_the_part_of_a_name_that_is_wrong_is_named(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(name)
    assert message in str(caught.value.hint)


def test_a_name_that_shares_only_framework_and_precision_suggests_nothing() -> None:
    with pytest.raises(UnknownName) as caught:
        resolved("foo-torch-fp32")
    assert "did you mean" not in str(caught.value.hint)


def test_quantized_weights_are_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match="int8 needs quantized weights"):
        resolved("bert-torch-int8")


def test_language_models_are_compiled_only_as_in_bytemlperf() -> None:
    assert resolved("llama2-7b-torch-fp16").workload.compile_only


def model_file(folder: Path, name: str, **fields: Any) -> TaskFolders:
    folder.joinpath(f"{name}.json").write_text(json.dumps({"model": name, **fields}))
    return TaskFolders(None, folder)


def test_the_shape_of_a_file_sets_the_size_of_the_zoo_model(tmp_path: Path) -> None:
    shapes = {"input_ids.1": [1, 128], "attention_mask.1": [1, 128], "token_type_ids.1": [1, 128]}
    found = resolved("bert-torch-fp32", model_file(tmp_path, "bert-torch-fp32", input_shape=shapes))
    assert found.params[0]["seq"] == 128


def test_pictures_in_the_order_of_tensorflow_are_the_same_pictures(tmp_path: Path) -> None:
    folders = model_file(tmp_path, "resnet50-tf-fp32", input_shape={"input_tensor:0": [1, 224, 224, 3]})
    found = resolved("resnet50-tf-fp32", folders)
    assert found.params[0]["image"] == 224
    assert not any("input_shape" in note for note in found.notes)


def test_a_shape_that_the_zoo_model_cannot_have_is_noted(tmp_path: Path) -> None:
    folders = model_file(tmp_path, "resnet50-torch-fp32", input_shape={"x": [1, 7]})
    assert any("1x7" in note for note in resolved("resnet50-torch-fp32", folders).notes)


def test_widedeep_has_pairs_in_bytemlperf(tmp_path: Path) -> None:
    shapes = {"new_categorical_placeholder:0": [26, 2], "new_numeric_placeholder:0": [1, 13]}
    found = resolved("widedeep-tf-fp32", model_file(tmp_path, "widedeep-tf-fp32", input_shape=shapes))
    assert any("pairs (column, bucket)" in note for note in found.notes)


def test_a_model_that_is_not_there_is_named_and_the_zoo_runs(tmp_path: Path) -> None:
    found = resolved("bert-torch-fp32", model_file(tmp_path, "bert-torch-fp32", model_path="general_perf/bert.pt"))
    assert found.operator == "model:bert-base"
    assert any("general_perf/bert.pt" in note and "random weights" in note for note in found.notes)


def test_a_model_that_is_there_runs_itself(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    found = resolved("bert-onnx-fp32", model_file(
        tmp_path, "bert-onnx-fp32", model_path="net.onnx", inputs="ids", input_shape={"ids": [1, 8]},
        input_type="INT64",
    ))  # fmt: skip
    assert found.operator == f"model:{tmp_path / 'net.onnx'}"
    assert found.params[0]["inputs"] == {"ids": "1x8 int64 0..1000"}
    assert found.own_file == str(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [("net.tar", {}, "has not ended"), ("net", {"model_format": "saved_model"}, "no SavedModel")],
)
def test_files_that_cannot_run_say_what_to_do(tmp_path: Path, path: str, fields: dict[str, Any], reason: str) -> None:
    (tmp_path / path).write_bytes(b"")
    with pytest.raises(UserError, match=reason) as caught:
        resolved("bert-torch-fp32", model_file(tmp_path, "bert-torch-fp32", model_path=path, **fields))
    assert caught.value.hint


def test_a_quantized_model_is_not_replaced_by_the_zoo(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is_quantized"):
        resolved("bert-torch-fp32", model_file(tmp_path, "bert-torch-fp32", is_quantized=True))


def test_large_batches_and_other_precisions_are_noted(tmp_path: Path) -> None:
    folders = model_file(tmp_path, "bert-torch-fp16", max_batch_size=8, model_precision="FP32")
    notes = " ".join(resolved("bert-torch-fp16", folders).notes)
    assert "batch sizes 16, 24 are above max_batch_size 8" in notes
    assert "computed in fp16" in notes


def test_another_framework_is_said_and_never_another_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resolution, "why_missing", lambda info: "not installed" * (info.framework == "tensorflow") or None
    )
    found = choose_backend("CPU", resolved("bert-tf-fp32"))
    assert (found.backend, found.ran) == ("torch-cpu", "torch")
    assert found.note == "Framework: Tensorflow asked for, torch ran: not installed"
    monkeypatch.setattr(resolution, "why_missing", lambda info: "not here")
    assert choose_backend("GPU", resolved("bert-torch-fp32")).backend == "torch-cuda"


def test_a_backend_may_stand_for_the_hardware() -> None:
    found = choose_backend("openvino-cpu", resolved("bert-torch-fp32"))
    assert found.backend == "openvino-cpu"
    assert found.note.startswith("Framework: Pytorch asked for")


def test_unknown_hardware_suggests_and_known_chips_say_what_they_need() -> None:
    with pytest.raises(UnknownName, match="CPUU"):
        choose_backend("CPUU", resolved("bert-torch-fp32"))
    with pytest.raises(UserError, match="poprt"):
        choose_backend("IPU", resolved("bert-torch-fp32"))
