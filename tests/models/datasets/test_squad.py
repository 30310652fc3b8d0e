"""SQuAD 1.1: figures per question, windows over long texts, tokenizers of two kinds, and what is wrong with files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.squad import STRIDE, Squad, f1_score, normalize, read_questions
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import DataChoice

CONTEXT = "The Broncos beat the Panthers 24-10 at Levi's Stadium, in Santa Clara."
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "broncos",
    "beat",
    "panthers",
    "24",
    "-",
    "10",
    "at",
    "levi",
    "'",
    "s",
    "stadium",
    ",",
    "in",
    "santa",
    "clara",
    ".",
    "who",
    "won",
    "?",
    "where",
    "was",
    "it",
    "played",
    "##s",
    "game",
]
FULL = {"size": "full", "batch": 2, "seq": 384, "dtype": "float32"}


def params(seq: int) -> dict[str, Any]:
    return {"size": "small" if seq <= 32 else "full", "batch": 2, "seq": seq, "dtype": "float32"}


def write(path: Path, entries: list[tuple[str, list[tuple[str, list[str]]]]], version: str = "1.1") -> Path:
    """Write texts, each with questions and their answers, as the file is published."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{i}-{j}",
                    "question": question,
                    "answers": [{"text": text, "answer_start": context.find(text)} for text in answers],
                }
                for j, (question, answers) in enumerate(asked)
            ],
        }
        for i, (context, asked) in enumerate(entries)
    ]
    path.write_text(json.dumps({"data": [{"title": "Super_Bowl_50", "paragraphs": paragraphs}], "version": version}))
    return path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    asked = [("Who won?", ["The Broncos", "Broncos"]), ("Where was it played?", ["Levi's Stadium", "Santa Clara"])]
    return write(tmp_path / "dev-v1.1.json", [(CONTEXT, asked)])


def load(path: Path, seq: int = 32, model: str = "bert-base", **options: str) -> Squad:
    return Squad(DataChoice("squad", str(path), options=options), find_operator(f"model:{model}"), params(seq), 0)


def point(data: Squad, rows: range, spans: dict[int, tuple[int, int]]) -> list[Any]:
    """Return outputs that point at the span of each row, and nowhere for other rows."""
    length = next(iter(data.inputs(range(1)).values())).shape[1]
    starts, ends = np.zeros((2, len(rows), length))
    for row, (first, last) in spans.items():
        starts[row - rows.start, first], ends[row - rows.start, last] = 9, 9
    return [starts, ends]


def place_of(data: Squad, row: int, word: str) -> int:
    return list(data.inputs(range(row, row + 1))["input_ids"][0]).index(WORDS.index(word))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Broncos!", "broncos"),
        ("a cat, an owl and the theatre", "cat owl and theatre"),
        ("Levi's", "levis"),
        ("24–10", "24–10"),  # SQuAD removes ASCII punctuation only
        ("the", ""),
    ],
)
def test_texts_are_compared_as_squad_does(text: str, expected: str) -> None:
    assert normalize(text) == expected


def test_f1_counts_words_in_common() -> None:
    assert f1_score("the Denver Broncos", "Broncos") == pytest.approx(2 / 3)
    assert f1_score("a b b", "b b c") == pytest.approx(2 * 2 / (2 + 3))
    assert f1_score("", "Broncos") == 0.0


def test_rows_are_what_bert_takes(file: Path, vocabulary: Path) -> None:
    data = load(file, vocab=str(vocabulary))
    assert data.choose([0]) == 1
    inputs = data.inputs(range(1))
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    words = [WORDS[i] for i in inputs["input_ids"][0]]
    assert words[:9] == ["[CLS]", "who", "won", "?", "[SEP]", "the", "broncos", "beat", "the"]
    used = int(inputs["attention_mask"][0].sum())
    assert words[used - 1] == "[SEP]"
    assert set(words[used:]) == {"[PAD]"}
    assert list(inputs["token_type_ids"][0][:6]) == [0, 0, 0, 0, 0, 1]


def test_figures_are_per_question_with_several_right_answers(file: Path, vocabulary: Path) -> None:
    data = load(file, vocab=str(vocabulary))
    rows = range(data.choose([0, 1]))
    broncos = place_of(data, 0, "broncos")
    stadium = place_of(data, 1, "stadium")
    data.take(rows, point(data, rows, {0: (broncos, broncos), 1: (stadium - 3, stadium)}))
    assert data.scores() == {"F1": [1.0, 1.0], "EM": [1.0, 1.0]}
    assert data.metrics(data.scores())["EM"].kind == "share"
    again = load(file, vocab=str(vocabulary))
    rows = range(again.choose([1]))
    again.take(rows, point(again, rows, {0: (stadium, stadium)}))
    assert again.scores() == {"F1": [pytest.approx(2 / 3)], "EM": [0.0]}


