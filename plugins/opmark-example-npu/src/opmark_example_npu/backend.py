"""The chip in opmark's words: four methods that every backend has, and what this one has beyond them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from opmark.plugin import Backend, BackendInfo, DeviceClock, Function, Launch, MemoryProbe, Trace
from opmark_example_npu.device import CHIP, RUNTIME, Device, NpuTensor
from opmark_example_npu.library import npu_fill
from opmark_example_npu.models import compile_model


class NpuBackend(Backend):
    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self.device = Device(int(os.environ.get("OPMARK_NPU_MEMORY", 1 << 30)))

    def upload(self, array: Any, dtype: str) -> NpuTensor:
        return self.device.upload(array)

    def download(self, tensor: NpuTensor) -> Any:
        return self.device.download(tensor)

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        if not isinstance(built, Function):  # a whole model
            return compile_model(self.device, built, inputs)
        return self.device.program(built.call, built.arguments)

    def synchronize(self) -> None:
        self.device.synchronize()

    # These four verify and time. Each method from here on adds something; without it opmark says what is missing.

    def why_unavailable(self) -> str | None:
        return None if self.device.memory.nbytes else "no board answers (OPMARK_NPU_MEMORY is 0)"

    def environment(self) -> dict[str, Any]:
        return {**super().environment(), "chip": CHIP, "npu_runtime": RUNTIME}

    def copy_into(self, target: NpuTensor, source: NpuTensor) -> None:
        self.device.copy(target, source)

    def overwrite(self, nbytes: int) -> Launch:
        return self.device.program(npu_fill, (self.device.allocate(nbytes),))

    def memory(self) -> MemoryProbe:
        return self.device.memory

    def device_clock(self) -> DeviceClock:
        return NpuClock(self.device)


class NpuClock(DeviceClock):
    name = "npu-log"

    def __init__(self, device: Device) -> None:
        self._device = device

    def trace(self, launches: Sequence[Launch], before: Launch | None, hold: float) -> Trace:
        """The queue is worked off in order: a call's kernels are those that it has put there."""
        calls = []
        with self._device.profile(hold) as log:
            for launch in launches:
                if before:
                    before()
                first = log.launched
                launch()
                calls.append((first, log.launched))
        return Trace([log.kernels[first:last] for first, last in calls])
