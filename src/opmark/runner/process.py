"""The parent's end of a worker: start it, give it tasks, survive whatever becomes of it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

import msgspec

from opmark.guests.interpreter import own_environ
from opmark.guests.place import command, place_of
from opmark.interfaces import BackendInfo
from opmark.runner.execute import utc_now
from opmark.runner.sides import Side
from opmark.runner.worker import Answer, Hello, Stage
from opmark.schema import Record, Status, Task
from opmark.units import seconds

_LOG_TAIL = 2000
SCRATCH = "OPMARK_SCRATCH"
"""Names a folder that a worker may fill: it is ended without notice, and its parent removes it."""
_LOOK_AGAIN = 0.5
"""Seconds between two looks whether a silent worker is alive."""


_decoder = msgspec.json.Decoder(Answer | Stage)


class WorkerDied(Exception):
    """The process ended, or was ended, before it answered."""

    def __init__(self, status: Status, reason: str, *, illegal: bool = False, idle: bool = False) -> None:
        super().__init__(reason)
        self.idle = idle
        """It had nothing to do: no task is to blame."""
        self.status: Status = status
        self.reason = reason
        self.illegal = illegal
        """It met an instruction that this machine does not have or does not allow."""


def environ_for(
    info: BackendInfo, threads: int, more: Mapping[str, str] | None = None, side: Side | None = None
) -> dict[str, str]:
    """The variables that a process which loads this backend starts with: frameworks read them only once."""
    fixed = {key: value.format(threads=threads) for key, value in info.variables.items()}
    inherited = dict(os.environ) if place_of(info).own else own_environ()
    usual = {**inherited, **fixed, **(more or {})}
    return side.over(usual) if side else usual


class WorkerProcess:
    """`deliver` is given each of its lines, and None when there will be no more; without, they wait to be asked for."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        environ: Mapping[str, str] | None = None,
        side: Side | None = None,
        *,
        module: str = "opmark.runner.worker",
        deliver: Callable[[bytes | None], None] | None = None,
    ) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._scratch = tempfile.TemporaryDirectory(prefix="opmark-worker-", ignore_cleanup_errors=True)
        reading, writing = os.pipe()
        self._process = subprocess.Popen(
            [*command(info, module), info.name, str(threads), str(writing)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(writing,),
            env={**environ_for(info, threads, environ, side), SCRATCH: self._scratch.name},
            cwd=side.checkout.folder if side and side.checkout else None,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the worker in order
        )
        os.close(writing)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._deliver = deliver or self._lines.put
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def hello(self, timeout: float) -> Hello:
        """Its first line, once the framework is imported."""
        return msgspec.json.decode(self._answer(timeout, "starting"), type=Hello)

    def run(self, task: Task, timeout: float, compile_timeout: float | None = None) -> Answer:
        """What it made of the task; WorkerDied if it could not. Compiling has a time-out of its own."""
        self.tell(msgspec.json.encode(task))
        left, doing = timeout, "running the task"
        while True:
            said = _decoder.decode(self._answer(left, doing))
            if isinstance(said, Answer):
                return said
            compiling = said.stage == "compiling"
            left, doing = (compile_timeout or timeout, "compiling") if compiling else (timeout, "running the task")

    def tell(self, line: bytes) -> None:
        """A line for it; WorkerDied if it has died since its last answer."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            death = self._death("waiting for a task")
            raise WorkerDied(death.status, death.reason, illegal=death.illegal, idle=True) from None

    def died(self, doing: str) -> WorkerDied | None:
        """How it died, if it has."""
        return None if self._process.poll() is None else self._death(doing)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it at once, with everything that it started."""
        self._kill()
        self._process.wait()
        self._reader.join(timeout=1.0)  # a process that left the group may hold the pipe open: it is not waited for
        if self._process.stdin:
            with suppress(BrokenPipeError):  # it may have died with a task still in the pipe
                self._process.stdin.close()
        self._log.close()
        self._scratch.cleanup()

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                self._deliver(line)
        self._deliver(None)

    def _answer(self, timeout: float, doing: str) -> bytes:
        deadline = time.monotonic() + timeout
        while True:
            dead = self._process.poll() is not None
            try:
                line = self._lines.get(timeout=max(0.0, min(_LOOK_AGAIN, deadline - time.monotonic())))
            except queue.Empty:
                # The pipe stays open while a process that the worker started lives on; its own death counts.
                if dead:
                    raise self._death(doing) from None
                if time.monotonic() < deadline:
                    continue
                self._kill()
                raise WorkerDied("timeout", f"no answer within {seconds(timeout)} while {doing}; killed") from None
            if line is None:
                raise self._death(doing)
            return line

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _death(self, doing: str) -> WorkerDied:
        code = self._process.wait()
        last = self._last_words()
        said = f"; it said: {last}" if last else ""
        if code >= 0:
            return WorkerDied("error", f"its process ended with exit code {code} while {doing}{said}")
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL:
            return WorkerDied("oom", f"its process was killed ({name}) while {doing}, most likely for want of memory")
        text = signal.strsignal(-code) or "unknown signal"
        return WorkerDied(
            "error", f"its process died of {name} ({text}) while {doing}{said}", illegal=-code == signal.SIGILL
        )

    def _last_words(self) -> str:
        """The last line that it printed: usually the one that says why."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


def lost(task: Task, death: WorkerDied, duration: float, environment: str) -> Record:
    """What is stored of a task whose worker died."""
    return Record(task, death.status, death.reason, environment=environment, started=utc_now(), duration=duration)
