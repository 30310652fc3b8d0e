"""opmark evaluate: models of users on small data, backends side by side, stored runs, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytestmark = pytest.mark.models

Command = Callable[..., Any]

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

SYNSETS = ("n01440764", "n01443537", "n01484850", "n01491361", "n01494475", "n01496331")
COLOURS = ((220, 20, 20), (20, 220, 20), (20, 20, 220), (220, 220, 20), (220, 20, 220), (20, 220, 220))
MODELS = """
import torch

class Colours(torch.nn.Module):
    def __init__(self):
        super().__init__()
        signs = torch.tensor([[1., -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]])
        self.signs = torch.nn.Parameter(signs)

    def forward(self, image):
        return image.mean((2, 3)) @ self.signs.T

def build(batch=1):
    return Colours(), {"image": torch.rand(batch, 3, 8, 8)}
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven pictures of six classes; one of them is in the wrong folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODELS)
    for number, (synset, colour) in enumerate(zip(SYNSETS, COLOURS, strict=True)):
        folder = tmp_path / "val" / synset
        folder.mkdir(parents=True)
        for copy in range(1 + (number == 0)):
            out = io.BytesIO()
            Image.new("RGB", (20, 12), COLOURS[3] if copy else colour).save(out, "JPEG")
            (folder / f"{copy}.JPEG").write_bytes(out.getvalue())
    return tmp_path / "val"


def test_backends_are_compared_on_the_same_samples(opmark: Command, data: Path) -> None:
    done = opmark(
        "evaluate", "model:nets.py:build", "-p", "batch=3", "-p", "dtype=float32,bfloat16",
        "--data", f"imagenet:{data}", "--backend", "onnxruntime-cpu,torch-cpu", "--reference", "torch-cpu",
        "--threads", "1", "--json",
    )  # fmt: skip
    rows = {(row["backend"], row["dtype"]): row for row in done.objects}
    assert next(iter(rows)) == ("torch-cpu", "float32")
    for key in (("torch-cpu", "float32"), ("torch-cpu", "bfloat16"), ("onnxruntime-cpu", "float32")):
        row = rows[key]
        assert row["status"] == "ok", row["reason"]
        assert (row["samples"], row["available"]) == (7, 7)
        assert row["metrics"]["Top-1"]["value"] == pytest.approx(6 / 7)
        assert row["digest"] == rows["torch-cpu", "float32"]["digest"]
    assert rows["onnxruntime-cpu", "float32"]["reference"] == "torch-cpu float32"
    assert rows["onnxruntime-cpu", "float32"]["differences"]["Top-1"]["verdict"] == "undecided"

    shown = opmark("show")
    assert shown.code == 0
    assert "85.71 %" in shown.out
    assert "samples would decide it" in shown.out
    stored = opmark("show", "--json").objects[0]["evaluation"]
    assert stored["metrics"]["Top-1"]["kind"] == "share"
    assert stored["scores"] == {}
    assert "Accuracy on labelled data" in opmark("report", "--format", "md").out
    assert opmark("report", "-o", "report.html").code == 0
    assert "Accuracy on labelled data" in Path("report.html").read_text()


def test_damaged_data_is_a_record_with_a_reason(opmark: Command, data: Path) -> None:
    (data / SYNSETS[2] / "0.JPEG").write_bytes(b"unfinished")
    done = opmark("evaluate", "model:nets.py:build", "--data", f"imagenet:{data}", "--threads", "1", "--no-verify")
    assert done.code == 1
    assert "error" in done.out
    assert "n01484850/0.JPEG: the picture cannot be decoded" in done.out
    assert "downloaded to its end" in done.out
    assert "stored as run" in done.err


def test_what_is_wrong_with_a_request_is_said_before_anything_runs(main: Command, data: Path) -> None:
    model = ("evaluate", "model:nets.py:build")
    for arguments, message in (
        ((), "no data is named"),
        (("--data", "imagenett:val"), "did you mean `imagenet`?"),
        (("--data", "imagenet:"), "nothing stands behind the colon"),
        (("--data", "imagenet:nowhere"), "there is no file or folder nowhere"),
        (("--data", "imagenet:val", "--data-percent", "0"), "above 0 and up to 100, got 0"),
        (("--data", "imagenet:val", "--data-percent", "101"), "above 0 and up to 100, got 101"),
        (("--data", "imagenet:val", "--data-option", "labels"), "expected NAME=VALUE, got `labels`"),
    ):
        done = main(*model, *arguments)
        assert done.code == 2, done
        assert message in done.err, done.err
        assert "hint:" in done.err


def test_data_sets_are_listed(main: Command) -> None:
    names = {row["data set"] for row in main("list", "datasets", "--json").objects}
    assert names >= {"imagenet", "squad", "criteo", "cifar100", "cail2019"}
