"""An NVIDIA GPU that is not there: the parts of cuda.bindings.driver and of cupti-python that opmark calls.

A call of the driver gets the next number. Work runs in order on each stream, behind the gate while that is closed.
Times are nanoseconds of a clock that only the calls here move on.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

LAUNCH = 2_000
"""Nanoseconds that a launch takes the host."""


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_NOT_READY = 600


class Kind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22
    SYNCHRONIZATION = 38


class CopyKind(IntEnum):
    HTOD = 1
    DTOD = 8


class CuptiError(Exception):
    pass


class FakeGpu:
    """The device. `driver` and `cupti` are the modules; `launch` is what a framework does."""

    def __init__(self) -> None:
        self.now = time.time_ns()
        self.born = self.now - 1_000_000
        self.number = 0
        self.ready: dict[int, int] = {}
        """When the work of each stream is done."""
        self.streams = 10
        self.records: list[Any] = []
        self.enabled: set[int] = set()
        self.completed: Callable[[list[Any]], None] | None = None
        self.limit = 0
        self.closed_until: int | None = None
        self.waiting: list[Any] = []
        """Records of work behind the gate, which have no times yet."""
        self.memory: list[Any] = []
        self.refuses: dict[str, Any] = {}
        self.dropped = 0
        self.silent = False
        self.in_cycles = self.stays_in_cycles = False
        """Whether another profiler has changed the unit of records, and whether it cannot be changed back."""
        self.calls: list[str] = []
        self.contexts = 0
        self.driver: Any = FakeDriver(self)
        self.cupti: Any = FakeCupti(self)

    def launch(
        self, name: str = "kernel", seconds: float = 1e-6, stream: int = 7, kind: Kind = Kind.CONCURRENT_KERNEL
    ) -> None:
        self.now += LAUNCH
        self.number += 1
        self._run(name, round(seconds * 1e9), stream, kind, self.number)

    def graph(self, *kernels: tuple[str, float] | tuple[str, float, int]) -> None:
        """Launch several kernels by one call: name, seconds and, where the graph has branches, the stream of each."""
        self.now += LAUNCH
        self.number += 1
        for name, seconds, *streams in kernels:
            self._run(name, round(seconds * 1e9), (streams or [7])[0], Kind.CONCURRENT_KERNEL, self.number)

    def synchronize(self) -> None:
        self._open_in_time()
        if self.is_closed:  # nobody is left to open it
            self.now = self.closed_until or 0
            self.open()
        self.now = max([self.now, *self.ready.values()])

    @property
    def is_closed(self) -> bool:
        return self.closed_until is not None

    def close(self, limit: int) -> None:
        self.closed_until = self.now + limit

    def open(self) -> None:
        waiting, self.waiting, began = self.waiting, [], min(self.now, self.closed_until or self.now)
        self.closed_until = None
        for record, nanoseconds in waiting:
            self._place(record, nanoseconds, began)

    def _open_in_time(self) -> None:
        if self.closed_until is not None and self.now > self.closed_until:
            self.open()

    def _run(self, name: str, nanoseconds: int, stream: int, kind: Kind, number: int) -> None:
        record = SimpleNamespace(
            kind=int(kind), name=name, correlation_id=number, stream_id=stream, copy_kind=int(CopyKind.DTOD), start=0,
            end=0,
        )  # fmt: skip
        self._open_in_time()
        if self.is_closed and name != "opmark_gate":
            self.waiting.append((record, nanoseconds))
        else:
            self._place(record, nanoseconds, self.now)
        self.note(record)

    def _place(self, record: Any, nanoseconds: int, earliest: int) -> None:
        record.start = max(earliest, self.ready.get(record.stream_id, 0))
        record.end = self.ready[record.stream_id] = record.start + nanoseconds

    def note(self, record: Any) -> None:
        if record.kind in self.enabled:
            self.records.append(record)


class FakeDriver:
    CUresult = Status
    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=16)

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._kept: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            gpu = object.__getattribute__(self, "_gpu")
            gpu.calls.append(name)
            if name in gpu.refuses:
                return lambda *_: (gpu.refuses[name],)
        return object.__getattribute__(self, name)

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return (Status.CUDA_SUCCESS,)

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, self._gpu.contexts

    def cuDeviceGet(self, number: int) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, number

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 0xC0

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        return (Status.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 0

    def cuCtxGetDevice(self) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 0

    def cuModuleLoadData(self, text: bytes) -> tuple[Any, ...]:
        assert text.endswith(b"\0")
        return Status.CUDA_SUCCESS, text

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, ...]:
        assert name in module
        return Status.CUDA_SUCCESS, name.decode()

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 4

    def cuDeviceGetAttribute(self, *_: Any) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 132

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        assert flags == 1
        self._gpu.streams += 1
        return Status.CUDA_SUCCESS, self._gpu.streams

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, ...]:
        word = ctypes.create_string_buffer(size)
        self._kept.append(word)
        self._gpu.memory.append(word)
        return Status.CUDA_SUCCESS, ctypes.addressof(word)

    def cuMemHostGetDevicePointer(self, address: int, flags: int) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, address

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:
        return Status.CUDA_SUCCESS, 0xD0

    def cuMemsetD8(self, *_: Any) -> tuple[Any, ...]:
        return (Status.CUDA_SUCCESS,)

    def cuLaunchKernel(self, function: str, *rest: Any) -> tuple[Any, ...]:
        gpu, stream, addresses = self._gpu, rest[7], rest[8]
        places = (ctypes.c_uint64 * 4).from_address(addresses)
        host, _, number, limit = (ctypes.c_uint64.from_address(place).value for place in places)
        gpu.number += 1
        gpu._run(function, 1_000, stream, Kind.CONCURRENT_KERNEL, gpu.number)
        if ctypes.c_uint64.from_address(host).value < number:
            gpu.close(limit)
        return (Status.CUDA_SUCCESS,)

    def cuStreamQuery(self, stream: int) -> tuple[Any, ...]:
        self._gpu._open_in_time()
        return (Status.CUDA_ERROR_NOT_READY if self._gpu.is_closed else Status.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any, ...]:
        gpu = self._gpu
        gpu.number += 1
        record = SimpleNamespace(kind=int(Kind.SYNCHRONIZATION), stream_id=stream, correlation_id=gpu.number)
        gpu.note(record)
        return (Status.CUDA_SUCCESS,)


class FakeCupti:
    ActivityKind = Kind
    ActivityMemcpyKind = CopyKind
    cuptiError = CuptiError

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            gpu = object.__getattribute__(self, "_gpu")
            gpu.calls.append(name)
            if name in gpu.refuses:
                raise gpu.refuses[name]
        return object.__getattribute__(self, name)

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        assert requested()[0] > 0
        self._gpu.completed = completed

    def activity_enable(self, kind: int) -> None:
        self._gpu.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self._gpu.enabled.discard(kind)

    def activity_flush_all(self, flag: int) -> None:
        gpu = self._gpu
        if gpu.is_closed:  # the host has written its word
            gpu.open()
        records, gpu.records = gpu.records, []
        for record in records:
            if gpu.in_cycles and hasattr(record, "start"):
                record.start, record.end = 3 * (record.start - gpu.born), 3 * (record.end - gpu.born)
        if gpu.completed and not gpu.silent:
            gpu.completed(records[::-1])  # in no order that one could rely on

    def activity_get_num_dropped_records(self, context: int, stream: int, address: int) -> None:
        ctypes.c_size_t.from_address(address).value, self._gpu.dropped = self._gpu.dropped, 0

    def get_stream_id_ex(self, context: int, stream: int, per_thread: int) -> int:
        return stream

    def finalize(self) -> None:
        self._gpu.completed = None
        self._gpu.in_cycles = self._gpu.stays_in_cycles
