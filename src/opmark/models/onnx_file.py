"""Describes, counts and computes the graph of an ONNX file. Only a worker or a child process imports this.

The reference is ONNX Runtime with all optimisations of graphs switched off, in the types of the file: no evaluator of
ONNX graphs in float64 is fast enough.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import onnx

from opmark.errors import InvalidParameter, Unsupported, UserError
from opmark.models.checking import (
    ROUNDING,
    Effects,
    bound_outputs,
    by_sample,
    compare_inputs,
    explain_blindness,
    find_effects,
    move_by_rounding,
    refuse_not_finite,
)
from opmark.models.facts import DescribedInput, ModelDescription, ModelFacts, facts
from opmark.models.source import ModelSource
from opmark.models.user_source import OnnxSource
from opmark.plugin import Params
from opmark.schema.arguments import tensors
from opmark.schema.tensor import DTYPES, is_float

_SMALL = 4096
"""Initialisers of at most so many elements keep their values, because shapes may depend on them."""
_TOKENS, _PIXELS = 128, 224
_TOKEN_AXIS = re.compile(r"seq|token|length|time", re.IGNORECASE)
_IMAGE_AXIS = re.compile(r"height|width|image|size|^[hw]$", re.IGNORECASE)
_MASK = re.compile(r"mask", re.IGNORECASE)


# The file.


def _read(source: ModelSource, *, weights: bool) -> Any:
    """Return the onnx.ModelProto; without `weights`, large initialisers have a shape and no values."""
    assert isinstance(source, OnnxSource)
    hint = "torch.onnx.export and onnx.save write such files; weights in a second file have to lie beside it"
    try:
        model = onnx.load(source.path, load_external_data=weights)
    except Exception as error:  # noqa: BLE001 - protobuf and external data raise anything
        first = str(error).strip().partition("\n")[0]
        raise UserError(f"`{source.name}` cannot be read as ONNX: {first}", hint) from None
    if not model.graph.node:
        raise UserError(f"`{source.name}` cannot be read as ONNX: its graph has no nodes", hint)
    if not weights:
        for one in model.graph.initializer:
            if prod(one.dims) > _SMALL:
                one.ClearField("raw_data")
                one.ClearField("float_data")
    return model


def _inputs(model: Any) -> list[Any]:
    """Return the inputs of a graph; old files list the weights among them."""
    weights = {one.name for one in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in weights]


def _dtype(element: int) -> str:
    name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element)))
    if name not in DTYPES:
        raise Unsupported(f"opmark has no element type {name}")
    return name


def _apply_shapes(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Write the shapes of inputs into a graph, and the sizes of its symbolic axes wherever they are named."""
    sizes: dict[str, int] = {}
    for one in _inputs(model):
        dims = one.type.tensor_type.shape.dim
        for dim, n in zip(dims, shapes[one.name], strict=True):
            if dim.dim_param:
                sizes[dim.dim_param] = n
            dim.Clear()
            dim.dim_value = n
        if not one.type.tensor_type.HasField("shape"):
            one.type.tensor_type.shape.dim.extend(
                onnx.TensorShapeProto.Dimension(dim_value=n) for n in shapes[one.name]
            )
    for value in (*model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                n = sizes[dim.dim_param]
                dim.Clear()
                dim.dim_value = n
    return model


# Description.


def describe_onnx(source: OnnxSource, params: Params) -> ModelDescription:
    model = _read(source, weights=False)
    written = _written_inputs(source, model, params)
    found: dict[str, DescribedInput] = {}
    for one in _inputs(model):
        if not one.type.HasField("tensor_type"):
            raise Unsupported(f"input `{one.name}` of `{source.name}` is no tensor")
        found[one.name] = written.get(one.name) or _describe_input(source, model, one, params)
    free = [one.name for one in _inputs(model) if _has_free_batch(one) and found[one.name].shape[:1] == (1,)]
    inputs = {
        name: DescribedInput(one.shape, one.dtype, one.low, one.high, name in free) for name, one in found.items()
    }
    dtype = _float_type(model, inputs)
    if not free:
        return ModelDescription(inputs, dtype=dtype)
    one, two = (_infer_outputs(source, _at_batch(inputs, batch)) for batch in (1, 2))
    axes: dict[int, int] = {}
    for i, (some, more) in enumerate(zip(one.values(), two.values(), strict=True)):
        grown = [axis for axis, (n, m) in enumerate(zip(some[0], more[0], strict=True)) if (n, m) == (1, 2)]
        if len(grown) != 1:
            return ModelDescription(inputs, dtype=dtype)
        if grown[0]:
            axes[i] = grown[0]
    return ModelDescription(inputs, rows=True, axes=axes, dtype=dtype)


def _written_inputs(source: OnnxSource, model: Any, params: Params) -> dict[str, DescribedInput]:
    """Return the inputs that the case describes itself."""
    given, names = params.get("inputs"), [one.name for one in _inputs(model)]
    if not given:
        return {}
    by_name = given if isinstance(given, Mapping) else dict(zip(names, given, strict=False))
    found = {}
    for name, text in by_name.items():
        spec = next((spec for _, spec in tensors(text, name)), None)
        if name not in names or spec is None:
            raise InvalidParameter(
                f"parameter `inputs`: expected a tensor such as `1x3x32x32 float32` for {', '.join(names)}, got "
                f"`{text}` for `{name}`",
                "as in -p inputs='{ids: 1x128 int64 0..1000}'",
            )
        found[name] = DescribedInput(spec.shape, spec.dtype, spec.low, spec.high, False)
    return found


def _has_free_batch(value: Any) -> bool:
    """Return whether the first axis has no fixed size in the file."""
    kind = value.type.tensor_type
    return not kind.HasField("shape") or (bool(kind.shape.dim) and not kind.shape.dim[0].HasField("dim_value"))


def _describe_input(source: OnnxSource, model: Any, value: Any, params: Params) -> DescribedInput:
    kind = value.type.tensor_type
    shape: list[int] = []
    for axis, dim in enumerate(kind.shape.dim):
        name = dim.dim_param
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif axis == 0:
            shape.append(1)
        elif _TOKEN_AXIS.search(name):
            shape.append(params.get("seq") or _TOKENS)
        elif _IMAGE_AXIS.search(name):
            shape.append(params.get("image") or _PIXELS)
        else:
            raise _unknown_shape(source, value.name, f"axis {axis} (`{name}`)" if name else f"axis {axis}")
    if not kind.HasField("shape"):
        raise _unknown_shape(source, value.name, "its shape")
    dtype = _dtype(kind.elem_type)
    low, high = (-1.0, 1.0) if is_float(dtype) else _whole_numbers(model, value.name, dtype)
    return DescribedInput(tuple(shape), dtype, low, high, False)


def _unknown_shape(source: OnnxSource, name: str, what: str) -> UserError:
    return UserError(
        f"input `{name}` of `{source.name}`: the file does not say {what}",
        f"give it, as in -p inputs='{{{name}: 1x64x64 float32}}'",
    )


def _whole_numbers(model: Any, name: str, dtype: str) -> tuple[int, int]:
    """Return the domain of an input of whole numbers: rows of the tables that it looks up; ones for a mask."""
    if _MASK.search(name):
        return 1, 2
    tables = {one.name: one.dims for one in model.graph.initializer}
    same, rows = {name}, list[int]()
    for node in model.graph.node:  # in the order in which they are computed
        if node.op_type in ("Cast", "Identity") and node.input[0] in same:
            same.add(node.output[0])
        if node.op_type == "Gather" and node.input[0] in tables and node.input[1] in same:
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            rows.append(tables[node.input[0]][axis])
    return 0, min(rows, default=2)


def _float_type(model: Any, inputs: Mapping[str, DescribedInput]) -> str:
    """Return the element type that a graph computes in: of its inputs, else of most of its weights."""
    found = [one.dtype for one in inputs.values() if is_float(one.dtype)]
    sizes: dict[str, int] = {}
    for one in model.graph.initializer:
        name = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(one.data_type)))
        if name in ROUNDING:
            sizes[name] = sizes.get(name, 0) + prod(one.dims)
    return found[0] if found else max(sizes, key=lambda name: sizes[name], default="float32")


