"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from opmark.errors import UserError


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that is replaced at the end, or stays as it was after an error. Its folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.resolve()  # replaces the target of a link, and not the link
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            with path.open("wb") as file:
                yield file
            return
        partial = path.with_name(f".opmark-{secrets.token_hex(8)}.part")
        try:
            with partial.open("xb") as file:
                yield file
            if path.exists():
                shutil.copymode(path, partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def check_writable(*paths: str | os.PathLike[str] | None) -> None:
    """Raise UserError where `whole_file` could not write a file: what takes long asks before it begins. The folder of
    the file is made; the file stays as it is, because an interrupted command would leave it empty."""
    for path in paths:
        if path is None:
            continue
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            target = Path(path).resolve()
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not target.exists() or target.is_file():
                with tempfile.TemporaryFile(dir=target.parent):
                    pass
            elif not os.access(target, os.W_OK):  # a device or a pipe is not replaced
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written: {error.strerror or error}", "name a file in a folder that can be written"
            ) from None
