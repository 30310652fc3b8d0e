"""PyTorch, eager, on any device that torch knows."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import torch
from msgspec.structs import replace
from torch.autograd.graph import _engine_run_backward

from opmark.errors import Unsupported
from opmark.frameworks.cuda_code import format_architectures, has_code
from opmark.frameworks.torch.device_clock import CudaClock, poison
from opmark.plugin import (
    BLOCK,
    Announce,
    Arena,
    Backend,
    BackendInfo,
    CallCost,
    Configuration,
    DeviceClock,
    Launch,
    MemoryLayout,
    MemoryProbe,
    ProcessGroup,
    Streams,
    World,
    make_values,
)
from opmark.plugin.backend import sample_stride
from opmark.schema import Cost, TensorSpec
from opmark.schema.tensor import is_float

# Parts of messages by which torch says, without a type of its own, what an error is about.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")
# The Infinity Cache of AMD's accelerators, which torch does not count as L2.
_AMD_LAST_LEVEL = 256 << 20
# Major number of the compute capability of NVIDIA's first GPUs with TF32 (Ampere).
_FIRST_WITH_TF32 = 8
_NOT_THERE = (
    "not implemented for",
    "not supported",
    "does not support",
    "could not run",
    "no kernel found",
    "is only supported on",
    "cublas_status_not_supported",
)


_IMAGE_AXES = 4
"""Batch, channels, height, width."""


class TorchBackend(Backend):
    """Runs launches eagerly on one device of torch. NVML reads the sensors of an NVIDIA GPU, which is found by the
    `gpu_uuid` in the environment."""

    oom_errors = (MemoryError, torch.OutOfMemoryError)
    oom_messages = _OUT_OF_MEMORY
    unsupported_errors = (NotImplementedError,)
    unsupported_messages = _NOT_THERE
    index_dtypes = ("int64",)

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        if info.requires:
            import_module(info.requires)  # a vendor's package adds its device to torch when it is imported
        self._device = _device_type(info.device)
        self.asynchronous = self._device != "cpu"
        self._configured: Configuration = {}
        self._clock = CudaClock() if self._device == "cuda" else None
        self._sms: int | None = None
        torch.set_num_threads(threads)
        _take_own_device(self._device)
        # No graph is kept unless the backward phase asks for one.
        torch.set_grad_enabled(False)
        # float32 means float32: with TF32 allowed, convolutions would quietly keep 10 bits of 23. Products in TF32 have
        # an element type of their own (`compute_in`).
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def why_unavailable(self) -> str | None:
        if self._device == "cpu":
            return None
        if self._device == "none":
            return f"torch {torch.__version__} reports no accelerator on this machine"
        if self._device == "cuda" and not torch.cuda.is_available():
            build = torch.version.cuda or torch.version.hip
            return f"torch {torch.__version__} " + (
                "finds no GPU (is there a driver?)" if build else "is a build without CUDA"
            )
        if not _module(self._device).is_available():
            return f"torch {torch.__version__} has no {self._device} device on this machine"
        return _why_no_code(self.info.name) if self._device == "cuda" and torch.version.cuda else None

    def environment(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "torch": str(torch.__version__),
            "device": self._device,
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        if self._device == "cpu":
            facts["capability"] = torch.backends.cpu.get_cpu_capability()
            facts["mkldnn"] = torch.backends.mkldnn.is_available()
        if self._device == "cuda":
            properties = torch.cuda.get_device_properties()
            facts |= {
                "gpu": properties.name,
                "gpu_uuid": str(properties.uuid),
                "gpu_memory": properties.total_memory,
                "gpu_l2": properties.L2_cache_size,
                "gpu_sms": properties.multi_processor_count,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
                "tf32": torch.backends.cudnn.allow_tf32,
            }
        if self._sms:
            facts["sms"] = self._sms
        return facts

    def upload(self, array: Any, dtype: str) -> Any:
        if array.dtype.isbuiltin != 1:  # a type that ml_dtypes adds to NumPy, if something has imported it
            array = array.astype("float32")
        return torch.from_numpy(array).to(self._device, getattr(torch, dtype))

    def download(self, tensor: Any) -> Any:
        if tensor.device.type == "cpu":
            self.synchronize()  # a device may still be writing to it
        host = tensor.detach().cpu()
        lacks = host.is_floating_point() and host.dtype not in (torch.float64, torch.float32, torch.float16)
        return (host.float() if lacks else host).numpy()

    def tensor(self, spec: TensorSpec, seed: int) -> Any:
        """Make a tensor on the device: uploading large tensors would take longer than measuring them."""
        if spec.place != "device":
            there = self.tensor(replace(spec, place="device"), seed).cpu()
            return there.pin_memory() if spec.place == "pinned" else there
        if spec.strides:
            flat = self.tensor(replace(spec, shape=(spec.span,), strides=()), seed)
            return flat.as_strided(spec.shape, spec.strides)
        dtype = getattr(torch, spec.dtype)
        if spec.make:
            return self.upload(make_values(spec, seed), spec.dtype)
        if self._device == "cpu" and spec.elements > BLOCK:
            flat, block = torch.empty(spec.elements, dtype=dtype), self.tensor(replace(spec, shape=(BLOCK,)), seed)
            for part in flat.split(BLOCK):
                part.copy_(block[: len(part)])
            return flat.reshape(spec.shape)
        generator = torch.Generator(self._device).manual_seed(seed)
        if is_float(spec.dtype):
            # Generators know no 8-bit floats; their values are rounded from float32.
            drawn = torch.float32 if dtype.itemsize == 1 else dtype
            empty = torch.empty(spec.shape, dtype=drawn, device=self._device)
            return empty.uniform_(spec.low, spec.high, generator=generator).to(dtype)
        if dtype.is_complex:
            pairs = torch.empty((*spec.shape, 2), dtype=dtype.to_real(), device=self._device)
            return torch.view_as_complex(pairs.uniform_(spec.low, spec.high, generator=generator))
        low, high = int(spec.low), int(spec.high)
        return torch.randint(low, high, spec.shape, dtype=dtype, device=self._device, generator=generator)

    def placing(self) -> AbstractContextManager[Any]:
        place: AbstractContextManager[Any] = torch.device(self._device)
        return place

    def compute_in(self, dtype: str) -> None:
        rounds = dtype == "tfloat32"
        if rounds and (reason := self._why_no_tf32()):
            raise Unsupported(reason)
        if self._device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = rounds

    def configure(self, configuration: Configuration) -> None:
        """Set switches of this process; without a configuration, to torch's defaults."""
        if not configuration and not self._configured:
            return
        self.refuse_other_threads(configuration)
        self._configured = configuration
        if self._device == "cpu":
            torch._C._set_mkldnn_enabled(bool(configuration.get("onednn", True)))
            torch.set_flush_denormal(bool(configuration.get("flush_denormals", False)))
        else:
            torch.backends.cudnn.benchmark = bool(configuration.get("cudnn_benchmark", False))
            reduced = bool(configuration.get("reduced_precision_reduction", True))
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = reduced
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduced
            torch.backends.cuda.preferred_blas_library(str(configuration.get("blas_library", "default")))

    def operands(self, framework: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Lay images out with their channels last where the configuration says so: the tensors stay the same, so that
        other data can be put into them."""
        if self._configured.get("layout") == "channels_last":
            for tensor in inputs.values():
                if tensor.dim() == _IMAGE_AXES and tensor.is_contiguous():
                    tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
        return super().operands(framework, inputs)

    def _why_no_tf32(self) -> str | None:
        """Why products would be computed in float32 although torch is told otherwise."""
        if self._device != "cuda" or torch.version.hip:
            return f"torch has no products in tfloat32 on {'AMD GPUs' if torch.version.hip else self._device}"
        if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
            return "NVIDIA_TF32_OVERRIDE=0 switches tfloat32 off"
        major, minor = torch.cuda.get_device_capability()
        if major < _FIRST_WITH_TF32:
            return f"this GPU has compute capability {major}.{minor}, and tfloat32 came with {_FIRST_WITH_TF32}.0"
        return None

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        launch: Launch = built
        return launch

    def dtype(self, value: Any) -> str:
        return str(value.dtype).removeprefix("torch.")

    def deferred(self, value: Any) -> str | None:
        """Why an output is not computed yet: a subclass of a tensor may do its work only when it is read."""
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        return None if plain else f"a {type(value).__name__}, which may be computed only when it is looked at"

    def sample(self, value: Any, most: int) -> Any:
        flat = value.detach().reshape(-1)
        return self.to_numpy(flat[:: sample_stride(flat.numel(), most)])

    def shape(self, value: Any) -> tuple[int, ...]:
        return tuple(value.shape)

    def take(self, value: Any, positions: Mapping[int, Any]) -> Any:
        """Take elements on the device, as bytes where torch cannot index the type (8-bit floats)."""
        found = value.detach()
        bits = found.view(torch.uint8) if found.is_floating_point() and found.dtype.itemsize == 1 else found
        for axis, at in positions.items():
            bits = bits.index_select(axis, torch.from_numpy(at).to(bits.device))
        return self.to_numpy(bits.view(found.dtype))

    def contract(self, value: Any, axis: int, weights: Any) -> Any:
        rows = value.detach().movedim(axis, -1)
        flat, on_device = rows.reshape(-1, rows.shape[-1]), torch.from_numpy(weights).to(value.device)
        sums = [part.double() @ on_device for part in flat.split(max(1, BLOCK // rows.shape[-1]))]
        return self.to_numpy(torch.cat(sums).reshape(rows.shape[:-1]).unsqueeze(axis))

    def poison(self, value: Any) -> None:
        self.synchronize()  # what is in the host's memory is written at once, and a device may not be done with it
        poison(value)

    def layout(self, value: Any) -> MemoryLayout | None:
        if value.layout != torch.strided:
            return None
        size = value.element_size()
        return MemoryLayout(value.data_ptr(), tuple(value.shape), tuple(n * size for n in value.stride()), size)

    def copy_into(self, target: Any, source: Any) -> None:
        target.data.copy_(source)

    def splice(self, target: Any, source: Any, start: int, stop: int) -> None:
        if target.is_contiguous():
            target.data.view(-1)[start:stop] = source.view(-1)[start:stop]
            return
        mixed = target.detach().contiguous().view(-1)  # a copy, in the order of the axes
        mixed[start:stop] = source.contiguous().view(-1)[start:stop]
        target.data.copy_(mixed.view(target.shape))

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Record one graph and keep it. Each launch walks it back and returns new gradients, so that nothing adds up or
        grows."""
        for tensor in inputs:
            tensor.requires_grad_(True)
        with torch.enable_grad():
            outputs = launch()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        gradients = [self._like(out, seed + i) if out.requires_grad else None for i, out in enumerate(outputs)]
        pairs = [(out, grad) for out, grad in zip(outputs, gradients, strict=True) if grad is not None]
        if not pairs:
            raise Unsupported("no output of this implementation has a gradient")
        roots, seeds = zip(*pairs, strict=True)
        if some:
            inputs = _used(roots, seeds, tuple(inputs))
        if forward:
            return _TorchStep(launch, tuple(inputs), seeds), gradients
        return partial(_gradients, roots, seeds, tuple(inputs), keep=True), gradients

    def limit_multiprocessors(self, count: int) -> str | None:
        if self._clock is None or self.info.framework != "torch" or self.info.compiles:
            return super().limit_multiprocessors(count)
        from opmark.frameworks.torch import green_contexts

        self._sms = count
        if count == torch.cuda.get_device_properties().multi_processor_count:
            return None
        self._clock.partial = True
        return green_contexts.enter(count)

    def streams(self, launches: Sequence[Launch]) -> Streams:
        from opmark.frameworks.torch.streams import TorchStreams

        return TorchStreams(launches)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return launches of one module, which is kept from build to build; on a device, each on a stream of its
        own."""
        if others and getattr(launch, "keeps_state", False):
            raise Unsupported("this model keeps the keys and values of one sequence: clients would overwrite them")
        streams = hasattr(_module(self._device), "Stream") if self.asynchronous else False
        if others and self.asynchronous and not streams:
            raise Unsupported(f"torch has no streams on {self._device}, which several clients need")
        launches = [launch, *map(rebuild, others)]
        return [_ClientCall(one, _module(self._device) if streams else None, self.synchronize) for one in launches]

    def _like(self, value: Any, seed: int) -> Any:
        return self.tensor(TensorSpec(tuple(value.shape), self.dtype(value)), seed)

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        taken = _tensors(reads)
        before = [tensor._version for tensor in taken]
        outputs, flops = _with_flops(launch)
        given, memory = _tensors(outputs), {tensor.untyped_storage().data_ptr() for tensor in taken}
        # An output that shares its memory with an input is a view, unless the call has written to it.
        written = sum(t.nbytes for t in given if t.untyped_storage().data_ptr() not in memory)
        written += sum(t.nbytes for t, version in zip(taken, before, strict=True) if t._version != version)
        if not written and flops is None:  # nothing that could be counted; a view, if it is one of some data
            return CallCost(None, view=any(tensor.numel() for tensor in given))
        read = sum({id(tensor): tensor.nbytes for tensor in taken}.values())
        return CallCost(Cost(flops, read, written))

    def device_clock(self) -> DeviceClock | None:
        return self._clock

    def cache_bytes(self) -> int | None:
        if self._device != "cuda":
            return None
        reported = int(torch.cuda.get_device_properties().L2_cache_size)
        return max(reported, _AMD_LAST_LEVEL) if torch.version.hip else reported

    def overwrite(self, nbytes: int) -> Launch:
        scratch = torch.zeros(nbytes, dtype=torch.uint8, device=self._device)
        # On a CPU, stores alone may go around the caches; lines that are read first do not.
        return partial(scratch.add_, 1) if self._device == "cpu" else scratch.zero_

    def synchronize(self) -> None:
        if self.asynchronous:
            _module(self._device).synchronize()

    def memory(self) -> MemoryProbe | None:
        return AllocatorProbe(self._device) if self.asynchronous else None

    def available_bytes(self) -> int | None:
        if self._device == "cpu":
            return int(psutil.virtual_memory().available)
        if self._device == "cuda":
            cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            return int(torch.cuda.mem_get_info()[0] + cached)
        return None

    def usable(self) -> bool:
        return super().usable() and not (self._clock and self._clock.spoiled)

    def arena(self, nbytes: int) -> Arena | None:
        if self._device != "cuda":
            return None
        from opmark.frameworks.torch.shared import CudaArena

        return CudaArena(self, nbytes)

    def join(self, world: World, announce: Announce) -> ProcessGroup:
        from opmark.frameworks.torch.process_group import TorchTeam  # torch.distributed takes its time to import

        return TorchTeam(self._device, world, announce)

    @contextmanager
    def annotated(self, name: str) -> Iterator[None]:
        """Annotate a range of a profile. Ranges belong to a thread, so the backward pass stays on this one."""
        marks = torch.cuda.nvtx.range(name) if self._device == "cuda" else nullcontext()
        with torch.autograd.set_multithreading_enabled(False), torch.profiler.record_function(name), marks:
            yield

    @contextmanager
    def traced(self, path: Path) -> Iterator[None]:
        with torch.profiler.profile(record_shapes=True) as profile:
            yield
        profile.export_chrome_trace(str(path))

    @contextmanager
    def execution_traced(self, path: Path) -> Iterator[None]:
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
        observer.start()
        try:
            yield
        finally:
            observer.stop()
            observer.unregister_callback()  # which ends the file


def _gradients(
    roots: tuple[Any, ...], seeds: tuple[Any, ...], inputs: tuple[Any, ...], *, keep: bool
) -> tuple[Any, ...]:
    """Compute gradients by torch's engine. `torch.autograd.grad` does the same after checks in Python that import
    SymPy, which takes seconds."""
    found: tuple[Any, ...] = _engine_run_backward(roots, seeds, keep, False, inputs, False, accumulate_grad=False)
    return found


def _used(roots: tuple[Any, ...], seeds: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs that the roots depend on."""
    found = _engine_run_backward(roots, seeds, True, False, inputs, True, accumulate_grad=False)
    return tuple(tensor for tensor, gradient in zip(inputs, found, strict=True) if gradient is not None)


class _TorchStep:
    """Forward and backward, as a step of training does them."""

    def __init__(self, launch: Launch, inputs: tuple[Any, ...], seeds: tuple[Any, ...]) -> None:
        self._launch = launch
        self._inputs = inputs
        self._seeds = seeds

    def __call__(self) -> tuple[Any, ...]:
        with torch.enable_grad():
            outputs = self._launch()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        roots = tuple(out for out in outputs if out.requires_grad)
        return _gradients(roots, self._seeds, self._inputs, keep=False)


class _ClientCall:
    """A launch that one thread calls, and that waits for its own work alone."""

    def __init__(self, launch: Launch, streams: Any, synchronize: Callable[[], None]) -> None:
        """`streams`: the module of the device, if it has streams."""
        self._launch = launch
        self._module = streams
        self._stream = streams.Stream() if streams else None
        self._wait = self._stream.synchronize if self._stream else synchronize
        self._prepared = False

    def __call__(self) -> Any:
        if not self._prepared:  # both belong to a thread
            torch.set_grad_enabled(False)
            if self._stream is not None:
                self._module.set_stream(self._stream)
            self._prepared = True
        outputs = self._launch()
        self._wait()
        return outputs


class AllocatorProbe:
    """Counts what torch's own allocator hands out on a device: exact to the byte, caches left out."""

    source = "allocator"
    resolution = 512  # the caching allocator rounds every request up to this

    def __init__(self, device: str) -> None:
        self._module = _module(device)

    def start(self) -> int:
        self._module.reset_peak_memory_stats()
        return int(self._module.memory_allocated())

    def peak(self) -> int:
        return int(self._module.max_memory_allocated())


def _with_flops(launch: Launch) -> tuple[Any, int | None]:
    """(the outputs of a call, its floating-point operations where torch's counter knows them)."""
    from torch.utils.flop_counter import FlopCounterMode, _FlopCounterMode

    _leave_dynamo_out(_FlopCounterMode)
    try:
        with FlopCounterMode(display=False) as counter:
            outputs = launch()
    except AssertionError:  # it asserts what it expects of shapes, which not every variant of an operator keeps
        return launch(), None
    return outputs, int(counter.get_total_flops()) or None


def _leave_dynamo_out(mode: Any) -> None:
    """Keep torch from importing its compiler, which takes a second, only to switch it off for a mode: where nothing is
    compiled, the mode's own function is put where torch keeps the one that is switched off."""
    plain = getattr(mode.__torch_dispatch__, "__wrapped__", None)
    if plain is not None:
        plain.__dict__.setdefault("__dynamo_disable", plain)


def _tensors(value: Any) -> list[Any]:
    """The dense tensors in a value, however deep they are nested. It is not known where others (sparse, or a promise of
    zeros) keep their data."""
    if isinstance(value, torch.Tensor):
        return [value] if value.layout == torch.strided and not value._is_zerotensor() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def _device_type(device: str) -> str:
    if device != "accelerator":
        return device
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(current.type) if current else "none"


def _take_own_device(device: str) -> None:
    """Select the device of this process: of several processes on a host each takes its own, as launchers number them,
    or the only one that it sees."""
    rank = os.environ.get("LOCAL_RANK", "")
    if device not in ("cpu", "none", "mps") and rank.isdecimal() and _module(device).is_available():
        _module(device).set_device(int(rank) % _module(device).device_count())


def _module(device: str) -> Any:
    return torch.get_device_module(device)


# Newest releases of torch on the package registry with code for older GPUs, read from their wheels for x86-64.
_RELEASES = {
    "2.13.0": ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    "2.10.0": ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    "2.7.1": ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
}
# The last one with code for Kepler (3.7) is 2.0.1.
_FIRST_REACHABLE = (5, 0)
# Major number of the compute capability of the first GPUs that Triton compiles for (Volta).
_FIRST_WITH_TRITON = 7


def _why_no_code(backend: str) -> str | None:
    """Return why kernels of this build cannot run on its NVIDIA GPU, and which guest has some that do; else None."""
    built_for, gpu = torch.cuda.get_arch_list(), torch.cuda.get_device_capability()
    if not built_for or has_code(built_for, gpu):
        return None
    version = next((version for version, has in _RELEASES.items() if has_code(has, gpu)), None)
    if gpu < _FIRST_REACHABLE:
        instead = "; the last torch with code for Kepler, 2.0.1, is too old for opmark"
    elif version and platform.machine() in ("x86_64", "AMD64"):
        plain = backend.partition("@")[0]
        instead = f"; after `opmark env create torch=={version}`, {plain}@torch-{version} has"
    else:
        instead = ""
    return (
        f"torch {torch.__version__} has no code for {torch.cuda.get_device_name()} (compute capability "
        f"{gpu[0]}.{gpu[1]}), but for {format_architectures(built_for)}{instead}"
    )


def why_too_old_for_triton() -> str | None:
    """Return why Triton compiles nothing for an NVIDIA GPU; None if it does, or if the GPU is another vendor's."""
    gpu = torch.cuda.get_device_capability() if torch.version.cuda else (_FIRST_WITH_TRITON, 0)
    if gpu[0] >= _FIRST_WITH_TRITON:
        return None
    name = torch.cuda.get_device_name()
    return f"Triton needs compute capability {_FIRST_WITH_TRITON}.0, and {name} has {gpu[0]}.{gpu[1]}"
