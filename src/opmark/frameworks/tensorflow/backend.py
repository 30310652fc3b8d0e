"""TensorFlow on the CPU: a traced function (`function`), the plain calls (`eager`), or XLA (`xla`)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.util import _pywrap_util_port

from opmark.errors import Unsupported
from opmark.plugin import BackendInfo, CallCost, Function, HostBackend, Launch, TensorSlot
from opmark.schema import Compilation, Cost, TensorSpec


class Launched:
    """A launch that opens its boxes at every call."""

    compilation: Compilation | None = None

    def __init__(self, call: Callable[..., Any], run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.call = call
        """The Python function, to be differentiated."""
        self._run = run
        self.arguments = arguments
        self.reads = arguments
        self.leaves = tuple(box for box in arguments if box.value.dtype.is_floating)

    def __call__(self) -> Any:
        return self._run(*[box.value for box in self.arguments])


class GradientStep(Launched):
    """The gradients of a training step. The outputs are computed too: a graph that did not return them would leave them
    out where no gradient needs them."""

    def __call__(self) -> Any:
        return self._run(*[box.value for box in self.arguments])[0]


class LaidGradient(TensorSlot):
    """The gradient of a weight in TensorFlow's layout, as an optimizer would get it. It is converted to the layout of
    the catalogue only when it is read."""

    __slots__ = ("_box",)

    def __init__(self, value: Any, box: Any) -> None:
        super().__init__(value)
        self._box = box

    def plain(self) -> Any:
        """The gradient in the layout of the catalogue, by the chain rule through the change of layout."""
        source = self._box.source.value
        with tf.GradientTape() as tape:
            tape.watch(source)
            laid = self._box.lay(source)
        return tape.gradient(laid, source, output_gradients=self.value)


class _Marked:
    """Marks which gradients of a launch are in TensorFlow's layout."""

    def __init__(self, launch: Launched, boxes: Sequence[Any]) -> None:
        self._launch = launch
        self._boxes = boxes
        self.compilation = launch.compilation

    def __call__(self) -> Any:
        pairs = zip(self._launch(), self._boxes, strict=True)
        return tuple(value if box is None else LaidGradient(value, box) for value, box in pairs)


class Differentiable:
    """A function whose gradients a tape computes. A sparse gradient (that of a lookup) is made dense, as the catalogue
    defines it; that is part of the launch."""

    def __init__(self, launch: Launched, wanted: Sequence[int], some: bool) -> None:
        self._call = launch.call
        self._some = some
        self.arguments = launch.arguments
        self.wanted = list(wanted)
        self.operators = launch.compilation.operators if launch.compilation else ()
        self.roots = [i for i, out in enumerate(flat(launch())) if out.dtype.is_floating]
        if len(self.roots) > 1:
            self.roots = self._connected([box.value for box in self.arguments])
        if not self.roots:
            raise Unsupported("no output of this implementation has a gradient")

    def _connected(self, values: Sequence[Any]) -> list[int]:
        """The outputs that depend on the inputs whose gradients are computed: running statistics, for instance, do
        not."""
        variables = [values[i] for i in self.wanted]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(variables)
            outputs = self.forward(*values)
        found = [tape.gradient(out, variables) for out in outputs]
        return [i for i, some in zip(self.roots, found, strict=True) if any(each is not None for each in some)]

    def forward(self, *values: Any) -> list[Any]:
        """The outputs that the backward pass starts from. Others are left out of a function of its own that is kept on
        a tape: the backward pass would take a gradient of zeros for each of them."""
        return self._with_gradient(flat(self._call(*values)))

    def _with_gradient(self, outputs: Sequence[Any]) -> list[Any]:
        return [outputs[i] for i in self.roots]

    def step(self, *values: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """Gradients and all outputs, also those without a gradient: indices, running statistics."""
        values, seeds = values[: len(self.arguments)], values[len(self.arguments) :]
        variables = [values[i] for i in self.wanted]
        with tf.GradientTape() as tape:
            tape.watch(variables)
            outputs = flat(self._call(*values))
        return self.gradients(tape, self._with_gradient(outputs), variables, seeds), outputs

    def gradients(self, tape: Any, outputs: Any, variables: Any, seeds: Any) -> tuple[Any, ...]:
        found = tape.gradient(outputs, variables, output_gradients=list(seeds))
        if self._some:
            found = [gradient for gradient in found if gradient is not None]
        if any(gradient is None for gradient in found):
            raise Unsupported("TensorFlow has no gradient of one of these inputs")
        return tuple(tf.convert_to_tensor(gradient) for gradient in found)

    def marked(self, launch: Launched) -> Launched | _Marked:
        boxes = [self.arguments[i] for i in self.wanted]
        laid = [box if hasattr(box, "lay") else None for box in boxes]
        return _Marked(launch, laid) if any(laid) else launch


def flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


# Parts of a message around its reason: where a node was traced, and names of functions that nobody knows.
_STACK = ("Graph execution error", "Detected at node", "File ", "[[", "<stack traces")
_MARKS = re.compile(r"\{\{[^}]*\}\}|\[Op:[^\]]*\]( name:.*)?|graph __inference\w*\[[^\]]*\] ")
# Nodes that are no operators, and nodes that look at the shape of their input only.
_SCAFFOLD = frozenset({"Placeholder", "_Arg", "_Retval", "Const", "Identity", "NoOp"})
_SHAPE_ONLY = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})


