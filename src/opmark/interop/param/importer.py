"""PARAM's configs (train/compute/python): `{operator: {"config": [{"build": [...], "input": [...]}]}}`.

Every case keeps the id that PARAM gives it, as `FILE#torch.add|0|0|0_2`: config, build, input.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.catalogue.families.callables import dotted_path
from opmark.catalogue.workload_file import read as read_file
from opmark.errors import UserError, nearest
from opmark.interop.param import expansion
from opmark.interop.param.arguments import Misfit, Spec, is_plain, quote, suggest
from opmark.interop.param.calls import Calls, OperatorBuild, operator_name
from opmark.interop.param.expansion import MOST_POINTS
from opmark.interop.param.lib.data import data_generator_map
from opmark.interop.param.lib.iterator import config_iterator_map
from opmark.interop.param.lib.operator import user_operator
from opmark.interop.param.options import ParamOptions, may_be_batch
from opmark.interop.param.run_options import note_unused, read_run_options
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import plugins
from opmark.schema import Entry, Imported, ImportProblem
from opmark.schema.case import PLUGIN_OPERATOR
from opmark.schema.options import Source


class CaseSpecs(NamedTuple):
    """The specs of one case, as the iterators of its operator yielded them."""

    build: Any
    input: Any
    forward_only: str = ""
    """Why it has no backward pass; empty if it may have one."""

    @property
    def config(self) -> dict[str, Any] | None:
        """The specs of the case; None if an iterator of a plug-in yields data that JSON cannot hold."""
        config = {"build": self.build, "input": self.input}
        return config if is_plain(config) else None


KeptSpecs = dict[tuple[str, str], CaseSpecs]
"""Specs by file and id, as in ("configs/add.json", "torch.add|0|0|0")."""

_KEPT: ContextVar[KeptSpecs | None] = ContextVar("kept", default=None)
_WHY_UNUSED: ContextVar[tuple[tuple[str, ...], str]] = ContextVar(
    "why_unused",
    default=(("warmup", "iteration", "backward"), "`opmark param -c FILE` uses all of them"),
)
"""The fields of run options that the reader of a file uses, and why it uses no others; a reader that is not `opmark
param` knows how often to call, and the phases."""


@contextmanager
def keep_specs(*, in_folder: bool = False) -> Iterator[KeptSpecs]:
    """Collect the specs of all files that are read meanwhile, for `opmark param`, which also uses the run options of a
    file that is not one of a folder.

    A file is read only once, because an iterator of a plug-in may yield other specs the second time.
    """
    found: KeptSpecs = {}
    used = () if in_folder else tuple(ParamOptions.__dataclass_fields__)
    tokens = _KEPT.set(found), _WHY_UNUSED.set((used, "options of the command line apply to all files of a folder"))
    try:
        yield found
    finally:
        _KEPT.reset(tokens[0])
        _WHY_UNUSED.reset(tokens[1])


def keep(path: Path, source: str, specs: CaseSpecs) -> None:
    """Keep the specs of the entry with the source `FILE#id`, if somebody collects them."""
    kept = _KEPT.get()
    if kept is not None:
        kept[str(path), source.rpartition("#")[2]] = specs


# A PARAM file is read operator by operator: each input of each build is an entry, or a problem with its place.

# Iterators get a device, but none of PARAM's own uses it.
_DEFAULT_DEVICE = "cpu"
_SEPARATORS = frozenset("|#")
_UNIQUE_HINT = "results are identified by their ids, so that each needs its own"
_FEWER = "use larger steps, or several files"
_TOOLS = (
    ("build_iterator", expansion.ITERATOR_GROUP, expansion.DEFAULT_ITERATOR),
    ("input_iterator", expansion.ITERATOR_GROUP, expansion.DEFAULT_ITERATOR),
    ("build_data_generator", expansion.GENERATOR_GROUP, expansion.DEFAULT_GENERATOR),
    ("input_data_generator", expansion.GENERATOR_GROUP, expansion.DEFAULT_GENERATOR),
)


class _Operator(NamedTuple):
    """An operator of a file, and the iterators that the file names for it."""

    calls: Calls
    build_iterator: Any
    input_iterator: Any


class ConfigReader:
    """Entries, problems and notes collected while a file is read."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._seed = seed
        self._entries: list[Entry] = []
        self._problems: dict[tuple[str, str], ImportProblem] = {}
        self._notes: dict[str, None] = {}
        self._known = {
            expansion.ITERATOR_GROUP: {**config_iterator_map, **plugins(expansion.ITERATOR_GROUP)},
            expansion.GENERATOR_GROUP: {**data_generator_map, **plugins(expansion.GENERATOR_GROUP)},
        }

    def found(self, requests: dict[str, Any] | None = None) -> Imported:
        return Imported(tuple(self._entries), (), tuple(self._problems.values()), tuple(self._notes), requests or {})

    def add_backward(self) -> None:
        """Add a backward pass to all entries, for a file that asks for it."""
        self._entries = [replace(entry, phases=["forward", "backward"]) for entry in self._entries]

    def note(self, text: str) -> None:
        self._notes[text] = None

    def refuse(self, place: str, message: str, hint: str | None = None) -> None:
        """Report a mistake; the same one in the same place is reported once, however many builds have it."""
        where = f"{self._path}: {place}"
        self._problems.setdefault((where, message), ImportProblem(where, message, hint or ""))

    def operator(self, name: Any, info: Any, place: str, ids: str | None = None) -> None:
        """Read every config of an operator; `ids` are those of config and build, if the file has its own."""
        if not isinstance(info, dict):
            self.refuse(place, f"expected an operator with its `config`, got {quote(info)}")
            return
        configs = info.get("config")
        if not isinstance(configs, list) or not configs:
            self.refuse(f"{place}.config", f"expected a list of configs, at least one, got {quote(configs)}")
            return
        found = self._operator(name, info, place)
        if found is None:
            return
        if all(info.get(key) in (None, default, *_OWN_TOOLS) for key, _, default in _TOOLS):
            for line in dict.fromkeys(unknown_keys(info)):
                self.note(f"{self._path.name}: {line}")
        if ids is not None:
            found = found._replace(build_iterator=expansion.iterate_specs, input_iterator=expansion.iterate_batch)
            if len(configs) > 1:
                self.refuse(f"{place}.config", f"expected the one config of a batch, got {len(configs)}")
                return
        for i, config in enumerate(configs):
            self._config(found, config, f"{place}.config[{i}]", str(i), ids)
        self._notes.update(found.calls.notes)

    def _operator(self, name: Any, info: Spec, place: str) -> _Operator | None:
        text = str(name)
        own = user_operator(text)
        known = PLUGIN_OPERATOR if own else operator_name(text)
        if not own and dotted_path(known) == dotted_path(PLUGIN_OPERATOR):
            # It loads any Python file that its arguments name.
            hint = "--plugin FILE.py loads operators, which a config calls by the names that they are registered with"
            self.refuse(place, f"`{text}` is not a function that a config may call", hint)
            return None
        try:
            operator = find_operator(known)
        except UserError as error:
            self.refuse(place, error.message, error.hint)
            return None
        tools = [self._tool(info.get(key), default, group, f"{place}.{key}") for key, group, default in _TOOLS]
        if None in tools:
            return None
        return _Operator(Calls(self._path.name, name, operator, (tools[2], tools[3]), self._seed), *tools[:2])

    def _tool(self, named: Any, default: str, group: str, place: str) -> Any:
        """Return an iterator or generator; an unknown one is a problem, while PARAM would silently use the default."""
        name = default if named is None else named
        name = expansion.OLDER_NAMES.get(name, name) if isinstance(name, str) else name
        tool = self._known[group].get(name) if isinstance(name, str) else None
        if tool is None:
            noun = "an iterator" if group == expansion.ITERATOR_GROUP else "a data generator"
            hint = f"{suggest(name, self._known[group])} (a plug-in adds one as an entry point of {group})"
            self.refuse(place, f"expected the name of {noun}, got {quote(name)}", hint)
        return tool

    def _config(self, operator: _Operator, config: Any, place: str, config_id: str, ids: str | None) -> None:
        if not isinstance(config, dict):
            self.refuse(place, f"expected a config with `input`, got {quote(config)}")
            return
        if not isinstance(config.get("input"), list):
            self.refuse(f"{place}.input", f"expected a list of specs, got {quote(config.get('input'))}")
            return
        entries: list[Entry] = []
        try:
            builds = list(self._builds(operator, config, place, config_id, ids))
            if ids and len(builds) > 1:
                raise Misfit(".build", f"expected the one build of a batch, got {len(builds)}")
            for built in builds:
                prefix = ids or f"{config_id}|{built.id}"
                self._inputs(operator, config, built, place, prefix, entries)
                self._refuse_too_many(len(entries) * len(builds) if built is builds[0] else len(entries))
        except Misfit as error:
            self.refuse(place + error.path, error.message, error.hint)
            return
        self._entries += entries

    def _refuse_too_many(self, points: int) -> None:
        if points > MOST_POINTS - len(self._entries):
            raise Misfit("", f"the file expands to {points} points; expected at most {MOST_POINTS}", _FEWER)

    def _builds(
        self, operator: _Operator, config: Spec, place: str, config_id: str, ids: str | None
    ) -> Iterator[OperatorBuild]:
        if config.get("build") in (None, [], {}):
            yield OperatorBuild("0", config.get("build"), None)
            return
        if not isinstance(config["build"], list):
            raise Misfit(".build", f"expected a list of specs, got {quote(config['build'])}")
        for where, build_id, spec in self._points(operator.build_iterator, config, "build", place, MOST_POINTS):
            try:
                yield operator.calls.build(build_id, spec, ids or f"{config_id}|{build_id}")
            except UserError as error:
                self.refuse(where + getattr(error, "path", ""), error.message, error.hint)

    def _inputs(
        self, operator: _Operator, config: Spec, built: OperatorBuild, place: str, prefix: str, entries: list[Entry]
    ) -> None:
        configs = {"build": built.spec, "input": config["input"]}
        left = MOST_POINTS - len(self._entries) - len(entries)
        for where, input_id, spec in self._points(operator.input_iterator, configs, "input", place, left):
            try:
                entry, forward_only = operator.calls.point(built, spec, f"{prefix}|{input_id}")
                keep(self._path, entry.source, CaseSpecs(built.spec, spec, forward_only))
                entries.append(entry)
            except UserError as error:
                site = f"{place}.build" if getattr(error, "build", False) else where
                self.refuse(site + getattr(error, "path", ""), error.message, error.hint)

    def _points(self, iterator: Any, config: Spec, key: str, place: str, most: int) -> Iterator[tuple[str, str, Any]]:
        """Yield place, id and spec of each point; a point with an error or an invalid id is a problem."""
        n, seen = -1, set[str]()
        for n, (point_id, spec) in enumerate(islice(_run_iterator(iterator, config, key), most + 1)):
            if n == most:
                raise Misfit(f".{key}", f"the file expands to too many points; expected at most {MOST_POINTS}", _FEWER)
            where = f"{place}.{key}{_index(iterator, config[key], n, str(point_id))}"
            if isinstance(spec, UserError):
                self.refuse(where + getattr(spec, "path", ""), spec.message, spec.hint)
            elif _SEPARATORS & set(str(point_id)):
                self.refuse(where, f"expected an id without | and #, which separate ids, got {quote(point_id)}")
            elif str(point_id) in seen:
                self.refuse(where, f"the id {quote(str(point_id))} is used twice", _UNIQUE_HINT)
            else:
                seen.add(str(point_id))
                yield where, str(point_id), spec
        if n < 0:
            self.refuse(f"{place}.{key}", "there is no spec, so that there is no case")


