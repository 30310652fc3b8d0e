"""OpenVINO on the CPU, from ONNX models."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

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
from opmark.schema import Compilation


def _import_openvino() -> Any:
    """Return OpenVINO without the package by which it reports its use over the network, from processes that it forks
    beside what is measured."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


ov = _import_openvino()

_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "bool": "boolean",
}  # fmt: skip
_NAMES = {kind: dtype for dtype, kind in _TYPES.items()}
_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8e4m3": 8, "f8e5m2": 8}
_PORTS = frozenset({"Input", "Output", "Const"})
# Layers that only move, so that their precision is that of what passes through.
_MOVES = _PORTS | {"Reorder", "Convert", "Reshape"}
# The layer that computes an operator with the library's own slow code, because the plug-in has no kernel for it.
_REFERENCE = "Reference"
_DRAWS = ("Random", "Multinomial", "Bernoulli")
_SAYS_NOTHING = (
    "Exception from", "Check '", "FrontEnd API failed", "Model wasn't", "Summary:", "To facilitate", "While valid",
    "Conversion is failed",
)  # fmt: skip


class OpenVinoBackend(EngineBackend):
    """`latency`: one request at a time on all threads, done when the call returns.

    `throughput`: OpenVINO splits the threads into streams and wants as many requests at a time as it says are optimal.
    A launch then starts the next of these and returns; it waits only where that one is still busy. So the quantity
    `throughput` is that of a full pipeline, and `latency`, where every call is waited for, is what a single request
    takes in this configuration, on the threads of one stream. Either way a launch is one request.

    `default-precision`: as `latency`, but OpenVINO computes float32 in the type that it prefers on this processor,
    which may be bfloat16. Results are then verified with the tolerance of that type.

    Inputs and outputs are OpenVINO's own tensors, set once: a call copies nothing. An output whose shape is known only
    afterwards is the exception; OpenVINO allocates it. A call is the public one, `infer` or `start_async`, with the
    layer in Python that everybody pays who calls it from there.
    """

    oom_messages = ("bad_alloc", "out of memory", "failed to allocate")

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self.asynchronous = info.way == "throughput"
        self._own_precision = info.way == "default-precision"
        self._core = ov.Core()
        self._device = str(self._core.get_property("CPU", "FULL_DEVICE_NAME"))  # loads what is for this device
        self._usual = {
            "PERFORMANCE_HINT": "THROUGHPUT" if self.asynchronous else "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            # float32 means float32: by default it becomes bfloat16 wherever the processor has that. Models of float16
            # and bfloat16 keep their types and are never computed with less.
            **({} if self._own_precision else {"INFERENCE_PRECISION_HINT": "f32"}),
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            "CACHE_DIR": "",
        }
        self._settings = self._usual
        self._flying: set[Any] = set()

    def configure(self, configuration: Configuration) -> None:
        self.refuse_other_threads(configuration)
        chosen = {name: str(value) for name, value in configuration.items() if value not in ("own", 0)}
        yes = {"yes": True, "no": False}
        self._settings = {
            **self._usual,
            **({"PERFORMANCE_HINT": chosen["performance_hint"]} if "performance_hint" in chosen else {}),
            **({"INFERENCE_PRECISION_HINT": chosen["precision_hint"]} if "precision_hint" in chosen else {}),
            **({"NUM_STREAMS": chosen["streams"]} if "streams" in chosen else {}),
            **({"ENABLE_CPU_PINNING": yes[chosen["pinning"]]} if "pinning" in chosen else {}),
            **({"ENABLE_HYPER_THREADING": yes[chosen["hyper_threading"]]} if "hyper_threading" in chosen else {}),
            **({"EXECUTION_MODE_HINT": chosen["execution_mode"]} if "execution_mode" in chosen else {}),
        }

    def environment(self) -> dict[str, Any]:
        actual = _properties(self._core.compile_model(_smallest(), "CPU", self._settings))
        return {
            "openvino": ov.__version__,
            "device": "cpu",
            "cpu": self._device,
            "capabilities": sorted(self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
            "threads": actual["INFERENCE_NUM_THREADS"],
            "streams": actual["NUM_STREAMS"],
            "requests": actual["OPTIMAL_NUMBER_OF_INFER_REQUESTS"],
            "hint": actual["PERFORMANCE_HINT"].lower(),
            "precision": actual["INFERENCE_PRECISION_HINT"],
            "pinning": actual["ENABLE_CPU_PINNING"],
        }

    def coarsest(self, dtype: str) -> str:
        if dtype != "float32" or not self._own_precision:
            return dtype
        compiled = self._core.compile_model(_smallest(), "CPU", self._settings)
        return _NAMES[_properties(compiled)["INFERENCE_PRECISION_HINT"]]

    def upload(self, array: Any, dtype: str) -> Any:
        made = ov.Tensor(getattr(ov.Type, _TYPES[dtype]), ov.Shape(array.shape))
        self.download(made)[...] = as_type(array, dtype)
        return made

    def download(self, tensor: Any) -> Any:
        """The tensor's own memory."""
        self.synchronize()
        return tensor.data.view(numpy_dtype(self.dtype(tensor)))  # it shows bfloat16 as float16 with the same bits

    def dtype(self, value: Any) -> str:
        return _NAMES[value.element_type.to_string()]

    def copy_into(self, target: Any, source: Any) -> None:
        self.download(target)[...] = self.download(source)

    def synchronize(self) -> None:
        while self._flying:
            self._flying.pop().wait()

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        model = self.model(built, inputs)
        with serialized(model) as data:
            start = time.perf_counter()
            try:
                read = self._core.read_model(data, b"") if isinstance(data, bytes) else self._core.read_model(data)
                compiled = self._core.compile_model(read, "CPU", self._settings)
            except RuntimeError as error:
                if self.classify(error) == "oom":
                    raise
                raise Unsupported(f"OpenVINO {ov.__version__.split('-')[0]}: {_words(error)}") from None
            cold = time.perf_counter() - start
        self._refuse_other_threads(compiled)
        layers = _layers(compiled)
        _refuse_folded(compiled, any_result=not getattr(built, "may_fall_back", False))
        _refuse_drawn_once(node_types(model), layers)
        if not self._own_precision:
            _refuse_less_precision(read, layers)
        compilation = Compilation(
            cold=cold,
            graphs=1,
            operators=node_types(model),
            kernels=tuple(f"{layer.kind} {layer.how}" for layer in layers if layer.kind not in _PORTS),
            cache="none",
            coverage=cover(model, Counter(layer.origin for layer in layers if layer.kind == _REFERENCE), None),
            export=export_seconds(model),
        )
        if not self.asynchronous:
            return _Request(compiled, inputs, compilation)
        return _Requests(compiled, inputs, compilation, self._flying)

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return an inference request of one compiled model per client, each waited for. With `latency` OpenVINO works
        on one request at a time; with `throughput` it has a stream for as many as it says are optimal."""
        assert isinstance(launch, _Request | _Requests)
        return [launch.one, *(_Request(launch.compiled, inputs) for inputs in others)]

    def _refuse_other_threads(self, compiled: Any) -> None:
        actual = int(compiled.get_property("INFERENCE_NUM_THREADS"))
        if actual != self.threads:
            raise Unsupported(f"{self.threads} threads were asked for, OpenVINO takes {actual}")


class _Request:
    """A launch of one request, which is made once."""

    def __init__(self, compiled: Any, inputs: Mapping[str, Any], compilation: Compilation | None = None) -> None:
        self.compilation = compilation
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        for port in compiled.inputs:
            (name,) = port.get_names() & inputs.keys()  # it may have names of nodes that were left out as well
            self._request.set_tensor(port, inputs[name])
        for port in compiled.outputs:
            if port.partial_shape.is_static:
                self._request.set_tensor(port, ov.Tensor(port.element_type, port.shape))
        whole = all(port.partial_shape.is_static for port in compiled.outputs)
        self._ports = tuple(compiled.outputs)
        self._outputs = tuple(map(self._request.get_tensor, self._ports)) if whole else None
        self._infer = partial(self._request.infer, share_outputs=True)  # or it would copy what it returns

    def __call__(self) -> Any:
        self._infer()
        return self.outputs()

    @property
    def one(self) -> _Request:
        """A launch that is one request."""
        return self

    def outputs(self) -> tuple[Any, ...]:
        return self._outputs or tuple(map(self._request.get_tensor, self._ports))

    def start(self) -> Any:
        """Start the request again, once it is done."""
        self._request.wait()
        self._request.start_async()
        return self._request


class _Requests:
    """A launch that uses as many requests as OpenVINO wants at a time, in turn."""

    def __init__(self, compiled: Any, inputs: Mapping[str, Any], compilation: Compilation, flying: set[Any]) -> None:
        self.compilation = compilation
        count = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        requests = [_Request(compiled, inputs) for _ in range(count)]
        self.compiled, self.one = compiled, requests[0]
        self._turn = cycle(requests)
        self._flying = flying

    def __call__(self) -> Any:
        request = next(self._turn)
        self._flying.add(request.start())
        return request.outputs()


def _smallest() -> Any:
    from openvino import opset8

    value = opset8.parameter([1], ov.Type.f32)
    return ov.Model([opset8.relu(value)], [value], "smallest")


def _properties(compiled: Any) -> dict[str, Any]:
    names = (
        "INFERENCE_NUM_THREADS", "NUM_STREAMS", "OPTIMAL_NUMBER_OF_INFER_REQUESTS", "PERFORMANCE_HINT",
        "ENABLE_CPU_PINNING",
    )  # fmt: skip
    actual = {name: compiled.get_property(name) for name in names}
    return {**actual, "INFERENCE_PRECISION_HINT": compiled.get_property("INFERENCE_PRECISION_HINT").to_string()}


class _Layer(NamedTuple):
    """One layer of a compiled model."""

    kind: str
    how: str
    precision: str
    """The precision that it reports: that of its first input, whatever the rest of it does."""
    gives: frozenset[str]
    """Types of its outputs."""
    origin: str
    """Names of the nodes that it is made of."""


def _layers(compiled: Any) -> list[_Layer]:
    """The layers of a compiled model, in the order in which they run."""
    return [
        _Layer(
            _text(facts := node.get_rt_info(), "layerType"),
            _text(facts, "primitiveType"),
            _text(facts, "runtimePrecision"),
            frozenset(_kinds(node.outputs())),
            _text(facts, "originalLayersNames"),
        )
        for node in compiled.get_runtime_model().get_ordered_ops()
    ]


def _kinds(ports: Any) -> set[str]:
    return {port.element_type.to_string() for port in ports}


def _text(facts: Any, key: str) -> str:
    return str(facts[key].value) if key in facts else ""


def _refuse_folded(compiled: Any, *, any_result: bool) -> None:
    """Raise Unsupported for a model that does not depend on its inputs: it is computed while compiling, and nothing
    would be left to time. With `any_result`, one such output is enough; layers of a network may be constant."""
    results = compiled.get_runtime_model().get_results()
    folded = [_is_folded(result) for result in results]
    if any(folded) if any_result else all(folded):
        raise Unsupported("OpenVINO computes it while compiling: no call does any work")


def _is_folded(result: Any) -> bool:
    """Return whether nothing that is computed at run time leads to a result."""
    queue, seen = [result], {result.get_friendly_name()}
    while queue:
        node = queue.pop()
        if node.get_type_name() == "Parameter" or _text(node.get_rt_info(), "layerType") not in _MOVES:
            return False
        before = [value.get_node() for value in node.input_values()]
        queue += [one for one in before if one.get_friendly_name() not in seen]
        seen |= {one.get_friendly_name() for one in before}
    return True


def _refuse_drawn_once(operators: tuple[str, ...], layers: list[_Layer]) -> None:
    """Raise Unsupported for random numbers that only meet constants, which are folded as well."""
    if any(one.startswith(_DRAWS) for one in operators) and not any(layer.kind.startswith(_DRAWS) for layer in layers):
        raise Unsupported("OpenVINO draws its random numbers while compiling: every call gives the same ones")


def _refuse_less_precision(read: Any, layers: list[_Layer]) -> None:
    """Raise Unsupported where OpenVINO computes in a narrower type than requested: float64 in float32, int64 in int32,
    products of integers in float32. Only the compiled model shows it.

    The requested types are those of inputs and outputs: constants inside may be of any type. A wider type is no fault.
    """
    computed = {layer.precision for layer in layers if layer.kind not in _MOVES}
    ports = _kinds(read.inputs) | _kinds(read.outputs)
    requested = (
        ports & _BITS.keys() or {kind for node in read.get_ops() for kind in _kinds(node.outputs())} & _BITS.keys()
    )
    if "f64" in requested:
        requested, less = {"f64"}, _narrowed(layers, ports)
    elif requested:  # the narrowest: where types are mixed, a layer that widens one names the type that it takes
        less = {p for p in computed & _BITS.keys() if _BITS[p] < min(_BITS[one] for one in requested)}
    else:
        requested = _kinds(read.inputs)
        less = computed & _BITS.keys() | ({"i32"} & computed if requested == {"i64"} else set())
    if less:
        raise Unsupported(f"OpenVINO computes it in {_spelled(less)}, not in {_spelled(requested)}")


def _narrowed(layers: list[_Layer], ports: set[str]) -> set[str]:
    """Floats of less than 64 bits on the way from one port to another, also where they are only moved. A layer that is
    nothing but a conversion does not count: the case may ask for it."""
    seen = {
        kind
        for layer in layers
        if layer.kind not in _PORTS
        for kind in {layer.precision, *layer.gives} - (ports if layer.kind in _MOVES else set())
    }
    return {kind for kind in seen & _BITS.keys() if _BITS[kind] < _BITS["f64"]}


def _spelled(kinds: set[str]) -> str:
    return ", ".join(sorted(_NAMES.get(kind, kind) for kind in kinds))


def _words(error: Exception) -> str:
    """The message of an error, without the places in OpenVINO's source and the advertisement."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(_SAYS_NOTHING) and not line.endswith("with a message:")]
    return "; ".join(messages or lines)[:400]
