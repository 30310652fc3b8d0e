"""The chip, simulated: memory that is counted and ends, a queue that a thread works off, and a profiler.

This stands in for a vendor's SDK. With a real one this file is not there, and backend.py calls the SDK.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Queue
from threading import RLock, Thread
from typing import Any

import numpy as np

from opmark.plugin import Activity

CHIP = "Example NPU-1"
RUNTIME = "1.0.0"


class NpuError(RuntimeError):
    pass


class NpuOutOfMemory(NpuError, MemoryError):
    pass


class NpuTensor:
    """A handle on device memory. It is filled when the queue gets there; only what runs in the queue looks inside."""

    __slots__ = ("array",)

    def __init__(self, array: Any = None) -> None:
        self.array = array

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("this tensor is on the device: copy it to the host first")


class Memory:
    """The board's memory: bytes in use, the peak, the limit. Views are free, as they are on any device."""

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
        """Forget the peak; bytes in use now."""
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


class Log:
    """What ran while the profiler was on, in order; seconds since it was switched on."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._first = device.launched
        self.origin = time.perf_counter()
        self.kernels: list[Activity] = []

    @property
    def launched(self) -> int:
        """Kernels that were put into the queue so far."""
        return self._device.launched - self._first


class Device:
    def __init__(self, nbytes: int, depth: int = 1024) -> None:
        self.memory = Memory(nbytes)
        self.launched = 0
        self._log: Log | None = None
        self._failed: Exception | None = None
        self._queue: Queue[tuple[str, Callable[[], object]]] = Queue(depth)
        Thread(target=self._work, name="npu", daemon=True).start()

    def upload(self, array: Any) -> NpuTensor:
        return NpuTensor(self.memory.hold(np.array(array, order="C")))

    def allocate(self, nbytes: int) -> NpuTensor:
        return self.upload(np.zeros(nbytes, np.uint8))

    def download(self, tensor: NpuTensor) -> Any:
        self.synchronize()
        return np.array(tensor.array)

    def copy(self, target: NpuTensor, source: NpuTensor) -> None:
        self.launch("copy", lambda: np.copyto(target.array, source.array))

    def program(self, call: Callable[..., Any], arguments: Sequence[NpuTensor]) -> Program:
        """A kernel on these tensors, ready to be launched."""
        return Program(self, call, arguments)

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

    @contextmanager
    def profile(self, hold: float) -> Iterator[Log]:
        """Everything that runs inside is logged. The queue is held for so many seconds first."""
        self.synchronize()
        log = self._log = Log(self)
        try:
            self.launch("hold", partial(time.sleep, hold))
            yield log
            self.synchronize()
        finally:
            self._log = None

    def _work(self) -> None:
        while True:
            name, kernel = self._queue.get()
            start = time.perf_counter()
            try:
                if not self._failed:  # what comes behind a failure would compute with what is not there
                    kernel()
            except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits is told
                self._failed = error
            log = self._log
            if log is not None:
                log.kernels.append(Activity(name, start - log.origin, time.perf_counter() - log.origin))
            del kernel  # the queue does not keep outputs that nobody wants
            self._queue.task_done()


class Program:
    """Puts a kernel into the queue when it is called, and returns handles on what it will write."""

    def __init__(self, device: Device, call: Callable[..., Any], arguments: Sequence[NpuTensor]) -> None:
        self._device, self._call, self._arguments = device, call, arguments
        self._name = getattr(call, "func", call).__name__
        self._outputs, self._single = 0, True

    def __call__(self) -> Any:
        outputs = [NpuTensor() for _ in range(self._outputs)]
        self._device.launch(self._name, partial(self._run, outputs))
        if not outputs:  # the first call, long before anything is timed, finds out how many there are
            self._device.synchronize()
        return outputs[0] if self._single else tuple(outputs)

    def _run(self, outputs: list[NpuTensor]) -> None:
        results = self._call(*(argument.array for argument in self._arguments))
        self._single = not isinstance(results, tuple | list)
        arrays = [np.asarray(result) for result in ((results,) if self._single else results)]
        self._outputs = len(arrays)
        outputs += [NpuTensor() for _ in arrays[len(outputs) :]]
        for output, array in zip(outputs, arrays, strict=True):
            output.array = self._device.memory.hold(array)
