"""ONNX Runtime on a CPU or a GPU, with models that are built node by node."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char
from hashlib import sha256
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from opmark.errors import Unsupported
from opmark.frameworks.onnx.engine import (
    EngineBackend,
    as_type,
    cover,
    export_seconds,
    node_types,
    numpy_dtype,
    serialized,
)
from opmark.plugin import BackendInfo, Configuration, Launch
from opmark.schema import Compilation, TensorSpec

# Element types that ONNX Runtime spells in another way than opmark.
_SPELLED = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}
_ELEMENT = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
}
_PROVIDERS: dict[str, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    # float32 means float32: with TF32, which is on by default, products would quietly keep 10 bits of 23.
    "cuda": [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"],
}
# How it names the casts around a node that has no kernel for 16 bits and is computed in float32 instead.
_INSERTED = "InsertedPrecisionFreeCast"
# How it ends the name of a node in a profile.
_KERNEL_TIME = "_kernel_time"
_ERRORS_ONLY = 3
_LEVELS = {
    "disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}  # fmt: skip


class Tensor:
    """A tensor in ONNX Runtime's own memory, with a NumPy view of it, also for types that NumPy does not know."""

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, value: Any) -> None:
        spelled = value.data_type().removeprefix("tensor(").removesuffix(")")
        self.value = value
        self.dtype = _SPELLED.get(spelled, spelled)
        self.shape = tuple(value.shape())

    def array(self) -> Any:
        """The values: on a CPU a view of the memory, on a device a copy."""
        dtype = numpy_dtype(self.dtype)
        if not prod(self.shape):
            return np.empty(self.shape, dtype)
        if self.value.device_name() != "cpu":
            return _fetched(self.value, self.dtype, dtype)
        size = prod(self.shape) * dtype.itemsize
        memory = (c_char * size).from_address(self.value.data_ptr())
        return np.frombuffer(memory, dtype).reshape(self.shape)

    def fill(self, array: Any) -> None:
        """Copy the bytes: ONNX Runtime takes no arrays of types that NumPy does not know."""
        if prod(self.shape):
            known = array.dtype.isbuiltin == 1
            self.value.update_inplace(array if known else array.view(f"u{array.dtype.itemsize}"))


def _element(dtype: str) -> int:
    return int(_ELEMENT.get(dtype) or getattr(TensorProto, dtype.upper()))


