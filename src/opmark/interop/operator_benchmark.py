"""Reads PyTorch's operator_benchmark: `config_list`, `cross_product_configs` and `random_sample_configs` as data.

A block names operators and holds configs; a file is one block or a list of them:

    op: torch.add                               # or ops: [...], or op_list: {attr_names: ..., attrs: ...}
    args: ["{M}x{N} {dtype}", "{M}x{N} {dtype}"]
    gradient: true                              # backward as well
    config_list: {attr_names: [M, N], attrs: [[8, 16]], cross_product_configs: {dtype: [torch.float]}, tags: [short]}
    cross_product_configs: {M: [64, 128], N: [64], dtype: [float32], device: [cpu], tags: [long]}
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, UserError, nearest
from opmark.interop.opperf.importer import why_no_backward
from opmark.plugin.registry import operator as find_operator
from opmark.schema import Entry, Imported, ImportProblem, Phase
from opmark.schema.arguments import fill_placeholders, placeholders

KINDS = ("config_list", "cross_product_configs", "random_sample_configs")
MOST_POINTS = 1_000_000

_TORCH_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip


class ConfigPoint(NamedTuple):
    values: dict[str, Any]
    tags: tuple[str, ...]
    device: str = ""


class RefusedRow(NamedTuple):
    """A row that cannot be read, and is left out."""

    place: str
    message: str


class Points(NamedTuple):
    points: list[ConfigPoint]
    notes: tuple[str, ...]
    wrong: tuple[RefusedRow, ...] = ()


def points(kind: str, config: Any, draw: str) -> Points:
    """Return each point once; raise InvalidParameter if nothing of a config can be read. `draw` seeds random points."""
    if not isinstance(config, dict):
        raise InvalidParameter(f"expected axes by name, got `{str(config)[:40]}`", "as in {M: [8, 16], tags: [short]}")
    tags = _tags(config.get("tags", []))
    wrong: list[RefusedRow] = []
    if kind == "config_list":
        rows = _list_rows(config, wrong)
    else:
        rows = _draw_rows(config, draw) if kind == "random_sample_configs" else _cross_rows(config)
    found: dict[str, ConfigPoint] = {}
    notes: dict[str, None] = {}
    for row in rows:
        values = {str(name): _value(str(name), value) for name, value in row.items()}
        device = str(values.pop("device", ""))
        if device and device != "cpu":
            notes[f"device {device}: the backend decides about the device (--backend torch-cuda)"] = None
        found.setdefault(repr(values), ConfigPoint(values, tags, device))
    return Points(list(found.values()), tuple(notes), tuple(wrong))


def dtype(name: str) -> str:
    """Return opmark's name of an element type: `torch.float` is float32."""
    plain = name.removeprefix("torch.")
    return _TORCH_NAMES.get(plain, plain)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and (name == "dtype" or name.endswith("_dtype") or value.startswith("torch.")):
        return dtype(value)
    return value


def _tags(tags: Any) -> tuple[str, ...]:
    listed = [tags] if isinstance(tags, str) else tags
    if not isinstance(listed, list) or not all(isinstance(tag, str) for tag in listed):
        raise InvalidParameter(f"`tags`: expected names, got `{str(tags)[:40]}`", "as in tags: [short]")
    return tuple(dict.fromkeys(listed))


def _list_rows(config: Mapping[str, Any], wrong: list[RefusedRow]) -> list[dict[str, Any]]:
    _check_keys(config, ("attr_names", "attrs", "cross_product_configs", "tags"))
    names, rows = config.get("attr_names"), config.get("attrs")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidParameter(f"`attr_names`: expected names of axes, got `{str(names)[:40]}`", "as in [M, N]")
    if not isinstance(rows, list) or not rows:
        raise InvalidParameter(f"`attrs`: expected rows of values, got `{str(rows)[:40]}`", "as in [[8, 16]]")
    good = []
    for i, row in enumerate(rows):
        if isinstance(row, list) and len(row) == len(names):
            good.append(row)
        else:
            wrong.append(RefusedRow(f".attrs[{i}]", f"expected rows of {len(names)} values, got `{str(row)[:40]}`"))
    more = config.get("cross_product_configs")
    others = _cross_rows(more) if isinstance(more, dict) and more else [{}]
    if more is not None and not isinstance(more, dict):
        raise InvalidParameter(f"`cross_product_configs`: expected axes by name, got `{str(more)[:40]}`")
    _check_point_count(len(good) * len(others))
    return [{**dict(zip(names, row, strict=True)), **other} for row in good for other in others]


