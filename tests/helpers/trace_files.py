"""Small execution traces and Chrome traces, as torch writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opmark.traces.reading import read_trace
from opmark.traces.trace import ProgramTrace

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
A, B, C = [3, 4, 0, 8, 4, "cpu"], [5, 6, 0, 8, 4, "cpu"], [7, 8, 0, 4, 4, "cpu"]


def io(*values: tuple[Any, Any, str, Any]) -> dict[str, Any]:
    """Inputs or outputs of a node: value, shape, type and strides of each."""
    return {key: [one[i] for one in values] for i, key in enumerate(("values", "shapes", "types", "strides"))}


def node(number: int, name: str, parent: int, *, inputs: Any = None, outputs: Any = None, **attributes: Any) -> Any:
    given = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": ""}
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": inputs or io(), "outputs": outputs or io(),
        "attrs": [{"name": key, "type": "string", "value": one} for key, one in (given | attributes).items()],
    }  # fmt: skip


ROOT = node(1, "[pytorch|profiler|execution_trace|process]", 1)
THREAD = node(2, "[pytorch|profiler|execution_trace|thread]", 1)
PRODUCT = node(
    10, "aten::mm", 2, op_schema=MM,
    inputs=io((A, [2, 4], "Tensor(float)", [4, 1]), (B, [4, 2], "Tensor(float)", [1, 4])),
    outputs=io((C, [2, 2], "Tensor(float)", [2, 1])),
)  # fmt: skip


def trace_of(folder: Path, *nodes: Any, version: str = "1.1.1-chakra.0.0.4", name: str = "step.json") -> ProgramTrace:
    return read_trace(written(folder, *nodes, version=version, name=name))


def written(folder: Path, *nodes: Any, version: str = "1.1.1-chakra.0.0.4", name: str = "step.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"schema": version, "pid": 1, "nodes": [*nodes, THREAD, ROOT], "finish_ts": 2}))
    return path


# Events of the profiler.


def event(name: str, start: float, duration: float, cat: str = "cpu_op", tid: Any = 7, **args: Any) -> dict[str, Any]:
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": 3, "tid": tid, "ts": start, "dur": duration, "args": named}


def call(name: str, start: float, duration: float, *inputs: tuple[str, Any, Any, str], **args: Any) -> dict[str, Any]:
    """A call with inputs of type, sizes, strides and value."""
    keys = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")
    shown = event(name, start, duration, **args)
    shown["args"] |= {key: [one[i] for one in inputs] for i, key in enumerate(keys)}
    return shown


MATRIX = ("float", [2, 4], [4, 1], "")
FLIPPED = ("float", [4, 2], [1, 4], "")
