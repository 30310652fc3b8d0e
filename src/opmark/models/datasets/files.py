"""Reads files of data sets. Whatever is wrong with one, an unfinished download first of all, becomes a message."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from weakref import finalize

import numpy as np

from opmark.errors import InvalidFile, UserError
from opmark.schema.evaluation import DataChoice

UNFINISHED = "was it downloaded to its end? Compare its size with the source's, or download it again"
_BLOCK = 512
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError)
_NUMPY = {
    (module, name)
    for module in ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
    for name in ("_reconstruct", "ndarray", "dtype")
} | {("_codecs", "encode")}
"""What pickles of arrays call. None of it runs code that a file brings along."""


def require(module: str, purpose: str) -> Any:
    """Import a module of a package that data sets need and opmark itself does not."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the package {module.partition('.')[0]}, which {sys.executable} cannot import: {error}",
            "pip install 'opmark[data]' there",
        ) from None


def path_of(choice: DataChoice, expected: str) -> Path:
    """Return the path of the data; UserError where there is none. `expected` says what it should lead to."""
    if not choice.path:
        raise UserError(f"{choice.name}: no path to the data; expected {expected}", f"--data {choice.name}:PATH")
    path = Path(choice.path)
    if not path.exists():
        raise UserError(f"{choice.name}: there is no {path}; expected {expected}", "opmark downloads no data")
    return path


def option_path(choice: DataChoice, name: str) -> Path | None:
    """Return the file that an option names; None without the option."""
    if name not in choice.options:
        return None
    path = Path(choice.options[name]).expanduser()
    if not path.is_file():
        raise UserError(
            f"--data-option {name}: there is no file {path}", "a path is taken from the folder that opmark runs in"
        )
    return path


def check_options(choice: DataChoice, *known: str) -> None:
    """Raise UserError for an option that the data set does not take."""
    for name in choice.options:
        if name not in known:
            raise UserError(
                f"--data-option: {choice.name} has no option `{name}`", f"it takes {', '.join(known) or 'none'}"
            )


def refuse(path: Path | str, expected: str, got: str, hint: str) -> NoReturn:
    raise InvalidFile(f"{path}: expected {expected}, got {got}", hint)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn errors of archives that end too early, or that are none, into a message about this file."""
    try:
        yield
    except _DAMAGED as error:
        raise InvalidFile(f"{path}: cannot be read to its end: {error}", UNFINISHED) from None


def is_archive(path: Path) -> bool:
    """Return whether a path looks like a tar, compressed or not."""
    return path.is_file() and (".tar" in path.name or path.suffix in (".tgz", ".tbz2", ".txz"))


class Archive:
    """The files of a tar, compressed or not, read one by one when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            try:
                self._tar = tarfile.open(path, "r:")  # noqa: SIM115 - it stays open as long as the data set is used
            except tarfile.ReadError:  # not a plain one
                self._tar = tarfile.open(path, "r:*")  # noqa: SIM115
                plain = False
            else:
                plain = True
            finalize(self, self._tar.close)
            if plain:
                _refuse_cut(path)
            self.members = [member for member in self._tar.getmembers() if member.isfile()]

    def read(self, member: tarfile.TarInfo) -> bytes:
        with reading(f"{self.path}: {member.name}"):
            file = self._tar.extractfile(member)
            assert file is not None
            data = file.read()
        if len(data) != member.size:
            raise InvalidFile(f"{self.path}: {member.name}: expected {member.size} bytes, got {len(data)}", UNFINISHED)
        return data


def _refuse_cut(path: Path) -> None:
    """Raise InvalidFile for a plain tar without an empty block at its end: it may have been cut between two files,
    which nothing else shows."""
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - _BLOCK))
        if size % _BLOCK or any(file.read()):
            raise InvalidFile(f"{path}: the empty blocks at the end of an archive are missing", UNFINISHED)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path}: expected text in UTF-8, got other bytes at {error.start}", UNFINISHED) from None


def parse_json(text: str, path: Path | str, expected: str) -> Any:
    """Return the content of JSON; `expected` says in a message what it should be."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidFile(
            f"{path}: expected {expected}, got text that is no JSON at line {error.lineno}, column {error.colno}: "
            f"{error.msg}",
            UNFINISHED,
        ) from None


class _ArrayUnpickler(pickle.Unpickler):
    """Makes numbers, texts, lists, mappings and arrays; a pickle that calls anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NUMPY:
            raise pickle.UnpicklingError(f"it would call {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core") if _has_new_core() else module, name)


def _has_new_core() -> bool:
    return int(np.__version__.partition(".")[0]) >= 2


def unpickle(data: bytes, path: Path | str) -> Any:
    """Return the plain data and arrays in a pickle. Nothing that the file brings is executed."""
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InvalidFile(
            f"{path}: expected a pickle of plain data and arrays, got one that cannot be read: {error}", UNFINISHED
        ) from None


def load_array(path: Path) -> Any:
    """Return the array of an .npy file. Lists of different lengths are kept as a pickle there, which is read without
    executing anything."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
            shape, _, dtype = read_header(file)
            if dtype.hasobject:
                return np.asarray(unpickle(file.read(), path), dtype=object).reshape(shape)
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", "opmark downloads no data") from None
    except (ValueError, EOFError, AttributeError) as error:
        raise InvalidFile(f"{path}: expected an .npy file, got one that cannot be read: {error}", UNFINISHED) from None
