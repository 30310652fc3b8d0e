"""Reads workload files of ByteMicroPerf: which generation they are of, then object by object."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opmark.importers.bytemicroperf import shapes
from opmark.importers.bytemicroperf.basic import OTHER_NAMES
from opmark.importers.bytemicroperf.points import Taken
from opmark.importers.bytemicroperf.spread import Axis, Spread, not_too_many, spread, step
from opmark.importers.bytemicroperf.tasks import BETWEEN_DEVICES, FORMS, NAMES, task_of
from opmark.importers.bytemicroperf.values import Refused, shown
from opmark.schema import Imported

_CSV_NAME = "task_name"
_EMPTY = "to_be_implemented"
"""What stands in a file for an operator that they have not written yet."""
_TELLING = frozenset(name for forms in FORMS.values() for form in forms for name in form.names) - {
    "arg_type", "dtype", "shape", "k", "mode", "batch", "dim", "rank",
}  # fmt: skip
"""Arguments by which their files are known; not those that anybody may have."""


class _ByteMicroPerf:
    name = "bytemicroperf"
    summary = "workloads of ByteMicroPerf (ByteMLPerf) and xpu-perf: JSON of all three generations, and CSV"

    def recognises(self, path: Path, data: Any) -> bool:
        if isinstance(data, list):
            return bool(data) and all(isinstance(row, dict) and _CSV_NAME in _stripped(row) for row in data)
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            return False
        if isinstance(data.get("operator"), str):
            return any(key in data for key in (*shapes.PLACES, "gemm_group"))
        if "cases" in data:
            return _is_theirs(task_of(path.stem), data["cases"]) and "op" not in _keys(data["cases"])
        return list(data) == [_EMPTY] or any(_is_theirs(task, objects) for task, objects in data.items())

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        taken = Taken(path)
        if isinstance(data, list):
            _read_rows(taken, data)
        elif isinstance(data.get("operator"), str):
            _read_shapes(taken, data)
        elif "cases" in data:
            _read_cases(taken, data)
        elif list(data) == [_EMPTY]:
            taken.problem("$", "holds no cases: they have not written this operator", "give it `cases`")
        else:
            for task, objects in data.items():
                _read_task(taken, task, objects, f"${step(task)}", task)
        return taken.imported()


def _is_theirs(task: str, objects: Any) -> bool:
    keys = _keys(objects)
    return "arg_type" in keys or (task in NAMES and bool(_TELLING & keys))


def _keys(objects: Any) -> set[str]:
    """All names of arguments in a list of objects."""
    found = objects if isinstance(objects, list) else []
    keys = (key for item in found if isinstance(item, dict) for key in item if isinstance(key, str))
    return {name for key in keys for name in (*key.split("."), key)}


def _read_cases(taken: Taken, data: Mapping[str, Any]) -> None:
    for key in data:
        if key != "cases" and not key.startswith("__"):
            taken.note(f"`{key}` is no part of a workload")
    _read_task(taken, task_of(taken.path.stem), data["cases"], "$.cases", "$.cases")


def _read_task(taken: Taken, task: str, objects: Any, place: str, name: str) -> None:
    if task.startswith("__"):
        return
    if not task.isprintable():
        taken.problem(place, "is no name of an operator")
        return
    if not isinstance(objects, list):
        taken.problem(place, f"expected a list of objects, got {shown(objects)}")
        return
    taken.take(task, place, _spreads(taken, task, objects, place, name))


def _spreads(taken: Taken, task: str, objects: list[Any], place: str, name: str) -> Iterator[Spread]:
    """One at a time: what was read of a large file is not kept."""
    for index, written in enumerate(objects):
        try:
            _usable(written)
            found = spread(task, f"{place}[{index}]", f"{name}[{index}]", written)
        except Refused as refused:
            taken.problem(f"{place}[{index}]", refused.message, refused.hint)
        else:
            yield found


def _usable(written: Any) -> None:
    """Refuses what is no object, and texts that no file can hold: half of a character."""
    if not isinstance(written, dict) or not all(isinstance(key, str) for key in written):
        raise Refused(f"expected an object with arguments by name, got {shown(written)}")
    if not written:
        raise Refused("holds no arguments")
    try:
        msgspec.json.encode(written)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(f"cannot be read: {type(error).__name__}") from None


def _read_shapes(taken: Taken, data: Mapping[str, Any]) -> None:
    """A file of the first generation: one operator."""
    try:
        _usable(data)
    except Refused as refused:
        taken.problem("$", refused.message, refused.hint)
        return
    task = data["operator"]
    _read_iterations(taken, data)
    around = _around(taken, task, data)
    found = []
    for place, axis in shapes.axes_of(task, data):
        try:
            if isinstance(axis, Refused):
                raise axis
            found.append(Spread(task, place, place, (*around, axis)))
            not_too_many(len(found[-1]))
        except Refused as refused:
            taken.problem(place, refused.message, refused.hint)
    taken.take(task, "$", found)


def _read_iterations(taken: Taken, data: Mapping[str, Any]) -> None:
    count = data.get("iterations")
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        taken.asked["samples"] = count
    elif count is not None:
        taken.problem("$.iterations", f"expected a whole number of at least 1, got {shown(count)}")


def _around(taken: Taken, task: str, data: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes that stand beside the shapes: element types outside, and how many processes take part."""
    known = {"operator", "iterations", "dtype", "group", "batch_size", "gemm_group", "batch", *shapes.PLACES}
    for key in data:
        if key not in known and not key.startswith("__"):
            taken.note(f"`{key}` is not known and ignored")
    axes = [_beside("dtype", data.get("dtype", "float32"))]
    if "group" in data and OTHER_NAMES.get(task, task) in BETWEEN_DEVICES:
        axes.append(_beside("group", data["group"]))
    elif "group" in data:
        taken.note(f"`group` is ignored: `{task}` runs on one device")
    return tuple(axes)


def _beside(key: str, value: Any) -> Axis:
    place = f"$.{key}"
    if isinstance(value, list):
        return Axis(key, [{key: item} for item in value], range(len(value)), place)
    return Axis(key, [{key: value}], place=place)


def _stripped(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).strip(): value for key, value in row.items()}


def _read_rows(taken: Taken, rows: list[dict[str, Any]]) -> None:
    """CSV: the operator in a column of its own, an argument in each of the others; an empty cell is none."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        cells = {key: _value(text) for key, text in _stripped(row).items()}
        task = str(cells.pop(_CSV_NAME))
        found.setdefault(task, []).append({key: value for key, value in cells.items() if value != ""})
    for task, objects in found.items():
        _read_task(taken, task, objects, f"${step(task)}", task)


_NUMBER = re.compile(r"[-+]?\d{1,18}", re.ASCII)


def _value(text: Any) -> Any:
    """A text as a person means it: a number, true or false, a list, else itself."""
    if not isinstance(text, str):
        return text
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return ast.literal_eval(text) if text.startswith("[") else float(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


BYTEMICROPERF = _ByteMicroPerf()
