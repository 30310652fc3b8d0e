"""torch's tensors in memory that is shared with the judge, on the host or on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opmark.errors import Unsupported
from opmark.plugin import Arena, ArrayPlace, Backend, SharedTensors
from opmark.schema import TensorSpec


class TorchSharedTensors(SharedTensors):
    def __init__(self, handle: Mapping[str, Any], threads: int) -> None:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self._on_device = "ipc" in handle
        if self._on_device:
            torch.set_default_device("cuda")
            self._memory = _device_bytes(_open_device_memory(bytes.fromhex(handle["ipc"])), handle["nbytes"])
        else:
            mapped = mmap.mmap(handle["descriptor"], handle["nbytes"])
            self._memory = torch.frombuffer(mapped, dtype=torch.uint8)

    def view(self, place: ArrayPlace) -> Any:
        return _view(self._memory, place)

    def describe(self, output: Any) -> tuple[tuple[int, ...], str]:
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"it returned {type(output).__name__}, expected a tensor of torch")
        return tuple(output.shape), str(output.dtype).removeprefix("torch.")

    def copy(self, output: Any, view: Any) -> None:
        view.copy_(output)

    def blank(self, place: ArrayPlace) -> Any:
        return torch.empty_like(self.view(place))

    def synchronize(self) -> None:
        if self._on_device:
            torch.cuda.synchronize()

    def record(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """Record a CUDA graph. Work that waits for the device cannot be recorded."""
        if not self._on_device:
            return None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                work()
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        replay: Callable[[], None] = graph.replay
        return replay


class CudaArena(Arena):
    """The judge's end of memory on a GPU. Outputs are copied by the judge while the clock runs, so that what a stream
    of the candidate writes later is not in them."""

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self._backend = backend
        self._pointer, shared = _allocate_device_memory(nbytes)
        self._memory = _device_bytes(self._pointer, nbytes)
        self._taken = torch.empty(0, dtype=torch.uint8, device="cuda")
        self._first = 0
        self.handle = {"ipc": shared.hex(), "nbytes": nbytes}

    def draw(self, place: ArrayPlace, spec: TensorSpec, seed: int) -> Any:
        drawn = self._backend.tensor(spec, seed)
        _view(self._memory, place).copy_(drawn)
        torch.cuda.synchronize()
        return drawn

    def poison(self, place: ArrayPlace) -> None:
        self._memory[place.offset : place.offset + place.nbytes].fill_(0xFF)
        torch.cuda.synchronize()

    def settle(self, places: Sequence[ArrayPlace]) -> None:
        self._first, end = places[0].offset, places[-1].offset + places[-1].nbytes
        if self._taken.numel() != end - self._first:
            self._taken = torch.empty(end - self._first, dtype=torch.uint8, device="cuda")
        self._taken.copy_(self._memory[self._first : end])
        torch.cuda.synchronize()

    def read(self, place: ArrayPlace, positions: Mapping[int, Any]) -> Any:
        taken = self._taken[place.offset - self._first :][: place.nbytes]
        if place.dtype == "bool" and bool((taken > 1).any()):
            return self._backend.take(taken.reshape(place.shape), positions)
        return self._backend.take(taken.view(getattr(torch, place.dtype)).reshape(place.shape), positions)

    def widen(self, copy: Any, positions: Mapping[int, Any]) -> Any:
        return self._backend.take(copy, positions)

    def holds(self, place: ArrayPlace, copy: Any) -> bool:
        found, due = _view(self._memory, place), copy.contiguous()
        return bool(torch.equal(found.reshape(-1).view(torch.uint8), due.reshape(-1).view(torch.uint8)))

    def still_written(self, places: Sequence[ArrayPlace]) -> bool:
        end = places[-1].offset + places[-1].nbytes
        return not torch.equal(self._taken, self._memory[self._first : end])

    def close(self) -> None:
        _check(_driver().cuMemFree_v2(self._pointer), "cuMemFree")


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class _DeviceBytes:
    """Bytes at an address of the device, as torch takes them from another library."""

    def __init__(self, pointer: ctypes.c_uint64, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (pointer.value, False), "version": 3, "strides": None,
        }  # fmt: skip


def _device_bytes(pointer: ctypes.c_uint64, nbytes: int) -> Any:
    return torch.as_tensor(_DeviceBytes(pointer, nbytes), device="cuda")


def _view(memory: Any, place: ArrayPlace) -> Any:
    part = memory[place.offset : place.offset + place.nbytes]
    return part.view(getattr(torch, place.dtype)).reshape(place.shape)


def _allocate_device_memory(nbytes: int) -> tuple[ctypes.c_uint64, bytes]:
    """Return memory of the device, and the handle by which another process opens it."""
    torch.cuda.synchronize()  # makes the context of the device current in this thread
    driver, pointer, handle = _driver(), ctypes.c_uint64(), _IpcHandle()
    _check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)), "cuMemAlloc")
    _check(driver.cuIpcGetMemHandle(ctypes.byref(handle), pointer), "cuIpcGetMemHandle")
    return pointer, bytes(handle)


def _open_device_memory(shared: bytes) -> ctypes.c_uint64:
    torch.cuda.synchronize()
    pointer, lazily = ctypes.c_uint64(), 1
    handle = _IpcHandle.from_buffer_copy(shared)
    _check(_driver().cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, lazily), "cuIpcOpenMemHandle")
    return pointer


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int, call: str) -> None:
    if code:
        raise Unsupported(f"{call} of the NVIDIA driver failed with code {code}")
