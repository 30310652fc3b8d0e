"""Lists the nodes of a model's ONNX graph as operators of the catalogue. Only a child process imports this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from math import prod
from typing import Any

import onnx
from onnx import helper, numpy_helper

from opmark.errors import OpmarkError
from opmark.models.extraction import Extraction
from opmark.models.recognition import Proposal, proposals
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, ImportProblem, TensorSpec
from opmark.schema.tensor import DTYPES

_NO_DATA = frozenset({"Constant", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"})
"""Nodes that move no data."""
_NAMES = {"Pow": "pow", "Equal": "eq", "Not": "logical_not", "And": "logical_and", "Or": "logical_or", "Neg": "neg",
          "LeakyRelu": "leaky_relu", "HardSwish": "hardswish", "HardSigmoid": "hardsigmoid"}  # fmt: skip
"""Names of element-wise nodes at torch, where they are not the same in lower case."""
_REDUCTIONS = {
    "ReduceMean": "reduce_mean",
    "ReduceSum": "reduce_sum",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
}
_SEVERAL_OUTPUTS = ("Split", "TopK", "Dropout")


class _NoOperator(Exception):
    """Why a node cannot be written as an operator."""


def list_operators(source: ModelSource, params: Params) -> Extraction:
    """Return the distinct operators of the exported graph, or of a file's own; nodes that the catalogue has no operator
    for are named."""
    inputs = {name: (spec.shape, spec.dtype) for name, spec in source.inputs(params).items()}
    built = import_module(source.execution).build_onnx(source, params)
    model = onnx.shape_inference.infer_shapes(built.model(inputs), data_prop=True)
    graph = _GraphTensors(model.graph)
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    counts: dict[str, int] = {}
    views, problems = 0, list[ImportProblem]()
    for node in model.graph.node:
        if node.op_type in _NO_DATA:
            views += 1
            continue
        try:
            op, values = _operator_of(node, graph)
        except _NoOperator as error:
            place = node.name or (node.output[0] if node.output else "?")
            problems.append(ImportProblem(f"node {place} ({node.op_type})", str(error)))
            continue
        key = json.dumps([op, values], sort_keys=True)
        found[key] = op, values
        counts[key] = counts.get(key, 0) + 1
    entries = [
        Entry(op, {k: [v] if isinstance(v, list) else v for k, v in values.items()}, count=counts[key])
        for key, (op, values) in found.items()
    ]
    return Extraction(entries, sum(counts.values()), views, problems=problems)


class _GraphTensors:
    """Shapes and types of the tensors of a graph."""

    def __init__(self, graph: Any) -> None:
        self._constants = {one.name: one for one in graph.initializer}
        self._constants |= {
            node.output[0]: one.t
            for node in graph.node if node.op_type == "Constant" for one in node.attribute if one.name == "value"
        }  # fmt: skip
        self._typed = {one.name: one.type.tensor_type for one in (*graph.value_info, *graph.input, *graph.output)}

    def constant(self, name: str) -> list[int]:
        """Return the values of a constant."""
        if name not in self._constants:
            raise _NoOperator(f"the values of `{name}` are not known before it runs")
        found: list[int] = numpy_helper.to_array(self._constants[name]).ravel().tolist()
        return found

    def spec(self, name: str) -> TensorSpec:
        if name in self._constants:
            shape, kind = tuple(self._constants[name].dims), self._constants[name].data_type
        elif name in self._typed:
            found = self._typed[name]
            shape, kind = tuple(dim.dim_value for dim in found.shape.dim), found.elem_type
            if any(dim.dim_param for dim in found.shape.dim):
                raise _NoOperator(f"the shape of `{name}` is not fixed")
        else:
            raise _NoOperator(f"the shape of `{name}` is not known")
        dtype = str(helper.tensor_dtype_to_np_dtype(kind))
        if dtype not in DTYPES:
            raise _NoOperator(f"`{name}` is of {dtype}")
        return TensorSpec(shape, dtype)


def _operator_of(node: Any, graph: _GraphTensors) -> Proposal:
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    given = [graph.spec(name) if name else None for name in node.input]
    if node.op_type in _REDUCTIONS and len(node.input) > 1 and node.input[1]:  # before opset 18, an attribute
        attributes["axes"] = graph.constant(node.input[1])
    for op, params in _proposed(node, given, attributes):
        try:
            operator = find_operator(op)
            operator.check_rules(operator.complete({k: operator.param(k).check(v) for k, v in params.items()}))
        except OpmarkError:
            continue
        return op, params
    shapes = ", ".join(f"{'x'.join(map(str, one.shape)) or '()'} {one.dtype}" for one in given if one)
    raise _NoOperator(f"the catalogue has no operator for {node.op_type} of {shapes}")


def _proposed(node: Any, given: list[Any], attributes: Mapping[str, Any]) -> list[Proposal]:
    kind, x = node.op_type, given[0] if given else None
    if x is None:
        return []
    common = {"shape": list(x.shape), "dtype": x.dtype}
    if kind == "Gemm":
        inner = x.shape[0 if attributes.get("transA") else 1]
        rows, columns = prod(x.shape) // inner, prod(given[1].shape) // inner
        sizes = {"M": rows, "N": columns, "K": inner, "dtype": x.dtype}
        return [("linear" if len(given) > 2 else "linear_no_bias", sizes)]
    if kind == "MatMul":
        return _products(x, given[1])
    if kind in ("Conv", "ConvTranspose"):
        return _convolutions(node, given, attributes)
    if kind in ("Softmax", "LogSoftmax"):
        return [("softmax" if kind == "Softmax" else "log_softmax", {**common, "axis": attributes.get("axis", -1)})]
    if kind == "LayerNormalization":
        bias = len(given) > 2 and given[2] is not None
        return [("layer_norm", {**common, "eps": attributes.get("epsilon", 1e-5), "bias": bias})]
    if kind == "BatchNormalization":
        return [("batch_norm", {**common, "training": False, "eps": attributes.get("epsilon", 1e-5)})]
    if kind == "Gather" and len(x.shape) == 2 and not attributes.get("axis"):
        table = {"rows": x.shape[0], "dim": x.shape[1], "indices": given[1].elements, "dtype": x.dtype}
        return [("embedding", table)]
    if kind == "Transpose":
        return [("transpose", {**common, "axes": list(attributes.get("perm", range(len(x.shape))[::-1]))})]
    if kind == "Concat":
        return [("concat", {**common, "count": len(given), "axis": attributes["axis"]})] * (
            len({one.shape for one in given}) == 1
        )
    if kind == "GlobalAveragePool":
        sizes = {"batch": x.shape[0], "channels": x.shape[1], "image": list(x.shape[2:]), "dtype": x.dtype}
        return [(f"global_avg_pool{len(x.shape) - 2}d", sizes)]
    if kind == "Gelu":
        return [("gelu", {**common, "approximate": attributes.get("approximate", b"none").decode()})]
    if kind == "Cast":
        to = str(helper.tensor_dtype_to_np_dtype(attributes["to"]))
        return [("cast", {**common, "to": to})]
    if kind in _REDUCTIONS:
        return _reductions(_REDUCTIONS[kind], x, attributes)
    if kind in ("MaxPool", "AveragePool"):
        return _pools(kind, x, attributes)
    ordered = sorted((one for one in given if one), key=lambda one: one.elements, reverse=True)
    proposed = proposals(_NAMES.get(kind, kind.lower()), ordered, {})
    return [one for one in proposed if _takes(one, ordered)] if kind not in _SEVERAL_OUTPUTS else []


def _takes(proposal: Proposal, given: list[TensorSpec]) -> bool:
    """Return whether an element-wise operator takes tensors of these shapes. Axes of length 1 in front do not count."""
    op, params = proposal
    try:
        operator = find_operator(op)
        own = operator.inputs(operator.complete({k: operator.param(k).check(v) for k, v in params.items()})).values()
    except OpmarkError:
        return False
    return [_squeezed(one.shape) for one in own] == [_squeezed(one.shape) for one in given]


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return next((shape[i:] for i, n in enumerate(shape) if n != 1), ())


def _products(a: TensorSpec, b: TensorSpec) -> list[Proposal]:
    if len(a.shape) < 2 or len(b.shape) < 2:
        return []
    sizes = {"N": b.shape[-1], "K": a.shape[-1], "dtype": a.dtype}
    if prod(b.shape[:-2]) == 1:
        return [("matmul", {"M": a.elements // a.shape[-1], **sizes})]
    if a.shape[:-2] != b.shape[:-2]:
        return []
    return [("batched_matmul", {"B": prod(a.shape[:-2]), "M": a.shape[-2], **sizes})]


def _reductions(op: str, x: TensorSpec, attributes: Mapping[str, Any]) -> list[Proposal]:
    """Propose a reduction along one axis; several that lie beside each other are one in memory."""
    if attributes.get("noop_with_empty_axes") and not attributes.get("axes"):
        return []
    rank = len(x.shape)
    axes = sorted(axis % rank for axis in attributes.get("axes") or range(rank))
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return []
    shape = [*x.shape[: axes[0]], prod(x.shape[axis] for axis in axes), *x.shape[axes[-1] + 1 :]]
    keepdims = bool(attributes.get("keepdims", 1))
    return [(op, {"shape": shape, "axis": axes[0] - len(shape), "keepdims": keepdims, "dtype": x.dtype})]


def _pools(kind: str, x: TensorSpec, attributes: Mapping[str, Any]) -> list[Proposal]:
    dims = len(x.shape) - 2
    pads = attributes.get("pads", [0] * 2 * dims)
    if pads[:dims] != pads[dims:] or attributes.get("ceil_mode"):
        return []
    args = [x, list(attributes["kernel_shape"]), list(attributes.get("strides", [1] * dims)), pads[:dims]]
    if kind == "MaxPool":
        return list(proposals("max_pool2d_with_indices", [*args, attributes.get("dilations", [1] * dims)], {}))
    return list(proposals("avg_pool2d", [*args, False, bool(attributes.get("count_include_pad"))], {}))


def _convolutions(node: Any, given: list[Any], attributes: Mapping[str, Any]) -> list[Proposal]:
    """Propose a convolution; operators of the catalogue have no bias, whose cost is next to nothing."""
    dims = len(given[0].shape) - 2
    pads = attributes.get("pads", [0] * 2 * dims)
    if pads[:dims] != pads[dims:]:
        return []
    ones = [1] * dims
    transposed = node.op_type == "ConvTranspose"
    args = [
        *given[:2], None, attributes.get("strides", ones), pads[:dims], attributes.get("dilations", ones), transposed,
        attributes.get("output_padding", [0] * dims), attributes.get("group", 1),
    ]  # fmt: skip
    return list(proposals("convolution", args, {}))