def test_an_answer_is_the_original_text(tmp_path: Path, vocabulary: Path) -> None:
    context = "In  SANTA   Clara,  the Bröncos won."
    data = load(write(tmp_path / "a.json", [(context, [("Where?", ["SANTA   Clara"])])]), vocab=str(vocabulary))
    rows = range(data.choose([0]))
    santa = place_of(data, 0, "santa")
    data.take(rows, point(data, rows, {0: (santa, santa + 1)}))
    assert data._answers[0].text == "SANTA   Clara"


def test_each_row_is_masked_by_its_own_length(tmp_path: Path, vocabulary: Path) -> None:
    """Rows of different lengths in one batch: a short one must not cut the answers of a long one."""
    texts = [("who won", [("who?", ["won"])]), (CONTEXT, [("Where?", ["Santa Clara"])])]
    data = load(write(tmp_path / "a.json", texts), vocab=str(vocabulary))
    rows = range(data.choose([0, 1]))
    won, santa = place_of(data, 0, "won"), place_of(data, 1, "santa")
    outputs = point(data, rows, {0: (won, won), 1: (santa, santa + 1)})
    outputs[0][0, santa] = outputs[1][0, santa] = 99  # behind the end of the short row
    data.take(rows, outputs)
    assert data.scores()["EM"] == [1.0, 1.0]


def test_the_question_is_never_the_answer(file: Path, vocabulary: Path) -> None:
    data = load(file, vocab=str(vocabulary))
    rows = range(data.choose([0]))
    outputs = point(data, rows, {0: (1, 2)})
    data.take(rows, outputs)
    assert data._answers[0].text not in ("Who won", "who won")


def test_answers_have_at_most_thirty_tokens_and_end_behind_their_beginning(tmp_path: Path, vocabulary: Path) -> None:
    context = " ".join(["game"] * 60 + ["broncos"] + ["game"] * 60)
    data = load(write(tmp_path / "a.json", [(context, [("who?", ["broncos"])])]), 384, vocab=str(vocabulary))
    rows = range(data.choose([0]))
    at = place_of(data, 0, "broncos")
    starts, ends = np.zeros((2, 1, 384))
    starts[0, at], ends[0, at + 40], ends[0, at - 5], ends[0, at] = 9, 9, 9, 3
    data.take(rows, [starts, ends])
    assert data._answers[0].text == "broncos"


