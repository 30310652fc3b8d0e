"""Chakra's execution traces (`.et`): a small reader and writer of its protocol buffers, `et_def.proto`.

A file is a sequence of messages, each behind its length: GlobalMetadata, then Nodes. Inputs and outputs are texts with
the lists of values, shapes and types that PyTorch's execution traces have.
"""

from __future__ import annotations

import ast
import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import InvalidFile
from opmark.schema import ImportProblem
from opmark.schema.tensor import DTYPES
from opmark.traces.execution_trace import EtAttribute, EtNode, EtValues, read_nodes, written_values
from opmark.traces.trace import ProgramTrace, TraceCollective, TraceNode, tensors_of

VERSION = "0.0.4"
_METADATA, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 1, 4, 5, 6, 7
_COLLECTIVES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter", "barrier",
)  # fmt: skip
"""By the numbers of `CollectiveCommType`; its 8 is another word for 7."""
_BYTE = "uint8"
"""Element type of a collective of which only the bytes are known."""
_AGAIN = "the program that wrote it was stopped, or the file was not copied as a whole"
_VERSION = re.compile(rb"\d+\.\d+\.\d+")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SCALARS: dict[int, str] = {
    3: "<d", 5: "<f", 7: "int", 9: "int", 11: "uint", 13: "uint", 15: "zigzag", 17: "zigzag", 19: "<I", 21: "<Q",
    23: "<i", 25: "<q", 27: "bool", 29: "text", 31: "bytes",
}  # fmt: skip
"""Fields of AttributeProto that hold one value, and how it is written; the field behind each holds a list of them."""


class ProtoField(NamedTuple):
    number: int
    wire: int
    value: Any
    """A whole number, or bytes."""


# The wire format.


def encode_varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a number below 0 is written as two's complement
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def decode_varint(content: Any, place: int) -> tuple[int, int]:
    """Return a number and the place behind it; IndexError if the content ends before."""
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise IndexError("a number has more than 64 bits")


def decode_fields(content: bytes) -> Iterator[ProtoField]:
    """Yield the fields of a message; IndexError if it ends in the middle of one."""
    place = 0
    while place < len(content):
        key, place = decode_varint(content, place)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, place = decode_varint(content, place)
            yield ProtoField(number, wire, value)
            continue
        if wire == _BYTES:
            size, place = decode_varint(content, place)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise IndexError(f"there is no wire type {wire}")
        if place + size > len(content):
            raise IndexError("a field is longer than its message")
        yield ProtoField(number, wire, content[place : place + size])
        place += size


def _encode(number: int, value: int | bytes | str) -> bytes:
    """Return a field of a message."""
    if isinstance(value, int):
        return encode_varint(number << 3 | _VARINT) + encode_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(content)) + content


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _scalar(kind: str, field: ProtoField) -> Any:
    """Return the value of a field by how it is written."""
    if kind.startswith("<"):
        return struct.unpack(kind, field.value)[0]
    if kind in ("text", "bytes"):
        return _text(field) if kind == "text" else _content(field)
    return _whole(kind, _number(field))


def _whole(kind: str, value: int) -> int | bool:
    if kind == "bool":
        return bool(value)
    if kind == "zigzag":
        return value >> 1 ^ -(value & 1)
    return _signed(value) if kind == "int" else value


def _list(kind: str, content: bytes) -> list[Any]:
    """Return the values of a list, whether they are packed or not."""
    found: list[Any] = []
    for field in decode_fields(content):
        if field.wire != _BYTES or kind in ("text", "bytes"):
            found.append(_scalar(kind, field))
        elif kind.startswith("<"):
            found += [one for (one,) in struct.iter_unpack(kind, field.value)]
        else:
            place = 0
            while place < len(field.value):
                value, place = decode_varint(field.value, place)
                found.append(_whole(kind, value))
    return found


# Reading.


def is_chakra(path: Path, head: bytes) -> bool:
    """Return whether a file begins with the metadata of a Chakra trace."""
    try:
        size, place = decode_varint(head, 0)
        first = next(decode_fields(head[place : place + size]), None)
    except IndexError:
        return False
    if first is None:
        return path.suffix == ".et" and size == 0
    return first.number == 1 and first.wire == _BYTES and bool(_VERSION.match(first.value))


