"""Finds the spaces of a case: for each implementation on a backend, its own knobs and those of the backend."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from opmark.errors import UnknownName, UserError
from opmark.plugin import BackendInfo, Implementation, Space, TuningProblem
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.space import COUNTED_WHOLE, Configuration, Value, join_spaces
from opmark.schema import Case
from opmark.schema.case import content_id

Pairs = tuple[tuple[str, Value], ...]
"""A configuration as the settings of a task have it."""


@dataclass(frozen=True)
class Tunable:
    """An implementation of a case on a backend that has knobs."""

    case: Case
    backend: BackendInfo
    implementation: Implementation
    space: Space

    @property
    def name(self) -> str:
        return f"{self.case.op} on {self.backend.name} ({self.implementation.label})"

    def problem(self, seed: int, starts: tuple[Configuration, ...], threads: int, folder: Path) -> TuningProblem:
        """Return what a tuner is told. `folder` is that of the run, in which each tunable has one of its own."""
        label = self.implementation.label
        return TuningProblem(
            self.case.op, self.case.params, self.backend.name, label, self.space, seed, starts, threads,
            folder / content_id([self.case.id, label]),
        )  # fmt: skip


def find_tunables(case: Case, info: BackendInfo, impl: str = "", tuner: str = "") -> list[Tunable]:
    """Return what can be tuned of a case on a backend: every implementation with knobs, or the one that is named.
    A tuner of the backend itself knows the space, and needs no knobs."""
    operator = find_operator(case.op)
    if tuner in info.tuners:
        return [Tunable(case, info, one, Space(())) for one in implementations(operator, info)[:1]]
    known = implementations(operator, info, every=True)
    if impl and impl not in {one.label for one in known}:
        raise UnknownName(f"implementation of `{case.op}` on {info.name}", impl, [one.label for one in known])
    of_backend = info.find_space(operator, case.params)
    found = []
    for one in known:
        own = one.space(case.params) if one.space else None
        spaces = [space for space in (own, of_backend) if space is not None]
        # What runs only on request exists to be tuned; where it has no knobs, there is nothing to tune in it.
        if spaces and (not impl or one.label == impl) and (own is not None or not one.on_request):
            space = join_spaces(spaces)
            found.append(Tunable(case, info, one, space))
    return found


def tunables_or_refuse(case: Case, info: BackendInfo, impl: str = "", tuner: str = "") -> list[Tunable]:
    """Return what can be tuned. UserError if nothing can, or if a space is empty."""
    found = find_tunables(case, info, impl, tuner)
    if not found:
        which = f" ({impl})" if impl else ""
        raise UserError(
            f"{case.op} on {info.name}{which} has no knobs: there is nothing to tune",
            "`opmark space OP --backend all` lists what has knobs",
        )
    for one in found:
        if tuner not in info.tuners:
            one.space.refuse_empty(one.name)
    return found


def as_pairs(configuration: Configuration) -> Pairs:
    """Return a configuration as the settings of a task have it: sorted, so that equal ones have equal ids."""
    return tuple(sorted(configuration.items()))


def source_of(one: Implementation, info: BackendInfo) -> str:
    """Return a hash of the sources that a tuned configuration depends on: the files of the implementation and of the
    spaces. A configuration that was found with other sources is stale."""
    functions: list[Any] = [one.build, one.space]
    if info.space:
        module, _, name = info.space.partition(":")
        functions.append(getattr(import_module(module), name))
    files = {file for function in functions if (file := _file_of(function))}
    content = hashlib.sha256()
    for file in sorted(files):
        content.update(Path(file).read_bytes())
    return content.hexdigest()[:16] if files else ""


def _file_of(function: Any) -> str | None:
    while isinstance(function, partial):
        function = function.func
    try:
        return inspect.getsourcefile(function) if function is not None else None
    except TypeError:  # an object that is called like a function
        return inspect.getsourcefile(type(function))


def export_space(tunable: Tunable, examples: int = 3) -> dict[str, Any]:
    """Return a space as plain data: knobs, rules, sizes, and how numbers and configurations belong together."""
    space = tunable.space
    allowed = round(space.allowed_share * space.size)
    place, knobs = 1, []
    for knob in space.knobs:
        entry = {
            "name": knob.name, "kind": knob.kind, "values": list(knob.values), "length": len(knob.values),
            "default": knob.usual, "summary": knob.summary, "place_value": place,
        }  # fmt: skip
        knobs.append(entry)
        place *= len(knob.values)
    return {
        "op": tunable.case.op,
        "params": tunable.case.params,
        "phase": tunable.case.phase,
        "case": tunable.case.id,
        "backend": tunable.backend.name,
        "implementation": tunable.implementation.label,
        "source": source_of(tunable.implementation, tunable.backend),
        "size": space.size,
        "allowed": allowed,
        "allowed_is_estimate": bool(space.rules) and space.size > COUNTED_WHOLE,
        "knobs": knobs,
        "rules": [f"a configuration must {rule.says}" for rule in space.rules],
        "index": "sum over the knobs of place_value x position of the value in values, counted from 0",
        "default": space.default,
        "default_index": space.index(space.default),
        "examples": [{"index": i, "configuration": space.at(i)} for i in sorted(space.draw(Random(0), examples))],
    }