def _cross_rows(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    axes = _axes(config, ("tags",))
    _check_point_count(prod(len(values) for values in axes.values()))
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def _draw_rows(config: Mapping[str, Any], draw: str) -> list[dict[str, Any]]:
    """Draw rows with weights and with replacement, always the same ones for the same seed."""
    axes = _axes(config, ("tags", "probs", "total_samples"))
    count, weights = config.get("total_samples"), config.get("probs", {})
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidParameter(f"`total_samples`: expected a whole number of at least 1, got `{str(count)[:40]}`")
    _check_point_count(count)
    if not isinstance(weights, dict) or set(weights) - set(axes):
        raise InvalidParameter(f"`probs`: expected a weight for each value of an axis, got `{str(weights)[:40]}`")
    for name, values in weights.items():
        if not _are_weights(values, len(axes[name])):
            raise InvalidParameter(f"`probs.{name}`: expected {len(axes[name])} weights, got `{str(values)[:40]}`")
    generator = random.Random(draw)
    return [
        {name: generator.choices(values, weights.get(name))[0] for name, values in axes.items()} for _ in range(count)
    ]


def _are_weights(values: Any, count: int) -> bool:
    if not isinstance(values, list) or len(values) != count:
        return False
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1e6]
    return len(numbers) == count and isfinite(sum(numbers)) and sum(numbers) > 0


def _axes(config: Mapping[str, Any], others: tuple[str, ...]) -> dict[str, list[Any]]:
    axes = {str(k): v if isinstance(v, list) else [v] for k, v in config.items() if k not in others}
    if not axes:
        raise InvalidParameter("the config has no axes", "as in {M: [8, 16]}")
    for name, values in axes.items():
        if not values:
            raise InvalidParameter(f"axis `{name}` is empty", "give at least one value")
    return axes


