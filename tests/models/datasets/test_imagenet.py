"""ImageNet as users have it: folders, maps and archives that the tests write, pictures, labels, and damaged files."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.models.datasets.classification import rank_of
from opmark.models.datasets.imagenet import PREPROCESSING, ImageNet, Preprocessing, preprocess
from opmark.plugin.registry import operator as find_operator
from opmark.schema.evaluation import DataChoice

SMALL = {"size": "small", "batch": 4, "image": 64, "dtype": "float32"}
SYNSETS = ("n01440764", "n01443537", "n01484850")


def jpeg(colour: tuple[int, int, int] = (200, 30, 90), size: tuple[int, int] = (90, 70), mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(out, "JPEG", quality=95)
    return out.getvalue()


def load(path: Path, model: str = "resnet50", params: Mapping[str, Any] = SMALL, **options: str) -> ImageNet:
    return ImageNet(DataChoice("imagenet", str(path), options=options), find_operator(f"model:{model}"), params, 0)


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Two pictures in each of three class folders."""
    for number, synset in enumerate(SYNSETS):
        folder = tmp_path / "val" / synset
        folder.mkdir(parents=True)
        for picture in range(2):
            (folder / f"ILSVRC2012_val_0000000{number}{picture}.JPEG").write_bytes(jpeg((80 * number, 10, 10)))
    return tmp_path / "val"


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Three pictures and their labels in val_map.txt, as ByteMLPerf has them."""
    folder = tmp_path / "open_imagenet"
    (folder / "ILSVRC2012_img_val").mkdir(parents=True)
    names = [f"ILSVRC2012_val_0000000{i}.JPEG" for i in (1, 2, 3)]
    for name in names:
        (folder / "ILSVRC2012_img_val" / name).write_bytes(jpeg())
    (folder / "val_map.txt").write_text(
        "".join(f"{name} {label}\n" for name, label in zip(names, (65, 9, 230), strict=False))
    )
    return folder


def pack(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w:gz" if target.suffix == ".gz" else "w") as tar:
        tar.add(folder, folder.name)
    return target


def answer(data: ImageNet, classes: int, guesses: list[int]) -> dict[str, list[float]]:
    """Let a model of that many classes guess, and return the scores."""
    rows = range(data.choose(range(len(guesses))))
    data.inputs(rows)
    outputs = np.zeros((len(guesses), classes))
    outputs[np.arange(len(guesses)), guesses] = 1
    data.take(rows, [outputs])
    return data.scores()


def test_class_folders_are_labels_in_the_order_of_their_names(classes: Path) -> None:
    data = load(classes)
    assert (data.available, data.labels) == (6, [0, 0, 1, 1, 2, 2])
    assert answer(data, 3, [0, 0, 1, 0, 2, 1]) == {"Top-1": [1, 1, 1, 0, 1, 0]}


@pytest.mark.parametrize("ending", ["val.tar", "val.tar.gz"])
def test_an_archive_is_the_same_data(classes: Path, tmp_path: Path, ending: str) -> None:
    data, packed = load(classes), load(pack(classes, tmp_path / ending))
    assert sorted(packed.labels) == data.labels
    packed.choose([0, 5])
    assert packed.inputs(range(2))["image"].shape == (2, 3, 64, 64)


def test_a_flat_folder_has_its_labels_in_a_map(flat: Path, tmp_path: Path) -> None:
    assert load(flat).labels == [65, 9, 230]
    assert load(pack(flat, tmp_path / "imagenet.tar")).labels == [65, 9, 230]
    images = flat / "ILSVRC2012_img_val"
    assert load(images, labels=str(flat / "val_map.txt")).labels == [65, 9, 230]
    beside = pack(images, flat / "ILSVRC2012_img_val.tar")
    assert load(beside).labels == [65, 9, 230]


def test_folders_with_numbers_are_labels_themselves(tmp_path: Path) -> None:
    for number in (2, 10):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.jpg").write_bytes(jpeg())
    assert sorted(load(tmp_path).labels) == [2, 10]


def test_a_part_of_the_classes_needs_the_list_of_all(classes: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 class folders, and the model has 250 classes") as caught:
        answer(load(classes), 250, [0] * 6)
    assert "synsets=FILE" in str(caught.value.hint)
    listed = tmp_path / "LOC_synset_mapping.txt"
    listed.write_text("n00000001 first\n" + "".join(f"{one} fish, a fish\n" for one in SYNSETS))
    data = load(classes, synsets=str(listed))
    assert data.labels == [1, 1, 2, 2, 3, 3]
    listed.write_text("n00000001 first\n")
    with pytest.raises(InvalidFile, match="got `n01440764`"):
        load(classes, synsets=str(listed))


def test_a_background_class_comes_first_where_a_model_has_one(flat: Path) -> None:
    assert answer(load(flat), 1001, [66, 9, 231])["Top-1"] == [1, 0, 1]


def test_negative_scores_do_not_lose_against_a_class_that_nobody_asked_for(flat: Path) -> None:
    data = load(flat)
    rows = range(data.choose(range(3)))
    data.inputs(rows)
    outputs = np.full((3, 1000), -9.0)
    outputs[[0, 1, 2], [65, 9, 230]] = -1.0
    data.take(rows, [outputs])
    assert data.scores()["Top-1"] == [1, 1, 1]


def test_ranks_break_ties_by_order_and_put_undefined_scores_last() -> None:
    assert rank_of(np.array([3.0, 5.0, 4.0]), 1) == 0
    assert rank_of(np.array([3.0, 5.0, 4.0]), 0) == 2
    assert rank_of(np.array([1.0, 1.0, 1.0]), 0) == 0
    assert rank_of(np.array([1.0, 1.0, 1.0]), 2) == 2
    assert rank_of(np.full(5, np.nan), 0) == 5


def test_top_5_holds_the_five_best(flat: Path) -> None:
    data = load(flat)
    rows = range(data.choose(range(3)))
    data.inputs(rows)
    outputs = np.tile(np.arange(1000.0), (3, 1))
    outputs[0, 65], outputs[1, 9] = 995.5, 994.5
    data.take(rows, [outputs])
    assert data.scores() == {"Top-1": [0, 0, 0], "Top-5": [1, 0, 0]}
    assert data.metrics(data.scores())["Top-5"].value == pytest.approx(1 / 3)


def test_a_picture_is_resized_cropped_and_normalised() -> None:
    """A picture that is red on its outer parts, which the crop has to leave out."""
    picture = Image.new("RGB", (512, 256), (255, 0, 0))
    picture.paste((0, 255, 0), (130, 0, 382, 256))
    out = io.BytesIO()
    picture.save(out, "PNG")
    found = preprocess(out.getvalue(), "a.png", (224, 224), Preprocessing())
    assert found.shape == (224, 224, 3)
    assert found[..., 0] == pytest.approx(np.full((224, 224), -0.485 / 0.229), abs=1e-5)
    assert found[..., 1] == pytest.approx(np.full((224, 224), (1 - 0.456) / 0.224), abs=1e-5)


@pytest.mark.parametrize("size", [(60, 500), (500, 60), (224, 224), (37, 41)])
def test_no_crop_is_larger_than_the_picture(size: tuple[int, int]) -> None:
    white = jpeg((255, 255, 255), size)
    for how in (Preprocessing(), PREPROCESSING["swin-transformer"]):
        found = preprocess(white, "a.JPEG", (384, 384), how)
        assert found.min() > 2  # padding would be black


def test_swin_sees_the_whole_picture() -> None:
    picture = Image.new("RGB", (400, 100), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 200, 100))
    out = io.BytesIO()
    picture.save(out, "PNG")
    found = preprocess(out.getvalue(), "a.png", (384, 384), PREPROCESSING["swin-transformer"])
    assert (found[:, :180, 0] > 2).all()
    assert (found[:, 200:, 0] < -2).all()


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_pictures_without_three_colours_are_converted(mode: str) -> None:
    assert preprocess(jpeg(mode=mode), "a.JPEG", (64, 64), Preprocessing()).shape == (64, 64, 3)


def test_colours_come_where_the_model_takes_them(flat: Path) -> None:
    data = load(flat)
    data.choose([0])
    colours = data.inputs(range(1))["image"][0]
    assert colours.shape == (3, 64, 64)
    assert colours[0].mean() > colours[1].mean()  # more red than green


def test_preprocessing_can_be_chosen(flat: Path) -> None:
    data = load(flat, resize="whole", interpolation="bicubic", mean="0/0/0", std="1/1/1")
    assert data.preprocessing == Preprocessing(0, "bicubic", (0, 0, 0), (1, 1, 1))
    for option, value in (("resize", "32"), ("interpolation", "sharp"), ("mean", "0.5"), ("std", "0/1/1")):
        with pytest.raises(InvalidParameter, match=f"--data-option {option}: expected"):
            load(flat, **{option: value})
    with pytest.raises(UserError, match="imagenet has no option `vocab`"):
        load(flat, vocab="vocab.txt")


def test_the_digest_is_that_of_pictures_and_labels(flat: Path) -> None:
    def digest() -> str:
        data = load(flat)
        data.choose(range(3))
        for row in range(3):  # in batches of one
            data.inputs(range(row, row + 1))
        return data.digest()

    first = digest()
    assert first == digest()
    text = (flat / "val_map.txt").read_text()
    (flat / "val_map.txt").write_text(text.replace(" 9\n", " 8\n"))
    assert digest() != first
    (flat / "val_map.txt").write_text(text)
    (flat / "ILSVRC2012_img_val" / "ILSVRC2012_val_00000002.JPEG").write_bytes(jpeg((1, 2, 3)))
    assert digest() != first


def test_pictures_are_read_when_they_are_needed(classes: Path) -> None:
    data = load(classes)
    for file in classes.rglob("*1.JPEG"):
        file.unlink()
    data.choose([0, 2])
    assert data.inputs(range(2))["image"].shape == (2, 3, 64, 64)


# What is wrong with data.


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*nowhere; expected class folders"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no path to the data"):
        ImageNet(DataChoice("imagenet"), find_operator("model:resnet50"), SMALL, 0)


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="got no pictures"):
        load(tmp_path)


def test_pictures_without_any_labels(flat: Path) -> None:
    (flat / "val_map.txt").unlink()
    with pytest.raises(InvalidFile, match="pictures without labels: `ILSVRC2012_img_val` is no class") as caught:
        load(flat)
    assert "labels=FILE" in str(caught.value.hint)


def test_a_picture_without_a_label(flat: Path) -> None:
    lines = (flat / "val_map.txt").read_text().splitlines()
    (flat / "val_map.txt").write_text("\n".join(lines[:2]))
    with pytest.raises(InvalidFile, match=r"a label for each of 3 pictures, got none for 1, as .*00000003"):
        load(flat)


def test_a_map_of_another_format(flat: Path) -> None:
    (flat / "val_map.txt").write_text("ILSVRC2012_val_00000001.JPEG tench\n")
    with pytest.raises(InvalidFile, match=r"line 1: expected NAME LABEL, got `ILSVRC2012_val_00000001.JPEG tench`"):
        load(flat)


def test_a_label_out_of_range(flat: Path) -> None:
    with pytest.raises(UserError, match="a label is 230, and the model has 100 classes, from 0 to 99"):
        answer(load(flat), 100, [0, 0, 0])


def test_a_truncated_picture(flat: Path) -> None:
    file = flat / "ILSVRC2012_img_val" / "ILSVRC2012_val_00000001.JPEG"
    noisy = np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8)
    Image.fromarray(noisy).save(file, "JPEG")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    data = load(flat)
    data.choose([0])
    with pytest.raises(InvalidFile, match=r"00000001.JPEG: the picture cannot be decoded: .*truncated") as caught:
        data.inputs(range(1))
    assert "downloaded to its end" in str(caught.value.hint)
    file.write_bytes(b"<html>404</html>")
    with pytest.raises(InvalidFile, match="it is no picture \\(16 bytes\\)"):
        data.inputs(range(1))


@pytest.mark.parametrize("ending", ["val.tar", "val.tar.gz"])
@pytest.mark.parametrize("share", [0.3, 0.5])
def test_an_unfinished_download_of_an_archive(classes: Path, tmp_path: Path, ending: str, share: float) -> None:
    path = pack(classes, tmp_path / ending)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InvalidFile) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert "downloaded to its end" in str(caught.value.hint)


def test_an_archive_that_was_cut_between_two_files(classes: Path, tmp_path: Path) -> None:
    path = pack(classes, tmp_path / "val.tar")
    with tarfile.open(path) as tar:
        cut = tar.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InvalidFile, match="empty blocks at the end of an archive are missing"):
        load(path)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "val.tar").write_text("moved")
    with pytest.raises(InvalidFile, match=r"val\.tar"):
        load(tmp_path / "val.tar")
    (tmp_path / "val.zip").write_text("moved")
    with pytest.raises(InvalidFile, match="got a file of another kind"):
        load(tmp_path / "val.zip")


def test_a_package_that_is_missing(flat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    data = load(flat)
    data.choose([0])
    with pytest.raises(UserError, match="reading pictures needs the package PIL") as caught:
        data.inputs(range(1))
    assert "opmark[data]" in str(caught.value.hint)


def test_a_model_that_takes_no_pictures(flat: Path) -> None:
    params = {"size": "small", "batch": 1, "seq": 32, "dtype": "float32"}
    with pytest.raises(UserError, match="is for models that take pictures with 3 colours"):
        load(flat, "bert-base", params)
