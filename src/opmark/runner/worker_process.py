"""The parent's end of a worker process: starts it, gives it tasks, and reports how it died."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import IO

from opmark.hardware.memory_kills import MemoryKills
from opmark.plugin import BackendInfo
from opmark.runner.guests.environments import own_environ
from opmark.runner.guests.placement import choose_interpreter, worker_command
from opmark.runner.ranks.authentication import SECRET
from opmark.schema import Record, Resources, Status, Task
from opmark.schema.messages import (
    RESOURCES,
    Hello,
    Reply,
    RunTask,
    Side,
    Stage,
    TaskReply,
    decode_hello,
    decode_reply,
    encode,
)
from opmark.schema.record import TaskStage, utc_now
from opmark.scratch import ScratchFolder
from opmark.units import seconds

_LOG_TAIL = 2000
SCRATCH = "OPMARK_SCRATCH"
"""Names a folder that a worker may fill: a worker is ended without notice, and its parent removes the folder."""
HOST = "OPMARK_HOST_PYTHON"
"""Names this interpreter to a worker in a guest, which may have to ask a process of it about a model."""
_POLL_INTERVAL = 0.5
"""Seconds between two checks whether a silent worker is alive."""
_SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that other processes send, and no fault of the process itself raises."""


class WorkerDied(Exception):
    """The process ended, or was ended, before it answered."""

    def __init__(
        self, status: Status, reason: str, *, illegal: bool = False, idle: bool = False, starting: bool = False
    ) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.stage: TaskStage = ""
        """What it was doing with its task, if it had one."""
        self.reason = reason
        self.illegal = illegal
        """Whether it met an instruction that this machine does not have or does not allow."""
        self.idle = idle
        """Whether it died while it waited for a task, so that no task is to blame."""
        self.starting = starting
        """Whether no process could be started, so that there was none to try a task."""


def environ_for(
    info: BackendInfo,
    threads: int,
    more: Mapping[str, str] | None = None,
    side: Side | None = None,
    resources: Resources | None = None,
) -> dict[str, str]:
    """The variables that a process which loads this backend starts with: frameworks read them only once.

    The secret of the ranks is not among them: no worker talks to the port that it protects, and operators of strangers
    run there."""
    fixed = {key: value.format(threads=threads) for key, value in info.variables.items()}
    inherited = dict(os.environ) if choose_interpreter(info).own else {**own_environ(), HOST: sys.executable}
    inherited.pop(SECRET, None)
    usual = {**inherited, **fixed, **(more or {}), **_variables_of(resources)}
    return side.over(usual) if side else usual


def _variables_of(resources: Resources | None) -> dict[str, str]:
    """Return the variables that tell a worker what it may use; some libraries have variables of their own for it."""
    if resources is None:
        return {}
    found = {RESOURCES: encode(resources).decode()}
    if resources.cores:
        found["TVM_BIND_THREADS"] = "0"  # it would spread its threads over all cores again
    if resources.sm_percent is not None:
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(resources.sm_percent)
    return found


