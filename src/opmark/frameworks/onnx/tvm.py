"""Apache TVM: ONNX models through Relax, with the schedules that TVM applies of its own accord."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.onnx.engine import EngineBackend, as_type, cover, export_seconds, node_types
from opmark.plugin import BackendInfo, Launch
from opmark.schema import Compilation


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Hide a module, as if it were not installed. TVM imports torch, which takes seconds, for an exchange of tensors
    that is not used here, and does without it where it is missing."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


with _without("torch"):
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.pipeline import legalize_passes, library_dispatch_passes
    from tvm.target import codegen

_IN_PYTHON = "relax.run."
_ARCHITECTURE = "sm_90"  # where there is no GPU to ask


class TvmBackend(EngineBackend):
    """Compiles with TVM's default schedules. On a CPU these are none at all: loops as they are written, on one thread;
    that is where a tuner starts, and not the best that TVM can do. On a GPU code without a schedule is not legal;
    DLight's rules give it one, as TVM's own pipeline does.

    Inputs are placed beforehand. Outputs are not: TVM's virtual machine takes them from its pool at every call.
    """

    oom_messages = ("out of memory", "bad_alloc", "cannot allocate")

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self.asynchronous = info.device == "cuda"
        self._device = tvm.cuda(0) if self.asynchronous else tvm.cpu(0)
        self.target = _target(info.device, threads)

    def why_unavailable(self) -> str | None:
        if self.asynchronous and not self._device.exist:
            return f"tvm {tvm.__version__} finds no CUDA device"
        actual = _threads()
        if actual != self.threads:
            mismatch = f"{self.threads} threads were asked for, TVM runs {actual}"
            return f"{mismatch}: it reads TVM_NUM_THREADS before it starts, and takes no more than there are cores"
        return None

    def environment(self) -> dict[str, Any]:
        return {
            "tvm": tvm.__version__,
            "tvm-ffi": version("apache-tvm-ffi"),
            "llvm": codegen.llvm_version_major(),
            "device": self.info.device,
            "target": str(self.target),
            "schedule": "dlight" if self.asynchronous else "none",
            "threads": _threads(),
        }

    def upload(self, array: Any, dtype: str) -> Any:
        return tvm.runtime.tensor(as_type(array, dtype), self._device)

    def download(self, tensor: Any) -> Any:
        return tensor.numpy()

    def dtype(self, value: Any) -> str:
        return str(value.dtype)

    def copy_into(self, target: Any, source: Any) -> None:
        target.copyfrom(source)

    def synchronize(self) -> None:
        if self.asynchronous:
            self._device.sync()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        model = self.model(built, inputs)
        start = time.perf_counter()
        try:
            lowered = self.lowered(model)
            executable = tvm.compile(lowered, target=self.target)
            machine = relax.VirtualMachine(executable, self._device)
        except Exception as error:
            if self.classify(error) == "oom":
                raise
            raise Unsupported(f"TVM {tvm.__version__}: {_words(error)}") from None
        compilation = Compilation(
            cold=time.perf_counter() - start,
            graphs=1,
            operators=node_types(model),
            kernels=_kernels(lowered),
            cache="none",
            coverage=cover(model, {}, note="TVM takes all of a graph or nothing"),
            export=export_seconds(model),
        )
        _refuse_what_tvm_does_not_compute(lowered)
        names = [value.name for value in model.graph.input]
        return _TvmCall(executable, machine, names, inputs, len(model.graph.output), compilation)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return a virtual machine for each client over the executable that is loaded: a machine keeps its registers
        between calls, so that two clients cannot share one."""
        if others and self.asynchronous:
            raise Unsupported("TVM launches all kernels on one stream of the GPU: it serves one client at a time there")
        assert isinstance(launch, _TvmCall)
        machines = [relax.VirtualMachine(launch.executable, self._device) for _ in others]
        more = [launch.over(machine, inputs) for machine, inputs in zip(machines, others, strict=True)]
        return [*super().clients(launch, (), rebuild), *more]

    def lowered(self, model: Any) -> Any:
        """The module with a kernel for everything that is computed: imported, made legal, fused, and on a GPU with
        DLight's schedules. These are the first steps of TVM's pipeline for its target, done here to be looked at."""
        with warnings.catch_warnings(), self.target:
            warnings.simplefilter("ignore")  # its checker wants the shapes of outputs, which are inferred anyway
            module = from_onnx(model)
            passes = library_dispatch_passes(self.target) + legalize_passes(self.target)
            return tvm.transform.Sequential(passes)(module)


class _TvmCall:
    """A call of an executable's main function in a virtual machine, over inputs that are placed."""

    def __init__(
        self,
        executable: Any,
        machine: Any,
        names: Sequence[str],
        inputs: Mapping[str, Any],
        outputs: int,
        compilation: Compilation,
    ) -> None:
        self.executable = executable
        self._main = machine["main"]
        self._names = names
        self._arguments = [inputs[name] for name in names]
        self._outputs = outputs
        self.compilation = compilation

    def over(self, machine: Any, inputs: Mapping[str, Any]) -> _TvmCall:
        """Return a call of the same executable in another machine, over other inputs."""
        return _TvmCall(self.executable, machine, self._names, inputs, self._outputs, self.compilation)

    def __call__(self) -> Any:
        found = self._main(*self._arguments)
        return found if self._outputs == 1 else tuple(found)


def _target(device: str, threads: int) -> Any:
    host = {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": threads}
    if device == "cpu":
        return tvm.target.Target(host)
    there = tvm.cuda(0)
    arch = "sm_" + there.compute_version.replace(".", "") if there.exist else _ARCHITECTURE
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    return tvm.target.Target({"kind": "cuda", "arch": arch, **limits}, host=host)


def _threads() -> int:
    return int(tvm.get_global_func("runtime.NumThreads")())


def _kernels(module: Any) -> tuple[str, ...]:
    return tuple(
        str(variable.name_hint)
        for variable, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    )


def _refuse_what_tvm_does_not_compute(module: Any) -> None:
    """Raise Unsupported where there is nothing to time: a result without inputs is computed while compiling, one that
    changes nothing is left out, and a few operators are handed to NumPy."""
    main, called = module["main"], list[str]()
    relax.analysis.post_order_visit(
        main, lambda node: called.append(str(node.global_symbol)) if isinstance(node, relax.ExternFunc) else None
    )
    python = [name for name in called if name.startswith(_IN_PYTHON)]
    if python:
        raise Unsupported(f"TVM leaves it to NumPy ({', '.join(python)})")
    if not relax.analysis.free_vars(main.body) or not any(block.bindings for block in main.body.blocks):
        raise Unsupported("TVM computes it while compiling, or leaves it out: no call does any work")


def _words(error: Exception) -> str:
    """The message of an error: its first line that is no part of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("Traceback", "File ", "["))] or lines
    return f"{type(error).__name__}: {messages[0] if messages else ''}"[:400]
