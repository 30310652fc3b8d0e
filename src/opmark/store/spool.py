"""Entries that a server has confirmed, kept beside it until the end of the run: a server that goes down may forget."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from opmark.store.pack import whole

_LENGTH = 4
"""Bytes that say how long the entry behind them is."""


class Spool:
    """A file that is gone with the process. Entries are packed as they are stored, and memory does not grow."""

    def __init__(self) -> None:
        self.problem = ""
        """Why entries are missing, if the disk did not take them. The server has them all the same."""
        self._encoder = msgspec.msgpack.Encoder()
        try:
            self._file = tempfile.TemporaryFile(prefix="opmark-spool-", buffering=0)  # noqa: SIM115  (closed by `close`)
        except OSError as error:
            self.problem = str(error)

    def add(self, entry: Sequence[Any]) -> None:
        if self.problem:
            return
        try:
            packed = self._encoder.encode(entry)
        except UnicodeEncodeError:  # half a character: it was stored without that, too
            packed = self._encoder.encode(whole(msgspec.to_builtins(entry, builtin_types=(bytes,))))
        try:
            self._file.seek(0, 2)
            framed = len(packed).to_bytes(_LENGTH, "little") + packed
            if self._file.write(framed) < len(framed):
                self.problem = "no room is left for all of it"
        except OSError as error:
            self.problem = str(error)

    def entries(self) -> Iterator[Sequence[Any]]:
        """The entries in the order in which they were added, up to the problem, if there was one."""
        if not hasattr(self, "_file"):
            return
        self._file.seek(0)
        while len(head := self._file.read(_LENGTH)) == _LENGTH:
            length = int.from_bytes(head, "little")
            packed = self._file.read(length)
            if len(packed) < length:
                return
            yield msgspec.msgpack.decode(packed)

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
