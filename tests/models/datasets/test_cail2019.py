"""CAIL2019-SCM as JSON lines and as arrays: pairs at any batch, labels, and what is wrong with files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.cail2019 import Cail2019
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import DataChoice

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"甲乙丙丁借款还"]
SMALL = {"size": "small", "batch": 3, "seq": 64, "dtype": "float32"}


def load(path: Path, **options: str) -> Cail2019:
    return Cail2019(DataChoice("cail2019", str(path), options=options), find_operator("model:roformer"), SMALL, 0)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    entries = [
        {"A": "甲借款", "B": "乙借款", "C": "丙还款", "label": "B"},
        {"A": "甲还款", "B": "乙借款", "C": "丙还款", "label": "C"},
        {"A": "甲" * 90, "B": "乙" * 90, "C": "丙", "label": "C"},
    ]
    path = tmp_path / "test.json"
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    return path


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Rows of different lengths, as ByteMLPerf's arrays of lists have them."""
    rows = [[2, 4, 3, 5, 3], [2, 4, 3, 6, 7, 3], [2, 3], [2, 4, 5, 6, 7, 8, 3]]
    tokens, segments = np.empty(4, object), np.empty(4, object)
    for i, own in enumerate(rows):
        tokens[i], segments[i] = own, [0] * len(own)
    folder = tmp_path / "open_cail2019"
    folder.mkdir()
    np.save(folder / "batch_token_ids.npy", tokens, allow_pickle=True)
    np.save(folder / "batch_segment_ids.npy", segments, allow_pickle=True)
    np.save(folder / "label.npy", np.array([1, 0, 1, 0]))
    return folder


def answer(data: Cail2019, scores: list[float], batch: int) -> list[float]:
    """Score all rows in batches of this size, which may cut pairs apart."""
    rows = data.choose(range(data.available))
    assert rows == len(scores)
    for start in range(0, rows, batch):
        chunk = range(start, min(start + batch, rows))
        data.inputs(chunk)
        data.take(chunk, [np.array([[scores[row]] for row in chunk])])
    return data.scores()["pairs"]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6])
def test_pairs_are_compared_at_any_batch(lines: Path, batch: int) -> None:
    data = load(lines, vocab=str(lines.parent / "vocab.txt"))
    assert answer(data, [0.9, 0.1, 0.8, 0.2, 0.3, 0.4], batch) == [1, 0, 1]
    assert data.metrics(data.scores())["pairs"].value == pytest.approx(2 / 3)


def test_a_tie_and_an_undefined_score_are_wrong(lines: Path) -> None:
    data = load(lines, vocab=str(lines.parent / "vocab.txt"))
    assert answer(data, [0.5, 0.5, 0.1, np.nan, np.nan, 1.0], 6) == [0, 0, 0]


def test_rows_hold_both_texts_and_are_cut_to_the_model(lines: Path) -> None:
    data = load(lines, vocab=str(lines.parent / "vocab.txt"))
    data.choose([0, 2])
    inputs = data.inputs(range(4))
    assert list(inputs) == ["input_ids", "token_type_ids"]
    assert [WORDS[i] for i in inputs["input_ids"][1][:9]] == ["[CLS]", *"甲借款", "[SEP]", *"丙还款", "[SEP]"]
    assert list(inputs["token_type_ids"][1][:9]) == [0] * 5 + [1] * 4
    long = [WORDS[i] for i in inputs["input_ids"][2]]
    assert long.count("[SEP]") == 2  # the longer text gives way, so that both are seen
    assert long.count("甲") + long.count("乙") == 61
    assert min(long.count("甲"), long.count("乙")) >= 30


def test_arrays_are_pairs_whose_labels_say_which_is_right(arrays: Path) -> None:
    data = load(arrays)
    assert data.available == 2
    assert answer(data, [0.9, 0.1, 0.2, 0.3], 3) == [1, 0]
    again = load(arrays)
    again.choose([1])
    found = again.inputs(range(2))["input_ids"]
    assert found.shape == (2, 64)
    assert list(found[1][:8]) == [2, 4, 5, 6, 7, 8, 3, 0]
    np.save(arrays / "label.npy", np.array([1, 0, 0, 1]))
    assert answer(load(arrays), [0.9, 0.1, 0.2, 0.3], 4) == [1, 1]


def test_the_digest_does_not_depend_on_the_batch(arrays: Path) -> None:
    found = []
    for batch in (1, 4):
        data = load(arrays)
        answer(data, [0.0] * 4, batch)
        found.append(data.digest())
    assert found[0] == found[1]
    np.save(arrays / "label.npy", np.array([0, 1, 1, 0]))
    data = load(arrays)
    answer(data, [0.0] * 4, 4)
    assert data.digest() != found[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"A": "x", "B"', "line 1: expected one JSON object per line"),
        ('{"text": "x", "label": 1}', "expected the texts A, B and C, got text, label"),
        ('["x"]', "expected the texts A, B and C, got list"),
        ('{"A": "x", "B": "y", "C": "z", "label": "A"}', "expected a label B or C, got `A`"),
        ('{"A": "x", "B": "y", "C": "z"}', "expected a label B or C, got `None`"),
    ],
)
def test_lines_of_another_format(lines: Path, text: str, message: str) -> None:
    lines.write_text(text + "\n")
    with pytest.raises(InvalidFile, match=message) as caught:
        load(lines, vocab=str(lines.parent / "vocab.txt"))
    assert caught.value.hint


def test_arrays_that_do_not_fit(arrays: Path) -> None:
    np.save(arrays / "label.npy", np.array([1, 1, 1, 0]))
    with pytest.raises(InvalidFile, match="got 1 and 1 in pair 0"):
        load(arrays)
    np.save(arrays / "label.npy", np.array([1, 0, 1]))
    with pytest.raises(InvalidFile, match="got 4, 4 and 3"):
        load(arrays)
    np.save(arrays / "label.npy", np.array([1, 0, 1, 0]))
    np.save(arrays / "batch_token_ids.npy", np.full((4, 5), 1000))
    np.save(arrays / "batch_segment_ids.npy", np.zeros((4, 5), int))
    with pytest.raises(InvalidFile, match="row 0: expected tokens from 0 to 999, got 1000 to 1000"):
        load(arrays)
    np.save(arrays / "batch_token_ids.npy", np.ones((4, 65), int))
    with pytest.raises(InvalidFile, match="expected at most 64 tokens, got 65"):
        load(arrays)
    (arrays / "batch_token_ids.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InvalidFile, match=r"expected an \.npy file"):
        load(arrays)
    (arrays / "label.npy").unlink()
    (arrays / "batch_token_ids.npy").unlink()
    with pytest.raises(InvalidFile, match=r"neither test.json nor batch_token_ids.npy"):
        load(arrays)


class Evil:
    def __reduce__(self) -> Any:
        return eval, ("1/0",)


def test_an_array_of_objects_executes_nothing(arrays: Path) -> None:
    bad = np.empty(4, object)
    bad[:] = [Evil()] * 4
    np.save(arrays / "batch_token_ids.npy", bad, allow_pickle=True)
    with pytest.raises(InvalidFile, match=r"it would call builtins\.eval"):
        load(arrays)


def test_outputs_of_another_model(lines: Path) -> None:
    data = load(lines, vocab=str(lines.parent / "vocab.txt"))
    data.choose([0])
    with pytest.raises(UserError, match="has 2 numbers per row"):
        data.take(range(2), [np.zeros((2, 2))])
