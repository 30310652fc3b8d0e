"""Files whose type is known by their ending, for Magika: those of Python's own folders or of a folder of the user, and
small ones of further types that are made here."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sysconfig
import tarfile
import wave
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opmark.errors import InvalidFile, UserError
from opmark.models.datasets.classification import ClassifierData
from opmark.models.datasets.files import check_options, parse_json, read_text
from opmark.models.datasets.packages import package_file
from opmark.plugin import Operator, Params
from opmark.schema.evaluation import DataChoice

_CONFIG = "magika/models/standard_v3_3/config.min.json"
_ENDINGS = {
    ".py": "python", ".pyc": "pythonbytecode", ".so": "elf", ".c": "c", ".cpp": "cpp", ".cs": "cs", ".css": "css",
    ".csv": "csv", ".html": "html", ".js": "javascript", ".json": "json", ".md": "markdown", ".rst": "rst",
    ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".xml": "xml", ".svg": "svg", ".sh": "shell", ".bat": "batch",
    ".ps1": "powershell", ".png": "png", ".gif": "gif", ".jpg": "jpeg", ".jpeg": "jpeg", ".bmp": "bmp", ".ico": "ico",
    ".pdf": "pdf", ".ttf": "ttf", ".woff2": "woff2", ".zip": "zip", ".gz": "gzip", ".bz2": "bzip", ".xz": "xz",
    ".tar": "tar", ".npy": "npy", ".npz": "npz", ".onnx": "onnx", ".ipynb": "ipynb", ".java": "java", ".go": "go",
    ".rs": "rust", ".rb": "ruby", ".php": "php", ".pl": "perl", ".lua": "lua", ".swift": "swift", ".kt": "kotlin",
    ".ts": "typescript", ".sql": "sql", ".proto": "proto", ".wasm": "wasm", ".wav": "wav", ".mp3": "mp3",
    ".po": "po", ".tex": "latex", ".vue": "vue", ".scss": "scss", ".f90": "fortran", ".docx": "docx", ".xlsx": "xlsx",
}  # fmt: skip
"""Endings that say the type. `.txt`, `.h` and `.cfg` are left out: such files hold anything."""
_MOST_PER_TYPE = 80
_MADE_PER_TYPE = 5
_MOST_SEEN = 200_000
"""Files of a folder that are looked at."""


class FileTypes(ClassifierData):
    name = "file-types"
    summary = "files whose ending says their type, for Magika, Top-1 and Top-5: any folder, or else Python's own files"

    def __init__(self, choice: DataChoice, operator: Operator, params: Params, seed: int) -> None:
        super().__init__(choice, operator, params, seed)
        check_options(choice)
        config = _read_config()
        self._types: list[str] = config["target_labels_space"]
        self._block, self._padding = int(config["block_size"]), int(config["padding_token"])
        self._sizes = int(config["beg_size"]), int(config["end_size"])
        self._input, spec = next(iter(operator.inputs(params).items()))
        if len(spec.shape) != 2 or spec.shape[1] != sum(self._sizes):
            raise UserError(
                f"{self.name} is for models that take {sum(self._sizes)} bytes of a file, and `{operator.name}` takes "
                f"{'x'.join(map(str, spec.shape))}",
                "as in model:magika",
            )
        least = int(config["min_file_size_for_dl"])
        own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
        folders = [Path(choice.path)] if choice.path else own
        found = list(_find_files(folders, set(self._types), least))
        if choice.path and not found:
            raise InvalidFile(
                f"{choice.path}: expected files that end in {', '.join([*_ENDINGS][:5])} and the like, got none",
                "`--data file-types` without a path takes Python's own files",
            )
        self._contents: list[Path | bytes] = [path for path, _ in found]
        names = [name for _, name in found]
        if not choice.path:
            for name, make in _MAKERS.items():
                self._contents += [make(np.random.default_rng([0, i])) for i in range(_MADE_PER_TYPE)]
                names += [name] * _MADE_PER_TYPE
        self.labels = [self._types.index(name) for name in names]

    def sample(self, number: int) -> tuple[Any, bytes]:
        content = self._contents[number]
        if isinstance(content, bytes):
            first, last = content[: self._block], content[-self._block :]
        else:
            with content.open("rb") as file:
                first = file.read(self._block)
                file.seek(max(0, file.seek(0, os.SEEK_END) - self._block))
                last = file.read(self._block)
        features = pick_bytes(first, last, *self._sizes, self._padding)
        return features, features.tobytes()

    def batch(self, samples: Any) -> Mapping[str, Any]:
        return {self._input: samples}


def pick_bytes(first: bytes, last: bytes, begin: int, end: int, padding: int) -> Any:
    """Return what Magika looks at: the first bytes of a file behind its leading white space, then its last ones before
    the trailing white space. Padding stands between the two where there are too few."""
    head, tail = first.lstrip()[:begin], last.rstrip()[-end:]
    row = np.full(begin + end, padding, np.int32)
    row[: len(head)] = np.frombuffer(head, np.uint8)
    row[begin + end - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row


def _read_config() -> Any:
    path = package_file(_CONFIG, "the data set file-types")
    config = parse_json(read_text(path), path, "the configuration of Magika's model")
    wanted = ("target_labels_space", "block_size", "padding_token", "beg_size", "end_size", "min_file_size_for_dl")
    missing = [name for name in wanted if name not in config]
    if missing:
        raise InvalidFile(f"{path}: expected {', '.join(wanted)}, got no {missing[0]}", "install magika 1.0 again")
    return config


def _find_files(folders: list[Path], types: set[str], least: int) -> Iterator[tuple[Path, str]]:
    """Yield files with their types, some of each, in the order of their paths."""
    counts: Counter[str] = Counter()
    seen = 0
    for folder in folders:
        for place, below, names in os.walk(folder):
            below[:] = sorted(name for name in below if name not in ("site-packages", "test", "tests"))
            seen += len(names)
            if seen > _MOST_SEEN:
                return
            for name in sorted(names):
                kind = _ENDINGS.get(os.path.splitext(name)[1].lower(), "")  # noqa: PTH122 - many files
                path = Path(place, name)
                if kind in types and counts[kind] < _MOST_PER_TYPE and _has_content(path, least):
                    counts[kind] += 1
                    yield path, kind


def _has_content(path: Path, least: int) -> bool:
    """Return whether enough of a file is left without white space for its type to show."""
    try:
        with path.open("rb") as file:
            return len(file.read(4 * least + 64).strip()) >= least
    except OSError:  # a broken link, or a file of somebody else
        return False


# Small files of types that are rarely there.


def _words(generator: Any, count: int = 200) -> bytes:
    letters = "etaoinshrdlu"
    return " ".join("".join(generator.choice(list(letters), generator.integers(2, 9))) for _ in range(count)).encode()


def _picture(generator: Any, kind: str) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(generator.integers(0, 255, (24, 24, 3), np.uint8)).save(written, kind)
    return written.getvalue()


def _zip(generator: Any) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        file.writestr(zipfile.ZipInfo("notes.txt"), _words(generator))
    return written.getvalue()


def _tar(generator: Any) -> bytes:
    written, content = io.BytesIO(), _words(generator)
    with tarfile.open(fileobj=written, mode="w") as file:
        member = tarfile.TarInfo("notes.txt")
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return written.getvalue()


def _wav(generator: Any) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(generator.integers(-9000, 9000, 4000).astype("<i2").tobytes())
    return written.getvalue()


def _array(generator: Any, save: Callable[..., None]) -> bytes:
    written = io.BytesIO()
    save(written, generator.standard_normal(300))
    return written.getvalue()


_PICTURES = {"png": "PNG", "gif": "GIF", "jpeg": "JPEG", "bmp": "BMP", "tiff": "TIFF", "webp": "WEBP"}
_MAKERS: dict[str, Callable[[Any], bytes]] = {
    "zip": _zip,
    "tar": _tar,
    "gzip": lambda generator: gzip.compress(_words(generator), mtime=0),
    "bzip": lambda generator: bz2.compress(_words(generator)),
    "xz": lambda generator: lzma.compress(_words(generator)),
    "wav": _wav,
    "npy": lambda generator: _array(generator, np.save),
    "npz": lambda generator: _array(generator, np.savez),
    "pickle": lambda generator: pickle.dumps({"numbers": generator.integers(0, 9, 300).tolist()}, 4),
    "json": lambda generator: json.dumps({"notes": _words(generator).decode().split()}, indent=1).encode(),
    **{
        name: lambda generator, kind=kind: _picture(generator, kind)  # type: ignore[misc]
        for name, kind in _PICTURES.items()
    },
}
