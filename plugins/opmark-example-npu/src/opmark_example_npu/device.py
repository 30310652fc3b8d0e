"""The chip, simulated: memory that is counted and ends, and a queue that a thread works off.

This stands in for a vendor's SDK. With a real one this file is not there, and backend.py calls the SDK.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from queue import Queue
from threading import RLock, Thread
from typing import Any

import numpy as np

from opmark.interfaces import Activity

CHIP = "Example NPU-1"
RUNTIME = "1.0.0"


class NpuError(RuntimeError):
    pass


class NpuOutOfMemory(NpuError):
    pass


class NpuTensor:
    """A handle on device memory. It is filled when the queue gets there; only what runs in the queue looks inside."""

    __slots__ = ("array",)

    def __init__(self, array: Any = None) -> None:
        self.array = array

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("this tensor is on the device: copy it to the host first")


class Memory:
    """What opmark.interfaces.MemoryProbe asks for, and the limit. Views are free, as they are on any device."""

    source = "npu allocator"
    resolution = 1

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._used = self._peak = 0
        self._held: set[int] = set()
        self._lock = RLock()  # a tensor may be given back by the collector, while another one is taken

    @property
    def free(self) -> int:
        return self.nbytes - self._used

    def start(self) -> int:
        self._peak = self._used
        return self._used

    def peak(self) -> int:
        return self._peak

    def hold(self, array: Any) -> Any:
        """The array as a piece of device memory, until the last handle on it is gone."""
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        with self._lock:
            if id(whole) in self._held:
                return array
            if whole.nbytes > self.free:
                raise NpuOutOfMemory(f"{whole.nbytes} bytes asked for, {self.free} of {self.nbytes} are free")
            self._held.add(id(whole))
            self._used += whole.nbytes
            self._peak = max(self._peak, self._used)
        weakref.finalize(whole, self._give_back, id(whole), whole.nbytes).atexit = False
        return array

    def _give_back(self, key: int, nbytes: int) -> None:
        with self._lock:
            self._held.discard(key)
            self._used -= nbytes


class Device:
    def __init__(self, nbytes: int, depth: int = 1024) -> None:
        self.memory = Memory(nbytes)
        self.launched = 0
        self.log: list[Activity] | None = None
        """What ran, in order, while somebody wants to know."""
        self._failed: Exception | None = None
        self._queue: Queue[tuple[str, Callable[[], object]]] = Queue(depth)
        Thread(target=self._work, name="npu", daemon=True).start()

    def launch(self, name: str, kernel: Callable[[], object]) -> None:
        """Returns at once, or as soon as the queue has room."""
        self.launched += 1
        self._queue.put((name, kernel))

    def synchronize(self) -> None:
        """Waits, and says what has failed since the last time: a launch that is not waited for cannot say it."""
        self._queue.join()
        if self._failed:
            failed, self._failed = self._failed, None
            raise failed

    def upload(self, array: Any) -> NpuTensor:
        return NpuTensor(self.memory.hold(np.array(array, order="C")))

    def download(self, tensor: NpuTensor) -> Any:
        self.synchronize()
        return np.array(tensor.array)

    def _work(self) -> None:
        while True:
            name, kernel = self._queue.get()
            start = time.perf_counter()
            try:
                if not self._failed:  # what comes behind a failure would compute with what is not there
                    kernel()
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits is told
                self._failed = error
            if self.log is not None:
                self.log.append(Activity(name, start, time.perf_counter()))
            del kernel  # the queue does not keep outputs that nobody wants
            self._queue.task_done()
