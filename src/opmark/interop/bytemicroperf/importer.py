"""Reads workload files of ByteMicroPerf, as JSON or CSV: recognises the generation, then reads object by object."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from opmark.errors import nearest
from opmark.interop.bytemicroperf import axes
from opmark.interop.bytemicroperf.axes import (
    WorkloadAxis,
    WorkloadObject,
    check_point_count,
    path_step,
    read_axis,
    read_object,
    unknown_keys,
)
from opmark.interop.bytemicroperf.communication import expand_point
from opmark.interop.bytemicroperf.fields import Arguments, PointRefused, quote, similar_name
from opmark.interop.bytemicroperf.forms import OTHER_NAMES, Form
from opmark.interop.bytemicroperf.llm import IN_CASES, draw_lengths
from opmark.interop.bytemicroperf.operators import (
    ARGUMENTS,
    BETWEEN_DEVICES,
    FORMS,
    forms_of,
    is_task,
    own_operator,
    task_from_name,
    write_words,
)
from opmark.plugin.param import Param
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Imported, ImportProblem
from opmark.units import count_noun

ARG_TYPES = ("default", "llm", "batch_llm", "llm_batch")


@dataclass
class ImportState:
    """Entries, problems and notes collected while a file is read."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    problems: list[ImportProblem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    """Options of the measurement that the file sets."""
    seed: int = 0
    """Seed of the lengths that the second generation draws."""

    def result(self) -> Imported:
        return Imported(tuple(self.entries), (), tuple(self.problems), tuple(self.notes), self.requests)

    def problem(self, place: str, message: str, hint: str = "") -> None:
        self.problems.append(ImportProblem(f"{self.path}: {place}", message, hint))

    def note(self, text: str) -> None:
        self.notes[f"{self.path.name}: {text}"] = None

    def take(self, task: str, place: str, spreads: Iterable[WorkloadObject]) -> None:
        """Import all objects of one operator; an operator that opmark does not know is one problem."""
        before = len(self.problems), len(self.entries)
        try:
            forms = forms_of(task)
        except PointRefused as refused:
            points = sum(len(spread) for spread in self._report_flaws(spreads))
            self.problem(place, f"{refused.message} ({count_noun(points, 'point')})", refused.hint)
            return
        for spread in self._report_flaws(spreads):
            self._take_points(spread, forms)
        if before == (len(self.problems), len(self.entries)):
            self.problem(place, "the objects expand to no case", "an object needs arguments, each with a value")

    def _report_flaws(self, spreads: Iterable[WorkloadObject]) -> Iterator[WorkloadObject]:
        for spread in spreads:
            for flaw in spread.flaws:
                self.problem(flaw.place, flaw.message, flaw.hint)
            for axis in spread.axes if not spread.flaws else ():
                if not axis.rows:
                    self.problem(spread.place_of_axis(axis), "an empty list expands to no case")
            yield spread

    def _take_points(self, spread: WorkloadObject, forms: Sequence[Form]) -> None:
        refusals: dict[tuple[str, str], tuple[PointRefused, int]] = {}
        for point in spread.points():
            try:
                self._take_point(spread, forms, point)
            except PointRefused as refused:
                where = spread.place_of(refused.argument, point.get(refused.argument))
                count = refusals.get((where, refused.message), (refused, 0))[1]
                refusals[where, refused.message] = (refused, count + 1)
        for (where, message), (first, count) in refusals.items():
            self.problem(where, f"{message} ({count_noun(count, 'point')})", first.hint)

    def _take_point(self, spread: WorkloadObject, forms: Sequence[Form], written: Arguments) -> None:
        source = f"{self.path.name}#{spread.name}"
        points, note = expand_point(spread.task, written)
        if len(points) > 1:
            check_point_count(len(self.entries) + len(points))
        for point in points:
            given, drawn = draw_lengths(spread.task, point, self.seed)
            form = _choose_form(forms, {**given, IN_CASES: True} if spread.place.startswith("$.cases") else given)
            words = write_words(spread.task, point) if spread.own_words else ""
            tags = [form.tag] if form.tag else []
            own = _catalogue_parameters(form, given)
            entry = Entry(form.op, {**form.params(given), **own}, tags=tags, source=source, written_as=words)
            self._notes(form, {name: value for name, value in given.items() if name not in own})
            self.entries.append(entry)
            if drawn:
                self.note(drawn)
        if note:
            self.note(note)

    def _notes(self, form: Form, point: Arguments) -> None:
        """Note differences and ignored arguments; refuse an unknown argument that resembles a missing one.

        An operator that ByteMicroPerf lacks takes its own parameters only.
        """
        for note in form.notes(point):
            self.note(note)
        if point.keys() <= form.names:
            return
        for name in sorted(point.keys() - form.names):
            near = None if name in ARGUMENTS else similar_name(name, form.names.difference(point))
            own = None if name in ARGUMENTS else own_operator(form.task)
            if near or own:
                hint = f"did you mean `{near}`?" if near else f"`opmark describe {form.op}` lists its parameters"
                raise PointRefused(f"`{form.task}` has no argument `{name}`", hint=hint)
            self.note(f"`{form.task}` has no argument `{name}`; it is ignored, as in ByteMicroPerf")


def _catalogue_parameters(form: Form, point: Arguments) -> dict[str, Any]:
    """Return the arguments that ByteMicroPerf's operator lacks, and opmark's has as a parameter."""
    own = find_operator(form.op).by_name
    return {name: point[name] for name in point.keys() - form.names if name in own and name not in ARGUMENTS}


def _choose_form(forms: Sequence[Form], point: Arguments) -> Form:
    kind = point.get("arg_type", "default")
    if kind not in ARG_TYPES:
        near = nearest(str(kind), ARG_TYPES)
        raise PointRefused(
            f"argument `arg_type`: expected one of {', '.join(ARG_TYPES[:3])}, got {quote(kind)}",
            "arg_type",
            f"did you mean `{near}`?" if near else "",
        )
    return next((form for form in forms if form.when(point)), forms[-1])


# Workloads as CSV: one row per case, with a column for the operator and one for each argument.

_TASK = ("task_name", "op_name", "task", "operator", "op")
"""Names of the operator's column, in the order of precedence; a file without one is named after its operator."""
_BEFORE, _BEHIND = "provider", "latency(us)"
"""The arguments are between these two columns of a table of results."""
_PHASE = "phase"


