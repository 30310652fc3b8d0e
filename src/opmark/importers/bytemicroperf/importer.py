"""Reads workload files of ByteMicroPerf: which generation they are of, then object by object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from opmark.importers.bytemicroperf import shapes, tables
from opmark.importers.bytemicroperf.basic import OTHER_NAMES
from opmark.importers.bytemicroperf.points import Taken
from opmark.importers.bytemicroperf.spread import Axis, Spread, not_too_many, spread, step
from opmark.importers.bytemicroperf.tasks import BETWEEN_DEVICES, FORMS, NAMES, task_of
from opmark.importers.bytemicroperf.values import Refused, shown, slip
from opmark.schema import Imported

_EMPTY = "to_be_implemented"
"""What stands in a file for an operator that they have not written yet."""
_TELLING = frozenset(name for forms in FORMS.values() for form in forms for name in form.names) - {
    "arg_type", "dtype", "shape", "k", "mode", "batch", "dim", "rank", "group",
}  # fmt: skip
"""Arguments by which their files are known; not those that anybody may have."""


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
            return _is_theirs(task_of(path.stem), data["cases"]) and "op" not in _keys(data["cases"])
        return list(data) == [_EMPTY] or any(_is_theirs(task, objects) for task, objects in data.items())

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        taken = Taken(path)
        if isinstance(data, list):
            for task, objects in tables.by_task(taken, data).items():
                _read_task(taken, task, objects, f"${step(task)}", task)
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
    if any(_left_over(entry.params) for entry in taken.entries):
        taken.note("where ep_size does not divide num_tokens a rank has its share of the rest here, as in the third "
                   "generation; in the second it has (num_tokens // ep_size) * topk in all")  # fmt: skip


def _left_over(params: Mapping[str, Any]) -> bool:
    """Of tokens that go to experts on several ranks."""
    return "routing" in params and params["num_tokens"] % params.get("ep_size", 1) > 0


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
        _no_slips(data)
    except Refused as refused:
        place = f"${step(refused.argument)}" if refused.argument else "$"
        taken.problem(place, refused.message, refused.hint)
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


_KEYS = frozenset(("operator", "iterations", "dtype", "group", "batch_size", "gemm_group", "batch", *shapes.PLACES))
"""What stands beside the shapes, and these."""


def _no_slips(data: Mapping[str, Any]) -> None:
    for key in data:
        near = slip(key, _KEYS.difference(data))
        if near and key not in _KEYS and not key.startswith("__"):
            raise Refused(f"a file has no `{key}`", key, f"did you mean `{near}`?")


def _read_iterations(taken: Taken, data: Mapping[str, Any]) -> None:
    count = data.get("iterations")
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        taken.asked["samples"] = count
    elif count is not None:
        taken.problem("$.iterations", f"expected a whole number of at least 1, got {shown(count)}")


def _around(taken: Taken, task: str, data: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes that stand beside the shapes: element types outside, and how many processes take part."""
    for key in data:
        if key not in _KEYS and not key.startswith("__"):
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


BYTEMICROPERF = _ByteMicroPerf()