_ONCE = (
    "its result depends on no input: what is traced computes it once, when it is made; the variant `eager` computes it "
    "at every call"
)


class TensorFlowBackend(HostBackend):
    """Runs calls synchronously, also inside a function. Tensors cannot be changed, so inputs are held in boxes that a
    launch opens anew at every call."""

    oom_errors = (MemoryError, tf.errors.ResourceExhaustedError)
    oom_messages = ("oom when allocating", "out of memory", "bad_alloc", "failed to allocate memory")
    unsupported_errors = (NotImplementedError, tf.errors.UnimplementedError, tf.errors.NotFoundError)
    # Its types of errors tell only some of what it has no kernel for.
    unsupported_messages = (
        "no opkernel", "could not find device", "not in list of allowed values", "accepted dtypes are",
        "only supports", "not supported", "unsupported", "no registered converter", "gradient registry has no entry",
        "detected unsupported operations",
    )  # fmt: skip

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.experimental.set_synchronous_execution(True)
        # An operator without a kernel on this device is to fail, and not to run somewhere else.
        tf.config.set_soft_device_placement(False)

    def why_unavailable(self) -> str | None:
        if self.info.way == "xla" and not tf.test.is_built_with_xla():
            return f"tensorflow {tf.__version__} is a build without XLA"
        return None

    def environment(self) -> dict[str, Any]:
        return {
            "tensorflow": tf.__version__,
            "numpy": np.__version__,
            "device": "cpu",
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
            "synchronous": tf.config.experimental.get_synchronous_execution(),
            "soft_placement": tf.config.get_soft_device_placement(),
            "onednn": bool(_pywrap_util_port.IsMklEnabled()),
            "compiler": tf.version.COMPILER_VERSION,
        }

    def upload(self, array: Any, dtype: str) -> Any:
        with self.placing():
            return TensorSlot(tf.constant(array.astype(tf.as_dtype(dtype).as_numpy_dtype, copy=False)))

    def download(self, tensor: Any) -> Any:
        return (tensor.plain() if isinstance(tensor, LaidGradient) else _open(tensor)).numpy()

    def placing(self) -> AbstractContextManager[Any]:
        place: AbstractContextManager[Any] = tf.device("CPU:0")
        return place

    def compile(self, built: Any, inputs: Mapping[str, Any]) -> Launch:
        function = built if isinstance(built, Function) else _function(built)
        with self._translate_errors():
            if self.info.way != "eager":
                return self._traced(function)
            launch = Launched(function.call, function.call, function.arguments)
            _on_this_device(launch())
            return launch

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors about missing kernels into Unsupported, without the Python stack that TensorFlow puts before its
        reason."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.classify(error) != "skipped":
                raise
            raise Unsupported(f"TensorFlow: {_reason(error)}") from None
        except LookupError as error:
            if type(error) is not LookupError:  # which only its registry of gradients raises
                raise
            raise Unsupported(f"TensorFlow: {str(error).partition('. ')[0]}") from None

    def _traced(self, function: Function, kind: type[Launched] | None = None) -> Launched:
        """Trace a function, then run it once: a graph is optimized when it first runs."""
        start = time.perf_counter()
        xla = self.info.way == "xla"
        specs = [tf.TensorSpec(box.value.shape, box.value.dtype) for box in function.arguments]
        # Rows have no Python branches over tensors for AutoGraph to rewrite.
        concrete = tf.function(function.call, autograph=False, jit_compile=xla).get_concrete_function(*specs)
        launch = (kind or Launched)(function.call, concrete, function.arguments)
        if _is_constant(concrete.graph):
            raise Unsupported(_ONCE)
        outputs, nodes = _with_graphs(launch)
        _on_this_device(outputs)
        if _is_folded(nodes):
            raise Unsupported(_ONCE)
        launch.compilation = Compilation(
            cold=time.perf_counter() - start,
            graphs=1,
            operators=_kinds(op.type for op in concrete.graph.get_operations()),
            kernels=() if xla else _kinds(node.op for node in nodes),
            cache="none",
        )
        return launch

    def dtype(self, value: Any) -> str:
        return str(_open(value).dtype.name)

    def deferred(self, value: Any) -> str | None:
        value = _open(value)
        plain = isinstance(value, tf.Tensor) and hasattr(value, "numpy")  # a symbolic one has no values
        return None if plain else f"a {type(value).__name__}, which is no dense tensor with values"

    def poison(self, value: Any) -> None:
        """Do nothing: a tensor of TensorFlow cannot be written, so old values are never taken for new ones."""

    def copy_into(self, target: Any, source: Any) -> None:
        target.value = source.value

    def overwrite(self, nbytes: int) -> Launch:
        """A launch that reads, then writes to memory that the allocator hands out again after every call."""
        with self.placing():
            scratch = tf.zeros((nbytes,), tf.uint8)
        return partial(tf.bitwise.invert, scratch)

    def backward(
        self, launch: Launch, inputs: Sequence[Any], seed: int, *, forward: bool = False, some: bool = False
    ) -> tuple[Launch, Sequence[Any]]:
        """Differentiate by a tape. A traced function is traced with its gradient; an eager step records and walks back
        at every call."""
        assert isinstance(launch, Launched)
        sources = [getattr(box, "source", box) for box in launch.arguments]
        wanted = [i for box in inputs for i, source in enumerate(sources) if source is box]
        if len(wanted) < len(inputs):
            raise Unsupported("this implementation does not take every input whose gradient is wanted")
        with self.placing(), self._translate_errors():
            differentiable = Differentiable(launch, wanted, some)
        outputs = flat(launch())
        seeds = [self._like(out, seed + i) if i in differentiable.roots else None for i, out in enumerate(outputs)]
        given = tuple(box for box in seeds if box is not None)
        with self.placing(), self._translate_errors():
            made = self._step(differentiable, given) if forward else self._walk(differentiable, given)
        return differentiable.marked(made), seeds

    def _like(self, value: Any, seed: int) -> Any:
        return self.tensor(TensorSpec(tuple(value.shape), self.dtype(value)), seed)

    def _step(self, differentiable: Differentiable, seeds: tuple[Any, ...]) -> Launched:
        step, arguments = differentiable.step, differentiable.arguments + seeds
        if self.info.way == "eager":
            return GradientStep(step, step, arguments)
        return self._traced(Function(step, arguments), GradientStep)

    def _walk(self, differentiable: Differentiable, seeds: tuple[Any, ...]) -> Launched:
        """Record one forward pass on a tape that is kept; each launch walks it back. For a traced function the backward
        pass is a graph as well, which the first walk traces."""
        start = time.perf_counter()
        forward: Any = differentiable.forward
        if self.info.way != "eager":
            forward = tf.function(forward, autograph=False, jit_compile=self.info.way == "xla")
        with tf.GradientTape(persistent=True) as tape:
            values = [box.value for box in differentiable.arguments]
            variables = [values[i] for i in differentiable.wanted]
            tape.watch(variables)
            outputs = forward(*values)

        def walk(*gradients: Any) -> tuple[Any, ...]:
            return differentiable.gradients(tape, outputs, variables, gradients)

        launch = Launched(walk, walk, seeds)
        found, nodes = _with_graphs(launch)
        _on_this_device(found)
        if self.info.way != "eager":
            launch.compilation = Compilation(
                cold=time.perf_counter() - start,
                graphs=1,
                operators=differentiable.operators,
                kernels=() if self.info.way == "xla" else _kinds(node.op for node in nodes),
                cache="none",
            )
        return launch

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        """Return a traced function for each client, over the same variables: functions may run in several threads."""
        return [launch, *map(rebuild, others)]

    def count(self, launch: Launch, reads: Sequence[Any]) -> CallCost:
        """Count bytes only: TensorFlow has no counter of operations."""
        given = [_nbytes(value) for value in flat(launch()) if isinstance(value, tf.Tensor)]
        read = {id(value): _nbytes(value) for value in map(_open, reads)}
        return CallCost(Cost(None, sum(read.values()), sum(given)))