def _at_batch(inputs: Mapping[str, DescribedInput], batch: int) -> dict[str, tuple[int, ...]]:
    return {name: (batch, *one.shape[1:]) if one.batched else one.shape for name, one in inputs.items()}


# Counting.


def _infer(source: ModelSource, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Return the graph with the shapes that ONNX can infer, without its weights."""
    model = _apply_shapes(_read(source, weights=False), shapes)
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # noqa: BLE001 - its checks raise anything
        first = str(error).strip().partition("\n")[0]
        raise UserError(f"`{source.name}` is no valid graph: {first}", "onnx.checker.check_model says more") from None


def _known_shapes(model: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and element type of every value whose sizes are all known."""
    found = {one.name: (tuple(one.dims), "") for one in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim) and kind.elem_type:
            found[value.name] = (tuple(dim.dim_value for dim in kind.shape.dim), _dtype(kind.elem_type))
    return found


def _infer_outputs(
    source: ModelSource, shapes: Mapping[str, Sequence[int]], model: Any = None
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shapes and element types of the outputs: inferred, or else found by computing them once."""
    model = model or _infer(source, shapes)
    known, names = _known_shapes(model), [one.name for one in model.graph.output]
    if all(name in known for name in names):
        return {name: known[name] for name in names}
    given = {
        one.name: np.ones(shapes[one.name], onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type))
        for one in _inputs(model)
    }
    found = _session(source).run(None, given)
    return {name: (output.shape, str(output.dtype)) for name, output in zip(names, found, strict=True)}


def count_onnx(source: OnnxSource, params: Params) -> ModelFacts:
    """Return the facts of a case. Operations are unknown where a shape of a product or convolution is."""
    shapes = {name: spec.shape for name, spec in source.inputs(params).items()}
    model = _infer(source, shapes)
    outputs = _infer_outputs(source, shapes, model)
    known = _known_shapes(model)
    operations = [_node_flops(node, known) for node in model.graph.node]
    total = None if None in operations else sum(one for one in operations if one)
    return ModelFacts(
        flops=total or None,
        weights=sum(prod(one.dims) for one in model.graph.initializer),
        outputs={name: shape for name, (shape, _) in outputs.items()},
        dtypes=tuple(_converted_type(dtype, source, params) for _, dtype in outputs.values()),
    )


def _converted_type(dtype: str, source: OnnxSource, params: Params) -> str:
    """Return the element type of an output: that of the case where the graph is converted to it."""
    return str(params["dtype"]) if dtype == source.description(params).dtype else dtype


def _node_flops(node: Any, known: Mapping[str, tuple[tuple[int, ...], str]]) -> int | None:
    """Return the operations of a product or convolution, a multiply-add as two; 0 for other nodes, None if unknown."""
    if node.op_type not in ("MatMul", "Gemm", "Conv", "ConvTranspose"):
        return None if node.domain not in ("", "ai.onnx") or node.op_type in ("LSTM", "GRU", "RNN", "Loop", "If") else 0
    if any(name not in known for name in (*node.input[:2], node.output[0])):
        return None
    (left, _), (right, _), (out, _) = (known[name] for name in (*node.input[:2], node.output[0]))
    if node.op_type == "MatMul":
        return 2 * prod(out) * left[-1]
    if node.op_type == "Gemm":
        transposed = any(one.name == "transA" and one.i for one in node.attribute)
        return 2 * prod(out) * left[0 if transposed else 1]
    return 2 * prod(out if node.op_type == "Conv" else left) * prod(right[1:])


# The reference.


def _session(source: ModelSource, replaced: Mapping[str, Any] | None = None) -> Any:
    return _plain_session(source, source.stamp({})) if replaced is None else _open(source, replaced)


@lru_cache(maxsize=1)
def _plain_session(source: ModelSource, stamp: str) -> Any:
    return _open(source, {})


def _open(source: ModelSource, replaced: Mapping[str, Any]) -> Any:
    """Open a session that computes the graph as it is written, with other values of some initialisers."""
    assert isinstance(source, OnnxSource)
    try:
        import onnxruntime as ort
    except ImportError:
        raise Unsupported(
            f"the reference of `{source.name}` is computed by ONNX Runtime, which is not installed "
            "(pip install 'opmark[onnxruntime]')"
        ) from None
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in replaced.items()}
    for name, value in values.items():
        options.add_initializer(name, value)
    try:
        session = ort.InferenceSession(str(source.path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - it has an exception for each of its codes
        text = str(error).strip().partition("\n")[0]
        raise Unsupported(
            f"ONNX Runtime, which computes the reference, does not take `{source.name}`: {text}"
        ) from None
    return _Session(session, values)


class _Session:
    """A session together with the values that it borrows."""

    def __init__(self, session: Any, values: Mapping[str, Any]) -> None:
        self._session, self._values = session, values

    def run(self, names: Any, given: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = self._session.run(names, dict(given))
        return found


def reference(source: OnnxSource, params: Params, **arrays: Any) -> tuple[Any, ...]:
    """Return the outputs, sample by sample where the graph has a batch."""
    outputs = by_sample(source, params, arrays, lambda some, given: _evaluate(source, some, given))
    refuse_not_finite((f"`{name}`" for name in facts(source, params).outputs), outputs)
    return outputs


def _evaluate(source: OnnxSource, params: Params, arrays: Mapping[str, Any], session: Any = None) -> list[Any]:
    """Compute the graph; opmark gives floats as float64, and the file says what it takes."""
    types = {name: onnx.helper.tensor_dtype_to_np_dtype(element) for name, element in _input_types(source)}
    given = {name: np.ascontiguousarray(array).astype(types[name], copy=False) for name, array in arrays.items()}
    return [
        output.astype(np.float64) if output.dtype.kind == "f" else output
        for output in (session or _session(source)).run(None, given)
    ]


@lru_cache(maxsize=1)
def _input_types(source: OnnxSource) -> list[tuple[str, int]]:
    return [(one.name, one.type.tensor_type.elem_type) for one in _inputs(_read(source, weights=False))]


def rounding_bounds(source: OnnxSource, params: Params) -> tuple[float, ...]:
    return bound_outputs(params["dtype"], find_effects(source, params, _measure_effects))


def why_blind(source: OnnxSource, params: Params) -> str:
    return explain_blindness(params["dtype"], find_effects(source, params, _measure_effects))


def _measure_effects(source: ModelSource, params: Params) -> Effects:
    """Compute once more with weights and inputs moved by the rounding of the type. Everything that is computed from
    them is then rounded otherwise too, so the difference contains what rounding does on the way."""
    assert isinstance(source, OnnxSource)
    own = {**params, "dtype": source.description(params).dtype}
    step, generator = ROUNDING[params["dtype"]], np.random.default_rng(0)
    moved = _session(source, dict(_moved_weights(source, step, generator)))

    def move(given: Mapping[str, Any]) -> list[Any]:
        return _evaluate(
            source, own, {name: move_by_rounding(array, step, generator) for name, array in given.items()}, moved
        )

    return compare_inputs(source, own, lambda given: _evaluate(source, own, given), move, step)


def _moved_weights(source: OnnxSource, step: float, generator: Any) -> Iterator[tuple[str, Any]]:
    model = _read(source, weights=True)
    for one in model.graph.initializer:
        array = onnx.numpy_helper.to_array(one)
        if array.dtype in (np.float32, np.float64, np.float16) and array.ndim:
            yield one.name, move_by_rounding(array, step, generator)


# Launches.


class OnnxFile:
    """The graph of a file, with the shapes and the element type of a case."""

    def __init__(self, source: OnnxSource, params: Params) -> None:
        self.source = source
        self.may_fall_back = params["dtype"] != source.description(params).dtype
        """Whether it is converted to float16. An engine that has no kernel of this type for some of its nodes computes
        these in float32, and says so."""

    def model(self, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """Return an onnx.ModelProto; `inputs` holds (shape, dtype) by name."""
        model = _apply_shapes(_read(self.source, weights=True), {name: shape for name, (shape, _) in inputs.items()})
        return _to_float16(model) if self.may_fall_back else model


def _to_float16(model: Any) -> Any:
    """Return a graph of float32 as one of float16, its inputs and outputs too."""
    try:
        from onnxruntime.transformers.float16 import convert_float_to_float16
    except ImportError:
        raise Unsupported(
            "graphs are converted to float16 by ONNX Runtime, which is not installed (pip install "
            "'opmark[onnxruntime]')"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every weight that is rounded to the smallest number
        return convert_float_to_float16(model, keep_io_types=False)


def build_onnx(source: OnnxSource, params: Params, **given: Any) -> OnnxFile:
    return OnnxFile(source, params)
