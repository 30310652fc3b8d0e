"""Reads files of opperf and DL Operator Benchmarks: arguments of `run_performance_test`, results, classes.

| form | meaning |
|---|---|
| `{ops: add, inputs: [{lhs: [1024, 1024], rhs: [1024, 1024]}]}` | arguments of `run_performance_test`; a list of such |
| `{add: [{inputs: {lhs: ...}, avg_time_forward_add: ...}]}` | opperf's own results, to be measured again |
| `{Add: {inputs: {dtype: float64}, warmup: 10, runs: 50}}` | classes of DL Operator Benchmarks |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, UnknownName, UserError, nearest
from opmark.interop.opperf.class_inputs import CLASSES, class_meaning, complete_inputs
from opmark.interop.opperf.operators import NO_COUNTERPART, OPERATORS, plain_name
from opmark.interop.opperf.rows import Meaning, meaning, takes_dtype
from opmark.plugin import Operator
from opmark.plugin.registry import aliases, catalogue
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Imported, ImportProblem, Phase
from opmark.schema.tensor import is_float

_BLOCK = ("ops", "op", "inputs", "run_backward", "dtype", "ctx", "profiler", "warmup", "runs")
_CLASS = ("inputs", "warmup", "runs", "ctx")
_OPERATOR_BENCHMARK = {"config_list", "cross_product_configs", "random_sample_configs", "configs", "op_list"}
_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}


@dataclass
class _OpperfReader:
    """Entries, problems and notes collected while a file is read."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    problems: list[ImportProblem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    counts: list[tuple[Any, Any]] = field(default_factory=list)
    """Warm-up and runs of each part of the file."""

    def problem(self, place: str, message: str, hint: str | None = "") -> None:
        self.problems.append(ImportProblem(f"{self.path}: {place}", message, hint or ""))

    def no_operator(self, place: str, error: UserError) -> None:
        """Report an unknown operator once, however many inputs it has."""
        found = ImportProblem(f"{self.path}: {place}", error.message, error.hint or "")
        if found not in self.problems:
            self.problems.append(found)

    def result(self) -> Imported:
        requests = self._requests()
        return Imported(tuple(self.entries), (), tuple(self.problems), tuple(self.notes), requests)

    def _requests(self) -> dict[str, Any]:
        """Return the options of the measurement that the file sets."""
        if len({repr(count) for count in self.counts}) > 1:
            self.notes["warm-up and runs differ between the parts of the file and are ignored"] = None
            return {}
        named = zip(("warmup", "samples"), self.counts[0] if self.counts else (), strict=False)
        return {name: count for name, count in named if count is not None}


class _Opperf:
    name = "opperf"
    summary = "MXNet opperf: run_performance_test's arguments, its results; classes of DL Operator Benchmarks"

    def recognises(self, path: Path, data: Any) -> bool:
        parts = data if isinstance(data, list) else [data]
        return any(isinstance(part, dict) and (_is_block(part) or any(map(_is_named, part.items()))) for part in parts)

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        reading = _OpperfReader(path)
        parts = list(enumerate(data)) if isinstance(data, list) else [(None, data)]
        for index, part in parts:
            place = "$" if index is None else f"$[{index}]"
            if not isinstance(part, dict):
                reading.problem(place, f"expected `ops` and `inputs`, got {_quote(part)}")
            elif _is_block(part):
                _read_block(reading, place, part)
            else:
                _read_named(reading, place, part)
        return reading.result()


OPPERF = _Opperf()


def _is_block(part: Mapping[Any, Any]) -> bool:
    return ("ops" in part or ("op" in part and "inputs" in part)) and not _OPERATOR_BENCHMARK & set(part)


def _is_named(item: tuple[Any, Any]) -> bool:
    """Whether an item holds results of an operator, or is a class."""
    name, value = item
    if isinstance(value, list):
        return any(isinstance(one, dict) and isinstance(one.get("inputs"), dict) for one in value)
    if name not in CLASSES or "config" in (value or ()):
        return False
    return value is None or (isinstance(value, dict) and (not value or bool(set(_CLASS) & set(value))))


def _read_block(reading: _OpperfReader, place: str, part: Mapping[str, Any]) -> None:
    for key in part:
        if key not in _BLOCK:
            _unknown(reading, f"{place}.{key}", key, _BLOCK)
    key = "ops" if "ops" in part else "op"
    names = part[key]
    inputs = part.get("inputs")
    common = _common_options(reading, place, part)
    if names == []:
        reading.problem(f"{place}.{key}", "an empty list names no operator")
    for i, name in enumerate(names if isinstance(names, list) else [names]):
        named = f"{place}.{key}[{i}]" if isinstance(names, list) else f"{place}.{key}"
        if not isinstance(name, str):
            reading.problem(named, f"expected the name of an operator, got {_quote(name)}")
            continue
        for j, one in enumerate(inputs if isinstance(inputs, list) else [inputs]):
            where = f"{place}.inputs[{j}]"
            if isinstance(one, dict):
                _add(reading, where, f"{name}[{j}]", OperatorRequest(name, one, common), named)
            else:
                reading.problem(where, f"expected the inputs of `{name}` by name, got {_quote(one)}")
        if inputs in ([], ()):
            reading.problem(f"{place}.inputs", f"`{name}` has no inputs, so there is nothing to measure")


