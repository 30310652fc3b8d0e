"""Facts about a model that need a framework to be found: operations, weights, outputs.

A child process finds them without computing anything, and they are kept on disk until the model or torch changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any, TypeVar

import msgspec
from platformdirs import user_cache_path

from opmark.errors import Unsupported
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema.tensor import sizeof

_TIMEOUT = 300

FoundT = TypeVar("FoundT")


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


def facts(source: ModelSource, params: Params) -> ModelFacts:
    """Return the facts of a case: kept ones, else found by a child process, or here where torch is loaded already."""
    return _facts(source, json.dumps(dict(params), sort_keys=True))


@cache
def _facts(source: ModelSource, written: str) -> ModelFacts:
    params = json.loads(written)
    kept = kept_file(source, params, "facts")
    found: ModelFacts | None = read_kept(kept, ModelFacts)
    if found is None:
        found = _count_here(source, params) if "torch" in sys.modules else _count_in_child(source, params)
        write_kept(kept, found)
    return found


def _count_here(source: ModelSource, params: Params) -> ModelFacts:
    from opmark.models.counting import count

    return count(source, params)


def _count_in_child(source: ModelSource, params: Params) -> ModelFacts:
    """Count in another process: this one may be the parent, which loads no framework."""
    arguments = [source.name, json.dumps(dict(params))]
    return run_child("opmark.models.counting", arguments, ModelFacts, f"`{source.name}` cannot be loaded")


def run_child(module: str, arguments: Sequence[str], kind: type[FoundT], failure: str) -> FoundT:
    """Run a module of opmark as a program, and return what it prints last, which is JSON. `failure` begins the message
    where it fails."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise Unsupported(f"{failure} within {_TIMEOUT} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unsupported(f"{failure}: {last}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=kind)


# What was found out about a model, kept on disk.


def kept_file(source: ModelSource, params: Params, what: str) -> Any:
    """Return the file that keeps something about a case of a model, as long as the model and torch stay the same."""
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


@cache
def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
