"""PARAM's result file, written line by line, so that finished cases are on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from opmark.errors import UserError
from opmark.exporters.param_header import header, last_line
from opmark.exporters.param_lines import text


class ResultFile:
    """The file `PREFIX_<pid>_<seconds>.json`, or with `append` the end of `PREFIX.json`."""

    def __init__(self, prefix: str, *, append: bool) -> None:
        self._started = _now()
        self.stem = f"{prefix}_{os.getpid()}_{int(self._started.timestamp())}"
        self.path = Path(f"{prefix}.json" if append else f"{self.stem}.json")
        self._append = append
        self._file: IO[str] | None = None

    @property
    def begun(self) -> bool:
        return self._file is not None

    def begin(self, options: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Open the file and write the first line."""
        self._file = self._open()
        process_facts = {"pid": os.getpid(), "cwd": str(Path.cwd()), **facts}
        self.write(header({**options, "out_stream": str(self.path)}, process_facts, self._started.isoformat()))

    def write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(text([line]))
        self._file.flush()

    def finish(self) -> None:
        self.write(last_line(_now().isoformat()))

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _open(self) -> IO[str]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("a" if self._append else "w", encoding="utf-8")
        except OSError as error:
            message = f"{self.path}: the file cannot be written: {error.strerror}"
            raise UserError(message, "name another with -o PREFIX") from None


def _now() -> datetime:
    return datetime.now(timezone.utc).astimezone()
