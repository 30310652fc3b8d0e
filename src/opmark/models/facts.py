"""Facts about a model that need a framework to be found: operations, weights, outputs.

A child process finds them without computing anything, and they are kept on disk until the model or torch changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any

import msgspec

from opmark.errors import Unsupported
from opmark.models.host import LOADS, ChildQuestion, ask_host, asks_host, read_answer
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema.tensor import sizeof

_TIMEOUT = 300
_MOST_IN_ALL = 2 << 30
"""Bytes that graphs may take on disk, and weights as many again."""
_WORKER = "OPMARK_SCRATCH"
"""Set in every worker."""


class ModelFacts(msgspec.Struct, frozen=True):
    flops: int | None
    weights: int
    """Number of parameters."""
    outputs: dict[str, tuple[int, ...]]
    """Shapes by name, in their order."""
    dtypes: tuple[str, ...]

    @property
    def output_bytes(self) -> int:
        return sum(prod(shape) * sizeof(kind) for shape, kind in zip(self.outputs.values(), self.dtypes, strict=True))


class DescribedInput(msgspec.Struct, frozen=True):
    """An input of a model that a user has brought."""

    shape: tuple[int, ...]
    """For a single sample."""
    dtype: str
    low: float
    high: float
    batched: bool
    """Whether the first axis is the batch."""


class ModelDescription(msgspec.Struct, frozen=True):
    """What has to be known of a model that a user has brought before it is planned."""

    inputs: dict[str, DescribedInput]
    rows: bool = False
    """Whether every output has an axis for the batch, so that samples can be checked one by one."""
    axes: dict[int, int] = {}
    """The axis of the batch by the number of the output, where it is not the first."""
    dtype: str = ""
    """The only element type that it computes in, where it has just one."""


class ModelExport(msgspec.Struct, frozen=True):
    """What `opmark model export` wrote."""

    files: tuple[str, ...]
    """The graph, then its weights where these have a file of their own."""
    seconds: float
    """Seconds that the front end took, without writing."""
    operators: int
    weights: int
    """Number of parameters."""


def facts(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case: kept ones, else found by a child process, or here where torch is loaded already."""
    found: ModelFacts = _find("facts", source, json.dumps(dict(params), sort_keys=True), source.stamp(params))
    return found


def description(source: ModelSource, params: Params) -> ModelDescription:
    """Return the description of a model that a user has brought: a kept one, else found by a child process or here."""
    found: ModelDescription = _find(
        "description", source, json.dumps(dict(params), sort_keys=True), source.stamp(params)
    )
    return found


@cache
def _find(what: str, source: ModelSource, written: str, stamp: str) -> Any:
    params = json.loads(written)
    kind: Any
    find: Callable[[Params], Any]
    if what == "facts":
        here = LOADS in os.environ or (source.framework in sys.modules and (_may_load() or not source.program))
        kind, find = ModelFacts, source.count
    else:
        here, kind, find = _may_load(), ModelDescription, source.describe
    if asks_host():  # which has its versions of packages, and so the file that keeps it
        return ask_child(what, source, params, kind)
    kept = kept_file(source, params, what)
    found = read_kept(kept, kind)
    if found is None:
        found = find(params) if here else ask_child(what, source, params, kind)
        write_kept(kept, found)
    return found


def _may_load() -> bool:
    """Return whether this process is a worker or the child: others execute nothing that a user has brought."""
    return LOADS in os.environ or _WORKER in os.environ


def ask_child(what: str, source: ModelSource, params: Params, kind: Any, **options: Any) -> Any:
    """Let another process load the model: this one may be the parent, which loads no framework, or a guest without
    torch."""
    question = ChildQuestion(what, source.name, dict(params), options)
    if asks_host():
        return ask_host(question, kind)
    command = [sys.executable, "-m", "opmark.models.child", msgspec.json.encode(question).decode()]
    environ = {**os.environ, LOADS: "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            env=environ,
        )
    except subprocess.TimeoutExpired:
        raise Unsupported(f"`{source.name}` was not loaded within {_TIMEOUT} s") from None
    answer = (done.stdout.splitlines() or [""])[-1]
    try:
        return read_answer(answer, kind)
    except msgspec.DecodeError:
        last = (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[-1]
        raise Unsupported(f"`{source.name}` cannot be loaded: {last}") from None


# What was found out about a model, kept on disk.


def kept_file(source: ModelSource, params: Params, what: str) -> Any:
    """Return the file that keeps something about a case of a model, as long as the model and torch stay the same."""
    from platformdirs import user_cache_path  # which a guest may not have

    content = json.dumps([source.name, dict(params), source.stamp(params), _torch(), what], sort_keys=True)
    return user_cache_path("opmark") / "models" / f"{sha256(content.encode()).hexdigest()[:32]}.{what}"


def read_kept(path: Any, kind: Any) -> Any:
    """Return what a file keeps; None where there is none, or it is not whole."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def write_kept(path: Any, value: Any) -> None:
    """Keep a value. Where the disk is full or read-only, it is found again the next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{id(value)}.new")
        new.write_bytes(msgspec.json.encode(value))
        new.replace(path)
    except OSError:
        pass


def make_room(path: Any) -> None:
    """Remove the oldest files of the same kind where all of them are too large together."""
    files = sorted(path.parent.glob(f"*{path.suffix}"), key=lambda file: file.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > _MOST_IN_ALL:
            file.unlink(missing_ok=True)


@cache
def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