def read_chakra(path: Path, content: Any) -> ProgramTrace:
    """Read a Chakra trace. Nodes that cannot be read become problems."""
    problems: list[ImportProblem] = []
    messages = _messages(path, content)
    _, metadata = next(messages, (0, b""))
    version = next((_text(field) for field in decode_fields(metadata) if field.number == 1), "")
    trace = ProgramTrace(str(path), f"Chakra {version}".strip(), [], problems=problems)

    def nodes() -> Iterator[tuple[int, EtNode]]:
        for number, message in messages:
            try:
                yield number, _node(message)
            except (IndexError, TypeError, ValueError, struct.error) as error:
                problems.append(ImportProblem(f"{path}: node {number}", f"cannot be read: {error}"))

    read_nodes(trace, nodes(), f"{path}: node ")
    if not trace.nodes:
        raise InvalidFile(f"{path}: has no nodes that can be read", "expected a trace of Chakra")
    for node in trace.nodes:
        _describe_communication(node)
    return trace


def _messages(path: Path, content: Any) -> Iterator[tuple[int, bytes]]:
    place, number = 0, 0
    while place < len(content):
        try:
            size, start = decode_varint(content, place)
        except IndexError:
            size, start = len(content), place
        if start + size > len(content):
            raise InvalidFile(
                f"{path}: ends in the middle of message {number} (byte {place:,} of {len(content):,}), after "
                f"{max(0, number - 1):,} complete nodes",
                _AGAIN,
            )
        yield number, bytes(content[start : start + size])
        place, number = start + size, number + 1


def _node(message: bytes) -> EtNode:
    number, name, kind, start, duration = 0, "", 0, 0, 0
    parents: list[int] = []
    sides = {8: EtValues(), 9: EtValues()}
    attributes: dict[str, Any] = {}
    for field in decode_fields(message):
        if field.number == 1:
            number = _number(field)
        elif field.number == 2:
            name = _text(field)
        elif field.number == 3:
            kind = _number(field)
        elif field.number == 4:
            parents += [_number(field)] if field.wire == _VARINT else _packed(_content(field))
        elif field.number == 6:
            start = _number(field)
        elif field.number == 7:
            duration = _number(field)
        elif field.number in sides:
            sides[field.number] = _io(_content(field))
        elif field.number == 10:
            key, value = _attribute(_content(field))
            attributes[key] = value
    attributes["chakra_type"] = kind
    on_device = attributes.pop("is_cpu_op", True) in (False, 0)
    return EtNode(
        number, name, parents or None, inputs=sides[8], outputs=sides[9],
        attrs=[EtAttribute(key, value) for key, value in attributes.items()],
        ts=float(start) if start else None, dur=float(duration) if duration else None,
        cat="kernel" if on_device and parents else "", stream=attributes.get("stream"),
    )  # fmt: skip


def _number(field: ProtoField) -> int:
    if field.wire != _VARINT:
        raise ValueError(f"field {field.number} should be a number")
    return int(field.value)


def _content(field: ProtoField) -> bytes:
    if field.wire != _BYTES:
        raise ValueError(f"field {field.number} should be a text or a message")
    return bytes(field.value)


def _text(field: ProtoField) -> str:
    return _content(field).decode(errors="replace")


def _packed(content: bytes) -> list[int]:
    found, place = [], 0
    while place < len(content):
        value, place = decode_varint(content, place)
        found.append(value)
    return found


def _io(message: bytes) -> EtValues:
    texts = {field.number: _text(field) for field in decode_fields(message)}
    return EtValues(*(_parse_list(texts.get(number, "")) for number in (1, 2, 3)))


def _parse_list(text: str) -> list[Any]:
    """Return a list that is written as JSON, or as Python prints it."""
    if not text:
        return []
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"expected a list, got {text[:60]!r}") from error
    return _lists(found) if isinstance(found, list | tuple) else [found]


def _lists(value: Any) -> Any:
    return [_lists(one) for one in value] if isinstance(value, list | tuple) else value


def _attribute(message: bytes) -> tuple[str, Any]:
    name, value = "", None
    for field in decode_fields(message):
        if field.number == 1:
            name = _text(field)
        elif field.number in _SCALARS:
            value = _scalar(_SCALARS[field.number], field)
        elif field.number - 1 in _SCALARS and field.number > 2:
            value = _list(_SCALARS[field.number - 1], field.value)
    return name, value