_OWN_TOOLS = ("RangeConfigIterator", "DummyConfigIterator", "PyTorch::DefaultDataGenerator")
"""Iterators and generators that add no keys of their own to a spec, beside the default ones."""
_OPERATOR_KEYS = frozenset(("config", *(key for key, _, _ in _TOOLS)))
_CONFIG_KEYS = frozenset(("build", "input"))
_SPEC_KEYS = frozenset(("args", "kwargs", "id"))
_ARGUMENT_KEYS = frozenset(
    ("type", "name", "dtype", "shape", "requires_grad", "device", "value", "value_range", "low", "high", "values",
     "alpha", "indices_tensor", "offsets_tensor")
)  # fmt: skip


_BELOW = {
    "config": _CONFIG_KEYS, "build": _SPEC_KEYS, "input": _SPEC_KEYS, "args": _ARGUMENT_KEYS, "kwargs": _ARGUMENT_KEYS,
    "value": _ARGUMENT_KEYS,
}  # fmt: skip
"""Keys of the objects below a key."""


def unknown_keys(info: Spec) -> Iterator[str]:
    """Yield a line for each key of an operator, its configs, specs and arguments that nothing reads.

    Names that begin with `_` are comments, or instructions such as `__range__`.
    """
    todo = [(info, _OPERATOR_KEYS)]
    while todo:
        spec, known = todo.pop()
        for key, value in spec.items():
            if key not in known and not key.startswith("_"):
                near = nearest(key, known)
                yield f"`{key}` is not known and is ignored" + (f"; did you mean `{near}`?" if near else "")
            named = isinstance(value, dict) and key == "kwargs"
            items = value.values() if named else [value] if isinstance(value, dict) else value
            below = _BELOW.get(key) if key in known and isinstance(value, dict | list) else None
            for item in items if below else ():
                if below and isinstance(item, dict) and (below is not _ARGUMENT_KEYS or "type" in item):
                    todo.append((item, below))


