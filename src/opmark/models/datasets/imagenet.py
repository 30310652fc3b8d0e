"""ImageNet: class folders, or a flat folder with val_map.txt, or a tar of either. Pictures are read one by one."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from opmark.errors import InvalidFile, InvalidParameter, UserError
from opmark.models.datasets.classification import ClassifierData, image_input
from opmark.models.datasets.files import (
    UNFINISHED,
    Archive,
    check_options,
    is_archive,
    option_path,
    path_of,
    read_text,
    refuse,
    require,
)
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice

_ENDINGS = (".jpeg", ".jpg", ".png")
_MAP = "val_map.txt"
_LAYOUT = "class folders such as n01440764/*.JPEG, or pictures with val_map.txt of lines NAME LABEL, or a tar of either"
_BACKGROUND = 1
"""TensorFlow's models have one class more than ImageNet, which comes first."""


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes an input."""

    resize: float = 256 / 224
    """Length of the shorter side over that of the input; 0: the whole picture is fitted, whatever its proportions."""
    interpolation: str = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Both for values from 0 to 1."""


_HALF = (0.5, 0.5, 0.5)
PREPROCESSING = {
    # Swin-L was evaluated on whole pictures of 384x384; a crop of 384 from 256 would be mostly padding.
    "swin-transformer": Preprocessing(resize=0, interpolation="bicubic"),
    "inception_v3": Preprocessing(resize=342 / 299, mean=_HALF, std=_HALF),
    "nasnetalarge": Preprocessing(resize=354 / 331, interpolation="bicubic", mean=_HALF, std=_HALF),
    "dpn68": Preprocessing(
        interpolation="bicubic", mean=(124 / 255, 117 / 255, 104 / 255), std=(1 / 4.2585, 1 / 4.2585, 1 / 4.2585)
    ),
}
"""Models whose weights were trained for other pictures than those of ResNet."""


class ImageNet(ClassifierData):
    name = "imagenet"
    summary = f"ImageNet-1k for models of pictures, Top-1 and Top-5: {_LAYOUT}"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice, "labels", "synsets", "resize", "interpolation", "mean", "std")
        self._input, self._size, self._colours_last = image_input(operator, params, self.name)
        usual = PREPROCESSING.get(operator.name.removeprefix("model:"), Preprocessing())
        self.preprocessing = _with_options(usual, choice, min(self._size))
        path = path_of(choice, _LAYOUT)
        self._archive = Archive(path) if is_archive(path) else None
        if self._archive:
            self._files: Sequence[Any] = [one for one in self._archive.members if _is_picture(one.name)]
            names = [one.name for one in self._files]
        elif path.is_dir():
            self._files = sorted(one for one in path.rglob("*") if _is_picture(one.name) and one.is_file())
            names = [str(one.relative_to(path)) for one in self._files]
        else:
            refuse(path, _LAYOUT, "a file of another kind", "an archive ends in .tar or .tar.gz")
        if not names:
            refuse(path, _LAYOUT, "no pictures (.JPEG, .jpg, .png)", "is it the folder above the class folders?")
        self._names = names
        self._class_count = 0
        map_text = self._find_map(path)
        if map_text is not None:
            self.labels = _labels_from_map(names, *map_text)
        else:
            self.labels = self._labels_from_folders(path)

    def _find_map(self, path: Path) -> tuple[str, str] | None:
        """Return the lines that give labels, and where they come from; None if folders do."""
        own = option_path(self.choice, "labels")
        if own:
            return read_text(own), str(own)
        if self._archive:
            inside = next((one for one in self._archive.members if PurePosixPath(one.name).name == _MAP), None)
            if inside:
                return self._archive.read(inside).decode(), f"{path}: {inside.name}"
            beside = path.parent / _MAP
        else:
            beside = next(iter(sorted(path.rglob(_MAP))), path / _MAP)
        return (read_text(beside), str(beside)) if beside.is_file() else None

    def _labels_from_folders(self, path: Path) -> list[int]:
        """Return the place of each picture's folder among all class folders, in the order of their names."""
        folders = [PurePosixPath(name).parent.name for name in self._names]
        synsets = option_path(self.choice, "synsets")
        known = sorted(set(folders))
        if synsets:
            known = [line.split()[0] for line in read_text(synsets).splitlines() if line.strip()]
            unknown = sorted(set(folders) - set(known))
            if unknown:
                refuse(path, f"class folders that {synsets} lists", f"`{unknown[0]}`", "do they belong together?")
        elif all(re.fullmatch("[0-9]+", folder) for folder in known):
            return [int(folder) for folder in folders]  # as text, 10 would come before 2
        elif not all(re.fullmatch("n[0-9]{8}", folder) for folder in known):
            strange = next(folder for folder in known if not re.fullmatch("n[0-9]{8}", folder))
            refuse(
                path, _LAYOUT, f"pictures without labels: `{strange or '.'}` is no class, and there is no {_MAP}",
                "--data-option labels=FILE names the file with the labels",
            )  # fmt: skip
        if not synsets:
            self._class_count = len(known)
        places = {folder: place for place, folder in enumerate(known)}
        return [places[folder] for folder in folders]

    def sample(self, number: int) -> tuple[Any, bytes]:
        file, name = self._files[number], self._names[number]
        data = self._archive.read(file) if self._archive else file.read_bytes()
        return preprocess(data, name, self._size, self.preprocessing), data

    def batch(self, samples: Any) -> Mapping[str, Any]:
        return {self._input: samples if self._colours_last else samples.transpose(0, 3, 1, 2)}

    def expected_class(self, label: int, classes: int) -> int:
        own = classes - _BACKGROUND if classes == 1001 else classes
        if self._class_count and self._class_count != own:
            raise UserError(
                f"{self.choice.path}: {self._class_count} class folders, and the model has {own} classes: the place of "
                "a folder among these is not its label",
                "--data-option synsets=FILE names a file with all classes in their order, one per line",
            )
        return super().expected_class(label, own) + (classes - own)


