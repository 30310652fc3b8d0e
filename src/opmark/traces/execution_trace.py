"""Reads PyTorch's execution traces, all versions from 1.0.1 to 1.1.1, also with times from Chakra's linker.

| version | what is new |
|---|---|
| 1.0.1 | flat nodes: `parent`, `inputs`, `input_shapes`, `input_types`, `op_schema` |
| 1.0.2-chakra.0.0.4 | `ctrl_deps` is the parent; inputs and outputs are objects, the rest is a list of attributes |
| 1.0.3 | process groups have a name and a description |
| 1.0.4 | kernels of compilers: `kernel_backend`, `kernel_file` |
| 1.1.0 | attributes of communication: `collective_name`, `in_msg_nelems`, `pg_name` ... |
| 1.1.1 | strides; smallest and largest values of integer tensors (`tensor_range`) |

A file lists nodes in the order in which they ended; their ids tell in which order they began.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from opmark.errors import InvalidFile
from opmark.models.call_schema import split_outside_brackets
from opmark.schema import ImportProblem
from opmark.schema.tensor import DTYPES, contiguous_strides
from opmark.traces.collectives import (
    ASIDE,
    collective_of_call,
    collective_of_record,
    groups_of,
    join_collectives,
    place_in_group,
)
from opmark.traces.json_lists import read_list
from opmark.traces.trace import (
    NodeKind,
    OpaqueValue,
    ProgramTrace,
    TensorRef,
    TraceCollective,
    TraceNode,
    Value,
    tensors_of,
)
from opmark.units import count_noun

VERSIONS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
_CHAKRA = "0.0.4"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-chakra\.(\S+))?")

DTYPE_NAMES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "long long": "int64", "__int64": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "char": "int8", "unsigned char": "uint8",
    "short unsigned int": "uint16", "unsigned short": "uint16", "unsigned int": "uint32",
    "long unsigned int": "uint64", "unsigned long": "uint64", "unsigned long long": "uint64", "bool": "bool",
    "c10::complex<c10::Half>": "complex32", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu", "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
    "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
    "c10::quint4x2": "quint4x2", "c10::quint2x4": "quint2x4",
}  # fmt: skip
"""Names of element types in C++, as compilers of different systems write them."""
_UNDEFINED = "nullptr"
_MOST_PLAUSIBLE = 2**40
"""No index is larger; memory that nobody has written to yet often looks like a larger number."""
_MOST_IN_LIST = 4096
"""torch writes no more elements of a list than one above this number."""
_DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
_USUAL = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "fw_tid": 0}
"""Values of attributes that say nothing; they are not kept."""
_ONLY_HERE = frozenset({"op_schema", "tid", "tensor_range"})
_ROOT = 1
"""Node of the process, which is its own parent."""
_GROUPS = "## process_group:init ##"


class EtValues(Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []
    strides: list[Any] | None = None


class EtAttribute(Struct):
    name: str
    value: Any = None


class EtNode(Struct):
    """A node of any version: fields of the other versions are not set."""

    id: int
    name: str = ""
    ctrl_deps: int | list[int] | None = None
    parent: int | None = None
    inputs: EtValues | list[Any] = []
    outputs: EtValues | list[Any] = []
    attrs: list[EtAttribute] = []
    input_shapes: list[Any] = []
    input_types: list[Any] = []
    output_shapes: list[Any] = []
    output_types: list[Any] = []
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    op_schema: str = ""
    ts: float | None = None
    """Microseconds; Chakra's linker adds it."""
    dur: float | None = None
    cat: str = ""
    stream: int | None = None


def read_execution_trace(path: Path, content: Any) -> ProgramTrace:
    """Read an execution trace. Parts that cannot be read become problems of the trace."""
    listed = read_list(path, content, "nodes", EtNode)
    version, problems = _check_version(path, listed.head)
    trace = ProgramTrace(str(path), f"PyTorch execution trace {version}", [], problems=problems)
    read_nodes(trace, listed.items(), f"{listed.where}[")
    trace.problems += listed.problems
    if not trace.nodes:
        raise InvalidFile(f"{path}: none of its nodes can be read", "expected an execution trace of PyTorch")
    return trace