def _run_iterator(iterator: Any, config: Spec, key: str) -> Iterator[tuple[Any, Any]]:
    try:
        for point in iterator(config, key, _DEFAULT_DEVICE):
            point_id, spec = point
            yield point_id, spec
    except UserError as error:
        yield "0", error
    except RecursionError:
        yield "0", Misfit("", "the spec is nested too deeply")
    except Exception as error:  # noqa: BLE001 - a stranger's iterator may raise anything
        yield "0", Misfit("", f"the iterator failed: {type(error).__name__}: {error}")


def _index(iterator: Any, specs: list[Any], n: int, point_id: str) -> str:
    """Return the index of the spec in the file that a point comes from, if it is known."""
    in_order = iterator in (expansion.iterate_specs, expansion.iterate_batch)
    number = str(n) if in_order else point_id.partition("_")[0]
    return f"[{number}]" if number.isdecimal() and int(number) < len(specs) else ""


_IDS = re.compile(r"[^|:#]+[|:][^|:#]+")


class _ParamImporter:
    name = "param"
    summary = "operator configs and batch files of PARAM (facebookresearch/param, train/compute)"

    def recognises(self, path: Path, data: Any) -> bool:
        """Recognise an object whose values have a `config`, or a batch file with one operator and run options."""
        if not isinstance(data, dict):
            return False
        return _is_batch(data) or any(
            isinstance(info, dict) and ("config" in info or "input_data_generator" in info) for info in data.values()
        )

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        reading = ConfigReader(path, seed)
        if _is_batch(data):
            return _read_batch(reading, data)
        for name, info in data.items():
            reading.operator(name, info, f"$[{json.dumps(name)}]")
        return reading.found()