def _reason(error: Any) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    messages = [line for line in lines if line and not line.startswith(_STACK)]
    if not messages:
        return type(error).__name__
    return _MARKS.sub("", " ".join(messages[:2]) if messages[0].endswith(":") else messages[0]).strip()


def _open(value: Any) -> Any:
    return value.value if isinstance(value, TensorSlot) else value


def _nbytes(value: Any) -> int:
    return int(np.prod(value.shape)) * int(value.dtype.size)


def _function(call: Any) -> Function:
    """A call with tensors somewhere in its arguments, as a function of these."""
    parts: list[Any] = [getattr(call, "args", ()), getattr(call, "keywords", {})]
    boxes = tuple(box for box in tf.nest.flatten(parts) if isinstance(box, TensorSlot))

    def function(*values: Any) -> Any:
        following = iter(values)
        args, keywords = tf.nest.map_structure(
            lambda leaf: next(following) if isinstance(leaf, TensorSlot) else leaf, parts
        )
        return call.func(*args, **keywords)

    return Function(function if boxes else call, boxes)


def _is_constant(graph: Any) -> bool:
    """Whether the outputs neither depend on the values of the inputs nor are random."""
    seen, found = set(), [tensor.op for tensor in graph.outputs]
    while found:
        op = found.pop()
        if op.type == "Placeholder" or (op.op_def is not None and op.op_def.is_stateful):
            return False
        if op.type not in _SHAPE_ONLY and op.name not in seen:
            seen.add(op.name)
            found += [tensor.op for tensor in op.inputs]
    return True


