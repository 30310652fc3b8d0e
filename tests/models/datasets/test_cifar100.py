"""CIFAR-100 as pickles and in binary, for classifiers and for CLIP; pickles that would execute something."""

from __future__ import annotations

import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.cifar100 import Cifar100
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import DataChoice

CLASSIFIER = {"size": "small", "batch": 2, "image": 32, "dtype": "float32"}
CLIP = {"size": "small", "batch": 2, "dtype": "float32"}
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 3072)).astype(np.uint8)
LABELS = [49, 0, 99, 3, 7]


def load(path: Path, model: str = "resnet50", params: Any = CLASSIFIER, **options: str) -> Cifar100:
    return Cifar100(DataChoice("cifar100", str(path), options=options), find_operator(f"model:{model}"), params, 0)


@pytest.fixture
def as_pickle(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    content = {b"data": PIXELS, b"fine_labels": LABELS, b"coarse_labels": [0] * 5, b"filenames": [b"a.png"] * 5}
    (folder / "test").write_bytes(pickle.dumps(content, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"apple"]}, protocol=2))
    return folder


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    records = [struct.pack("BB", 1, label) + row.tobytes() for label, row in zip(LABELS, PIXELS, strict=True)]
    (folder / "test.bin").write_bytes(b"".join(records))
    return folder


def test_both_versions_hold_the_same(as_pickle: Path, binary: Path, tmp_path: Path) -> None:
    packed = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(as_pickle, as_pickle.name)
    found = [load(path) for path in (as_pickle, binary, packed, as_pickle / "test", binary / "test.bin")]
    inputs = []
    for data in found:
        assert (data.labels, data.available) == (LABELS, 5)
        data.choose([0, 4])
        inputs.append(data.inputs(range(2))["image"])
    for other in inputs[1:]:
        np.testing.assert_array_equal(inputs[0], other)
    assert len({data.digest() for data in found}) == 1


def test_pictures_are_red_green_blue_and_normalised(as_pickle: Path) -> None:
    data = load(as_pickle)
    data.choose([2])
    found = data.inputs(range(1))["image"]
    assert found.shape == (1, 3, 32, 32)
    expected = (PIXELS[2].reshape(3, 32, 32)[1] / 255 - 0.4865) / 0.2564
    assert found[0, 1] == pytest.approx(expected, abs=1e-5)


def test_clip_gets_the_texts_with_every_batch(as_pickle: Path, tmp_path: Path) -> None:
    tokens = np.tile(np.array([998, 5, 999] + [999] * 13), (100, 1))
    np.save(tmp_path / "text.npy", tokens)
    data = load(as_pickle, "videobert", CLIP, text=str(tmp_path / "text.npy"))
    rows = range(data.choose([0, 1]))
    inputs = data.inputs(rows)
    side = find_operator("model:videobert").inputs(CLIP)["image"].shape[-1]
    assert inputs["image"].shape == (2, 3, side, side)
    np.testing.assert_array_equal(inputs["text"], tokens)
    logits = np.zeros((2, 100))
    logits[[0, 1], [49, 1]] = 1
    data.take(rows, [logits, logits.T])
    assert data.scores()["Top-1"] == [1, 0]


def test_texts_that_do_not_fit(as_pickle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected an array of 100x16 tokens"):
        load(as_pickle, "videobert", CLIP)
    np.save(tmp_path / "text.npy", np.zeros((100, 77), int))
    with pytest.raises(InvalidFile, match=r"shape \(100, 16\), got int64 \(100, 77\)"):
        load(as_pickle, "videobert", CLIP, text=str(tmp_path / "text.npy"))
    np.save(tmp_path / "text.npy", np.full((100, 16), 49407))
    with pytest.raises(InvalidFile, match="tokens from 0 to 999, got 49407 to 49407"):
        load(as_pickle, "videobert", CLIP, text=str(tmp_path / "text.npy"))
    with pytest.raises(UserError, match="there is no file"):
        load(as_pickle, "videobert", CLIP, text=str(tmp_path / "missing.npy"))


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_a_pickle_executes_nothing(as_pickle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (as_pickle / "test").write_bytes(pickle.dumps({b"data": Evil(), b"fine_labels": LABELS}, protocol=2))
    with pytest.raises(InvalidFile, match=r"it would call posix\.mkdir|it would call os\.mkdir"):
        load(as_pickle)
    assert not (tmp_path / "executed").exists()


def test_damaged_and_foreign_files(as_pickle: Path, binary: Path, tmp_path: Path) -> None:
    whole = (as_pickle / "test").read_bytes()
    (as_pickle / "test").write_bytes(whole[:2000])
    with pytest.raises(InvalidFile, match="cannot be read"):
        load(as_pickle)
    (as_pickle / "test").write_bytes(pickle.dumps({b"data": PIXELS, b"labels": LABELS}, protocol=2))
    with pytest.raises(InvalidFile, match=r"expected a pickle with `data` and `fine_labels`, got b'data', b'labels'"):
        load(as_pickle)
    (as_pickle / "test").write_bytes(pickle.dumps({b"data": PIXELS[:3], b"fine_labels": LABELS}, protocol=2))
    with pytest.raises(InvalidFile, match=r"\(5, 3072\), got uint8 \(3, 3072\)"):
        load(as_pickle)
    (as_pickle / "test").write_bytes(pickle.dumps({b"data": PIXELS, b"fine_labels": [*LABELS[:4], 100]}, protocol=2))
    with pytest.raises(InvalidFile, match="labels from 0 to 99, got 100"):
        load(as_pickle)
    cut = (binary / "test.bin").read_bytes()[:-7]
    (binary / "test.bin").write_bytes(cut)
    with pytest.raises(InvalidFile, match="records of 3074 bytes, got 15363 bytes"):
        load(binary)
    with pytest.raises(InvalidFile, match=r"got neither `test` nor `test.bin`"):
        load(tmp_path / "cifar-100-python" / "meta")


def test_a_model_with_another_number_of_classes(as_pickle: Path) -> None:
    data = load(as_pickle)
    rows = range(data.choose([0]))
    data.inputs(rows)
    with pytest.raises(UserError, match="100 classes, and the model's first output has 250"):
        data.take(rows, [np.zeros((1, 250))])
