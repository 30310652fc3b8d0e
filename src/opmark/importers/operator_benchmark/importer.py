"""Reads PyTorch's operator_benchmark: `config_list`, `cross_product_configs` and `random_sample_configs` as data.

A block names operators and holds configs; a file is one block or a list of them:

    op: torch.add                               # or ops: [...], or op_list: {attr_names: ..., attrs: ...}
    args: ["{M}x{N} {dtype}", "{M}x{N} {dtype}"]
    gradient: true                              # backward as well
    config_list: {attr_names: [M, N], attrs: [[8, 16]], cross_product_configs: {dtype: [torch.float]}, tags: [short]}
    cross_product_configs: {M: [64, 128], N: [64], dtype: [float32], device: [cpu], tags: [long]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opmark.errors import InvalidParameter, UserError, nearest
from opmark.importers.operator_benchmark.configs import KINDS, Point, points
from opmark.importers.opperf.ask import why_no_backward
from opmark.registry import operator as find_operator
from opmark.schema import Entry, Imported, Phase, Problem
from opmark.schema.arguments import filled, placeholders

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
        reading = _Reading(path, seed)
        for i, block in enumerate(data if isinstance(data, list) else [data]):
            place = f"$[{i}]" if isinstance(data, list) else "$"
            if isinstance(block, dict):
                reading.block(place, block)
            else:
                reading.problem(place, f"expected `op` and configs, got `{str(block)[:40]}`")
        return Imported(tuple(reading.entries), (), tuple(reading.problems), tuple(reading.notes))


OPERATOR_BENCHMARK = _OperatorBenchmark()


class _Reading:
    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self.notes: dict[str, None] = {}

    def problem(self, place: str, message: str, hint: str | None = "") -> None:
        self.problems.append(Problem(f"{self.path}: {place}", message, hint or ""))

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


def _entry(label: str, name: str, point: Point, block: Mapping[str, Any], file: str) -> tuple[Entry, str]:
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


def _call(name: str, point: Point, block: Mapping[str, Any]) -> dict[str, Any]:
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


def _fill_in(written: Any, point: Point, name: str) -> Any:
    """Put the values of the axes in place of their names; all axes have to be used."""
    if not isinstance(written, dict):
        raise InvalidParameter(f"`params`: expected parameters of `{name}` by name, got `{str(written)[:40]}`")
    unused = sorted(set(point.values) - placeholders(written))
    if unused:
        raise InvalidParameter(
            f"axis `{unused[0]}` is used in no argument of `{name}`", f"write {{{unused[0]}}} where it belongs"
        )
    return filled(written, point.values)


def _test_name(label: str, point: Point) -> str:
    """Return PyTorch's name of a test: the operator, then each axis with its value."""
    parts = [f"{key}{value}".replace(" ", "") for key, value in point.values.items()]
    return "_".join([label, *parts, *([point.device] if point.device else [])])