def _common_options(reading: _OpperfReader, place: str, part: Mapping[str, Any]) -> CommonOptions:
    backward, dtype = part.get("run_backward", True), part.get("dtype")
    if not isinstance(backward, bool):
        reading.problem(f"{place}.run_backward", f"expected true or false, got {_quote(backward)}; true is used")
        backward = True
    if dtype is not None and not isinstance(dtype, str):
        reading.problem(f"{place}.dtype", f"expected a data type, got {_quote(dtype)}; float32 is used")
        dtype = None
    profiler = part.get("profiler", "native")
    if profiler not in ("native", "python"):
        reading.problem(f"{place}.profiler", f"expected native or python, got {_quote(profiler)}; native is used")
    _read_counts(reading, place, part)
    _read_ctx(reading, part)
    whole: tuple[Phase, ...] = ("both",) if profiler == "python" else ("forward", "backward")
    return CommonOptions(whole if backward else ("forward",), _DTYPES.get(dtype or "", dtype))


def _read_counts(reading: _OpperfReader, place: str, part: Mapping[str, Any]) -> None:
    found: list[Any] = []
    for key, least in (("warmup", 0), ("runs", 1)):
        value = part.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            expected = f"a whole number of at least {least}"
            reading.problem(f"{place}.{key}", f"expected {expected}, got {_quote(value)}; it is ignored")
            value = None
        found.append(value)
    reading.counts.append((found[0], found[1]))


def _read_ctx(reading: _OpperfReader, part: Mapping[str, Any]) -> None:
    if part.get("ctx") not in (None, "cpu", "cpu(0)"):
        reading.notes[f"ctx {part['ctx']}: the backend decides about the device (--backend torch-cuda)"] = None


def _read_named(reading: _OpperfReader, place: str, part: Mapping[Any, Any]) -> None:
    for name, value in part.items():
        where = f"{place}.{name}"
        if not isinstance(name, str) or not _is_named((name, value)):
            near = nearest(str(name), CLASSES)
            reading.problem(where, f"expected results of an operator, or a class, got {_quote(value)}",
                            f"did you mean `{near}`?" if near and near != name else "")  # fmt: skip
        elif isinstance(value, list):
            for i, one in enumerate(value):
                _read_result(reading, f"{where}[{i}]", f"{name}[{i}]", name, one)
        else:
            _read_class(reading, where, name, value or {})


def _read_result(reading: _OpperfReader, place: str, label: str, name: str, one: Any) -> None:
    if not isinstance(one, dict) or not isinstance(one.get("inputs"), dict):
        reading.problem(place, f"expected a result with its `inputs`, got {_quote(one)}")
        return
    common = CommonOptions(phases_of(one), None)
    operator = one.get("operator")
    if isinstance(operator, str):
        _add(reading, place, label, OperatorRequest(operator, one["inputs"], common, own=True))
    else:
        _add(reading, place, label, OperatorRequest(name, one["inputs"], common), place.rpartition("[")[0])


def _read_class(reading: _OpperfReader, place: str, name: str, value: Mapping[str, Any]) -> None:
    for key in value:
        if key not in _CLASS:
            _unknown(reading, f"{place}.{key}", key, _CLASS)
    of, given = CLASSES[name], value.get("inputs")
    _read_counts(reading, place, {"warmup": of.warmup, "runs": of.runs, **value})
    _read_ctx(reading, value)
    if given is not None and not isinstance(given, dict):
        reading.problem(f"{place}.inputs", f"expected inputs by name, got {_quote(given)}")
        return
    try:
        inputs = complete_inputs(of, given or {})
        found = class_meaning(of, inputs)
    except UserError as error:
        reading.problem(f"{place}.inputs", error.message, error.hint)
        return
    phases: tuple[Phase, ...] = ("both",) if of.backward and inputs["run_backward"] is not False else ("forward",)
    _add(
        reading,
        place,
        name,
        OperatorRequest(found.op, found.params, CommonOptions(phases, None), own=True, notes=found.notes),
    )


def _add(reading: _OpperfReader, place: str, label: str, ask: OperatorRequest, named: str = "") -> None:
    """Add an entry or a problem; `named` is the place of the operator's name."""
    try:
        entry, notes = make_entry(ask, f"{reading.path.name}#{label}")
    except NoOperator as error:
        reading.no_operator(named or place, error)
        return
    except UserError as error:
        reading.problem(place, error.message, error.hint)
        return
    reading.entries.append(entry)
    name = label.partition("[")[0]
    reading.notes |= {f"{name}: {note}": None for note in notes}


def _unknown(reading: _OpperfReader, place: str, key: Any, known: tuple[str, ...]) -> None:
    near = nearest(str(key), known)
    reading.problem(place, f"`{key}` is not known here", f"did you mean `{near}`?" if near else f"known: {known}")


def _quote(value: Any) -> str:
    text = str(value)
    short = text if len(text) <= 40 else f"{text[:37]}..."
    return "nothing" if value is None else f"`{short}`"