def _check_version(path: Path, head: dict[str, Any]) -> tuple[str, list[ImportProblem]]:
    version = str(head.get("schema", ""))
    found = _VERSION.fullmatch(version)
    known = f"execution traces of PyTorch have the versions {', '.join(VERSIONS)}"
    if found is None:
        raise InvalidFile(f"{path}: {version!r} is no version of an execution trace, at `$.schema`", known)
    base = ".".join(found.group(1, 2, 3))
    if base in VERSIONS and found[4] in (None, _CHAKRA):
        return version, []
    if base not in VERSIONS and tuple(map(int, found.group(1, 2, 3))) < (1, 1, 1):
        raise InvalidFile(f"{path}: execution traces of version {version} are not read, at `$.schema`", known)
    newest = f"{VERSIONS[-1]}-chakra.{_CHAKRA}"
    return version, [
        ImportProblem(f"{path}: $.schema", f"version {version} is not known here; it was read as if it were {newest}")
    ]


class ParsedType(NamedTuple):
    """The type of an argument: `Tensor(float)`, `GenericList[Int,Int]`."""

    kind: str
    dtype: str = ""
    items: tuple[ParsedType, ...] = ()


@lru_cache(maxsize=8192)
def parse_type(text: str) -> ParsedType:
    """Parse a type as torch writes it."""
    if text.startswith("Tensor(") and text.endswith(")"):
        written = text[7:-1]
        return ParsedType("Tensor", DTYPE_NAMES.get(written, written))
    if text.endswith("]") and "[" in text:
        kind, _, inside = text[:-1].partition("[")
        return ParsedType(kind, "", tuple(parse_type(part) for part in split_outside_brackets(inside)))
    return ParsedType(text)


def read_nodes(trace: ProgramTrace, nodes: Iterable[tuple[int, EtNode]], where: str) -> None:
    """Add the nodes of a file to a trace; each comes with its number, which messages write behind `where`."""
    _Reader(trace, where).read(nodes)