def recognises(path: Path, rows: Sequence[Any]) -> bool:
    """Recognise a table by ByteMicroPerf's own column, or by its operators in another column or in the file name."""
    if not rows or not all(isinstance(row, dict) for row in rows):
        return False
    tables = [_strip_keys(row) for row in rows]
    column = _column(tables[0])
    if column == _TASK[0] or path.suffix != ".csv":
        return all(_TASK[0] in row for row in tables)
    if column is None:
        return is_task(task_from_name(path.stem))
    return any(is_task(str(row.get(column)).strip()) for row in tables)


def by_task(taken: ImportState, rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the arguments of each row by operator; empty cells are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, row in enumerate(rows):
        cells = {key: _parse_cell(text) for key, text in _strip_keys(row).items()}
        column = _column(cells)
        task = str(cells.pop(column)) if column else task_from_name(taken.path.stem)
        if {_BEFORE, _BEHIND} <= cells.keys():
            if cells.get(_PHASE, "forward") != "forward":
                taken.problem(f"$[{number}].{_PHASE}", f"expected forward, got `{cells[_PHASE]}`",
                              "ByteMicroPerf has no other phase; a workload of opmark has `phases`")  # fmt: skip
                continue
            names = list(cells)
            cells = {name: cells[name] for name in names[names.index(_BEFORE) + 1 : names.index(_BEHIND)]}
        found.setdefault(task, []).append({key: value for key, value in cells.items() if value != ""})
    return found


def _column(row: Mapping[str, Any]) -> str | None:
    return next((name for name in _TASK if name in row), None)


def _strip_keys(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).strip(): value for key, value in row.items()}


