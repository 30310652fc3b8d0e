"""The guard of a run that locks clocks: a process that locks them through NVML and sets them back when the run is over.

The guard reads requests from its standard input, one JSON line each, and answers each with a line. When the run ends,
however it ends, the pipe closes, and the guard sets back what it has locked. It is started in a session of its own, so
that neither Ctrl-C nor a signal to the process group of the run ends it first.

Several runs may use one GPU. Each guard holds a lease: a shared lock on a file that is named after the GPU. The first
one locks the clocks, those that come later leave them as they are, and the last one sets them back. A lease that nobody
holds and that still has its content was left behind by a guard that was killed itself: the next one takes it over.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from opmark.hardware.sensors import NvmlSensors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TDP = 0xFFFFFF01
"""NVML_CLOCK_LIMIT_ID_TDP, in place of a frequency: the clock that the GPU sustains at its rated power."""
LIMITED = 0x2
"""The bit of the "clocks event reasons" by which a user's setting holds the clock down."""
_NEAR = 0.05
"""How far from the requested clock a reading may be that is taken for the locked one: NVML locks at the nearest clock
that the GPU has, and a GPU that has nothing to do may read lower."""
_SETTLING = 2.0
_STEP = 0.05
"""Seconds within which a clock settles, and between two readings."""
_AGREEING = 4
"""Successive readings that have to agree: the first ones may be of the time before the lock."""
_MUTEX = "mutex"


class LockRequest(msgspec.Struct, frozen=True):
    """Asks the guard for the clocks of one GPU."""

    uuid: str
    mhz: int | None = None
    """None: the clock that the GPU sustains at its rated power."""


class LockedClocks(msgspec.Struct, frozen=True):
    """The answer of the guard, and the content of a lease."""

    mhz: int | None = None
    """Clock of the multiprocessors; None where it is not locked, or cannot be read."""
    memory_mhz: int | None = None
    """Clock of the memory; None where it is not locked."""
    reason: str = ""
    """Why nothing is locked; empty where the clock is locked."""
    others: bool = False
    """Whether another run had locked the clocks already."""


class ClockGuard:
    """Locks the clocks of GPUs until `release`."""

    def __init__(self, nvml: Any, folder: Path) -> None:
        self._nvml = nvml
        self._folder = folder
        self._held: dict[str, tuple[Any, int]] = {}
        """Handle of the GPU and descriptor of the lease, by UUID."""

    def lock(self, request: LockRequest) -> LockedClocks:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{request.uuid}")
            with _exclusive(self._folder):
                return self._lock(request, handle)
        except self._nvml.NVMLError as error:
            return LockedClocks(reason=f"NVML: {error}{_as_root(self._nvml, error)}")
        except OSError as error:
            return LockedClocks(reason=f"the lease cannot be written: {error}")

    def release(self) -> None:
        """Set back the clocks of each GPU that no other guard has a lease of."""
        for uuid, (handle, descriptor) in self._held.items():
            with ExitStack() as stack:
                with suppress(OSError):  # somebody has removed the folder: the clocks have to be set back all the same
                    stack.enter_context(_exclusive(self._folder))
                # Where another guard holds a lease, the kernel takes this one away and says no: it is left to the last.
                if _try_lock(descriptor):
                    try:
                        _unlock_clocks(self._nvml, handle)
                        os.ftruncate(descriptor, 0)
                    except self._nvml.NVMLError as error:
                        _complain(f"the clocks of GPU {uuid} could not be set back: {error}; {reset_command(uuid)}")
            os.close(descriptor)
        self._held.clear()

    def _lock(self, request: LockRequest, handle: Any) -> LockedClocks:
        descriptor = _open_lease(self._folder, request.uuid)
        with ExitStack() as stack:
            stack.callback(os.close, descriptor)  # unless it is held below
            alone = _try_lock(descriptor)
            left = _read_lease(descriptor)
            if alone:
                found = self._lock_clocks(request, handle, descriptor, ours=left is not None)
            else:
                found = msgspec.structs.replace(left or LockedClocks(), others=True)
            if not found.reason:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                self._held[request.uuid] = handle, descriptor
                stack.pop_all()
            return found

    def _lock_clocks(self, request: LockRequest, handle: Any, descriptor: int, *, ours: bool) -> LockedClocks:
        """Lock the clocks. `ours`: whether a guard that was killed has left them locked."""
        nvml, sensors = self._nvml, NvmlSensors(self._nvml, handle)
        if not ours and _limited_by_others(nvml, sensors):
            now = sensors.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
            return LockedClocks(
                reason=f"somebody has set its clock already, which reads {now} MHz; NVML does not tell what was set, "
                "so that it could not be set back"
            )
        _write_lease(descriptor, LockedClocks(mhz=request.mhz))  # before anything changes: a kill may come in between
        try:
            asked = _lock_multiprocessors(nvml, handle, request.mhz)
        except nvml.NVMLError:
            if not ours:
                os.ftruncate(descriptor, 0)
            raise
        memory = _lock_memory(nvml, handle)
        found = LockedClocks(_settled_clock(nvml, sensors, asked), memory)
        _write_lease(descriptor, found)
        return found


