"""Case: one point of a workload. Its id is a hash of its content, so a renamed workload still matches."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from msgspec import Struct

Phase = Literal["forward", "backward", "both"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "both")
"""`both`: forward and backward in one step, as in training."""


class Case(Struct, frozen=True):
    id: str
    op: str
    params: dict[str, Any]
    """All parameters: defaults are written out, so that a changed default is a different case."""
    phase: Phase
    tags: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    """Inputs whose gradients are computed; empty: all inputs that have a gradient."""
    sources: tuple[str, ...] = ()
    """Where the case comes from: `source` texts of the workload; for a foreign file `FILE#NAME`, its name over
    there."""
    written_as: tuple[str, ...] = ()
    """How foreign files write the case, each as JSON with `op` and `arguments`, so that a report can repeat it."""
    count: int = 1
    """How often the program that the case comes from runs it; not part of the id."""
    duration: float | None = None
    """Seconds that one call takes in that program, where it was measured there; not part of the id."""

    @classmethod
    def of(
        cls,
        op: str,
        params: dict[str, Any],
        phase: Phase,
        tags: tuple[str, ...] = (),
        wrt: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        written_as: tuple[str, ...] = (),
        count: int = 1,
        duration: float | None = None,
    ) -> Case:
        content: dict[str, Any] = {"op": op, "params": params, "phase": phase}
        if wrt:
            content["wrt"] = wrt
        if _PLAIN("".join((op, *params, *wrt))) and all(map(_encodes_alike, params.values())):
            key = digest(msgspec.json.encode(content, order="sorted"))
            return cls(key, op, params, phase, tags, wrt, sources, written_as, count, duration)
        return cls(content_id(content), op, params, phase, tags, wrt, sources, written_as, count, duration)


LONGEST_NAME = 1_000
"""Characters of names that are shown in tables and searched for: operators, backends, labels."""
PLUGIN_OPERATOR = "opmark.interop.param.plugin:PluginOperator"
"""The class that runs operators which users registered for PARAM. It is built from the name of the operator, the
modules to load, the build of the operator, and its data: each a mapping with the key `value`, except for the name."""


MODEL_PREFIX = "model:"
"""Begins the names of operators that are whole models."""
VIEWS_TAG = "views="
"""Begins a tag of the case of a model: how many of its calls only make views, which `opmark extract` leaves out."""


def shown_case(case: Case) -> Case:
    """Return a case as tables show it: an operator that a user registered, in place of the class that runs it. A stored
    case that does not have the parts of such a call is shown as it is."""
    build = case.params.get("build")
    parts = build.get("args") if case.op == PLUGIN_OPERATOR and isinstance(build, dict) else None
    if not isinstance(parts, list) or len(parts) != 4 or not isinstance(parts[0], str):
        return case
    built, data = (_describe_data(part.get("value") if isinstance(part, dict) else part) for part in parts[2:])
    call = {**case.params, "build": built, **(data or {})}
    named = 0 < len(parts[0]) <= LONGEST_NAME
    shows = named and is_call(call) and (built is None or is_call(built))
    return msgspec.structs.replace(case, op=parts[0], params=call) if shows else case


def is_operator(case: Case, pattern: str) -> bool:
    """Whether the operator of a case, as it is stored or as tables show it, has a name; `*` and `?` are allowed."""
    return any(fnmatchcase(one.op, pattern) for one in (case, shown_case(case)))


def is_call(params: Mapping[str, Any]) -> bool:
    """Whether parameters have arguments as a call has them: `args` as a list and `kwargs` by name, or none of them."""
    return isinstance(params.get("args"), list | None) and isinstance(params.get("kwargs"), dict | None)


def _describe_data(data: Any) -> dict[str, Any] | None:
    """Return arguments as they are; a generator with its spec, or tensors from a file, as the only argument."""
    if not isinstance(data, dict):
        return None
    if "generator" in data:
        return {"args": [f"{data['generator']} {json.dumps(data.get('spec'))}"]}
    return {"args": ["tensors"]} if "tensors" in data else data


def _encodes_alike(value: Any) -> bool:
    """Whether msgspec and json encode the value alike; msgspec's speed matters in sweeps of 100,000 cases."""
    kind = type(value)
    if kind is str:
        return bool(_PLAIN(value))
    return kind is int or kind is bool or (kind is list and all(type(item) is int for item in value))


_PLAIN = re.compile(r"[\w.:+-]*", re.ASCII).fullmatch


def content_id(content: object) -> str:
    """Return 16 hex digits that depend on the content alone."""
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
