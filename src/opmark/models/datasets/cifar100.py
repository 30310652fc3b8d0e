"""CIFAR-100, as pickles or in binary, for plain classifiers and, with texts, for CLIP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.classification import ClassifierData, image_input
from opmark.models.datasets.files import (
    UNFINISHED,
    Archive,
    check_options,
    is_archive,
    load_array,
    option_path,
    path_of,
    refuse,
    require,
    unpickle,
)
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice

_CLASSES = 100
_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_RECORD = 2 + _PIXELS
"""Bytes of a record in binary: the coarse label, the fine label, the picture."""
_LAYOUT = "cifar-100-python (its file `test`), cifar-100-binary (test.bin), or a tar.gz of either"
_OWN = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of the colours that models were trained with."""
TEXT = "text"


class Cifar100(ClassifierData):
    name = "cifar100"
    summary = f"CIFAR-100 for models of pictures, Top-1 and Top-5; with text=text.npy for CLIP: {_LAYOUT}"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice, TEXT)
        self._input, self._size, self._colours_last = image_input(operator, params, self.name)
        self._text = self._load_text()
        self._pixels, labels, where = _read(path_of(choice, _LAYOUT))
        wrong = labels[(labels < 0) | (labels >= _CLASSES)]
        if len(wrong):
            refuse(where, f"labels from 0 to {_CLASSES - 1}", f"{wrong[0]}", "are these the fine labels of CIFAR-100?")
        self.labels = [int(label) for label in labels]

    def _load_text(self) -> Any:
        """Return the tokens of the 100 classes, where the model takes them."""
        specs = self.operator.inputs(self.params)
        others = [name for name in specs if name != self._input]
        path = option_path(self.choice, TEXT)
        if not others:
            return None
        if others != [TEXT]:
            raise UserError(
                f"{self.name} is for models that take pictures, or pictures and text; `{self.operator.name}` takes "
                f"{', '.join(specs)}",
                "as in model:videobert",
            )
        spec = specs[TEXT]
        shape = "x".join(map(str, spec.shape))
        if path is None:
            raise UserError(
                f"`{self.operator.name}` compares pictures with texts, and there are none; expected an array of {shape}"
                " tokens, one row per class",
                f"--data-option {TEXT}=text.npy",
            )
        tokens = load_array(path)
        if tokens.shape != spec.shape or tokens.dtype.kind not in "iu":
            refuse(path, f"whole numbers of the shape {spec.shape}", f"{tokens.dtype} {tokens.shape}",
                   "one row of tokens per class, padded as CLIP's tokenizer does")  # fmt: skip
        if tokens.min() < 0 or tokens.max() >= spec.high:
            refuse(path, f"tokens from 0 to {spec.high - 1:g}", f"{tokens.min()} to {tokens.max()}",
                   "do the tokens belong to the vocabulary of this model?")  # fmt: skip
        return tokens

    def sample(self, number: int) -> tuple[Any, bytes]:
        pixels = self._pixels[number]
        return self._prepare(pixels.reshape(3, _SIDE, _SIDE).transpose(1, 2, 0)), pixels.tobytes()

    def _prepare(self, picture: Any) -> Any:
        """Return a picture of the size of the model's input; larger ones are interpolated as CLIP does."""
        height, width = self._size
        if (height, width) != (_SIDE, _SIDE):
            Image = require("PIL.Image", "resizing pictures")
            picture = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))
        mean, std = _OWN if self._text is None else _CLIP
        return (picture.astype(np.float32) / 255 - np.array(mean, np.float32)) / np.array(std, np.float32)

    def batch(self, samples: Any) -> Mapping[str, Any]:
        pictures = samples if self._colours_last else samples.transpose(0, 3, 1, 2)
        if self._text is None:
            return {self._input: pictures}
        names = self.operator.inputs(self.params)
        return {name: self._text if name == TEXT else pictures for name in names}

    def expected_class(self, label: int, classes: int) -> int:
        if classes != _CLASSES:
            raise UserError(
                f"{self.name} has {_CLASSES} classes, and the model's first output has {classes}",
                "use a classifier for CIFAR-100, or CLIP with 100 texts",
            )
        return label


def _read(path: Path) -> tuple[Any, Any, str]:
    """Return the pictures, the labels, and where they were found."""
    if is_archive(path):
        archive = Archive(path)
        by_name = {PurePosixPath(one.name).name: one for one in archive.members}
        for name in ("test", "test.bin"):
            if name in by_name:
                return _decode(archive.read(by_name[name]), f"{path}: {by_name[name].name}")
    elif path.is_dir():
        found = sorted(one for one in path.rglob("*") if one.name in ("test", "test.bin") and one.is_file())
        if found:
            return _decode(found[0].read_bytes(), str(found[0]))
    elif path.name in ("test", "test.bin"):
        return _decode(path.read_bytes(), str(path))
    refuse(path, _LAYOUT, "neither `test` nor `test.bin`", "give the folder or the archive as it was downloaded")


def _decode(data: bytes, where: str) -> tuple[Any, Any, str]:
    if where.endswith(".bin"):
        if not data or len(data) % _RECORD:
            refuse(where, f"records of {_RECORD} bytes", f"{len(data)} bytes", UNFINISHED)
        records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
        return records[:, 2:], records[:, 1].astype(int), where
    content = unpickle(data, where)
    fields = content if isinstance(content, dict) else {}
    pixels, labels = fields.get(b"data"), fields.get(b"fine_labels")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        refuse(where, "a pickle with `data` and `fine_labels`",
               ", ".join(sorted(str(key) for key in fields)) or type(content).__name__,
               "CIFAR-10 has other fields; CIFAR-100's file is called `test`")  # fmt: skip
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or len(pixels) != len(labels):
        refuse(where, f"bytes of the shape ({len(labels)}, {_PIXELS})", f"{pixels.dtype} {pixels.shape}", UNFINISHED)
    return pixels, np.array(labels, int), where