class WorkerProcess:
    """One worker process. Its lines wait to be read by `hello` and `run`, or go to `deliver`, which is given None when
    there will be no more."""

    def __init__(
        self,
        info: BackendInfo,
        threads: int,
        environ: Mapping[str, str] | None = None,
        side: Side | None = None,
        *,
        rank: bool = False,
        deliver: Callable[[bytes | None], None] | None = None,
        resources: Resources | None = None,
    ) -> None:
        """`rank`: whether the process is to be one rank of a group."""
        role = ["rank"] if rank else []
        with ExitStack() as on_failure:
            self._log: IO[bytes] = on_failure.enter_context(tempfile.TemporaryFile())
            self._scratch = ScratchFolder("worker")
            on_failure.callback(self._scratch.cleanup)
            self._memory_kills = MemoryKills()
            reading, writing = os.pipe()
            on_failure.callback(os.close, reading)
            try:
                self._process = subprocess.Popen(
                    [*worker_command(info, "opmark.worker.main"), info.name, str(threads), str(writing), *role],
                    stdin=subprocess.PIPE,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=(writing,),
                    env={**environ_for(info, threads, environ, side, resources), SCRATCH: self._scratch.name},
                    cwd=side.checkout.folder if side and side.checkout else None,
                    start_new_session=True,  # Ctrl-C is for the parent, which then ends the worker in order
                )
            finally:
                os.close(writing)
            on_failure.pop_all()  # the process has started: `close` and the thread that reads close them
        self._hello: Hello | None = None
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._deliver = deliver or self._lines.put
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def hello(self, timeout: float) -> Hello:
        """Wait for the first line of the worker, which it sends once its framework is imported."""
        if self._hello is None:
            self._hello = decode_hello(self._next_line(timeout, "starting"))
        return self._hello

    def run(self, task: Task, timeout: float, compile_timeout: float | None = None) -> TaskReply:
        """Run a task. Raise WorkerDied if the worker does not answer. Compiling has a time-out of its own."""
        self.send(encode(RunTask(task)))
        limit, doing = timeout, "running the task"
        stage: TaskStage = "run"
        while True:
            try:
                reply = decode_reply(self._next_line(limit, doing))
            except WorkerDied as death:
                death.stage = stage
                raise
            if isinstance(reply, TaskReply):
                return reply
            assert isinstance(reply, Stage)
            stage = reply.stage
            doing = "compiling" if stage == "compile" else "running the task"
            if stage != "run":
                limit = compile_timeout or timeout if stage == "compile" else timeout

    def reply(self, timeout: float, doing: str) -> Reply:
        """Wait for the next reply. Raise WorkerDied if there is none in time."""
        found: Reply = decode_reply(self._next_line(timeout, doing))
        return found

    def send(self, line: bytes) -> None:
        """Send a line to the worker. Raise WorkerDied if it has died since its last answer."""
        self._memory_kills = MemoryKills()
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            death = self._death("waiting for a task")
            raise WorkerDied(death.status, death.reason, illegal=death.illegal, idle=True) from None

    def died(self, doing: str) -> WorkerDied | None:
        """How the process died, if it has."""
        return None if self._process.poll() is None else self._death(doing)

    def close(self) -> None:
        """End the process at once, with everything that it started."""
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

    def _next_line(self, timeout: float, doing: str) -> bytes:
        deadline = time.monotonic() + timeout
        while True:
            dead = self._process.poll() is not None
            try:
                line = self._lines.get(timeout=max(0.0, min(_POLL_INTERVAL, deadline - time.monotonic())))
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
        """The cause of death by exit code and signal, with the last line that was printed: it usually says why."""
        code = self._process.wait()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        last_words = f"; it said: {lines[-1].strip()}" if lines else ""
        if code >= 0:
            return WorkerDied("error", f"its process ended with exit code {code} while {doing}{last_words}")
        name = signal.Signals(-code).name
        if -code in _SENT_FROM_OUTSIDE:
            what = f"its process was killed ({name}) while {doing}"
            if -code == signal.SIGKILL and (evidence := self._memory_kills.since()):
                return WorkerDied("oom", f"{what}: {evidence}")
            return WorkerDied("killed", f"{what}{last_words}")
        text = signal.strsignal(-code) or "unknown signal"
        return WorkerDied(
            "error", f"its process died of {name} ({text}) while {doing}{last_words}", illegal=-code == signal.SIGILL
        )


def record_of_death(task: Task, death: WorkerDied, duration: float, environment: str) -> Record:
    """The record of a task whose worker died. A worker that died before the task reached it has not tried it."""
    return Record(
        task,
        death.status,
        death.reason,
        environment=environment,
        started=utc_now(),
        duration=duration,
        untried=death.idle,
        stage=death.stage,
    )