def _lock_multiprocessors(nvml: Any, handle: Any, mhz: int | None) -> int | None:
    """Lock the clock of the multiprocessors; return the frequency that was asked for, None for that of the rated power.

    Drivers that do not know the clock of the rated power have a default for applications, which a GPU sustains too.
    """
    if mhz is not None:
        nvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
        return mhz
    try:
        nvml.nvmlDeviceSetGpuLockedClocks(handle, _TDP, _TDP)
    except nvml.NVMLError as refused:
        default = NvmlSensors(nvml, handle).ask("nvmlDeviceGetDefaultApplicationsClock", nvml.NVML_CLOCK_SM)
        if refused.value == nvml.NVML_ERROR_NO_PERMISSION or default is None:
            raise
        nvml.nvmlDeviceSetGpuLockedClocks(handle, default, default)
        return int(default)
    return None


def _lock_memory(nvml: Any, handle: Any) -> int | None:
    """Lock the clock of the memory at the default for applications, or the highest, and return it; None where that is
    not possible. A power limit does not pull it down as it does the other clock, so bandwidth stays what it was."""
    sensors = NvmlSensors(nvml, handle)
    clock = sensors.ask("nvmlDeviceGetDefaultApplicationsClock", nvml.NVML_CLOCK_MEM) or sensors.ask(
        "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM
    )
    try:
        if clock:
            nvml.nvmlDeviceSetMemoryLockedClocks(handle, clock, clock)
    except (nvml.NVMLError, AttributeError):  # a GPU before Ampere; an old library
        return None
    return clock or None


def _settled_clock(nvml: Any, sensors: NvmlSensors, asked: int | None) -> int | None:
    """Return the clock that the GPU is locked at: what it reads once several readings agree, if that is near what was
    asked for."""
    readings: list[int | None] = []
    deadline = time.monotonic() + _SETTLING
    while time.monotonic() < deadline and (len(readings) < _AGREEING or len(set(readings[-_AGREEING:])) > 1):
        time.sleep(_STEP)
        readings.append(sensors.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
    now = readings[-1]
    near = now is not None and (asked is None or abs(now - asked) <= _NEAR * asked)
    return now if near else asked


def _unlock_clocks(nvml: Any, handle: Any) -> None:
    nvml.nvmlDeviceResetGpuLockedClocks(handle)
    with suppress(nvml.NVMLError, AttributeError):  # a GPU whose memory clock could not be locked
        nvml.nvmlDeviceResetMemoryLockedClocks(handle)


def _limited_by_others(nvml: Any, sensors: NvmlSensors) -> bool:
    """Return whether a user's setting holds the clock down, and it is not the clock for applications, which stays as it
    is under a lock. NVML reports the reason only while something runs."""
    if not sensors.clock_event_bits() & LIMITED:
        return False
    applications = sensors.ask("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_SM)
    highest = sensors.ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)
    return applications is None or highest is None or applications >= highest


def _as_root(nvml: Any, error: Any) -> str:
    return " (locking clocks takes root)" if error.value == nvml.NVML_ERROR_NO_PERMISSION else ""


def reset_command(uuid: str) -> str:
    """Return the command that sets back the clocks of a GPU by hand."""
    return f"sudo nvidia-smi -i GPU-{uuid} -rgc; sudo nvidia-smi -i GPU-{uuid} -rmc"


# Leases.


def lease_folder() -> Path:
    """Return the folder of the leases: the same in every session of a user, as locked clocks are, and not kept for
    long."""
    return Path(tempfile.gettempdir()) / f"opmark-clocks-{os.geteuid()}"


def lease_state(uuid: str) -> tuple[LockedClocks | None, bool]:
    """Return (the lease of a GPU, if it has one; whether a guard holds it)."""
    folder = lease_folder()
    if fcntl is None or not os.access(folder / uuid, os.R_OK | os.W_OK):
        return None, False
    with _exclusive(folder):  # a guard that came meanwhile would take this look for a lease
        descriptor = _open_lease(folder, uuid)
        try:
            found = _read_lease(descriptor)
            return found, found is not None and not _try_lock(descriptor)
        finally:
            os.close(descriptor)


def _open_lease(folder: Path, name: str) -> int:
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one guard at a time take or leave a lease."""
    descriptor = _open_lease(folder, _MUTEX)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_lease(descriptor: int) -> LockedClocks | None:
    content = os.pread(descriptor, 4096, 0)
    try:
        return msgspec.json.decode(content, type=LockedClocks) if content else None
    except msgspec.DecodeError:  # killed while it wrote
        return LockedClocks()


def _write_lease(descriptor: int, found: LockedClocks) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(found), 0)


# The process.


def _open_guard() -> ClockGuard | str:
    """Return the guard, or why there is none."""
    if fcntl is None:
        return "opmark locks clocks on Linux alone"
    try:
        import pynvml
    except ModuleNotFoundError:
        return "nvidia-ml-py is not installed (pip install 'opmark[nvidia]')"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML does not answer: {error}"
    folder = lease_folder()
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        found = folder.lstat()
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
            return f"{folder}, where locked clocks are noted, belongs to somebody else"
    except OSError as error:
        return f"{folder}, where locked clocks are noted, cannot be made: {error.strerror}"
    return ClockGuard(pynvml, folder)


def _complain(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as a machine does that shuts down
    guard = _open_guard()
    try:
        for line in sys.stdin.buffer:
            # Not between locking a clock and noting it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            request = msgspec.json.decode(line, type=LockRequest)
            answer = LockedClocks(reason=guard) if isinstance(guard, str) else guard.lock(request)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        pass  # the run ended while it waited for an answer
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if isinstance(guard, ClockGuard):
            guard.release()


if __name__ == "__main__":
    main()
