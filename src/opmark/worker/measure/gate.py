"""Keeps an NVIDIA GPU busy until work has been queued behind it, whatever framework and stream the work comes from.

A kernel that fills every multiprocessor waits for a word in the memory of the host. Nothing else can start until the
host writes it, so that calls which take longer to launch than to run are queued first and then run without gaps. The
wait has a limit: a call that itself waits for the device would hang otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opmark.errors import TimerFailed

# One thread per block looks, the others of the block wait for it at a barrier. The first block looks into the memory of
# the host, about once per microsecond, and passes the word on: hundreds of blocks would crowd the bus.
_PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry opmark_gate(.param .u64 host, .param .u64 device, .param .u64 number, .param .u64 limit)
{
  .reg .pred %other, %again;
  .reg .u32 %at;
  .reg .u64 %from, %to, %n, %longest, %seen, %begin, %now, %pause;
  mov.u32 %at, %tid.x;
  setp.ne.u32 %other, %at, 0;
  @%other bra DONE;
  ld.param.u64 %from, [host];
  ld.param.u64 %to, [device];
  ld.param.u64 %n, [number];
  ld.param.u64 %longest, [limit];
  mov.u32 %at, %ctaid.x;
  setp.ne.u32 %other, %at, 0;
  @%other mov.u64 %from, %to;
  mov.u64 %begin, %globaltimer;
LOOK:
  mov.u64 %pause, %clock64;
PAUSE:
  mov.u64 %now, %clock64;
  sub.u64 %now, %now, %pause;
  setp.lt.u64 %again, %now, 1000;
  @%again bra PAUSE;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.gt.u64 %again, %now, %longest;
  @%again bra OPEN;
  ld.volatile.global.u64 %seen, [%from];
  setp.lt.u64 %again, %seen, %n;
  @%again bra LOOK;
OPEN:
  @!%other st.volatile.global.u64 [%to], %n;
DONE:
  bar.sync 0;
  ret;
}
"""
_THREADS = 512
"""Threads per block: what a multiprocessor holds is a multiple of it on every architecture."""
_PORTABLE_AND_MAPPED = 3
_NON_BLOCKING = 1


class DeviceGate:
    """Holds the device of the context that is current in this thread."""

    def __init__(self, driver: Any) -> None:
        """`driver`: the module cuda.bindings.driver. Raise TimerFailed where it refuses."""
        self._driver = driver
        ask = self._ask
        ask("cuInit", 0)
        context = ask("cuCtxGetCurrent")
        if not int(context):  # the framework has not used this thread
            context = ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", 0))
        self.context = context
        self._stream = self.new_stream()
        with self._current():
            device = ask("cuCtxGetDevice")
            self._function = ask("cuModuleGetFunction", ask("cuModuleLoadData", _PTX + b"\0"), b"opmark_gate")
            count = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            per_processor = ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, _THREADS, 0)
            self._blocks = ask("cuDeviceGetAttribute", count, device) * per_processor
            host = ask("cuMemHostAlloc", 8, _PORTABLE_AND_MAPPED)
            self._word = ctypes.c_uint64.from_address(int(host))
            self._word.value = 0
            seen = ask("cuMemAlloc", 8)
            ask("cuMemsetD8", seen, 0, 8)
            # The driver reads the arguments of a launch through an array of addresses.
            self._arguments = (ctypes.c_uint64 * 4)(int(ask("cuMemHostGetDevicePointer", host, 0)), int(seen), 0, 0)
            first = ctypes.addressof(self._arguments)
            self._addresses = (ctypes.c_uint64 * 4)(*(first + 8 * i for i in range(4)))
        with self.closed(1e-3):  # the first launch loads the kernel
            pass
        self.wait()

    def new_stream(self) -> Any:
        """Return a stream that waits for no other."""
        with self._current():
            return self._ask("cuStreamCreate", _NON_BLOCKING)

    @contextmanager
    def closed(self, limit: float) -> Iterator[Callable[[], bool]]:
        """Hold the device until the end of the block, for at most so many seconds. Without a limit nothing is held, but
        the kernel runs. Yields a function that tells whether the gate is still closed."""
        self._arguments[2] += 1
        self._arguments[3] = round(limit * 1e9)
        number = self._arguments[2]
        if not limit:
            self._word.value = number
        with self._current():
            self._ask(
                "cuLaunchKernel", self._function, self._blocks if limit else 1, 1, 1, _THREADS, 1, 1, 0, self._stream,
                ctypes.addressof(self._addresses), 0,
            )  # fmt: skip
        try:
            yield self._is_closed
        finally:
            self._word.value = number

    def wait(self) -> None:
        """Wait until the gate is open."""
        self._ask("cuStreamSynchronize", self._stream)

    def _is_closed(self) -> bool:
        busy = self._driver.CUresult.CUDA_ERROR_NOT_READY
        with self._current():
            return bool(self._driver.cuStreamQuery(self._stream)[0] == busy)

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._ask("cuCtxPushCurrent", self.context)
        try:
            yield
        finally:
            self._ask("cuCtxPopCurrent")

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of the driver, and return its result."""
        status, *results = getattr(self._driver, function)(*arguments)
        if int(status):
            raise TimerFailed(f"the driver refuses {function}: {status.name}")
        return results[0] if results else None