def _fetched(value: Any, dtype: str, native: Any) -> Any:
    """The values of a tensor on a device; a type that NumPy lacks goes through float32, which holds all of them."""
    if native.isbuiltin == 1:
        return value.numpy()
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    given = helper.make_tensor_value_info("x", _element(dtype), list(value.shape()))
    model = _model([node], [given], "y")
    session = ort.InferenceSession(model.SerializeToString(), providers=_PROVIDERS["cuda"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0].numpy().astype(native)


def _model(nodes: list[Any], inputs: list[Any], output: str) -> Any:
    graph = helper.make_graph(nodes, "own", inputs, [helper.make_empty_tensor_value_info(output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class OnnxRuntimeBackend(EngineBackend):
    """Keeps inputs and outputs bound to the session: a call copies nothing, and allocates nothing that has a fixed
    size.

    A call on a device is waited for too, which is ONNX Runtime's default.
    """

    oom_messages = ("failed to allocate memory", "out of memory", "bad allocation")
    # It says so where a node has no kernel for a type, or where ONNX has no such node.
    unsupported_messages = (
        "not_implemented", "not implemented", "of input parameter", "does not support", "is not supported",
        "no op registered for", "is not a registered function/op",
    )  # fmt: skip

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._provider = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[info.device]
        self._ran: dict[bytes, list[dict[str, Any]]] = {}
        self._configuration: Configuration = {}

    def why_unavailable(self) -> str | None:
        if self._provider not in ort.get_available_providers():
            return f"onnxruntime {ort.__version__} is a build without {self._provider}"
        if self.info.device != "cpu" and self._provider not in self._small().get_providers():
            return f"onnxruntime {ort.__version__} cannot load {self._provider} (are driver, CUDA and cuDNN there?)"
        return None

    def environment(self) -> dict[str, Any]:
        session = self._small()
        options = session.get_session_options()
        return {
            "onnxruntime": ort.__version__,
            "build": ort.get_build_info(),
            "onnx": _onnx_version(),
            "device": self.info.device,
            "providers": ", ".join(session.get_providers()),
            "provider_options": session.get_provider_options().get(self._provider, {}),
            "threads": options.intra_op_num_threads,
            "inter_op_threads": options.inter_op_num_threads,
            "optimization": str(options.graph_optimization_level).rpartition(".")[2],
        }

    def upload(self, array: Any, dtype: str) -> Any:
        made = Tensor(self._empty(array.shape, _element(dtype)))
        made.fill(as_type(array, dtype))
        return made

    def download(self, tensor: Any) -> Any:
        return tensor.array()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        model = self.model(built, inputs)
        with serialized(model) as data:
            start = time.perf_counter()
            session = ort.InferenceSession(data, self._options(), providers=_PROVIDERS[self.info.device])
            cold = time.perf_counter() - start
            ran = self._ran_of(data, inputs)
        strays = [event for event in ran if event["args"]["provider"] != self._provider]
        kinds = Counter(str(event["args"]["op_name"]) for event in strays)
        if strays and not getattr(built, "may_fall_back", False):
            raise Unsupported(
                f"{self._provider} has no kernel for {', '.join(sorted(kinds))}: the CPU would compute it"
            )
        compilation = Compilation(
            cold,
            operators=node_types(model),
            kernels=tuple(map(_kernel, ran)),
            graphs=1,
            cache="none",
            coverage=cover(model, kinds, [event["name"].removesuffix(_KERNEL_TIME) for event in strays]),
            export=export_seconds(model),
        )
        return SessionCall(session, self._bound(session, inputs), compilation)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return calls of one session, each with a binding of its own: a session may run in several threads."""
        assert isinstance(launch, SessionCall)
        session = launch.session
        return [launch, *(SessionCall(session, self._bound(session, inputs)) for inputs in others)]

    def dtype(self, value: Any) -> str:
        return str(value.dtype)

    def copy_into(self, target: Any, source: Any) -> None:
        target.fill(source.array())

    def overwrite(self, nbytes: int) -> Launch | None:
        """A launch that overwrites the caches. On a CPU no session does it: its threads would still wait for work when
        the timed one starts."""
        if self.info.device == "cpu":
            return super().overwrite(nbytes)
        scratch = self.tensor(TensorSpec((nbytes // 4,), "float32"), 0)
        return SessionCall(session := self._small(nbytes // 4), self._bound(session, {"x": scratch}))

    def _empty(self, shape: Sequence[int], kind: int) -> Any:
        return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), kind, self.info.device, 0)

    def configure(self, configuration: Configuration) -> None:
        self.refuse_other_threads(configuration)
        if configuration != self._configuration:
            self._ran.clear()
        self._configuration = configuration

    def _options(self, profile: Path | None = None) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        _set_options(options, self._configuration)
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        return options

    def _small(self, elements: int = 1) -> Any:
        """A session that does next to nothing, to be run first: its start-up work is then not timed."""
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])
        model = _model([helper.make_node("Neg", ["x"], ["y"])], [given], "y")
        return ort.InferenceSession(model.SerializeToString(), self._options(), providers=_PROVIDERS[self.info.device])

    def _bound(self, session: Any, inputs: Mapping[str, Any]) -> Any:
        """A binding of inputs and outputs to a session. Outputs of a known size are made once; ONNX Runtime makes
        others at every call."""
        binding = session.io_binding()
        for name, tensor in inputs.items():
            binding.bind_ortvalue_input(name, tensor.value)
        for output in session.get_outputs():
            if all(isinstance(n, int) for n in output.shape):
                spelled = output.type.removeprefix("tensor(").removesuffix(")")
                value = self._empty(output.shape, _element(_SPELLED.get(spelled, spelled)))
                binding.bind_ortvalue_output(output.name, value)
            else:
                binding.bind_output(output.name, self.info.device)
        return binding

    def _ran_of(self, data: bytes | str, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The nodes that a call of a model runs, found once for each model: several launches are made of one."""
        mark = sha256(data if isinstance(data, bytes) else Path(data).read_bytes()).digest()
        if mark not in self._ran:
            self._ran[mark] = self._profiled(data, inputs)
        return self._ran[mark]

    def _profiled(self, data: bytes | str, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The nodes that one call runs, in their order, from a session of its own: the timed session is never
        profiled."""
        with TemporaryDirectory() as folder:
            options = self._options(Path(folder) / "profile")
            session = ort.InferenceSession(data, options, providers=_PROVIDERS[self.info.device])
            session.run_with_iobinding(self._bound(session, inputs))
            events = json.loads(Path(session.end_profiling()).read_text())
        ran = [event for event in events if event.get("cat") == "Node" and "provider" in event["args"]]
        if not ran:
            raise Unsupported("ONNX Runtime computes this model once, when it makes the session: no kernel is left")
        return sorted(ran, key=lambda event: event["ts"])


class SessionCall:
    """A call of a session on the tensors that are bound to it."""

    __slots__ = ("_binding", "_fixed", "compilation", "session")

    def __init__(self, session: Any, binding: Any, compilation: Compilation | None = None) -> None:
        self.session = session
        self._binding = binding
        self.compilation = compilation
        self._fixed: Any = None
        if all(isinstance(n, int) for output in session.get_outputs() for n in output.shape):
            self._fixed = self._bind_inputs()

    def __call__(self) -> Any:
        self.session.run_with_iobinding(self._binding)
        return self._fixed or self._bind_inputs()

    def _bind_inputs(self) -> Any:
        outputs = tuple(Tensor(value) for value in self._binding.get_outputs())
        return outputs if len(outputs) > 1 else outputs[0]


def _set_options(options: Any, configuration: Configuration) -> None:
    """Set the knobs of `spaces.py`; an empty configuration changes nothing."""
    if not configuration:
        return
    options.inter_op_num_threads = configuration["inter_op_threads"]
    level, mode = _LEVELS[str(configuration["graph_level"])], str(configuration["execution_mode"]).upper()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.execution_mode = getattr(ort.ExecutionMode, f"ORT_{mode}")
    options.enable_mem_pattern = configuration["memory_pattern"]
    options.enable_cpu_mem_arena = configuration["memory_arena"]
    entries = {
        "session.intra_op.allow_spinning": "spinning",
        "session.inter_op.allow_spinning": "spinning",
        "session.set_denormal_as_zero": "flush_denormals",
    }
    for entry, name in entries.items():
        options.add_session_config_entry(entry, str(int(bool(configuration[name]))))


def _kernel(event: Mapping[str, Any]) -> str:
    kind = str(event["args"]["op_name"])
    return f"{kind} (inserted)" if event["name"].startswith(_INSERTED) else kind


def _onnx_version() -> str:
    import onnx

    return str(onnx.__version__)
