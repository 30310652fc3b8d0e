"""Whole models on a GPU: verified against float64 on the host, timed by the device's own records."""

from __future__ import annotations

from pathlib import Path

import pytest

import opmark

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["bert-base", "wide-and-deep", "stable-diffusion-unet", "conformer"])
def test_a_model_is_verified_and_has_a_device_time(name: str, dtype: str, tmp_path: Path) -> None:
    (record,) = opmark.run(
        [f"model:{name}"],
        size="small",
        params={"dtype": dtype},
        backend="torch-cuda",
        effort="quick",
        db=tmp_path / "d.db",
    ).records
    assert (record.status, record.reason) == ("ok", "")
    assert record.measurement("device_time", "cold") is not None
    assert record.memory is not None
    assert record.cost is not None
    assert record.memory.peak > record.cost.bytes_read / 2, "weights count"


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["llama2-7b", "chatglm2-6b"])
def test_both_stages_of_a_language_model_give_what_the_whole_text_gives(name: str, stage: str, tmp_path: Path) -> None:
    params = {"dtype": "float16", "stage": stage, "batch": 3}
    (record,) = opmark.run(
        [f"model:{name}"], size="small", params=params, backend="torch-cuda", effort="quick", db=tmp_path / "d.db"
    ).records
    assert (record.status, record.reason) == ("ok", "")