class _Reader:
    """Turns the nodes of one file into those of a trace."""

    def __init__(self, trace: ProgramTrace, where: str) -> None:
        self.trace = trace
        self._where = where
        self._texts: dict[str, str] = {}
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._tensors: dict[TensorRef, TensorRef] = {}
        self._place = ""
        self._ranges: dict[int, tuple[int, int]] = {}
        self._counted = 0

    def read(self, nodes: Iterable[tuple[int, EtNode]]) -> None:
        found: dict[int, TraceNode] = {}
        times: list[tuple[int | None, float, int | None]] = []
        for number, raw in nodes:
            self._place = f"{self._where}{number}" + ("]" if self._where.endswith("[") else "")
            if raw.cat in _DEVICE_WORK:
                if raw.cat != "gpu_user_annotation" and raw.dur is not None:
                    times.append((_parent_of(raw), raw.dur * 1e-6, raw.stream))
                continue
            if raw.id in found:
                self._problem(f"the id {raw.id} is that of another node too; only the first one is taken")
                continue
            found[raw.id] = self._node(raw)
        self.trace.nodes = _in_order(found, self.trace)
        place_collectives(self.trace)
        for parent, seconds, stream in times:
            add_device_time(self.trace, parent, seconds, stream)

    def _problem(self, message: str) -> None:
        self.trace.problems.append(ImportProblem(self._place, message))

    def _node(self, raw: EtNode) -> TraceNode:
        attributes = {one.name: one.value for one in raw.attrs}
        for name in ("rf_id", "fw_parent", "seq_id", "scope", "fw_tid", "tid", "op_schema"):
            attributes.setdefault(name, getattr(raw, name))
        self._ranges = _ranges(attributes.get("tensor_range"))
        self._counted = 0
        inputs = self._values(raw.inputs, raw.input_shapes, raw.input_types)
        self._ranges = {}  # outputs are recorded before anything is written into them
        outputs = self._values(raw.outputs, raw.output_shapes, raw.output_types)
        kept = {
            self._text(name): self._text(value) if isinstance(value, str) else value
            for name, value in attributes.items()
            if name not in _ONLY_HERE and value not in ("", None) and value != _USUAL.get(name)
        }
        schema = str(attributes["op_schema"] or "")
        node = TraceNode(
            raw.id, self._text(raw.name), "label", self._text(schema), _parent_of(raw), inputs, outputs,
            _whole(attributes["tid"]), attributes=kept,
        )  # fmt: skip
        if raw.ts is not None:
            node.start = raw.ts * 1e-6
        if raw.dur is not None:
            node.duration = raw.dur * 1e-6
        if raw.name == _GROUPS:
            self.trace.groups |= groups_of(inputs)
        node.kind, node.collective = kind_of(node)
        return node

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _values(self, given: EtValues | list[Any], shapes: list[Any], types: list[Any]) -> list[Value]:
        if isinstance(given, list):
            given = EtValues(given, shapes, types)
        strides = given.strides or []
        found = []
        for i, value in enumerate(given.values):
            if i < len(given.types) and isinstance(given.types[i], str):
                parsed = parse_type(given.types[i])
            else:
                parsed = ParsedType("")
            shape = given.shapes[i] if i < len(given.shapes) else []
            found.append(self._value(value, shape, parsed, strides[i] if i < len(strides) else None))
        return found

    def _value(self, value: Any, shape: Any, parsed: ParsedType, strides: Any) -> Value:
        if parsed.kind == "Tensor":
            return self._tensor(value, shape, parsed.dtype, strides)
        if isinstance(value, list) and (parsed.kind.endswith(("List", "Tuple")) or not parsed.kind):
            if len(value) > _MOST_IN_LIST:
                self._problem(f"torch cut a list off after {len(value)} elements")
            return [
                self._value(
                    item,
                    shape[i] if isinstance(shape, list) and i < len(shape) else [],
                    parsed.items[i] if i < len(parsed.items) else ParsedType(""),
                    strides[i] if isinstance(strides, list) and i < len(strides) else None,
                )
                for i, item in enumerate(value)
            ]
        return plain_value(value, parsed.kind)

    def _tensor(self, value: Any, shape: Any, dtype: str, strides: Any) -> Value:
        number = self._counted
        self._counted += 1
        if dtype.startswith(_UNDEFINED):
            return OpaqueValue("Undefined")
        if value is None or value == "<None>":
            return None
        if not isinstance(value, list) or len(value) < 5 or not all(type(one) is int for one in value[:5]):
            self._problem(
                f"expected a tensor as [id, storage, offset, elements, bytes per element, device], got {value}"
            )
            return OpaqueValue("Object", "a tensor that cannot be read")
        if not _sizes(shape) or (strides is not None and not _sizes(strides)):
            self._problem(f"expected sizes and strides of at least 0, got {shape} and {strides}")
            return OpaqueValue("Object", f"a tensor of shape {shape}")
        if not shape and value[3] == 0 and value[4] == 0:
            return OpaqueValue("Object", "a tensor whose shape is symbolic")
        low, high = self._ranges.get(number, (None, None))
        if DTYPES.get(dtype, DTYPES["float32"]).kind != "int":
            low = high = None
        own = tuple(strides) if strides is not None and len(strides) == len(shape) else None
        found = TensorRef(
            self._sizes(shape), dtype, self._text(str(value[5])) if len(value) > 5 else "",
            value[0], value[1], value[2], None if own is None else self._sizes(own), low, high,
        )  # fmt: skip
        return self._tensors.setdefault(found, found)

    def _sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        found = tuple(sizes)
        return self._shapes.setdefault(found, found)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def plain_value(value: Any, kind: str) -> Value:
    """Return an argument that is not a tensor, by the kind that the file gives: `Int`, `Double`, `Device`, `None`."""
    if value is None or value == "<None>" or kind == "None":
        return None
    if kind in ("Double", "Float", "Number", "Scalar") and not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError):
            return OpaqueValue(kind, str(value))
    if kind in ("Device", "Stream", "Storage", "Object", "Generator"):
        return OpaqueValue(kind, "" if str(value).startswith("<") else str(value))
    if kind == "String":
        return str(value)
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return OpaqueValue(value[1:-1])
    if isinstance(value, dict):
        return OpaqueValue(kind or "Object", str(value))
    return value


