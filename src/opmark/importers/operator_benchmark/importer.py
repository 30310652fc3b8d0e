"""PyTorch's operator_benchmark: `config_list`, `cross_product_configs` and `random_sample_configs` as data.

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
        try:
            operators = list(_operators(block))
        except UserError as error:
            self.problem(place, error.message, error.hint)
            return
        if not operators:
            self.problem(place, "names no operator", "as in op: torch.add")
        for kind in (kind for kind in KINDS if kind in block):
            configs = block[kind]
            if configs == []:
                self.problem(f"{place}.{kind}", "an empty list makes no case")
            for i, config in enumerate(configs if isinstance(configs, list) else [configs]):
                where = f"{place}.{kind}[{i}]" if isinstance(configs, list) else f"{place}.{kind}"
                self._config(where, kind, config, operators, block)

    def _config(self, place: str, kind: str, config: Any, operators: list[tuple[str, str]], block: Any) -> None:
        try:
            found = points(kind, config, f"{self.seed}:{place}")
        except UserError as error:
            self.problem(place, error.message, error.hint)
            return
        self.notes |= dict.fromkeys(found.notes)
        for label, name in operators:
            for point in found.points:
                try:
                    entry, note = _entry(label, name, point, block, self.path.name)
                except UserError as error:
                    self.problem(f"{place}: {_test_name(label, point)}", error.message, error.hint)
                else:
                    self.entries.append(entry)
                    self.notes |= {note: None} if note else {}


def _operators(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(label, name) of each; `op_list` has labels of its own."""
    listed = block.get("op_list")
    if listed is not None:
        yield from _of_list(listed)
    names = block.get("ops", block.get("op"))
    if names is None and listed is None:
        raise InvalidParameter("expected `op`, the operator that the configs are for", "as in op: torch.add")
    for name in names if isinstance(names, list) else [] if names is None else [names]:
        if not isinstance(name, str):
            raise InvalidParameter(f"`op`: expected the name of an operator, got `{str(name)[:40]}`")
        yield str(block.get("name", name.rpartition(".")[2])), name


def _of_list(listed: Any) -> Iterator[tuple[str, str]]:
    rows = listed.get("attrs") if isinstance(listed, dict) else listed
    for row in rows if isinstance(rows, list) else [None]:
        pair = [row, row] if isinstance(row, str) else row
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(word, str) for word in pair):
            raise InvalidParameter(f"`op_list`: expected rows of [op_name, op_func], got `{str(row)[:40]}`")
        yield pair[0], pair[1]


def _entry(label: str, name: str, point: Point, block: Mapping[str, Any], file: str) -> tuple[Entry, str]:
    """The entry, and what should be said of it."""
    operator = find_operator(name)
    backward = any(block.get(key) is True for key in _BACKWARD)
    phases: list[Phase] = ["forward", "backward"] if backward else ["forward"]
    about: dict[str, Any] = {"tags": list(point.tags), "source": f"{file}#{_test_name(label, point)}"}
    if "args" in operator.by_name:
        return Entry(operator.name, phases=phases, **about, **_call(operator.name, point, block)), ""
    params = dict(point.values)
    if "params" in block:
        params = _filled(block["params"], point, operator.name)
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
    return dict(_filled(written, point, name))


def _filled(written: Any, point: Point, name: str) -> Any:
    """With the values of the axes in place of their names; all axes have to be used."""
    if not isinstance(written, dict):
        raise InvalidParameter(f"`params`: expected parameters of `{name}` by name, got `{str(written)[:40]}`")
    unused = sorted(set(point.values) - placeholders(written))
    if unused:
        raise InvalidParameter(
            f"axis `{unused[0]}` is used in no argument of `{name}`", f"write {{{unused[0]}}} where it belongs"
        )
    return filled(written, point.values)


def _test_name(label: str, point: Point) -> str:
    """As PyTorch names a test: the operator, then each axis with its value."""
    parts = [f"{key}{_word(value)}" for key, value in point.values.items()]
    return "_".join([label, *parts, *([point.device] if point.device else [])])


def _word(value: Any) -> str:
    return str(value).replace(" ", "")
