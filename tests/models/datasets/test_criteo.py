"""Criteo's clicks in both formats: hashes, ranges, order of columns, figures, and what is wrong with files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.models.datasets.criteo import Criteo, fingerprint
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import LABEL, DataChoice

FULL = {"size": "full", "batch": 4, "dtype": "float32"}


def row(label: object, numbers: dict[int, object], categories: dict[int, str], separator: str = ",") -> str:
    """Return a line; numbers and categories by their column, counted from 1, all others are empty."""
    return separator.join(
        [str(label), *(str(numbers.get(i, "")) for i in range(1, 14)), *(categories.get(i, "") for i in range(1, 27))]
    )


def load(path: Path, **options: str) -> Criteo:
    return Criteo(DataChoice("criteo", str(path), options=options), find_operator("model:wide-and-deep"), FULL, 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "eval.csv"
    lines = [
        row(1, {1: 10, 2: -2, 13: 5}, {1: "68fd1e64", 26: "3a171ecb"}),
        row(0, {1: 30, 2: 8}, {1: "05db9164"}),
        row(0, {2: 3}, {}),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Values of FarmHash's own library; a TensorFlow bucket is the remainder.
        (b"", 11160318154034397263),
        (b"a", 12917804110809363939),
        (b"test", 8581389452482819506),
        (b"1footrue", 16905089972579912905),
        (b"68fd1e64", 7920289447977470598),
    ],
)
def test_categories_are_hashed_as_tensorflow_does(text: bytes, value: int) -> None:
    assert fingerprint(text) == value


def test_numbers_are_scaled_to_the_range_of_the_file_and_gaps_are_zero(file: Path) -> None:
    data = load(file, columns="file")
    data.choose([0, 1, 2])
    inputs = data.inputs(range(3))
    assert list(inputs) == ["categorical", "numeric"]
    assert inputs["numeric"][:, 0] == pytest.approx([10 / 30, 1, 0])
    assert inputs["numeric"][:, 1] == pytest.approx([0, 1, 0.5])
    assert inputs["numeric"][:, 2] == pytest.approx([0, 0, 0])  # all alike: there is no range
    assert inputs["numeric"][:, 12] == pytest.approx([1, 0, 0])
    assert inputs["categorical"][0, 0] == 7920289447977470598 % 1000
    assert set(inputs["categorical"][2]) == {263}
    assert inputs["categorical"].max() < 1000


def test_columns_come_in_the_order_of_the_public_weights(file: Path) -> None:
    data = load(file)
    data.choose([0])
    inputs = data.inputs(range(1))
    # I1, I10, I11, I12, I13, I2, ...
    assert inputs["numeric"][0, 4] == 1
    # C10 to C19 come before C1, C20 to C26 before C2
    assert inputs["categorical"][0, 10] == fingerprint(b"68fd1e64") % 1000
    assert inputs["categorical"][0, 17] == fingerprint(b"3a171ecb") % 1000
    with pytest.raises(InvalidParameter, match="expected sorted or file, got `random`"):
        load(file, columns="random")


def test_kaggles_file_is_the_same_with_tabs(file: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(file.read_text().replace(",", "\t"))
    first, second = load(file), load(tmp_path / "train.txt")
    for data in (first, second):
        data.choose([1, 2])
    for name, expected in first.inputs(range(2)).items():
        np.testing.assert_array_equal(second.inputs(range(2))[name], expected)


def answer(data: Criteo, clicks: list[float]) -> dict[str, list[float]]:
    rows = range(data.choose(range(len(clicks))))
    data.inputs(rows)
    data.take(rows, [np.array([[1 - click, click] for click in clicks])])
    return data.scores()


def test_figures(file: Path) -> None:
    data = load(file)
    scores = answer(data, [0.6, 0.7, 0.1])
    assert scores["AUC"] == [0.6, 0.7, 0.1]
    assert scores["accuracy"] == [1, 0, 1]
    assert scores[LABEL] == [1, 0, 0]
    assert scores["log-loss"] == pytest.approx([-np.log(0.6), -np.log(0.3), -np.log(0.9)])
    metrics = data.metrics(scores)
    assert list(metrics) == ["AUC", "log-loss", "accuracy"]
    assert metrics["AUC"].value == 0.5
    assert metrics["log-loss"].better == "lower"
    assert data.notes() == ("33.3% of the samples are clicks: 66.7% are right without looking",)


def test_an_undefined_probability_is_the_wrong_answer(file: Path) -> None:
    scores = answer(load(file), [np.nan, np.nan, 0.0])
    assert scores["AUC"] == [0, 1, 0]
    assert scores["accuracy"] == [0, 0, 1]
    assert max(scores["log-loss"]) == pytest.approx(-np.log(1e-7))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [(np.zeros((3, 5)), "has 5 numbers per row"), (np.full((3, 1), 2.5), "from 0 to 1, and .* returns 2.5")],
)
def test_outputs_of_another_model(file: Path, outputs: Any, message: str) -> None:
    data = load(file)
    rows = range(data.choose([0, 1, 2]))
    data.inputs(rows)
    with pytest.raises(UserError, match=message):
        data.take(rows, [outputs])


def test_samples_of_one_label_have_no_area(tmp_path: Path) -> None:
    (tmp_path / "eval.csv").write_text(f"{row(1, {}, {})}\n{row(1, {}, {})}\n")
    data = load(tmp_path)
    with pytest.raises(UserError, match="all 2 samples have label 1"):
        data.metrics(answer(data, [0.2, 0.3]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row(1, {}, {})[2:], "39: there are no labels"),
        ("1,2,3", "expected 40 columns, the label first, got 3"),
        (row("clicked", {}, {}), "expected a label 0 or 1, got `clicked`"),
        (row(2, {}, {}), "expected a label 0 or 1, got `2`"),
        (row(1, {3: "x"}, {}), "expected 13 numbers behind the label"),
    ],
)
def test_lines_of_another_format(file: Path, line: str, message: str) -> None:
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(InvalidFile, match=rf"eval\.csv, line 4: .*{message}") as caught:
        load(file)
    assert caught.value.hint


def test_a_missing_or_empty_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"neither eval.csv nor train.txt"):
        load(tmp_path)
    with pytest.raises(UserError, match="there is no"):
        load(tmp_path / "eval.csv")
    (tmp_path / "eval.csv").write_text("")
    assert load(tmp_path).available == 0  # which the engine refuses


def test_a_model_that_recommends_nothing(file: Path) -> None:
    params = {"size": "small", "batch": 1, "image": 64, "dtype": "float32"}
    with pytest.raises(UserError, match="26 categories and 13 numbers, and `model:resnet50` takes image 1x3x64x64"):
        Criteo(DataChoice("criteo", str(file)), find_operator("model:resnet50"), params, 0)
