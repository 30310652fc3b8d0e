"""`opmark serve` as a process of its own, on a free port."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

from benchmarks.common import OPMARK

_ADDRESS = re.compile(r"https?://[\w.:\[\]]+:\d+")
_PATIENCE = 60.0


class Served:
    def __init__(self, db: str | Path, *options: str, environ: Mapping[str, str]) -> None:
        command = [OPMARK, "serve", "--db", str(db), "--port", "0", *options]
        self.output: list[str] = []
        """All lines so far, of both outputs."""
        self.address = ""
        self._heard = Event()
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._heard.wait(_PATIENCE)
        if not self.address:
            self.stop()
            raise RuntimeError(f"{' '.join(command)}: named no address\n{''.join(self.output)}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> int:
        """Stop the server as with ctrl-c, and return its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        code = self._process.wait(_PATIENCE)
        self._listener.join()
        return code

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _listen(self) -> None:
        """Read the output until its end, because a full pipe would stop the server."""
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self.output.append(line)
                found = _ADDRESS.search(line)
                if found and not self.address:
                    self.address = found.group()
                    self._heard.set()
        self._heard.set()
