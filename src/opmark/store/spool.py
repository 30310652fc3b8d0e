"""What a server has confirmed, kept beside it until the end of the run: one that goes down may have forgotten it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from opmark.store.pack import whole

_LENGTH = 4
"""Bytes that say how long the entry behind them is."""


class Spool:
    """In a file that is gone with the process, packed as it is stored: memory does not grow with the run."""

    def __init__(self) -> None:
        self.problem = ""
        """Why it holds nothing, if its disk did not take it. The server has it all the same."""
        self._encoder = msgspec.msgpack.Encoder()
        try:
            self._file = tempfile.TemporaryFile(prefix="opmark-spool-", buffering=0)  # noqa: SIM115  (closed by `close`)
        except OSError as error:
            self.problem = str(error)

    def add(self, kind: str, what: Any) -> None:
        if self.problem:
            return
        try:
            entry = self._encoder.encode((kind, what))
        except UnicodeEncodeError:  # half a character: it was stored without that, too
            entry = self._encoder.encode(whole(msgspec.to_builtins((kind, what), builtin_types=(bytes,))))
        try:
            self._file.seek(0, 2)
            framed = len(entry).to_bytes(_LENGTH, "little") + entry
            if self._file.write(framed) < len(framed):
                self.problem = "no room is left for all of it"
        except OSError as error:
            self.problem = str(error)

    def entries(self) -> Iterator[tuple[str, Any]]:
        """In the order in which they were added; up to the problem, if there was one."""
        if not hasattr(self, "_file"):
            return
        self._file.seek(0)
        while len(head := self._file.read(_LENGTH)) == _LENGTH:
            length = int.from_bytes(head, "little")
            entry = self._file.read(length)
            if len(entry) < length:
                return
            kind, what = msgspec.msgpack.decode(entry)
            yield kind, what

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