# One operator of opperf with one set of inputs becomes an entry of a workload.

_CALL = {"args", "kwargs", "build"}


class NoOperator(UserError):
    """An operator that opmark cannot measure, whatever its inputs are."""


class CommonOptions(NamedTuple):
    """Options that hold for all inputs of a test."""

    phases: tuple[Phase, ...]
    dtype: str | None


class OperatorRequest(NamedTuple):
    name: str
    inputs: Mapping[str, Any]
    common: CommonOptions
    own: bool = False
    """Whether name and inputs are opmark's, and not opperf's."""
    notes: tuple[str, ...] = ()


def make_entry(ask: OperatorRequest, source: str) -> tuple[Entry, list[str]]:
    """Return an entry and notes; raise UserError for inputs that opmark cannot measure, NoOperator for operators."""
    try:
        return _translate(ask, source)
    except InvalidParameter as error:
        if f"`{ask.name}`" in error.message:
            raise
        between = " " if error.message.startswith("needs ") else ": "
        raise InvalidParameter(f"`{ask.name}`{between}{error.message}", error.hint) from None


def _translate(ask: OperatorRequest, source: str) -> tuple[Entry, list[str]]:
    if _CALL & set(ask.inputs) and set(ask.inputs) <= _CALL and "." in ask.name:
        call = {key: ask.inputs[key] for key in ("args", "kwargs", "build") if key in ask.inputs}
        try:
            name = find_operator(ask.name).name
        except UserError as error:
            raise NoOperator(error.message, error.hint) from None
        return Entry(name, phases=list(ask.common.phases), source=source, **call), []
    found = _meaning(ask)
    operator = find_operator(found.op)
    params = {name: operator.param(name).check(value) for name, value in found.params.items()}
    complete = operator.complete(params)
    operator.check_rules(complete)
    phases, notes = _phases(operator, complete, ask.common.phases)
    return Entry(operator.name, params, phases=phases, source=source), [*ask.notes, *found.notes, *notes]


def phases_of(result: Mapping[str, Any]) -> tuple[Phase, ...]:
    """Return the phases that opperf measured, by the names of its numbers; the profiler `python` has both in one."""
    failed = result.get("failed")
    words = [str(one.get("phase")) for one in failed if isinstance(one, dict)] if isinstance(failed, list) else []
    found: list[Phase] = []
    for phase in ("forward", "backward"):
        if any(str(key).startswith(f"avg_time_{phase}") for key in result) or phase in words:
            found.append(phase)
    whole = any(str(key).startswith("avg_time_") for key in result) and not found
    return tuple(found) or (("both",) if whole or "both" in words else ("forward", "backward"))


def _meaning(ask: OperatorRequest) -> Meaning:
    name = ask.name if ask.own else plain_name(ask.name)
    operator = catalogue().get(name) or aliases().get(name)
    if operator and (ask.own or (_takes(operator, ask.inputs) and not tensor_names(name) & set(ask.inputs))):
        params = dict(ask.inputs)
        if takes_dtype(operator, ask.common.dtype):
            params.setdefault("dtype", ask.common.dtype)
        return Meaning(operator.name, params)
    if name in NO_COUNTERPART:
        raise NoOperator(f"opmark has no counterpart of `{name}`", NO_COUNTERPART[name])
    if name not in OPERATORS:
        if operator:
            listed = ", ".join(param.name for param in operator.params)
            raise InvalidParameter(f"opperf has no `{name}`, and opmark's has other parameters", f"it has {listed}")
        unknown = UnknownName("operator of opperf", ask.name, OPERATORS, "opmark opperf --list")
        raise NoOperator(unknown.message, unknown.hint)
    return meaning(OPERATORS[name], ask.inputs, ask.common.dtype)


def why_no_backward(operator: Operator, params: Mapping[str, Any]) -> str | None:
    """Say why an operator has no backward pass, by element types alone: its tensors may be too large to allocate."""
    if not operator.gradients:
        return f"`{operator.name}` has no gradient"
    dtypes = {operator.result_dtype(params), str(params.get("dtype", "float32"))}
    exact = sorted(dtype for dtype in dtypes if not is_float(dtype))
    return f"`{operator.name}` has no gradient through {', '.join(exact)}" if exact else None


def _takes(operator: Operator, inputs: Mapping[str, Any]) -> bool:
    """Whether these inputs are the operator's own parameters."""
    return not operator.foreign and bool(set(inputs) - {"dtype"}) and set(inputs) <= set(operator.by_name)


def tensor_names(name: str) -> set[str]:
    """Return opperf's names of the tensors of an operator."""
    rows = OPERATORS.get(name, ())
    return {word.rstrip("*") for row in rows for names in row.tensors for word in names.split("|")}


def _phases(operator: Operator, params: Mapping[str, Any], phases: tuple[Phase, ...]) -> tuple[list[Phase], list[str]]:
    if phases == ("forward",):
        return ["forward"], []
    reason = why_no_backward(operator, params)
    return (list(phases), []) if reason is None else (["forward"], [f"forward only: {reason}"])
