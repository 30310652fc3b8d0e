"""The judge's end of a candidate's process: starts it, lets it run for one call at a time, and stops it again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from opmark.plugin import ArrayPlace
from opmark.schema.judgement import Refusal
from opmark.scratch import ScratchFolder
from opmark.worker.judge.candidate import CALL, DONE, NOTHING, RECORDED, CandidateOrder

_KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CC", "CXX",
    "TORCH_CUDA_ARCH_LIST", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE", "VIRTUAL_ENV",
)  # fmt: skip
_START_TIMEOUT = 120.0
_LOADING = "loading it, which includes a first call"
_STOP_TIMEOUT = 15.0
_LOG_TAIL = 2000
_LONGEST_LINE = 1 << 16
_LAUNCH = (
    "import sys; sys.path[:0] = sys.argv[2:]; from opmark.worker.judge.candidate import main; main(int(sys.argv[1]))"
)
_SWEEPS = 3
"""How often processes are looked for: one that is ended may have been starting another."""
_ALIVE: set[int] = set()
"""Processes of candidates and baselines that the judge has started and not ended."""
_ALL_EVENTS = os.WSTOPPED | os.WCONTINUED | os.WEXITED


class Refused(Exception):
    """The candidate is not accepted, whatever it computes."""

    def __init__(self, refusal: Refusal, reason: str) -> None:
        super().__init__(reason)
        self.refusal: Refusal = refusal
        self.reason = reason


class CandidateProcess:
    """A process that runs only between the judge's word and its answer. At all other times it is stopped."""

    def __init__(self, order: CandidateOrder, descriptors: Sequence[int], variables: Mapping[str, str]) -> None:
        """The process starts and imports its framework; `open` waits for that. No code of the candidate has run yet."""
        self._scratch = ScratchFolder("judge")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._line, theirs = socket.socketpair()
        self.timeout = 0.0
        self.recorded = False
        """Whether it says that it replays a recording of its launches; nothing depends on it but a remark."""
        self.guards: tuple[str, ...] = ()
        """What holds it in its place."""
        self._gate: StartGate | None = None
        self._others = {child.pid for child in psutil.Process().children()}
        home = self._scratch.name
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environ = {**kept, **variables, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": home}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCH, str(theirs.fileno()), *_import_path()],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=home, env=environ,
            pass_fds=(theirs.fileno(), *descriptors), start_new_session=True,
        )  # fmt: skip
        _ALIVE.add(self.pid)
        theirs.close()
        self._line.sendall(msgspec.json.encode(order) + b"\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self) -> None:
        """Wait until the process is locked in and its framework is imported."""
        self.timeout = _START_TIMEOUT
        self._wait("starting")
        first, descriptors, _, _ = socket.recv_fds(self._line, 1, 1)
        if not first:
            raise self._death("starting")
        if descriptors:
            self._gate = StartGate(descriptors[0])
        self.guards = tuple(json.loads(first + self._read_line()))
        self._answer("starting")

    def load(self, timeout: float) -> list[tuple[tuple[int, ...], str]]:
        """Load the candidate and call it once; return the shape and element type of each output, as it says."""
        self.timeout = timeout
        self._line.sendall(b"load\n")
        self._answer(_LOADING)
        text = self._read_line()
        try:
            return [(tuple(map(int, shape)), str(dtype)) for shape, dtype in json.loads(text)]
        except (TypeError, ValueError):
            raise Refused("tampered", "it answered in the name of the program that calls it") from None

    def prepare(self, outputs: Sequence[Sequence[ArrayPlace]], timeout: float) -> None:
        """Tell it where the outputs of each call of a trial go, and stop it."""
        self.timeout = timeout
        self._line.sendall(msgspec.json.encode(list(outputs)) + b"\n")
        self.stop()

    def close_gate(self) -> None:
        """From now on it may start no process; those that it has started are ended."""
        if self._gate:
            self._gate.allow = False
        for _ in range(_SWEEPS):
            for child in psutil.Process().children():
                if child.pid == self.pid:
                    _end(child.children(recursive=True))
                elif child.pid not in _ALIVE | self._others:  # abandoned by a process that has ended
                    _end([*child.children(recursive=True), child])

    def stop(self) -> None:
        """Stop all its threads, and wait until they are. A signal that wakes it up may come in between."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.perf_counter() + _STOP_TIMEOUT
        while (event := os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            if time.perf_counter() > deadline:
                raise Refused("tampered", "it cannot be stopped: something wakes it up again")
            os.sched_yield()
        if event.si_code != os.CLD_STOPPED:
            raise self._death("being stopped")
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def trial(self, settle: Callable[[], None], *, call: bool = True) -> float:
        """Let it run for one trial; return the seconds from the word to begin until it was stopped and `settle` has
        taken the outputs. Whatever the process does to its own clocks, the time is the judge's."""
        self._check_stopped()
        start = time.perf_counter()
        self._line.send(CALL if call else NOTHING)
        os.kill(self.pid, signal.SIGCONT)
        self._answer("being called")
        self.stop()
        settle()
        return time.perf_counter() - start

    def check_after(self) -> None:
        """Raise Refused for what the process did since the last call began that no honest one does."""
        self._check_stopped()
        if self._gate and self._gate.tried:
            raise Refused("tampered", "it tried to start a process while it was timed")

    def close(self) -> None:
        """End the process at once, with everything that it started. Closing it twice does nothing."""
        if self.pid not in _ALIVE:
            return
        self.close_gate()  # first its children, while they are known as such
        self._process.kill()
        self._process.wait()
        _ALIVE.remove(self.pid)
        self.close_gate()
        if self._gate:
            self._gate.close()
        self._line.close()
        self._log.close()
        self._scratch.cleanup()

    def _check_stopped(self) -> None:
        event = os.waitid(os.P_PID, self.pid, _ALL_EVENTS | os.WNOHANG | os.WNOWAIT)
        if event is None:
            return
        if event.si_code in (os.CLD_CONTINUED, os.CLD_STOPPED):
            raise Refused("tampered", "it ran on while it was stopped: something woke it up")
        raise self._death("being stopped")

    def _wait(self, doing: str) -> None:
        if not select.select([self._line], [], [], self.timeout)[0]:
            option = "--compile-timeout" if doing == _LOADING else "--timeout"
            raise Refused("timeout", f"no answer within {self.timeout:g} s while {doing} ({option})")

    def _answer(self, doing: str) -> None:
        self._wait(doing)
        answer = self._line.recv(1)
        if answer in (DONE, RECORDED):
            self.recorded = answer == RECORDED
            return
        if not answer:
            raise self._death(doing)
        text = self._read_line()
        try:
            reason = str(json.loads(text))
        except ValueError:
            reason = "it answered in the name of the program that calls it"
        raise Refused("failed", f"while {doing}: {reason}")

    def _read_line(self) -> bytes:
        found = b""
        while not found.endswith(b"\n") and len(found) < _LONGEST_LINE:
            self._wait("answering")
            part = self._line.recv(1)
            if not part:
                break
            found += part
        return found

    def _death(self, doing: str) -> Refused:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.returncode
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        said = f"; it said: {lines[-1].strip()}" if lines else ""
        how = "closed its line" if code is None else f"ended with code {code}"
        return Refused("failed", f"its process {how} while {doing}{said}")


class StartGate:
    """Answers the kernel's questions whether a process may be started."""

    _RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
    _GO_ON = 1

    def __init__(self, descriptor: int) -> None:
        self.allow = True
        self.tried = False
        """Whether it was refused once."""
        self._descriptor = descriptor
        self._wake, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._wake)
        os.close(self._descriptor)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            events = dict(poll.poll())
            if self._wake in events or not events.get(self._descriptor, 0) & select.POLLIN:
                return
            question = bytearray(80)
            with suppress(OSError):  # the process may have been ended meanwhile
                fcntl.ioctl(self._descriptor, self._RECEIVE, question)
                (identity,) = struct.unpack_from("=Q", question)
                allowed = self.allow
                self.tried |= not allowed
                error, flags = (0, self._GO_ON) if allowed else (-errno.EPERM, 0)
                fcntl.ioctl(self._descriptor, self._ANSWER, bytearray(struct.pack("=QqiI", identity, 0, error, flags)))


def _import_path() -> list[str]:
    """Folders that modules are imported from: those of this process, opmark's own first, without the current one."""
    home, here = str(Path(__file__).parents[3]), str(Path.cwd())
    return list(dict.fromkeys([home, *(folder for folder in sys.path if folder not in ("", here))]))


def _end(processes: Sequence[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
        with suppress(ChildProcessError):
            os.waitpid(one.pid, os.WNOHANG)
