"""Reads a tensor from a file of torch.save or numpy.save, without torch and without running code of the file."""

from __future__ import annotations

import pickle
import tokenize
import zipfile
import zlib
from functools import lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from opmark.catalogue.operators import _numpy as np
from opmark.errors import InvalidParameter

_STORAGES = {"LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "FloatStorage": "float32",
             "HalfStorage": "float16", "DoubleStorage": "float64"}  # fmt: skip
_DAMAGE = (ValueError, LookupError, TypeError, EOFError, AttributeError, OverflowError, MemoryError, RuntimeError,
           pickle.PickleError, tokenize.TokenError, zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What pickle, zipfile and numpy.load raise for a damaged file; none has an exception of its own for that."""
_HINT = "write it with torch.save(tensor.cpu(), PATH) or numpy.save(PATH, array)"


class _Storage(NamedTuple):
    dtype: str
    key: str


def read_tensor(path: str) -> Any:
    """Return the array in a file, which is read again if it has changed."""
    try:
        stamp = Path(path).stat()
        return _read(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        raise InvalidParameter(f"{path}: the file cannot be read: {error.strerror}", _HINT) from None
    except ValueError as error:  # a NUL in the path
        raise InvalidParameter(f"{path!r}: expected the path of a file: {error}", _HINT) from None


@lru_cache(maxsize=8)
def _read(path: str, changed: int, size: int) -> Any:
    try:
        if path.endswith(".npy"):
            return np.load(path, allow_pickle=False)
        with zipfile.ZipFile(path) as archive:
            (listed,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            found = _TensorUnpickler(archive, listed.removesuffix("data.pkl")).load()
            if not isinstance(found, np.ndarray):
                raise ValueError(f"it holds a {type(found).__name__}")
            return found
    except _DAMAGE as error:
        raise InvalidParameter(
            f"{path}: expected one saved tensor: {str(error) or type(error).__name__}", _HINT
        ) from None


class _TensorUnpickler(pickle.Unpickler):
    """Knows the few names that a saved tensor needs, and refuses all others."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(BytesIO(archive.read(f"{folder}data.pkl")))
        self._archive, self._folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._rebuild
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it holds {module}.{name}")

    def persistent_load(self, found: Any) -> _Storage:
        _, dtype, key, *_ = found
        return _Storage(dtype, key)

    def _rebuild(self, storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> Any:
        flat = np.frombuffer(self._archive.read(f"{self._folder}data/{storage.key}"), storage.dtype)
        expected = [prod(size[axis + 1 :]) for axis in range(len(size))]
        if list(stride) != expected:
            raise ValueError(f"its strides are {list(stride)}, those of a contiguous tensor are {expected}")
        return flat[offset : offset + prod(size)].reshape(tuple(size))
