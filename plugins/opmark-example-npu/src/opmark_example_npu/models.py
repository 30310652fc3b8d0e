"""Whole models on the chip: compile a graph, load its weights, predict. The host does what the chip cannot."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from opmark.schema import Compilation
from opmark.schema.record import GraphCoverage
from opmark_example_npu.device import Device, NpuTensor, Program
from opmark_example_npu.library import npu_add, npu_gemm, npu_matmul, npu_relu

KERNELS: Mapping[str, Callable[..., Any]] = {
    "Add": npu_add, "Gemm": npu_gemm, "MatMul": npu_matmul, "Relu": npu_relu,
}  # fmt: skip


class ModelProgram(Program):
    """A launch of a compiled model."""

    compilation: Compilation


def compile_model(device: Device, built: Any, inputs: Mapping[str, NpuTensor]) -> ModelProgram:
    """`built.model` gives the ONNX graph for inputs of these shapes and types."""
    from onnx import numpy_helper

    given = {name: device.download(tensor) for name, tensor in inputs.items()}
    graph = built.model({name: (array.shape, str(array.dtype)) for name, array in given.items()}).graph
    start = time.perf_counter()
    weights = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    steps = [_step(node) for node in graph.node]
    outputs = [one.name for one in graph.output]

    def predict(*arrays: Any) -> Any:
        known = {**weights, **dict(zip(given, arrays, strict=True)), "": None}
        for node, run in zip(graph.node, steps, strict=True):
            results = run(*(known[name] for name in node.input))
            known |= zip(node.output, results if isinstance(results, list | tuple) else (results,), strict=False)
        return tuple(known[name] for name in outputs) if len(outputs) > 1 else known[outputs[0]]

    program = ModelProgram(device, predict, tuple(inputs.values()))
    taken = [node.op_type for node in graph.node if node.op_type in KERNELS]
    fallback = Counter(node.op_type for node in graph.node if node.op_type not in KERNELS)
    program.compilation = Compilation(
        time.perf_counter() - start,
        graphs=_count_segments(graph.node),
        operators=tuple(node.op_type for node in graph.node),
        kernels=tuple(dict.fromkeys(KERNELS[kind].__name__ for kind in taken)),
        cache="none",
        coverage=GraphCoverage(len(graph.node), len(taken), fallback=dict(fallback)),
    )
    return program


def _step(node: Any) -> Callable[..., Any]:
    """The chip's kernel for a node, with its attributes; the host's where the chip has none."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type in KERNELS:
        kernel, settings = KERNELS[node.op_type], {one.name: helper.get_attribute_value(one) for one in node.attribute}
        return lambda *values: kernel(*values, **settings)
    evaluator, names = ReferenceEvaluator(node), list(node.input)
    return lambda *values: evaluator.run(None, {name: value for name, value in zip(names, values, strict=True) if name})


def _count_segments(nodes: Any) -> int:
    """Runs of nodes that stay on the chip; the host computes in between."""
    stays = [node.op_type in KERNELS for node in nodes]
    return sum(now and not before for before, now in zip([False, *stays], stays, strict=False))
