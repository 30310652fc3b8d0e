"""Whole models in TensorFlow, against the references of their torch networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.api.run import run as api_run
from opmark.plugin import registry
from opmark.runner.guests import environments
from opmark.schema import Record

# Asked while this file is imported: a test has data directories of its own.
FOLDER = environments.environments_folder()
GUEST = environments.find_environment("tensorflow")

pytestmark = [
    pytest.mark.skipif(GUEST is None, reason="no environment `tensorflow` (opmark env create tensorflow)"),
    pytest.mark.timeout(1200),
]

BACKEND = "tensorflow-cpu"
MODELS = ("model:bert-base", "model:resnet50", "model:roformer", "model:wide-and-deep")


@pytest.fixture(autouse=True)
def guests(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv(environments.VARIABLE, str(FOLDER))


def run(*names: str, backend: str = BACKEND, **asked: Any) -> list[Record]:
    given = {"size": "small", "processes": 1, "threads": 1, "db": ":memory:", "compile_only": True, **asked}
    return api_run(list(names), backend=backend, say=lambda _: None, **given).records


@pytest.mark.parametrize("way", registry.backend(BACKEND).variants)
def test_every_model_computes_what_its_torch_network_does(way: str) -> None:
    """A batch is checked sample by sample, with the bounds that every other backend has."""
    records = run(*MODELS, backend=f"{BACKEND}/{way}", params={"dtype": ["float32", "float16"], "batch": 2})
    assert {f"{r.task.case.op} {r.task.case.params['dtype']}": r.reason for r in records if r.status != "ok"} == {}
    assert len(records) == 2 * len(MODELS)
    for record in records:
        assert record.verification is not None
        assert record.verification.bounds
        assert (record.compilation is None) == (way == "eager")


def test_weights_that_are_not_those_of_torch_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (right,) = run("model:wide-and-deep")
    (kept,) = tmp_path.glob("opmark/models/*.npz")
    with np.load(kept) as found:
        weights = dict(found)
    weights["deep.2.weight"] = weights["deep.2.weight"][::-1]
    np.savez(kept, **weights)
    (wrong,) = run("model:wide-and-deep")
    assert (right.status, wrong.status) == ("ok", "wrong")


def test_a_picture_is_turned_before_the_call_and_not_in_it() -> None:
    (record,) = run("model:resnet50")
    assert record.status == "ok", record.reason
    assert record.compilation is not None
    assert "Transpose" not in record.compilation.operators


def test_outputs_of_layers_are_refused_with_a_reason() -> None:
    (record,) = run("model:wide-and-deep", params={"outputs": "layers"})
    assert (record.status, "layers" in record.reason) == ("skipped", True)
