"""What opmark asks of the chip, in its own words: tensors, launches, waiting, copies, memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from opmark.errors import Unsupported
from opmark.interfaces import BackendInfo, Function, HostBackend, drawn
from opmark.schema import Launch, Status, TensorSpec
from opmark_example_npu.clock import NpuClock
from opmark_example_npu.device import CHIP, RUNTIME, Device, Memory, NpuOutOfMemory, NpuTensor

MEMORY = "OPMARK_NPU_MEMORY"
"""Bytes that the board has; 0 is a machine without one."""
_SRAM = 4 << 20


class Program:
    """What is timed: puts a kernel into the queue, and returns handles on what it will write."""

    def __init__(self, device: Device, name: str, call: Callable[..., Any], arguments: Sequence[NpuTensor]) -> None:
        self._device, self._name, self._call, self._arguments = device, name, call, arguments
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


class NpuBackend(HostBackend):
    asynchronous = True

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._device = Device(int(os.environ.get(MEMORY, 1 << 30)))

    def why_unavailable(self) -> str | None:
        return None if self._device.memory.nbytes else f"no board answers ({MEMORY} is 0)"

    def environment(self) -> dict[str, Any]:
        return {
            "chip": CHIP,  # found by this name: the hardware file, and what `opmark calibrate` measures
            "device": self._info.device,
            "npu_runtime": RUNTIME,
            "npu_memory": self._device.memory.nbytes,
            "numpy": np.__version__,
            "threads": self._threads,
        }

    def tensor(self, spec: TensorSpec, seed: int) -> NpuTensor:
        return self._device.upload(drawn(spec, seed).astype(spec.dtype, copy=False))

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """NumPy's implementations, which run in the queue where this chip has no kernel, see its memory as arrays."""
        if framework != "numpy":
            return inputs
        self._device.synchronize()
        return {name: tensor.array for name, tensor in inputs.items()}

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        """The chip's own kernels are Functions of device memory; what else is built knows its operands already."""
        if isinstance(built, Function):
            return Program(self._device, built.call.__name__, built.call, built.arguments)
        return Program(self._device, "numpy", built, ())

    def synchronize(self) -> None:
        self._device.synchronize()

    def dtype(self, value: NpuTensor) -> str:
        self._device.synchronize()
        return str(value.array.dtype)

    def to_numpy(self, value: NpuTensor) -> Any:
        array = self._device.download(value)
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    def deferred(self, value: Any) -> str | None:
        return None if isinstance(value, NpuTensor) else f"a {type(value).__name__}, which is not on the device"

    def thin(self, value: NpuTensor, most: int) -> NpuTensor:
        self._device.synchronize()
        flat = value.array.reshape(-1)
        return NpuTensor(flat[:: max(1, ceil(flat.size / most))])

    def poison(self, value: NpuTensor) -> None:
        self._device.launch("poison", partial(_poison, value))

    def copy_into(self, target: NpuTensor, source: NpuTensor) -> None:
        self._device.launch("copy", lambda: np.copyto(target.array, source.array))

    def overwrite(self, nbytes: int) -> Launch:
        scratch = self._device.upload(np.zeros(nbytes, np.uint8))
        return Program(self._device, "overwrite", lambda array: np.add(array, 1, out=array), (scratch,))

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        raise Unsupported("the chip is for inference")

    def device_clock(self) -> NpuClock:
        return NpuClock(self._device)

    def cache_bytes(self) -> int:
        return _SRAM

    def memory(self) -> Memory:
        return self._device.memory

    def available_bytes(self) -> int:
        return self._device.memory.free

    def classify(self, error: Exception) -> Status | None:
        return "oom" if isinstance(error, NpuOutOfMemory | MemoryError) else None


def _poison(value: NpuTensor) -> None:
    array = value.array
    if array.flags.writeable:
        worst: Any = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1
        array.fill(worst)