def _describe_communication(node: TraceNode) -> None:
    """Make a collective of a node that only says what kind it is and how many bytes it moves, as simulators want it."""
    kind, size = node.attributes.pop("chakra_type", 0), node.attributes.get("comm_size")
    size = size if type(size) is int else None
    if node.collective is not None or node.kind != "label" or kind not in (_SEND, _RECEIVE, _COLLECTIVE):
        return
    number = node.attributes.get("comm_type", 0)
    name = {_SEND: "send", _RECEIVE: "recv"}.get(kind, "")
    if not name:
        name = _COLLECTIVES[number] if type(number) is int and 0 <= number < len(_COLLECTIVES) else ""
    if name:
        peer = node.attributes.get("comm_dst" if kind == _SEND else "comm_src")
        group = str(node.attributes.get("pg_name", ""))
        node.kind = "collective"
        node.collective = TraceCollective(
            name, group, dtype=_BYTE, in_elements=size, out_elements=size, peer=peer if type(peer) is int else None
        )


# Writing.


def write_chakra(trace: ProgramTrace) -> bytes:
    """Return a trace as a file of Chakra: one node for each of the trace, data dependencies between its calls."""
    attributes = [_text_attribute("schema", trace.format)]
    if trace.rank is not None:
        attributes.append(_number_attribute("rank", trace.rank))
    found = [_framed(_encode(1, VERSION) + b"".join(_encode(2, one) for one in attributes))]
    producers: dict[int, int] = {}
    calls = {node.id for node in trace.calls}
    start = min((node.start for node in trace.nodes if node.start is not None), default=0.0)
    for node in trace.nodes:
        needed = sorted({producers[ref.storage] for ref in tensors_of(node.inputs) if ref.storage in producers})
        found.append(_framed(_node_message(node, needed if node.id in calls else [], start)))
        if node.id in calls:
            producers |= {ref.storage: node.id for ref in tensors_of(node.outputs) if ref.storage}
    return b"".join(found)


def _framed(message: bytes) -> bytes:
    return encode_varint(len(message)) + message


def _node_message(node: TraceNode, needed: Sequence[int], start: float) -> bytes:
    parts = [_encode(1, node.id), _encode(2, node.name), _encode(3, _type_of(node))]
    for number, ids in ((4, [node.parent] if node.parent is not None else []), (5, needed)):
        if ids:
            parts.append(_encode(number, b"".join(encode_varint(one) for one in ids)))
    for number, seconds in ((6, None if node.start is None else node.start - start), (7, node.duration)):
        if seconds is not None:
            parts.append(_encode(number, max(0, round(seconds * 1e6))))
    for number, values in ((8, node.inputs), (9, node.outputs)):
        written = written_values(values)
        texts = (json.dumps(written[key]) for key in ("values", "shapes", "types"))
        parts.append(_encode(number, b"".join(_encode(i, text) for i, text in enumerate(texts, 1))))
    parts.append(_encode(10, _encode(1, "is_cpu_op") + _encode(27, 1)))
    given: dict[str, Any] = {**node.attributes, "tid": node.thread, "op_schema": node.schema}
    if node.collective is not None:
        given |= _communication(node.collective)
    for name, value in given.items():
        if isinstance(value, bool):
            parts.append(_encode(10, _encode(1, name) + _encode(27, int(value))))
        elif isinstance(value, int):
            parts.append(_encode(10, _number_attribute(name, value)))
        elif value not in ("", None):
            parts.append(_encode(10, _text_attribute(name, value if isinstance(value, str) else json.dumps(value))))
    return b"".join(parts)


def _type_of(node: TraceNode) -> int:
    if node.collective is not None:
        return {"send": _SEND, "recv": _RECEIVE}.get(node.collective.name, _COLLECTIVE)
    return _METADATA if node.kind == "label" else _COMPUTE


def _communication(collective: TraceCollective) -> dict[str, Any]:
    elements = collective.in_elements if collective.in_elements is not None else collective.out_elements
    size = DTYPES[collective.dtype].size if collective.dtype in DTYPES else 1
    found: dict[str, Any] = {"comm_size": (elements or 0) * size, "pg_name": collective.group}
    if collective.name in _COLLECTIVES:
        found["comm_type"] = _COLLECTIVES.index(collective.name)
    if collective.name in ("send", "recv") and collective.peer is not None:
        found["comm_dst" if collective.name == "send" else "comm_src"] = collective.peer
    return found


def _text_attribute(name: str, value: str) -> bytes:
    return _encode(1, name) + _encode(29, value)


def _number_attribute(name: str, value: int) -> bytes:
    return _encode(1, name) + _encode(9, value)
