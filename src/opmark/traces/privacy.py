"""Cleans the files that torch writes during a capture: what is kept says what was computed, and not on which data, by
whom, or on which host.

Both files stay what torch calls them, so that other programs read them. Two defects of torch are mended on the way:
labels with quotation marks are escaped, and floating-point arguments, which the execution trace has with six decimals
only, are replaced by those of the profiler's file. No framework is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from opmark.errors import UserError

FEW = 8
"""Number of elements below which the smallest and the largest value of an integer tensor say too much about it."""
_ROUNDED = 1e-6
"""Distance within which a number with six decimals stands for another one."""
_NAMESPACES = (
    "aten", "prims", "c10d", "_c10d_functional", "c10d_functional", "quantized", "mkldnn", "onednn", "mkl", "inductor",
    "torchvision", "torchaudio", "fbgemm", "profiler",
)  # fmt: skip
"""Operators whose texts are modes and equations. Texts of other operators may be anything, file names for example."""
_GROUPS = ("## process_group:init ##", "record_param_comms")
"""Nodes whose texts describe process groups."""
_KEPT = (
    "schemaVersion", "deviceProperties", "distributedInfo", "record_shapes", "displayTimeUnit", "baseTimeNanoseconds",
    "cupti_version", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "hip_driver_version",
)  # fmt: skip
"""Fields of the profiler's file beside its events. All others go: `host_name`, `traceName`, what programs add."""
_STACKS = ("Call stack", "Module Hierarchy", "Python id", "Python parent id", "Python module id")
_BLANK = {"Int": 0, "Double": 0.0, "Bool": False, "String": ""}
_PATH = re.compile(r"(?:/|~/|[A-Za-z]:\\).*[/\\]([^/\\]+)")
_ET_NAME = re.compile(r'("id": \d+, "name": ")(.*?)(", "ctrl_deps": )', re.DOTALL)
_KINETO_NAME = re.compile(r'^(\s*"name": ")(.*)(",)$', re.MULTILINE)

ExactInputs = dict[int, tuple[str, list[Any]]]
"""By record function id: the name of the call, and its arguments as the profiler writes them, scalars as text."""


class RawExecutionTrace(msgspec.Struct):
    nodes: list[msgspec.Raw]
    schema: str = ""
    pid: int = 0
    time: str = ""
    start_ts: int = 0
    finish_ts: int = 0


HiddenInputs = dict[int, list[int]]
"""By record function id: the places of arguments that are dropped."""


def clean_files(source: Path, target: tuple[Path, Path], *, values: bool = False) -> int:
    """Write the execution trace and the profiler's file of a folder, trace.json and trace.kineto.json, without values
    of tensors and without what they say about the host. Return the number of operators in them. `values`: keep values.
    """
    profile = _decode(source / "trace.kineto.json", dict[str, msgspec.Raw], _KINETO_NAME)
    events = msgspec.json.decode(profile.pop("traceEvents"), type=list[msgspec.Raw])
    trace = _decode(source / "trace.json", RawExecutionTrace, _ET_NAME)
    operators, hidden = _write_trace(trace, target[0], _exact_inputs(events), values=values)
    _write_profile(profile, events, target[1], hidden)
    return operators


def _exact_inputs(events: list[msgspec.Raw]) -> ExactInputs:
    found: ExactInputs = {}
    for raw in events:
        event = msgspec.json.decode(raw)
        args = event.get("args", {})
        if "Concrete Inputs" in args and "Record function id" in args:
            found[args["Record function id"]] = event["name"], args["Concrete Inputs"]
    return found


def _write_profile(head: dict[str, msgspec.Raw], events: list[msgspec.Raw], target: Path, hidden: HiddenInputs) -> None:
    with target.open("wb") as file:
        file.write(b"{\n")
        for key in _KEPT:
            if key in head:
                file.write(msgspec.json.encode(key) + b": " + bytes(head[key]) + b",\n")
        file.write(b'"traceEvents": [')
        for number, raw in enumerate(events):
            event = msgspec.json.decode(raw)
            _clean_event(event, hidden)
            file.write((b",\n" if number else b"\n") + msgspec.json.encode(event))
        file.write(b"\n]}\n")


def _write_trace(
    whole: RawExecutionTrace, target: Path, exact: ExactInputs, *, values: bool
) -> tuple[int, HiddenInputs]:
    """Write the execution trace; return the number of operators, and the arguments that were dropped."""
    operators = {node.id: node.inputs["values"] for raw in whole.nodes if (node := _head(raw)).is_operator}
    hidden: HiddenInputs = {}
    with target.open("wb") as file:
        head = {"schema": whole.schema, "pid": whole.pid, "time": whole.time, "start_ts": whole.start_ts}
        file.write(msgspec.json.encode(head)[:-1] + b',"finish_ts":%d,"nodes":[' % whole.finish_ts)
        for number, raw in enumerate(whole.nodes):
            node = msgspec.json.decode(raw)
            attributes = {one["name"]: one for one in node.get("attrs", ())}
            outer = operators.get(node.get("ctrl_deps"))
            if not values and (places := _drop_values(node, attributes, outer)):
                hidden[attributes["rf_id"]["value"]] = places
            else:
                _mend_numbers(node, attributes, exact)
            if "kernel_file" in attributes:
                attributes["kernel_file"]["value"] = _file_name(attributes["kernel_file"]["value"])
            file.write((b",\n" if number else b"\n") + msgspec.json.encode(node))
        file.write(b"\n]}\n")
    return len(operators), hidden


class NodeHead(msgspec.Struct):
    """What tells whether a node of the file is an operator, and with which arguments."""

    id: int
    inputs: dict[str, list[Any]]
    attrs: list[dict[str, Any]] = []

    @property
    def is_operator(self) -> bool:
        return any(one["name"] == "op_schema" and one["value"] for one in self.attrs)