def _check_keys(config: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in config:
        if key not in known:
            raise InvalidParameter(f"`{key}` is not known here", f"it has {', '.join(known)}")


def _check_point_count(count: int) -> None:
    if count > MOST_POINTS:
        raise InvalidParameter(f"the config makes {count} points; expected at most {MOST_POINTS}", "use fewer values")


_NAMES = ("op", "ops", "op_list")
_CALL = ("args", "inputs", "kwargs", "build", "params")
_BACKWARD = ("gradient", "backward", "run_backward")
_KNOWN = (*_NAMES, *KINDS, *_CALL, *_BACKWARD, "name")


class _OperatorBenchmark:
    name = "operator-benchmark"
    summary = "PyTorch operator_benchmark: config_list, cross_product_configs and random_sample_configs as JSON or YAML"

    def recognises(self, path: Path, data: Any) -> bool:
        blocks = data if isinstance(data, list) else [data]
        return any(isinstance(block, dict) and bool(set(KINDS) & set(block)) for block in blocks)

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        reading = _ConfigFileReader(path, seed)
        for i, block in enumerate(data if isinstance(data, list) else [data]):
            place = f"$[{i}]" if isinstance(data, list) else "$"
            if isinstance(block, dict):
                reading.block(place, block)
            else:
                reading.problem(place, f"expected `op` and configs, got `{str(block)[:40]}`")
        return Imported(tuple(reading.entries), (), tuple(reading.problems), tuple(reading.notes))


OPERATOR_BENCHMARK = _OperatorBenchmark()


class _ConfigFileReader:
    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        self.entries: list[Entry] = []
        self.problems: list[ImportProblem] = []
        self.notes: dict[str, None] = {}

    def problem(self, place: str, message: str, hint: str | None = "") -> None:
        self.problems.append(ImportProblem(f"{self.path}: {place}", message, hint or ""))

    def block(self, place: str, block: Mapping[str, Any]) -> None:
        for key in block:
            if key not in _KNOWN:
                near = nearest(str(key), _KNOWN)
                self.problem(f"{place}.{key}", f"`{key}` is not known here", f"did you mean `{near}`?" if near else "")
        operators = self._operators(place, block)
        for kind in (kind for kind in KINDS if kind in block):
            configs = block[kind]
            if configs == []:
                self.problem(f"{place}.{kind}", "an empty list makes no case")
            for i, config in enumerate(configs if isinstance(configs, list) else [configs]):
                where = f"{place}.{kind}[{i}]" if isinstance(configs, list) else f"{place}.{kind}"
                self._config(where, kind, config, operators, block)

    def _operators(self, place: str, block: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return label and name of each operator; an invalid one is a problem, and the others are read."""
        if not any(block.get(key) is not None for key in _NAMES):
            self.problem(place, "expected `op`, the operator that the configs are for", "as in op: torch.add")
            return []
        read = list(_read_names(block))
        if not read:
            self.problem(place, "the block names no operator", "as in op: torch.add")
        for where, found in read:
            if isinstance(found, str):
                self.problem(f"{place}{where}", found)
        return [found for _, found in read if not isinstance(found, str)]

    def _config(self, place: str, kind: str, config: Any, operators: list[tuple[str, str]], block: Any) -> None:
        try:
            found = points(kind, config, f"{self.seed}:{place}")
        except UserError as error:
            self.problem(place, error.message, error.hint)
            return
        self.notes |= dict.fromkeys(found.notes)
        for wrong in found.wrong:
            self.problem(f"{place}{wrong.place}", wrong.message)
        for label, name in operators:
            for point in found.points:
                try:
                    entry, note = _entry(label, name, point, block, self.path.name)
                except UserError as error:
                    self.problem(f"{place}: {_test_name(label, point)}", error.message, error.hint)
                else:
                    self.entries.append(entry)
                    self.notes |= {note: None} if note else {}


def _read_names(block: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str] | str]]:
    """Yield a place with label and name, or with an error message; `op_list` has labels of its own."""
    listed = block.get("op_list")
    rows = listed.get("attrs") if isinstance(listed, dict) else listed
    if listed is not None:
        for where, row in _items_with_places(".op_list.attrs" if isinstance(listed, dict) else ".op_list", rows):
            pair = [row, row] if isinstance(row, str) else row
            good = isinstance(pair, list) and len(pair) == 2 and all(isinstance(word, str) for word in pair)
            yield where, (pair[0], pair[1]) if good else f"expected rows of [op_name, op_func], got `{str(row)[:40]}`"
    key = "ops" if "ops" in block else "op"
    if block.get(key) is not None:
        for where, name in _items_with_places(f".{key}", block[key]):
            if isinstance(name, str):
                yield where, (str(block.get("name", name.rpartition(".")[2])), name)
            else:
                yield where, f"expected the name of an operator, got `{str(name)[:40]}`"


def _items_with_places(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list with their places; anything but a list is one item."""
    if isinstance(value, list):
        yield from ((f"{place}[{i}]", item) for i, item in enumerate(value))
    else:
        yield place, value


def _entry(label: str, name: str, point: ConfigPoint, block: Mapping[str, Any], file: str) -> tuple[Entry, str]:
    """Return the entry, and a note about it."""
    operator = find_operator(name)
    backward = any(block.get(key) is True for key in _BACKWARD)
    phases: list[Phase] = ["forward", "backward"] if backward else ["forward"]
    about: dict[str, Any] = {"tags": list(point.tags), "source": f"{file}#{_test_name(label, point)}"}
    if "args" in operator.by_name:
        return Entry(operator.name, phases=phases, **about, **_call(operator.name, point, block)), ""
    params = dict(point.values)
    if "params" in block:
        params = _fill_in(block["params"], point, operator.name)
    for key, value in params.items():
        operator.param(str(key)).check(value)
    missing = why_no_backward(operator, operator.complete(params)) if backward else None
    entry = Entry(operator.name, params, phases=["forward"] if missing else phases, **about)
    return entry, f"{label}: forward only: {missing}" if missing else ""


def _call(name: str, point: ConfigPoint, block: Mapping[str, Any]) -> dict[str, Any]:
    inputs = block.get("args", block.get("inputs"))
    args = list(inputs.values()) if isinstance(inputs, dict) else inputs
    written = {"args": args, "kwargs": block.get("kwargs"), "build": block.get("build")}
    written = {key: value for key, value in written.items() if value is not None}
    kinds: dict[str, Any] = {"args": list, "kwargs": dict, "build": (list, dict)}
    for key, value in written.items():
        if not isinstance(value, kinds[key]):
            raise InvalidParameter(f"`{key}`: expected the arguments of `{name}`, got `{str(value)[:40]}`")
    if not written:
        raise InvalidParameter(
            f"`{name}` is a callable and needs arguments", 'give args, as in args: ["{M}x{N} {dtype}"]'
        )
    return dict(_fill_in(written, point, name))


def _fill_in(written: Any, point: ConfigPoint, name: str) -> Any:
    """Put the values of the axes in place of their names; all axes have to be used."""
    if not isinstance(written, dict):
        raise InvalidParameter(f"`params`: expected parameters of `{name}` by name, got `{str(written)[:40]}`")
    unused = sorted(set(point.values) - placeholders(written))
    if unused:
        raise InvalidParameter(
            f"axis `{unused[0]}` is used in no argument of `{name}`", f"write {{{unused[0]}}} where it belongs"
        )
    return fill_placeholders(written, point.values)


def _test_name(label: str, point: ConfigPoint) -> str:
    """Return PyTorch's name of a test: the operator, then each axis with its value."""
    parts = [f"{key}{value}".replace(" ", "") for key, value in point.values.items()]
    return "_".join([label, *parts, *([point.device] if point.device else [])])