def _is_folded(nodes: Sequence[Any]) -> bool:
    """Whether optimizing has left nothing of a graph but constants."""
    constants = {node.name for node in nodes if node.op == "Const"}
    results = [node.input[0].partition(":")[0] for node in nodes if node.op == "_Retval"]
    return bool(results) and constants.issuperset(results)


def _with_graphs(launch: Launched) -> tuple[Any, list[Any]]:
    """(the outputs of a call, the nodes that its graphs have been optimized to)."""
    state = context.context()
    state.enable_graph_collection()
    try:
        outputs = launch()
        graphs = state.export_run_metadata().function_graphs
    finally:
        state.disable_graph_collection()
    nodes = [node for graph in graphs for node in graph.post_optimization_graph.node]
    elsewhere = {node.device for node in nodes if node.device and not node.device.endswith("CPU:0")}
    if elsewhere:
        raise Unsupported(f"TensorFlow has placed a part of it on {', '.join(sorted(elsewhere))}")
    return outputs, nodes


def _kinds(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name not in _SCAFFOLD)


def _on_this_device(outputs: Any) -> None:
    for value in flat(outputs):
        place = getattr(value, "device", "") or ""
        if isinstance(value, tf.Tensor) and not place.endswith("CPU:0"):
            raise Unsupported(f"TensorFlow has computed an output on {place}, not on the CPU")