def _ranges(written: Any) -> dict[int, tuple[int, int]]:
    """Return the smallest and largest values of integer tensors by the number of the tensor among the inputs."""
    if isinstance(written, str) and written:
        try:
            written = json.loads(written)
        except json.JSONDecodeError:
            return {}
    if not isinstance(written, dict):
        return {}
    found = {}
    for number, bounds in written.items():
        if str(number).isdigit() and isinstance(bounds, list) and len(bounds) == 2:
            low, high = bounds
            if type(low) is int and type(high) is int and -_MOST_PLAUSIBLE < low <= high < _MOST_PLAUSIBLE:
                found[int(number)] = low, high
    return found


def _parent_of(raw: EtNode) -> int | None:
    given = raw.ctrl_deps if raw.ctrl_deps is not None else raw.parent
    if isinstance(given, list):
        given = given[0] if given else None
    return None if given in (None, 0) or given == raw.id == _ROOT else given


def kind_of(node: TraceNode) -> tuple[NodeKind, TraceCollective | None]:
    """Return what a node is, and its communication if it is one."""
    if node.name == "record_param_comms":
        collective = collective_of_record(node.inputs, node.outputs, node.attributes)
        return ("label", None) if collective is None else ("collective", collective)
    if node.name.startswith(("c10d::", "_c10d_functional::", "c10d_functional::")):
        collective = collective_of_call(node.name, node.inputs, node.outputs)
        if collective is not None:
            return "collective", collective
    if node.attributes.get("kernel_backend"):
        return "kernel", None
    return ("operator" if node.schema else "label"), None


def _in_order(found: dict[int, TraceNode], trace: ProgramTrace) -> list[TraceNode]:
    """Return nodes in the order of their ids, each after its parent. Parents that do not exist or that form a cycle are
    taken away."""
    ordered: dict[int, TraceNode] = {}
    missing: list[TraceNode] = []
    for _, node in sorted(found.items()):
        path: dict[int, TraceNode] = {}
        while node.id not in ordered:
            path[node.id] = node
            if node.parent is None:
                break
            if node.parent not in found:
                missing.append(node)
                node.parent = None
                break
            if node.parent in path:
                message = f"it is called by node {node.parent}, which it calls itself: it is taken for a root"
                trace.problems.append(ImportProblem(f"{trace.source}: node {node.id} ({node.name})", message))
                node.parent = None
                break
            node = found[node.parent]
        for one in reversed(path.values()):
            ordered[one.id] = one
    if missing:
        first = missing[0]
        message = f"{count_noun(len(missing), 'node')} whose parent is not in the file: taken for roots"
        trace.problems.append(ImportProblem(f"{trace.source}: node {first.id} ({first.name})", message))
    return list(ordered.values())


def place_collectives(trace: ProgramTrace) -> None:
    """Make one call of what belongs to one collective, and name its group.

    A record of NCCL stands below the operator that the program called and knows more than it. gloo's own work stands
    beside it, partly in threads of its own.
    """
    by_id = {node.id: node for node in trace.nodes}
    latest: dict[int, TraceNode] = {}
    aside: TraceNode | None = None
    last: TraceNode | None = None
    plain_threads = _threads_without_labels(trace.nodes)
    for node in trace.nodes:
        if node.kind == "collective" and node.collective is not None:
            above = next((one for one in trace.ancestors(node) if one.collective is not None), None)
            if above is None:
                latest[node.thread] = last = node
            elif above.collective is not None and above.collective.name == node.collective.name:
                above.collective = join_collectives(above.collective, node.collective)
        elif node.name.startswith(ASIDE):
            aside = node
            above = latest.get(node.thread) or last
            if above is not None and (node.parent is None or by_id[node.parent].kind == "label"):
                node.parent = above.id
        elif aside is not None and node.parent in plain_threads:
            node.parent = aside.id
    alike = len({group.ranks for group in trace.groups.values()}) == 1  # then it does not matter which one it is
    only = next(iter(trace.groups.values())) if alike else None
    for node in trace.nodes:
        if node.collective is not None:
            node.collective = place_in_group(node.collective, trace.groups, only)
    sizes = [group.size for group in trace.groups.values() if group.size]
    trace.world_size = max(sizes, default=None)