def _head(raw: msgspec.Raw) -> NodeHead:
    return msgspec.json.decode(raw, type=NodeHead)


def _decode(source: Path, kind: Any, name: re.Pattern[str]) -> Any:
    content = source.read_bytes()
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:  # torch writes names as they are
        text = name.sub(
            lambda found: found[1] + json.dumps(found[2])[1:-1] + found[3], content.decode(errors="replace")
        )
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise UserError(
            f"torch has written a trace that cannot be read: {error}",
            "a second profiler or execution trace observer in the same program, or a label of record_function with odd "
            "characters, may be the reason",
        ) from None


def _clean_event(event: dict[str, Any], hidden: HiddenInputs) -> None:
    found = event.get("args")
    if not isinstance(found, dict):
        return
    if event.get("ph") == "M":  # names of processes and threads are free text
        if event["name"] == "process_name" and not isinstance(event.get("pid"), str):
            found["name"] = "python"
        elif event["name"] == "thread_name":
            found["name"] = re.sub(r"^(thread \d+) \(.*\)$", r"\1", str(found.get("name", "")))
        return
    for place in hidden.get(found.get("Record function id", 0), ()):
        if place < len(found.get("Concrete Inputs", ())):
            found["Concrete Inputs"][place] = ""
    for key in _STACKS:
        found.pop(key, None)
    for key, value in found.items():
        if isinstance(value, str):
            found[key] = _file_name(value)


def _file_name(text: str) -> str:
    """Return a text, without the folders if it is a path."""
    found = _PATH.fullmatch(text)
    return found[1] if found else text


def _mend_numbers(node: dict[str, Any], attributes: dict[str, Any], exact: ExactInputs) -> None:
    name, texts = exact.get(attributes.get("rf_id", {}).get("value", 0), ("", []))
    if name != node["name"]:
        return
    inputs = node["inputs"]
    for i, (value, kind, text) in enumerate(zip(inputs["values"], inputs["types"], texts, strict=False)):
        if not isinstance(text, str) or not text:
            continue
        if kind == "Double" and isinstance(value, float):
            inputs["values"][i] = _nearer(value, text)
        elif kind.startswith("GenericList[Double") and isinstance(value, list):
            parts = text.strip("[]").split(", ")
            if len(parts) == len(value):
                inputs["values"][i] = [_nearer(*pair) for pair in zip(value, parts, strict=True)]


def _nearer(rounded: Any, text: str) -> Any:
    """Return the number that a text says, if `rounded` can stand for it."""
    try:
        number = float(text)
    except ValueError:
        return rounded
    return number if isinstance(rounded, float) and abs(number - rounded) <= _ROUNDED else rounded


def _drop_values(node: dict[str, Any], attributes: dict[str, Any], outer: list[Any] | None) -> list[int]:
    """Drop what was read from tensors, and return the places of the arguments among that. `outer`: the arguments of the
    operator that made the call, if one did."""
    outputs, inputs = node["outputs"], node["inputs"]
    outputs["values"] = [
        _BLANK.get(kind, value) for value, kind in zip(outputs["values"], outputs["types"], strict=True)
    ]
    schema = attributes.get("op_schema", {}).get("value", "")
    space = schema.partition("::")[0] if schema else ""
    if node["name"] not in _GROUPS and space not in _NAMESPACES:
        inputs["values"] = [_without_text(*pair) for pair in zip(inputs["values"], inputs["types"], strict=False)]
    hidden = []
    if outer is not None:  # as in aten::max, which calls aten::fill_ with the maximum
        for i, kind in enumerate(_argument_types(schema)[: len(inputs["values"])]):
            value, given = inputs["values"][i], inputs["types"][i]
            number = kind in ("Scalar", "Scalar?") and given in ("Int", "Double")
            if number and value not in (0, 1) and value not in outer:
                inputs["values"][i] = type(value)(1)  # a replay may divide by it
                hidden.append(i)
    ranges = attributes.get("tensor_range")
    if ranges and ranges["value"]:
        sizes = [tensor[3] for tensor in _tensors(inputs["values"])]
        found = {
            key: one
            for key, one in json.loads(ranges["value"]).items()
            if int(key) < len(sizes) and sizes[int(key)] >= FEW
        }
        ranges["value"] = json.dumps(found, separators=(",", ":")) if found else ""
    return hidden


def _argument_types(schema: str) -> list[str]:
    """Return the types of a schema's arguments: `Tensor(a!)`, `Scalar`, `SymInt[]`."""
    inside = schema.partition("(")[2].rpartition(" -> ")[0].rstrip(")")
    return [part.split(" ")[0] for part in re.split(r", (?![^\[]*\])", inside) if part != "*"]


def _without_text(value: Any, kind: str) -> Any:
    """Return an argument without texts. What torch has no words for stays: `<None>`, `<Generator>`."""
    if isinstance(value, list):
        if _is_tensor(value):
            return value
        return [_without_text(one, "String" if "String" in kind else "") for one in value]
    return "" if isinstance(value, str) and "String" in kind else value


def _tensors(values: list[Any]) -> Iterator[list[Any]]:
    """Yield the tensors among arguments, also those in lists, in the order in which torch counts them."""
    for value in values:
        if isinstance(value, list):
            if _is_tensor(value):
                yield value
            else:
                yield from _tensors(value)


def _is_tensor(value: list[Any]) -> bool:
    """Return whether a list is torch's form of a tensor: ids of tensor and storage, offset, elements, bytes, device."""
    return len(value) == 6 and isinstance(value[5], str) and all(isinstance(one, int) for one in value[:5])
