"""Calls of operators as workloads write them: the recorded arguments, by the schema of the operator.

No framework is imported here; a child process that has torch checks what is written (`opmark.models.calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from opmark.models.call_schema import CallSchema, SchemaArgument, parse_schema
from opmark.models.calls import TorchCall
from opmark.models.index_bounds import Place, ValueBounds, value_bounds
from opmark.schema import TensorSpec
from opmark.schema.arguments import canonical
from opmark.schema.tensor import DTYPES, contiguous_strides
from opmark.traces.chrome import parse_concrete
from opmark.traces.trace import OpaqueValue, TensorRef, Value

_SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
}  # fmt: skip
"""torch's own numbers of element types."""
_PLACES = ("device", "layout", "pin_memory", "generator")
"""Arguments that say where a tensor is or where random numbers come from, not what is computed."""
_USUAL = {"float": (-1.0, 1.0), "complex": (-1.0, 1.0), "bool": (0, 2), "int": (0, 10)}


class UnwritableArgument(Exception):
    """An argument that a workload has no words for."""


class WrittenCall(NamedTuple):
    args: list[Any]
    """Tensors are TensorSpecs, element types `{dtype: float32}`, the rest is plain data."""
    kwargs: dict[str, Any]


def write_call(schema: CallSchema, inputs: Sequence[Value]) -> WrittenCall:
    """Return the arguments of a recorded call, those that have their defaults left out where that changes nothing.

    UnwritableArgument if one of them cannot be written.
    """
    args: list[tuple[Any, SchemaArgument]] = []
    kwargs: dict[str, Any] = {}
    for argument, value in zip(schema.arguments, inputs, strict=False):
        if argument.name in _PLACES and (argument.by_name or argument.kind.startswith("Generator")):
            continue
        written = _write(value, argument)
        if not argument.by_name:
            args.append((written, argument))
        elif written is not None and not _is_default(written, argument.default):
            kwargs[argument.name] = written
    missing = [one for one in schema.arguments[len(inputs) :] if one.default is None]
    if missing:
        raise UnwritableArgument(f"the argument `{missing[0].name}` was not recorded")
    while args and _is_default(args[-1][0], args[-1][1].default):
        args.pop()
    return WrittenCall([written for written, _ in args], kwargs)


def torch_call(schema: str, inputs: Sequence[Value]) -> TorchCall:
    """Return a recorded call as a workload writes it, with indices that point inside of the tensors that they are for.

    UnwritableArgument if an argument cannot be written.
    """
    parsed = parse_schema(schema)
    if parsed is None:
        raise UnwritableArgument(f"its schema cannot be read: {schema}")
    written = write_call(parsed, inputs)
    bounds = value_bounds(parsed.name, written.args, _shape, lambda one: one.dtype in ("bool", "uint8"))
    args = [_node(one, bounds, (place,)) for place, one in enumerate(written.args)]
    return TorchCall(parsed.full_name, args, {name: _node(one, {}, ()) for name, one in written.kwargs.items()})


def _shape(value: Any) -> tuple[int, ...] | None:
    return value.shape if isinstance(value, TensorSpec) else None


def _node(value: Any, bounds: dict[Place, ValueBounds], place: Place) -> Any:
    """Return an argument as a workload writes it."""
    if isinstance(value, list):
        return [_node(one, bounds, (*place, number)) for number, one in enumerate(value)]
    if not isinstance(value, TensorSpec):
        return canonical(value)
    spec = {"shape": list(value.shape), "dtype": value.dtype, "low": value.low, "high": value.high}
    found = bounds.get(place)
    if found is not None and DTYPES[value.dtype].kind == ("float" if found.floats else "int"):
        recorded = not found.values and found.low <= value.low and value.high <= found.high and value.low != value.high
        if not recorded or (value.low, value.high) == _USUAL["int"]:
            spec |= {"low": found.low, "high": found.high}
        if found.values:
            return canonical({**spec, "values": found.values})
    return canonical({**spec, "strides": list(value.strides)} if value.strides else spec)


def _write(value: Value, argument: SchemaArgument) -> Any:
    if isinstance(value, TensorRef):
        return spec_of(value)
    if isinstance(value, OpaqueValue):
        if value.kind == "Undefined" or argument.kind.startswith("Generator"):
            return None
        if value.kind == "Device":
            return value.text.partition(":")[0] or "cpu"
        if value.kind == "Scalar" and argument.default is not None:
            return _default_value(argument.default)
        text = f" ({value.text})" if value.text else ""
        raise UnwritableArgument(f"`{argument.name}` is a {value.kind}{text}, which a workload cannot write")
    if isinstance(value, list):
        return [_write(one, argument) for one in value]
    if argument.kind.startswith("ScalarType") and type(value) is int:
        if value not in _SCALAR_TYPES:
            raise UnwritableArgument(f"`{argument.name}` is the element type number {value}, which is not known here")
        return {"dtype": _SCALAR_TYPES[value]}
    if value is None and argument.default is None and not argument.kind.endswith("?"):
        if argument.kind == "Device":
            return "cpu"
        raise UnwritableArgument(f"the argument `{argument.name}` was not recorded")
    return value


def spec_of(tensor: TensorRef) -> TensorSpec:
    """Return a tensor as inputs of workloads are described; recorded bounds of whole numbers are kept."""
    if tensor.dtype not in DTYPES:
        raise UnwritableArgument(f"a tensor of {tensor.dtype}, which is not known here")
    low, high = _USUAL[DTYPES[tensor.dtype].kind]
    if tensor.low is not None and tensor.high is not None:
        low, high = tensor.low, tensor.high + 1
    strides = tensor.strides if tensor.strides is not None else contiguous_strides(tensor.shape)
    return TensorSpec(tensor.shape, tensor.dtype, low, high, strides=strides)


def _default_value(text: str) -> Any:
    return None if text == "None" else parse_concrete(text)


def _is_default(value: Any, default: str | None) -> bool:
    if default is None:
        return False
    usual = _default_value(default)
    if isinstance(value, list) and not isinstance(usual, list):
        return bool(value) and all(one == usual and type(one) is type(usual) for one in value)
    return bool(value == usual) and isinstance(value, bool) == isinstance(usual, bool)


def argument_kind(value: Value) -> str:
    """Return what an argument is, in the words of `OverloadQuestion`."""
    if isinstance(value, TensorRef):
        return "Tensor"
    if isinstance(value, list):
        kinds = {argument_kind(one) for one in value} - {"None"}
        return f"{kinds.pop()}[]" if len(kinds) == 1 else "float[]" if kinds == {"int", "float"} else ""
    if isinstance(value, OpaqueValue):
        return {"Device": "str", "Undefined": "None"}.get(value.kind, "")
    return "None" if value is None else type(value).__name__