def _threads_without_labels(nodes: Sequence[TraceNode]) -> set[int]:
    """Return the nodes that stand for threads other than the first in which nothing but operators was called."""
    threads = [node.id for node in nodes if node.name.endswith("|thread]")]
    found = set(threads[1:])
    for node in nodes:
        if node.kind != "operator" and node.parent in found:
            found.discard(node.parent)
    return found


def add_device_time(trace: ProgramTrace, parent: int | None, seconds: float, stream: int | None) -> None:
    """Add the time of work on a device to the node that launched it and to all that called that node."""
    node = trace.by_id.get(parent) if parent is not None else None
    if node is None or not isfinite(seconds):
        return
    for one in (node, *trace.ancestors(node)):
        one.device_time = (one.device_time or 0.0) + seconds
        if stream is not None and one.stream is None:
            one.stream = stream


# Writing.

_CPP_NAMES = {name: written for written, name in reversed(DTYPE_NAMES.items())}


def write_execution_trace(trace: ProgramTrace) -> str:
    """Return a trace as an execution trace of PyTorch, in the newest version that is known here."""
    head = {"schema": f"{VERSIONS[-1]}-chakra.{_CHAKRA}", "pid": 0, "time": "", "start_ts": 0}
    nodes = ",\n".join(json.dumps(_written_node(node)) for node in trace.nodes)
    return f'{json.dumps(head)[:-1]}, "nodes": [\n{nodes}\n], "finish_ts": 0}}\n'


def _written_node(node: TraceNode) -> dict[str, Any]:
    given = {**_USUAL, "tid": node.thread, "op_schema": node.schema, "kernel_backend": "", "kernel_file": ""}
    given |= node.attributes
    if node.name == "record_param_comms" and node.collective is not None:
        given.setdefault("collective_name", node.collective.name)
    given["tensor_range"] = _written_ranges(node.inputs)
    parent = node.parent if node.parent is not None else _ROOT
    return {
        "id": node.id, "name": node.name, "ctrl_deps": parent, "inputs": written_values(node.inputs),
        "outputs": written_values(node.outputs),
        "attrs": [{"name": key, "type": _attribute_type(key, one), "value": one} for key, one in given.items()],
    }  # fmt: skip


def _attribute_type(name: str, value: Any) -> str:
    if isinstance(value, int):
        return "int64" if name == "seq_id" else "uint64"
    return "string"


def _written_ranges(inputs: Sequence[Value]) -> str:
    bounds = {str(i): [ref.low, ref.high] for i, ref in enumerate(tensors_of(list(inputs))) if ref.low is not None}
    return json.dumps(bounds) if bounds else ""


def written_values(values: Sequence[Value]) -> dict[str, list[Any]]:
    """Return inputs or outputs as an execution trace writes them: values, shapes, types and strides."""
    found = [_written_value(value) for value in values]
    return {key: [one[i] for one in found] for i, key in enumerate(("values", "shapes", "types", "strides"))}


def _written_value(value: Value) -> tuple[Any, list[Any], str, list[Any]]:
    if isinstance(value, TensorRef):
        size = DTYPES[value.dtype].size if value.dtype in DTYPES else 0
        strides = list(value.strides) if value.strides is not None else list(contiguous_strides(value.shape))
        tensor = [value.tensor, value.storage, value.offset, value.elements, size, value.device]
        return tensor, list(value.shape), f"Tensor({_CPP_NAMES.get(value.dtype, value.dtype)})", strides
    if isinstance(value, list):
        parts = [_written_value(one) for one in value]
        kinds = ",".join(part[2] for part in parts)
        return (
            [part[0] for part in parts],
            [part[1] for part in parts],
            f"GenericList[{kinds}]",
            [part[3] for part in parts],
        )
    if isinstance(value, OpaqueValue):
        if value.kind == "Undefined":
            return [0, 0, 0, 0, 0, ""], [], "Tensor(nullptr (uninitialized))", []
        return value.text if value.kind == "Device" else f"<{value.kind}>", [], value.kind, []
    if value is None:
        return "<None>", [], "None", []
    if isinstance(value, float):
        return value if isfinite(value) else str(value), [], "Double", []
    return value, [], {bool: "Bool", int: "Int"}.get(type(value), "String"), []
