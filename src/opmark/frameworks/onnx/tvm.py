"""Apache TVM: ONNX models through Relax, with the schedules that TVM applies of its own accord."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

from opmark.errors import TaskError, Unsupported
from opmark.frameworks.onnx.engine import EngineBackend, as_type, cover, export_seconds, node_types
from opmark.frameworks.tvm.application import apply_operators
from opmark.frameworks.tvm.library import codegen, first_line, relax, tvm
from opmark.frameworks.tvm.metaschedule import apply_records
from opmark.frameworks.tvm.operators import METASCHEDULE, SCHEDULE, Kind, kind_of
from opmark.frameworks.tvm.program import ScheduledProgram
from opmark.frameworks.tvm.targets import cpu_target, lower_graph, output_of
from opmark.plugin import BackendInfo, Configuration, Launch
from opmark.plugin.space import TUNED_OPERATORS
from opmark.schema import Compilation

_IN_PYTHON = "relax.run."
_ARCHITECTURE = "sm_90"  # where there is no GPU to ask


class TvmCall:
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
        self.machine = machine
        self._main = machine["main"]
        self._names = names
        self.arguments = [inputs[name] for name in names]
        self._outputs = outputs
        self.compilation = compilation

    def over(self, machine: Any, inputs: Mapping[str, Any]) -> TvmCall:
        """Return a call of the same executable in another machine, over other inputs."""
        return TvmCall(self.executable, machine, self._names, inputs, self._outputs, self.compilation)

    def __call__(self) -> Any:
        found = self._main(*self.arguments)
        return found if self._outputs == 1 else tuple(found)


class TvmProgramCall:
    """A call of one compiled function, which writes its result into the last of its tensors."""

    def __init__(self, code: Any, function: Any, tensors: Sequence[Any], compilation: Compilation) -> None:
        self.code = code
        self._function = function
        self.tensors = tensors
        self.compilation = compilation

    def __call__(self) -> Any:
        self._function(*self.tensors)
        return self.tensors[-1]


class TvmBackend(EngineBackend):
    """Compiles with TVM's default schedules. On a CPU these are none at all: loops as they are written, on one thread;
    that is where a tuner starts, and not the best that TVM can do. On a GPU code without a schedule is not legal;
    DLight's rules give it one, as TVM's own pipeline does.

    Inputs are placed beforehand. Outputs are not: TVM's virtual machine takes them from its pool at every call.
    """

    oom_messages = ("out of memory", "bad_alloc", "cannot allocate")
    graph_call: type[TvmCall] = TvmCall
    program_call: type[TvmProgramCall] = TvmProgramCall

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self.asynchronous = info.device == "cuda"
        self._records: list[dict[str, Any]] = []
        self._operators: list[dict[str, Any]] = []

    @cached_property
    def target(self) -> Any:
        return _target(self.info.device, self.threads)

    @cached_property
    def device(self) -> Any:
        return tvm.cuda(0) if self.asynchronous else tvm.cpu(0)

    @property
    def kind(self) -> Kind:
        return kind_of(self.target.kind.name)

    def why_unavailable(self) -> str | None:
        if self.asynchronous and not self.device.exist:
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
            "schedule": "dlight" if self.kind == "cuda" else "none",
            "threads": _threads(),
        }

    def upload(self, array: Any, dtype: str) -> Any:
        return tvm.runtime.tensor(as_type(array, dtype), self.device)

    def download(self, tensor: Any) -> Any:
        return tensor.numpy()

    def dtype(self, value: Any) -> str:
        return str(value.dtype)

    def shape(self, value: Any) -> tuple[int, ...]:
        return tuple(value.shape)

    def copy_into(self, target: Any, source: Any) -> None:
        target.copyfrom(source)

    def synchronize(self) -> None:
        if self.asynchronous:
            self.device.sync()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        if isinstance(built, ScheduledProgram):
            return self._compile_program(built, inputs)
        model = self.model(built, inputs)
        start = time.perf_counter()
        try:
            lowered = self._apply_tuned(lower_graph(model, self.target))
            executable = tvm.compile(lowered, target=self.target)
            machine = relax.VirtualMachine(self.load(executable), self.device)
        except TaskError:
            raise
        except Exception as error:
            if self.classify(error) == "oom":
                raise
            raise Unsupported(f"TVM {tvm.__version__}: {first_line(error)}") from None
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
        return self.graph_call(executable, machine, names, inputs, len(model.graph.output), compilation)

    def load(self, executable: Any) -> Any:
        """Return what was compiled, where it can be called."""
        return executable

    def configure(self, configuration: Configuration) -> None:
        """Take records of MetaSchedule, and the tuned operators of a model, for the graphs that are compiled next."""
        unknown = configuration.keys() - {METASCHEDULE, TUNED_OPERATORS}
        if unknown:
            raise Unsupported(f"{self.info.name} has no knob {', '.join(sorted(unknown))}")
        operators = json.loads(str(configuration.get(TUNED_OPERATORS, "[]")))
        self._records = [
            *json.loads(str(configuration.get(METASCHEDULE, "[]"))),
            *(one for entry in operators for one in json.loads(entry["configuration"].get(METASCHEDULE, "[]"))),
        ]
        self._operators = [entry for entry in operators if entry["implementation"] == SCHEDULE]

    def _apply_tuned(self, lowered: Any) -> Any:
        """Return the module with the tuned schedules. What was tuned and fits nothing is an error: the number would be
        taken for that of a tuned model."""
        if not self._records and not self._operators:
            return lowered
        done = apply_operators(lowered, self.kind, self._operators)
        module, records = apply_records(done.module, self.target, self._records) if self._records else (done.module, 0)
        if not done.applied and not records:
            reasons = f": {'; '.join(done.refused)}" if done.refused else ""
            raise Unsupported(f"no kernel of this graph takes a tuned schedule{reasons}")
        return module

    def _compile_program(self, program: ScheduledProgram, inputs: Mapping[str, Any]) -> Launch:
        """Compile a program whose loops are arranged by a configuration. Its output is made once."""
        if self._records:
            raise Unsupported(
                "records of MetaSchedule are for the graph of an operator, not for its schedule with knobs"
            )
        start = time.perf_counter()
        try:
            module = program.module()
            code = self.load(tvm.compile(module, target=self.target))
            function = code["main"]
        except TaskError:
            raise
        except Exception as error:
            if self.classify(error) == "oom":
                raise
            raise Unsupported(f"TVM {tvm.__version__}: {first_line(error)}") from None
        taken = time.perf_counter() - start
        compilation = Compilation(cold=taken, graphs=1, operators=(program.operator,), kernels=("main",), cache="none")
        output = output_of(module)
        assert output is not None
        made = tvm.runtime.empty(*output, self.device)
        return self.program_call(code, function, [*inputs.values(), made], compilation)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return a virtual machine for each client over the executable that is loaded: a machine keeps its registers
        between calls, so that two clients cannot share one."""
        if others and self.asynchronous:
            raise Unsupported("TVM launches all kernels on one stream of the GPU: it serves one client at a time there")
        assert isinstance(launch, TvmCall)
        machines = [relax.VirtualMachine(launch.executable, self.device) for _ in others]
        more = [launch.over(machine, inputs) for machine, inputs in zip(machines, others, strict=True)]
        return [*super().clients(launch, (), rebuild), *more]


def _target(device: str, threads: int) -> Any:
    host = cpu_target(threads)
    if device == "cpu":
        return host
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
