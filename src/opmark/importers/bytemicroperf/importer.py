"""Reads workload files of ByteMicroPerf: recognises the generation, then reads object by object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opmark.importers.bytemicroperf import shapes, tables
from opmark.importers.bytemicroperf.basic import OTHER_NAMES
from opmark.importers.bytemicroperf.points import Taken
from opmark.importers.bytemicroperf.spread import Axis, Spread, check_point_count, path_step, read_object
from opmark.importers.bytemicroperf.tasks import BETWEEN_DEVICES, FORMS, NAMES, task_from_name
from opmark.importers.bytemicroperf.values import Refused, quote, similar_name
from opmark.schema import Imported

_EMPTY = "to_be_implemented"
"""The only key of a file whose operator ByteMicroPerf has not written yet."""
_TYPICAL = frozenset(name for forms in FORMS.values() for form in forms for name in form.names) - {
    "arg_type", "dtype", "shape", "k", "mode", "batch", "dim", "rank", "group",
}  # fmt: skip
"""Arguments that identify files of ByteMicroPerf, without names that files of other systems use as well."""


class _ByteMicroPerf:
    name = "bytemicroperf"
    summary = "workloads of ByteMicroPerf (ByteMLPerf) and xpu-perf: JSON of all three generations, and CSV"

    def recognises(self, path: Path, data: Any) -> bool:
        if isinstance(data, list):
            return tables.recognises(path, data)
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            return False
        if isinstance(data.get("operator"), str):
            return any(key in data for key in (*shapes.PLACES, "gemm_group"))
        if "cases" in data:
            return _is_theirs(task_from_name(path.stem), data["cases"]) and "op" not in _keys(data["cases"])
        return list(data) == [_EMPTY] or any(_is_theirs(task, objects) for task, objects in data.items())

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        taken = Taken(path)
        if isinstance(data, list):
            for task, objects in tables.by_task(taken, data).items():
                _read_task(taken, task, objects, f"${path_step(task)}", task)
        elif isinstance(data.get("operator"), str):
            _read_shapes(taken, data)
        elif "cases" in data:
            _read_cases(taken, data)
        elif list(data) == [_EMPTY]:
            taken.problem("$", "the file has no cases: ByteMicroPerf has not written this operator yet", "add `cases`")
        else:
            for task, objects in data.items():
                _read_task(taken, task, objects, f"${path_step(task)}", task)
        return taken.result()


def _is_theirs(task: str, objects: Any) -> bool:
    keys = _keys(objects)
    return "arg_type" in keys or (task in NAMES and bool(_TYPICAL & keys))


def _keys(objects: Any) -> set[str]:
    """Return all names of arguments in a list of objects, with the parts of dotted names."""
    found = objects if isinstance(objects, list) else []
    keys = (key for item in found if isinstance(item, dict) for key in item if isinstance(key, str))
    return {name for key in keys for name in (*key.split("."), key)}


def _read_cases(taken: Taken, data: Mapping[str, Any]) -> None:
    for key in data:
        if key != "cases" and not key.startswith("__"):
            taken.note(f"`{key}` is not part of a workload and is ignored")
    _read_task(taken, task_from_name(taken.path.stem), data["cases"], "$.cases", "$.cases")
    if any(_has_remainder(entry.params) for entry in taken.entries):
        taken.note("where ep_size does not divide num_tokens, a rank has its share of the remainder, as in the third "
                   "generation; in the second it has (num_tokens // ep_size) * topk in all")  # fmt: skip


def _has_remainder(params: Mapping[str, Any]) -> bool:
    """Whether tokens are routed to experts on a number of ranks that does not divide them."""
    return "routing" in params and params["num_tokens"] % params.get("ep_size", 1) > 0


def _read_task(taken: Taken, task: str, objects: Any, place: str, name: str) -> None:
    if task.startswith("__"):
        return
    if not task.isprintable():
        taken.problem(place, "this is not the name of an operator")
        return
    if not isinstance(objects, list):
        taken.problem(place, f"expected a list of objects, got {quote(objects)}")
        return
    taken.take(task, place, _read_objects(taken, task, objects, place, name))


def _read_objects(taken: Taken, task: str, objects: list[Any], place: str, name: str) -> Iterator[Spread]:
    """Read one object at a time, so that a large file is never expanded as a whole."""
    for index, written in enumerate(objects):
        try:
            _check_object(written)
            found = read_object(task, f"{place}[{index}]", f"{name}[{index}]", written)
        except Refused as refused:
            taken.problem(f"{place}[{index}]", refused.message, refused.hint)
        else:
            yield found


def _check_object(written: Any) -> None:
    """Refuse anything but an object with names, and texts that cannot be encoded, as half a surrogate pair."""
    if not isinstance(written, dict) or not all(isinstance(key, str) for key in written):
        raise Refused(f"expected an object with arguments by name, got {quote(written)}")
    if not written:
        raise Refused("the object has no arguments")
    try:
        msgspec.json.encode(written)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(f"the object cannot be read: {type(error).__name__}") from None


def _read_shapes(taken: Taken, data: Mapping[str, Any]) -> None:
    """Read a file of the first generation, which holds one operator."""
    try:
        _check_object(data)
        _check_keys(data)
    except Refused as refused:
        place = f"${path_step(refused.argument)}" if refused.argument else "$"
        taken.problem(place, refused.message, refused.hint)
        return
    task = data["operator"]
    _read_iterations(taken, data)
    outer = _outer_axes(taken, task, data)
    found = []
    for place, axis in shapes.axes_of(task, data):
        try:
            if isinstance(axis, Refused):
                raise axis
            found.append(Spread(task, place, place, (*outer, axis)))
            check_point_count(len(found[-1]))
        except Refused as refused:
            taken.problem(place, refused.message, refused.hint)
    taken.take(task, "$", found)


_KEYS = frozenset(("operator", "iterations", "dtype", "group", "batch_size", "gemm_group", "batch", *shapes.PLACES))
"""All keys of a file of the first generation."""


def _check_keys(data: Mapping[str, Any]) -> None:
    """Refuse a key that is probably a mistyped one."""
    for key in data:
        near = similar_name(key, _KEYS.difference(data))
        if near and key not in _KEYS and not key.startswith("__"):
            raise Refused(f"the key `{key}` is not known", key, f"did you mean `{near}`?")


def _read_iterations(taken: Taken, data: Mapping[str, Any]) -> None:
    count = data.get("iterations")
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        taken.requests["samples"] = count
    elif count is not None:
        taken.problem("$.iterations", f"expected a whole number of at least 1, got {quote(count)}")


def _outer_axes(taken: Taken, task: str, data: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes beside the shapes: element types, and the number of processes."""
    for key in data:
        if key not in _KEYS and not key.startswith("__"):
            taken.note(f"`{key}` is not known and is ignored")
    axes = [_outer_axis("dtype", data.get("dtype", "float32"))]
    if "group" in data and OTHER_NAMES.get(task, task) in BETWEEN_DEVICES:
        axes.append(_outer_axis("group", data["group"]))
    elif "group" in data:
        taken.note(f"`group` is ignored: `{task}` runs on one device")
    return tuple(axes)


def _outer_axis(key: str, value: Any) -> Axis:
    place = f"$.{key}"
    if isinstance(value, list):
        return Axis(key, [{key: item} for item in value], range(len(value)), place)
    return Axis(key, [{key: value}], place=place)


BYTEMICROPERF = _ByteMicroPerf()