def _is_batch(data: Mapping[str, Any]) -> bool:
    return "op_name" in data and "op_info" in data


def _read_batch(reading: ConfigReader, data: dict[str, Any]) -> Imported:
    """Read one operator with one build; its inputs keep the ids of the config that the batch was made from."""
    key = "config_build_id" if "config_build_id" in data else "build_id"
    ids = data.get(key, "0|0")
    if not isinstance(ids, str) or not _IDS.fullmatch(ids):
        reading.refuse(f"$.{key}", f"expected the ids of a config and of a build, as in 0|0, got {quote(ids)}")
        return reading.found()
    reading.operator(data["op_name"], _with_list_of_builds(data["op_info"]), "$.op_info", ids.replace(":", "|"))
    options = data.get("run_options", {})
    if not isinstance(options, dict):
        reading.refuse("$.run_options", f"expected options by name, got {quote(options)}")
        return reading.found()
    found = read_run_options(options)
    for name, error in found.mistakes.items():
        ignored = f"{error.message}; the option is ignored, as if the file did not set it"
        reading.refuse(f"$.run_options.{name}", ignored, error.hint)
    used, why = _WHY_UNUSED.get()
    for line in [*found.notes, *note_unused(found, used=used, why=why)]:
        reading.note(line)
    if found.fields.get("backward"):
        reading.add_backward()
    counts = {"warmup": found.fields.get("warmup"), "samples": found.fields.get("iteration") or None}
    return reading.found({name: count for name, count in counts.items() if count is not None})


def options_in_file(source: Source) -> dict[str, Any]:
    """Return the fields of `ParamOptions` that a batch file sets, as PARAM's run_batch uses them; none for a config."""
    data = source if isinstance(source, Mapping) else _read_batch_file(source)
    options = data.get("run_options") if isinstance(data, Mapping) and _is_batch(data) else None
    return read_run_options(options).fields if isinstance(options, Mapping) else {}


def _read_batch_file(source: Any) -> Any:
    """Return the content of what may be a batch file. A file that cannot be read, or something that is no path, is
    reported when it is read again."""
    if not isinstance(source, str | os.PathLike):
        return None
    try:
        return read_file(Path(source)) if may_be_batch(Path(source)) else None
    except UserError:
        return None


def _with_list_of_builds(info: Any) -> Any:
    """Put the build of each config into a list, where all files but batches have it."""
    if not isinstance(info, dict) or not isinstance(info.get("config"), list):
        return info
    configs = []
    for config in info["config"]:
        has_build = isinstance(config, dict) and isinstance(config.get("build"), dict) and config["build"]
        configs.append({**config, "build": [config["build"]]} if has_build else config)
    return {**info, "config": configs}


PARAM = _ParamImporter()