_NUMBER = re.compile(r"[-+]?\d{1,18}", re.ASCII)


def _parse_cell(text: Any) -> Any:
    """Parse a cell: a number, true or false, a list, or else the text itself."""
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
            return recognises(path, data)
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            return False
        if isinstance(data.get("operator"), str):
            return any(key in data for key in (*axes.PLACES, "gemm_group", "iterations"))
        if "cases" in data:
            return _is_theirs(task_from_name(path.stem), data["cases"]) and "op" not in _keys(data["cases"])
        return list(data) == [_EMPTY] or any(_is_theirs(task, objects) for task, objects in data.items())

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        taken = ImportState(path, seed=seed)
        if isinstance(data, list):
            for task, objects in by_task(taken, data).items():
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
    return bool(keys & {"arg_type", "args_type"}) or (is_task(task) and bool(_TYPICAL & keys))


def _keys(objects: Any) -> set[str]:
    """Return all names of arguments in a list of objects, with the parts of dotted names."""
    found = objects if isinstance(objects, list) else []
    keys = (key for item in found if isinstance(item, dict) for key in item if isinstance(key, str))
    return {name for key in keys for name in (*key.split("."), key)}


def _read_cases(taken: ImportState, data: Mapping[str, Any]) -> None:
    for key in data:
        if key != "cases" and not key.startswith("__"):
            taken.note(f"`{key}` is not part of a workload and is ignored")
    _read_task(taken, task_from_name(taken.path.stem), data["cases"], "$.cases", "$.cases")
    if any(_has_remainder(entry.params) for entry in taken.entries):
        taken.note("where ep_size does not divide num_tokens, a rank has its share of the remainder, as in the third "
                   "generation; in the second it has (num_tokens // ep_size) * topk in all")  # fmt: skip


def _has_remainder(params: Mapping[str, Any]) -> bool:
    """Whether this rank has a share of tokens that the ranks cannot divide equally; locally the last ones have it."""
    ranks = params.get("ep_size", 1)
    rest = params["num_tokens"] % ranks if "routing" in params else 0
    return rest > 0 and (params["routing"] != "local" or params.get("ep_rank", 0) >= ranks - rest)


def _read_task(taken: ImportState, task: str, objects: Any, place: str, name: str) -> None:
    if task.startswith("__"):
        return
    if not task.isprintable():
        taken.problem(place, "this is not the name of an operator")
        return
    if not isinstance(objects, list):
        taken.problem(place, f"expected a list of objects, got {quote(objects)}")
        return
    taken.take(task, place, _read_objects(taken, task, objects, place, name))


def _read_objects(taken: ImportState, task: str, objects: list[Any], place: str, name: str) -> Iterator[WorkloadObject]:
    """Read one object at a time, so that a large file is never expanded as a whole."""
    own = own_operator(task)
    lists = [param.name for param in own.params if param.is_shape] if own else ()
    for index, written in enumerate(objects):
        try:
            _check_object(written)
            found = read_object(task, f"{place}[{index}]", f"{name}[{index}]", written, lists)
        except PointRefused as refused:
            taken.problem(f"{place}[{index}]", refused.message, refused.hint)
        else:
            yield found


def _check_object(written: Any) -> None:
    """Refuse anything but an object with names, and texts that cannot be encoded, as half a surrogate pair."""
    if not isinstance(written, dict) or not all(isinstance(key, str) for key in written):
        raise PointRefused(f"expected an object with arguments by name, got {quote(written)}")
    if not written:
        raise PointRefused("the object has no arguments")
    try:
        msgspec.json.encode(written)
    except (ValueError, TypeError, RecursionError) as error:
        raise PointRefused(f"the object cannot be read: {type(error).__name__}") from None