def test_a_long_text_is_read_in_windows(tmp_path: Path, vocabulary: Path) -> None:
    """The answer is in the last window alone; windows begin 128 tokens apart, and every token is seen."""
    words = ["game"] * 900
    words[880] = "broncos"
    data = load(
        write(tmp_path / "a.json", [(" ".join(words), [("who won ?", ["broncos"])])]), 384, vocab=str(vocabulary)
    )
    rows = range(data.choose([0]))
    room = 384 - 3 - 3
    assert len(rows) == 1 + -(-(900 - room) // STRIDE)
    first, second = (data._windows[row].offsets[data._windows[row].inside[0]][0] for row in (0, 1))
    assert (second - first) // len("game ") == STRIDE
    owners = [
        tuple(data._windows[row].offsets[place]) for row in rows for place in data._windows[row].places
    ]  # every token begins an answer in exactly one window
    assert len(owners) == len(set(owners)) == 900
    last = rows[-1]
    at = place_of(data, last, "broncos")
    outputs = point(data, rows, {0: (10, 10), last: (at, at)})
    outputs[0][0, 10] = 5
    for row in rows:  # in batches of one, as any other
        data.take(range(row, row + 1), [output[row : row + 1] for output in outputs])
    assert data.scores()["EM"] == [1.0]
    assert data.notes() == (f"1 questions in {len(rows)} windows; figures are per question",)


def test_a_long_question_is_cut(tmp_path: Path, vocabulary: Path) -> None:
    question = " ".join(["where"] * 90)
    data = load(write(tmp_path / "a.json", [(CONTEXT, [(question, ["Broncos"])])]), 384, vocab=str(vocabulary))
    data.choose([0])
    ids = list(data.inputs(range(1))["input_ids"][0])
    assert ids.count(WORDS.index("where")) == 64


def test_tensorflows_single_output_is_understood(file: Path, vocabulary: Path) -> None:
    data = load(file, vocab=str(vocabulary))
    rows = range(data.choose([0]))
    at = place_of(data, 0, "broncos")
    data.take(rows, [np.stack(point(data, rows, {0: (at, at)}), axis=-1)])
    assert data.scores()["EM"] == [1.0]
    with pytest.raises(UserError, match=r"the shapes \(1, 5\)"):
        data.take(rows, [np.zeros((1, 5))])


def test_undefined_scores_are_wrong_answers(file: Path, vocabulary: Path) -> None:
    data = load(file, vocab=str(vocabulary))
    rows = range(data.choose([0]))
    data.take(rows, [np.full((1, 32), np.nan)] * 2)
    assert data.scores() == {"F1": [0.0], "EM": [0.0]}


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    """A tokenizer.json with RoBERTa's special tokens, for letters only."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    made = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_another_tokenizer_brings_its_own_special_tokens(tmp_path: Path, roberta: Path) -> None:
    file = write(tmp_path / "a.json", [("Santa Clara", [("Where?", ["Clara"])])])
    data = load(file, 32, "roberta", tokenizer=str(roberta))
    rows = range(data.choose([0]))
    inputs = data.inputs(rows)
    ids = list(inputs["input_ids"][0])
    assert ids[0] == 0
    assert ids[7:9] == [2, 2]  # </s></s> between question and text
    assert ids[20] == 2
    assert set(ids[21:]) == {1}  # RoBERTa's padding
    assert set(inputs["token_type_ids"][0]) == {0}
    assert list(inputs["attention_mask"][0]) == [1] * 21 + [0] * 11
    data.take(rows, point(data, rows, {0: (14, 19)}))  # with the space before the word
    assert data._answers[0].text == "Clara"
    assert data.scores()["EM"] == [1.0]


def test_a_tokenizer_that_does_not_fit_the_model(file: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    large.write_text("\n".join(WORDS + [f"word{i}" for i in range(1000)]))
    with pytest.raises(UserError, match=r"large.txt: has 1030 tokens, and `model:bert-base` has a vocabulary of 1000"):
        load(file, vocab=str(large))


def test_a_vocabulary_of_another_kind(file: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a\nb\n")
    with pytest.raises(InvalidFile, match=r"got no \[PAD\] in 2 lines"):
        load(file, vocab=str(tmp_path / "words.txt"))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidFile, match=r"expected a tokenizer\.json"):
        load(file, tokenizer=str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="expected one tokenizer, got none"):
        load(file)
    with pytest.raises(UserError, match="expected one tokenizer, got two"):
        load(file, tokenizer=str(tmp_path / "tokenizer.json"), vocab=str(tmp_path / "words.txt"))
    with pytest.raises(UserError, match="--data-option vocab: there is no file"):
        load(file, vocab=str(tmp_path / "nowhere.txt"))


def test_a_model_without_tokens(file: Path, vocabulary: Path) -> None:
    with pytest.raises(UserError, match="`model:resnet50` takes image; expected rows of tokens"):
        Squad(
            DataChoice("squad", str(file), options={"vocab": str(vocabulary)}), find_operator("model:resnet50"),
            {"size": "small", "batch": 1, "image": 64, "dtype": "float32"}, 0,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": []}, "an object with `data`, got the fields train"),
        ([1, 2], "an object with `data`, got list"),
        ({"data": [{"title": "x"}]}, "an entry without 'paragraphs'"),
        ({"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "1", "question": "?", "answers": []}]}]}]},
         "an answer for each question, got none for 1 of 1"),
        ({"version": "v2.0", "data": [{"paragraphs": [{"context": "x", "qas": [
            {"id": "1", "question": "?", "is_impossible": True, "answers": []}]}]}]}, "version v2.0"),
    ],
)  # fmt: skip
def test_a_json_of_another_format(content: Any, message: str) -> None:
    with pytest.raises(InvalidFile, match=message) as caught:
        read_questions(content, "dev.json")
    assert caught.value.hint


def test_an_unfinished_download(file: Path, vocabulary: Path) -> None:
    file.write_text(file.read_text()[:200])
    with pytest.raises(InvalidFile, match="no JSON at line 1, column") as caught:
        load(file, vocab=str(vocabulary))
    assert "downloaded to its end" in str(caught.value.hint)


def test_the_digest_depends_on_questions_texts_and_answers(file: Path, vocabulary: Path) -> None:
    def digest(samples: list[int]) -> str:
        data = load(file, vocab=str(vocabulary))
        data.choose(samples)
        return data.digest()

    assert digest([0]) != digest([1])
    before = digest([0, 1])
    file.write_text(file.read_text().replace('"Broncos"', '"Panthers"'))
    assert digest([0, 1]) != before
