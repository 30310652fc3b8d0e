"""Lines of text drawn with Pillow, for networks that read a line of text and whose dictionary is in their ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from opmark.errors import UserError
from opmark.models.datasets.files import check_options
from opmark.models.datasets.packages import EXTRA, package_file
from opmark.models.datasets.rows import JudgedSamples, count_edits, refuse_path
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice, MetricKind

_FILE = "rapidocr/models/PP-OCRv6_rec_small.onnx"
_DICTIONARY = "character"
"""The entry of the file's metadata that holds one character per line."""
_LINES = 800
_WORDS = (
    "above", "answer", "between", "bridge", "carbon", "castle", "circle", "copper", "doctor", "eleven", "engine",
    "fabric", "forest", "garden", "guitar", "harbor", "history", "island", "journey", "kitchen", "ladder", "letter",
    "market", "method", "mountain", "number", "object", "orange", "pocket", "quarter", "question", "record", "river",
    "season", "signal", "silver", "simple", "station", "summer", "system", "temple", "thunder", "village", "window",
    "winter", "yellow",
)  # fmt: skip
_MARKS = "0123456789-/:.%$&@#"
_SMALLEST, _LARGEST = 11, 30
"""Sizes of the font in pixels, before a line is scaled to the height that the network takes."""
_NOISE = 70
"""Largest standard deviation of the noise, of 255."""


class RenderedText(JudgedSamples):
    name = "rendered-text"
    summary = (
        "800 lines of text drawn with noise, for models that read one, lines right and character error rate; no files"
    )
    kinds: ClassVar[Mapping[str, MetricKind]] = {"lines right": "share", "character error rate": "loss"}

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice)
        refuse_path(choice)
        if len(self.spec.shape) != 4 or self.spec.shape[1] != 3:
            raise UserError(
                f"{self.name} is for models that take pictures with 3 colours, and `{operator.name}` takes "
                f"{'x'.join(map(str, self.spec.shape))}",
                "as in model:ocr-recognition",
            )
        self._characters = _read_dictionary()
        generator = np.random.default_rng(0)
        self.labels = [_write_line(generator) for _ in range(_LINES)]

    def sample(self, number: int) -> Any:
        """Draw a line in the size of the input; the part behind it is grey, as the network was trained with."""
        _, colours, height, width = self.spec.shape
        generator = np.random.default_rng([1, number])
        picture = _draw_line(self.labels[number], int(generator.integers(_SMALLEST, _LARGEST)), height, width)
        noisy = picture + generator.normal(0, generator.uniform(0, _NOISE), picture.shape)
        row = np.zeros((colours, height, width), np.float32)
        row[:, :, : picture.shape[1]] = np.clip(noisy, 0, 255) / 127.5 - 1
        return row

    def judge(self, number: int, output: Any) -> tuple[float, ...]:
        """Read the likeliest character of every step; the same one twice in a row is one, and 0 is none (CTC)."""
        if output.shape[1] != len(self._characters):
            raise UserError(
                f"the dictionary of {_FILE} has {len(self._characters)} characters, and `{self.operator.name}` has "
                f"{output.shape[1]} classes",
                "as in model:ocr-recognition",
            )
        steps = output.argmax(1)
        kept = steps[(steps != 0) & (np.diff(steps, prepend=0) != 0)]
        found, expected = "".join(self._characters[i] for i in kept).strip(), self.labels[number]
        return float(found == expected), count_edits(found, expected) / len(expected)


def _read_dictionary() -> list[str]:
    """Return the characters of the classes: none, those of the file, and the space."""
    import onnx

    path = package_file(_FILE, "the data set rendered-text")
    model = onnx.load(path, load_external_data=False)
    listed = next((one.value for one in model.metadata_props if one.key == _DICTIONARY), "")
    if not listed:
        raise UserError(f"{path}: expected a dictionary in its metadata, got none", f"install it again: {EXTRA}")
    return ["", *listed.split("\n"), " "]


def _write_line(generator: Any) -> str:
    """Return two words, and a number or marks."""
    words = [str(word) for word in generator.choice(_WORDS, 2)]
    words = [word.capitalize() if generator.random() < 0.3 else word for word in words]
    words.insert(int(generator.integers(3)), "".join(generator.choice(list(_MARKS), int(generator.integers(2, 6)))))
    return " ".join(words)


def _draw_line(text: str, size: int, height: int, width: int) -> Any:
    """Return grey values of a line in dark on light, scaled to a height, and to a width at most."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise UserError("lines of text are drawn by Pillow, which is not installed", EXTRA) from None
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    margin = size // 4
    picture = Image.new("L", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), 235)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, 30, font)
    scaled = min(width, round(picture.width * height / picture.height))
    return np.asarray(picture.resize((scaled, height), Image.Resampling.BILINEAR), np.float32)
