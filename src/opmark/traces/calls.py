"""Calls of operators as workloads write them: the recorded arguments, by the schema of the operator.

No framework is imported here; a child process that has torch checks what is written (`opmark.traces.resolution`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from opmark.schema import TensorSpec
from opmark.schema.tensor import DTYPES
from opmark.traces.chrome import parse_concrete
from opmark.traces.trace import OpaqueValue, TensorRef, Value

_SCHEMA = re.compile(r"([\w.]+)::(\w+)(?:\.(\w+))?\((.*)\)\s*->.*", re.DOTALL)
_SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
}  # fmt: skip
"""torch's own numbers of element types."""
_PLACES = ("device", "layout", "pin_memory", "generator")
"""Arguments that say where a tensor is or where random numbers come from, not what is computed."""
_USUAL = {"float": (-1.0, 1.0), "complex": (-1.0, 1.0), "bool": (0, 2), "int": (0, 10)}


class NotExpressible(Exception):
    """An argument that a workload has no words for."""


class SchemaArgument(NamedTuple):
    name: str
    kind: str
    """`Tensor`, `SymInt[2]`, `ScalarType?`."""
    default: str | None
    by_name: bool
    """Whether it is only given by name."""


class CallSchema(NamedTuple):
    space: str
    name: str
    overload: str
    arguments: tuple[SchemaArgument, ...]

    @property
    def path(self) -> str:
        return f"torch.ops.{self.space}.{self.name}.{self.overload or 'default'}"


class WrittenCall(NamedTuple):
    args: list[Any]
    """Tensors are TensorSpecs, element types `{dtype: float32}`, the rest is plain data."""
    kwargs: dict[str, Any]


@lru_cache(maxsize=8192)
def parse_schema(text: str) -> CallSchema | None:
    """Parse the schema of an operator as torch writes it; None if it is none."""
    found = _SCHEMA.fullmatch(text.strip())
    if found is None:
        return None
    arguments, by_name = [], False
    for part in _split_arguments(found[4]):
        if part == "*":
            by_name = True
            continue
        declared, has_default, default = part.partition("=")
        kind, _, name = declared.strip().rpartition(" ")
        arguments.append(SchemaArgument(name, kind, default.strip() if has_default else None, by_name))
    return CallSchema(found[1], found[2], found[3] or "", tuple(arguments))


def _split_arguments(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def write_call(schema: CallSchema, inputs: Sequence[Value]) -> WrittenCall:
    """Return the arguments of a recorded call, those that have their defaults left out where that changes nothing.

    NotExpressible if one of them cannot be written.
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
        raise NotExpressible(f"the argument `{missing[0].name}` was not recorded")
    while args and _is_default(args[-1][0], args[-1][1].default):
        args.pop()
    return WrittenCall([written for written, _ in args], kwargs)


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
        raise NotExpressible(f"`{argument.name}` is a {value.kind}{text}, which a workload cannot write")
    if isinstance(value, list):
        return [_write(one, argument) for one in value]
    if argument.kind.startswith("ScalarType") and type(value) is int:
        if value not in _SCALAR_TYPES:
            raise NotExpressible(f"`{argument.name}` is the element type number {value}, which is not known here")
        return {"dtype": _SCALAR_TYPES[value]}
    if value is None and argument.default is None and not argument.kind.endswith("?"):
        if argument.kind == "Device":
            return "cpu"
        raise NotExpressible(f"the argument `{argument.name}` was not recorded")
    return value


def spec_of(tensor: TensorRef) -> TensorSpec:
    """Return a tensor as inputs of workloads are described; recorded bounds of whole numbers are kept."""
    if tensor.dtype not in DTYPES:
        raise NotExpressible(f"a tensor of {tensor.dtype}, which is not known here")
    low, high = _USUAL[DTYPES[tensor.dtype].kind]
    if tensor.low is not None and tensor.high is not None:
        low, high = tensor.low, tensor.high + 1
    strides = tensor.strides if tensor.strides is not None else contiguous_strides(tensor.shape)
    return TensorSpec(tensor.shape, tensor.dtype, low, high, strides=strides)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose elements lie one after the other."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(1, size)
    return tuple(reversed(found))


def _default_value(text: str) -> Any:
    return None if text == "None" else parse_concrete(text)


def _is_default(value: Any, default: str | None) -> bool:
    if default is None:
        return False
    usual = _default_value(default)
    if isinstance(value, list) and not isinstance(usual, list):
        return bool(value) and all(one == usual and type(one) is type(usual) for one in value)
    return bool(value == usual) and isinstance(value, bool) == isinstance(usual, bool)


# Recorded values as plain JSON, for the process that has torch.


def pack_value(value: Value) -> Any:
    """Return a recorded value as JSON can hold it."""
    if isinstance(value, TensorRef):
        strides = None if value.strides is None else list(value.strides)
        return {"tensor": [list(value.shape), value.dtype, strides, value.low, value.high]}
    if isinstance(value, OpaqueValue):
        return {"opaque": [value.kind, value.text]}
    if isinstance(value, list):
        return [pack_value(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def unpack_value(packed: Any) -> Value:
    """Return the recorded value that was packed."""
    if isinstance(packed, list):
        return [unpack_value(one) for one in packed]
    if not isinstance(packed, dict):
        return packed
    if "float" in packed:
        return float(packed["float"])
    if "opaque" in packed:
        return OpaqueValue(*packed["opaque"])
    shape, dtype, strides, low, high = packed["tensor"]
    return TensorRef(
        tuple(shape), dtype, strides=None if strides is None else tuple(strides), low=low, high=high
    )  # fmt: skip
