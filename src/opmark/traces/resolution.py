"""The process that knows torch's operators: `python -m opmark.traces.resolution`. It reads recorded calls from its
input and answers with entries of a workload, as the last line of its output."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import torch

from opmark.models.tracing import describe_call
from opmark.traces.calls import CallSchema, NotExpressible, parse_schema, unpack_value, write_call
from opmark.traces.trace import OpaqueValue, TensorRef, Value
from opmark.traces.workload import RecordedCall, ResolvedCall


def main() -> int:
    calls = msgspec.json.decode(sys.stdin.buffer.read(), type=list[RecordedCall])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what torch prints is no answer
    answers.write(msgspec.json.encode([resolve(call) for call in calls]))
    answers.flush()
    return 0


def resolve(call: RecordedCall) -> ResolvedCall:
    """Return the entry of a call, or why there is none."""
    inputs = [unpack_value(value) for value in call.inputs]
    try:
        schema = parse_schema(call.schema) if call.schema else find_schema(call.name, inputs)
        if schema is None:
            raise NotExpressible(f"its schema cannot be read: {call.schema}")
        written = write_call(schema, inputs)
        function = find_function(schema)
    except NotExpressible as error:
        return ResolvedCall(problem=str(error))
    described = describe_call(function, schema.name, written.args, written.kwargs)
    return ResolvedCall(described.entry, no_data=not described.moves_data)


def find_function(schema: CallSchema) -> Any:
    """Return the operator of this torch with a schema's name."""
    space = getattr(torch.ops, schema.space)
    packet = getattr(space, schema.name, None)
    found = getattr(packet, schema.overload or "default", None) if packet is not None else None
    if found is None:
        full = f"{schema.space}::{schema.name}" + (f".{schema.overload}" if schema.overload else "")
        raise NotExpressible(f"torch {torch.__version__} has no operator {full}")
    return found


def find_schema(name: str, inputs: list[Value]) -> CallSchema:
    """Return the schema of an operator that takes such arguments: a profiler records no schemas.

    Among several, the one whose arguments fit best is taken.
    """
    space, _, own = name.partition("::")
    packet = getattr(getattr(torch.ops, space), own, None) if own else None
    if packet is None:
        raise NotExpressible(f"torch {torch.__version__} has no operator {name}")
    known = [parse_schema(str(getattr(packet, one)._schema)) for one in packet.overloads()]
    fits = [(_fit(schema, inputs), -number, schema) for number, schema in enumerate(known) if schema is not None]
    best = max(fits, default=None, key=lambda one: one[:2])
    if best is None or best[0] < 0:
        raise NotExpressible(f"none of the {len(known)} overloads of {name} takes the arguments that were recorded")
    return best[2]


def _fit(schema: CallSchema, inputs: list[Value]) -> int:
    """Return how well arguments fit a schema; below 0 if they do not."""
    if len(schema.arguments) != len(inputs):
        return -1
    total = 0
    for argument, value in zip(schema.arguments, inputs, strict=True):
        kind = argument.kind
        optional, is_list, is_tensor = "?" in kind, "[" in kind, kind.startswith("Tensor")
        if value is None:
            plain = kind.startswith(("Device", "Generator", "Layout", "Dimname", "str", "Storage", "Stream"))
            if not (optional or plain or (is_tensor and is_list)):
                return -1
            total += optional
        elif isinstance(value, TensorRef):
            if not is_tensor or is_list:
                return -1
            total += 2
        elif isinstance(value, list):
            tensors = any(isinstance(one, TensorRef) for one in value)
            if not is_list or (value and tensors != is_tensor):
                return -1
            total += 2
        elif isinstance(value, OpaqueValue):
            if is_tensor and value.kind == "Scalar":
                return -1
        elif is_tensor or (is_list and not isinstance(value, int)):
            return -1
        else:
            total += _scalar_fit(kind, value)
    return total


def _scalar_fit(kind: str, value: Any) -> int:
    """Return how well a plain value fits the type of an argument."""
    if isinstance(value, bool):
        return 2 if kind.startswith("bool") else 0
    if isinstance(value, int):
        return 2 if kind.startswith(("int", "SymInt", "Scalar", "MemoryFormat", "Layout")) else 0
    if isinstance(value, float):
        return 2 if kind.startswith(("float", "Scalar")) else -2
    return 2 if kind.startswith("str") else 0


if __name__ == "__main__":
    sys.exit(main())