def _read_shapes(taken: ImportState, data: Mapping[str, Any]) -> None:
    """Read a file of the first generation, which holds one operator."""
    task = data["operator"]
    own = own_operator(task)
    params = own.by_name if own else {}
    try:
        _check_object(data)
        _check_keys(data, _KEYS.union(params))
    except PointRefused as refused:
        place = f"${path_step(refused.argument)}" if refused.argument else "$"
        taken.problem(place, refused.message, refused.hint)
        return
    _read_iterations(taken, data)
    if set("MKN") <= params.keys():  # the sizes of a product may be written in ByteMicroPerf's ways
        params = {name: param for name, param in params.items() if name not in axes.PLACES}
    outer = _parameter_axes(taken, data, params) if own else _outer_axes(taken, task, data)
    shapes = {key: value for key, value in data.items() if key not in params}
    found = [] if not own or shapes.keys() & set(axes.PLACES) else [WorkloadObject(task, "$", "$", outer)]
    for place, axis in axes.axes_of(task, shapes):
        try:
            if isinstance(axis, PointRefused):
                raise axis
            found.append(WorkloadObject(task, place, place, (*outer, axis)))
            check_point_count(len(found[-1]))
        except PointRefused as refused:
            taken.problem(place, refused.message, refused.hint)
    taken.take(task, "$", found)


_KEYS = frozenset(("operator", "iterations", "dtype", "group", *axes.PLACES, *axes.BESIDE_SHAPES))
"""All keys of a file of the first generation."""


def _check_keys(data: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse a key that is probably a mistyped one."""
    for key in data:
        near = similar_name(key, known.difference(data))
        if near and key not in known and not key.startswith("__"):
            raise PointRefused(f"the key `{key}` is not known", key, f"did you mean `{near}`?")


def _read_iterations(taken: ImportState, data: Mapping[str, Any]) -> None:
    count = data.get("iterations")
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        taken.requests["samples"] = count
    elif count is not None:
        taken.problem("$.iterations", f"expected a whole number of at least 1, got {quote(count)}")


def _outer_axes(taken: ImportState, task: str, data: Mapping[str, Any]) -> tuple[WorkloadAxis, ...]:
    """Return the axes beside the shapes: element types, and the number of processes."""
    _note_unknown_keys(taken, data, _KEYS)
    for place, key in unknown_keys(data):
        taken.note(f"{place}: `{key}` is not known and is ignored")
    axes = [_outer_axis("dtype", data.get("dtype", "float32"))]
    if "group" in data and OTHER_NAMES.get(task, task) in BETWEEN_DEVICES:
        axes.append(_outer_axis("group", data["group"]))
    elif "group" in data:
        taken.note(f"`group` is ignored: `{task}` runs on one device")
    return tuple(axes)


def _parameter_axes(
    taken: ImportState, data: Mapping[str, Any], params: Mapping[str, Param]
) -> tuple[WorkloadAxis, ...]:
    """Return the axes of an operator that ByteMicroPerf lacks: its parameters, by name."""
    _note_unknown_keys(taken, data, _KEYS.union(params))
    lists = [name for name, param in params.items() if param.is_shape]
    return tuple(_outer_axis(key, value, lists) for key, value in data.items() if key in params)


def _note_unknown_keys(taken: ImportState, data: Mapping[str, Any], known: frozenset[str]) -> None:
    for key in data:
        if key not in known and not key.startswith("__"):
            taken.note(f"`{key}` is not known and is ignored")


def _outer_axis(key: str, value: Any, lists: Sequence[str] = ()) -> WorkloadAxis:
    return read_axis(key, value, "$", [], lists)._replace(place=f"$.{key}")


BYTEMICROPERF = _ByteMicroPerf()