def _is_picture(name: str) -> bool:
    base = PurePosixPath(name).name
    return base.lower().endswith(_ENDINGS) and not base.startswith(".")


def _labels_from_map(names: Sequence[str], text: str, where: str) -> list[int]:
    known: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 2 or not re.fullmatch("-?[0-9]+", parts[1]):
            refuse(f"{where}, line {number}", "NAME LABEL", f"`{line.strip()[:60]}`", "a label is a whole number")
        known[PurePosixPath(parts[0]).name] = int(parts[1])
    missing = [name for name in names if PurePosixPath(name).name not in known]
    if missing:
        refuse(
            where, f"a label for each of {len(names)} pictures", f"none for {len(missing)}, as {missing[0]}",
            "do the pictures and the file belong together?",
        )  # fmt: skip
    return [known[PurePosixPath(name).name] for name in names]


def preprocess(data: bytes, name: str, size: tuple[int, int], how: Preprocessing) -> Any:
    """Return a picture as height x width x colours, in float32."""
    Image = require("PIL.Image", "reading pictures")
    height, width = size
    try:
        with Image.open(io.BytesIO(data)) as opened:
            picture = opened.convert("RGB")
    except (OSError, SyntaxError) as error:
        shown = "it is no picture" if type(error).__name__ == "UnidentifiedImageError" else str(error)
        raise InvalidFile(f"{name}: the picture cannot be decoded: {shown} ({len(data)} bytes)", UNFINISHED) from None
    filtering = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[how.interpolation]
    if how.resize == 0:
        picture = picture.resize((width, height), filtering)
    else:
        shorter = max(round(how.resize * min(size)), *size)  # never smaller than the crop: nothing is padded
        scale = shorter / min(picture.size)
        # As torchvision: the longer side is rounded down.
        new = tuple(shorter if side == min(picture.size) else int(side * scale) for side in picture.size)
        picture = picture.resize((new[0], new[1]), filtering)
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        picture = picture.crop((left, top, left + width, top + height))
    values = np.asarray(picture, np.float32) / 255
    return (values - np.array(how.mean, np.float32)) / np.array(how.std, np.float32)


def _with_options(usual: Preprocessing, choice: DataChoice, side: int) -> Preprocessing:
    """Return the preprocessing with what the user has chosen in its place."""
    given: dict[str, Any] = {}
    options = choice.options
    if "resize" in options:
        pixels = options["resize"]
        if pixels != "whole" and not (pixels.isdecimal() and int(pixels) >= side):
            raise InvalidParameter(
                f"--data-option resize: expected `whole`, or a number of pixels of at least {side}, got `{pixels}`",
                "as in resize=256; `whole` fits the whole picture",
            )
        given["resize"] = 0 if pixels == "whole" else int(pixels) / side
    if "interpolation" in options:
        if options["interpolation"] not in ("bilinear", "bicubic"):
            raise InvalidParameter(
                f"--data-option interpolation: expected bilinear or bicubic, got `{options['interpolation']}`"
            )
        given["interpolation"] = options["interpolation"]
    for name in ("mean", "std"):
        if name in options:
            try:
                values = tuple(float(part) for part in re.split("[ ;/]+", options[name]))
            except ValueError:
                values = ()
            if len(values) != 3 or (name == "std" and not all(values)):
                raise InvalidParameter(
                    f"--data-option {name}: expected three numbers, got `{options[name]}`", f"as in {name}=0.5/0.5/0.5"
                )
            given[name] = values
    return replace(usual, **given)
